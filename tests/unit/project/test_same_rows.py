"""The same rows in another folder, form or file go on with their ledger, and it is said."""

from __future__ import annotations

import json
import random
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from pyarrow import csv, parquet
from tacit_services.cli.main import main
from tacit_services.identity import own_ledgers
from tacit_services.identity.own_ledgers import LedgerOrigin
from tacit_services.testbed import own_budget

from tacit import config, rounding
from tacit.privacy.ledger import Ledger
from tests.helpers.processes import PATIENCE, environment
from tests.helpers.run_files import toml

COLUMNS = {
    "age": {"low": 0, "high": 100},
    "dose": {"low": 0, "high": 1},
    "outcome": {"values": ["home", "ward"]},
}
Lines = list[str]
Change = Callable[[Lines], Lines]


def patients(count: int, seed: int) -> Lines:
    chance = random.Random(seed)
    return [
        f"s{seed}p{number // 2},{chance.uniform(0, 100):.1f},{chance.random():.3f},"
        f"{chance.choice(['home', 'ward'])}"
        for number in range(count)
    ]


def project(folder: Path, lines: Lines, *, columns: object = COLUMNS, **data: object) -> Path:
    """Return a run on these rows, in a folder of their own."""
    folder.mkdir()
    head = "who,age,dose,outcome"
    (folder / "train.csv").write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
    of_data = {
        "dataset": None,
        "kind": "table",
        "train": "train.csv",
        "target": "outcome",
        "rows": 200,
    }
    text = toml(
        data={**of_data, "columns": columns, **data},
        run={"updates": 8},
        algorithm={"name": "fedasync", "learning_rate": 4.0, "steps_min": 1},
        privacy={"pushes": 20, "batch": 60, "clip": 0.5, "epsilon": 4.0},
        edges={"count": 2},
    )
    (folder / "run.toml").write_text(text, encoding="utf-8")
    return folder / "run.toml"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "tacit"


def charge(run: Path, home: Path, pushes: int = 3) -> None:
    """Let every edge of the run release so often."""
    loaded = config.load(run)
    for number in range(2):
        plan, owned = loaded.plan(number), loaded.source.owned(number)
        assert owned is not None
        place = own_ledgers.place(owned, number, home)
        with closing(Ledger(place.path, place.dataset)) as ledger:
            q, z = plan.sampling_rate, plan.noise_multiplier
            ledger.charge(q, z, plan.mechanism, secret=True, count=pushes)


def check(run: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["check", str(run)])
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out + captured.err


def said_to_be_spent(output: str) -> set[str]:
    return set(re.findall(r"ledger of edge-\d+ +ε = ([0-9.]+) spent", output))


WAYS: dict[str, Change] = {
    "a row more": lambda rows: [*rows, *patients(2, seed=9)],
    "a row less": lambda rows: rows[1:],
    "another order": lambda rows: rows[::-1],
    "a newline": lambda rows: [*rows, ""],
    "CRLF": lambda rows: [row + "\r" for row in rows],
    "other digits": lambda rows: [re.sub(r"(\.\d+),", r"\g<1>00,", row) for row in rows],
    "next month's": lambda rows: [*rows[len(rows) // 2 :], *patients(len(rows) // 2, seed=9)],
}


BY = {"rows": {}, "people": {"unit": "who", "unit_rows": 2}}


@pytest.fixture(scope="module", params=BY)
def october(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path, str]:
    """Return a run whose edges have released, its data folder, and how later data is recognised."""
    folder = tmp_path_factory.mktemp("october")
    run = project(folder / "2026-10", patients(240, seed=2), **BY[request.param])
    charge(run, folder / "tacit")
    return run, folder / "tacit", request.param


@pytest.mark.parametrize("way", WAYS)
def test_another_folder_and_other_bytes_go_on_with_the_ledger(
    tmp_path: Path, october: tuple[Path, Path, str], way: str
) -> None:
    before, charged, by = october
    home = tmp_path / "tacit"
    shutil.copytree(charged, home)
    lines = WAYS[way](patients(240, seed=2))
    later = project(tmp_path / "2026-11", lines, **BY[by])
    ours, theirs = (own_budget.left(config.load(run).define(), home) for run in (later, before))
    [spent] = {rounding.epsilon(ledger.spent) for ledger in (*ours, *theirs)}
    assert float(spent) > 0
    name = before.parent / "train.csv"
    line = f"the ledger of {name} continues, known by {by}: ε = {spent} is spent"
    assert line in own_budget.of_ledgers(ours, home)
    charge(later, home, 1)  # and is one with it from then on
    ours, theirs = (own_budget.left(config.load(run).define(), home) for run in (later, before))
    [more] = {ledger.spent for ledger in (*ours, *theirs)}
    assert more > float(spent)


def test_a_check_says_that_a_ledger_begins_and_later_continues(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = patients(400, seed=2)
    before = project(tmp_path / "a", rows)
    begun = "new ledgers begin (edge-0 to edge-1): no data like this is known"
    assert begun in check(before, capsys)[1]
    charge(before, home)
    code, output = check(project(tmp_path / "b", rows[1:]), capsys)
    [spent] = said_to_be_spent(output)
    name = tmp_path / "a" / "train.csv"
    assert f"the ledger of {name} continues, known by rows: ε = {spent} is spent" in output
    assert code == 0


def test_a_parquet_with_a_column_more_goes_on_with_the_ledger(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = patients(400, seed=2)
    before = project(tmp_path / "a", rows)
    charge(before, home)
    later = project(tmp_path / "b", rows, columns=COLUMNS | {"age": {"low": 10, "high": 90}})
    table = csv.read_csv(tmp_path / "b" / "train.csv")
    table = table.append_column("note", table["who"]).select(
        ["note", "outcome", "dose", "age", "who"]
    )
    parquet.write_table(table, tmp_path / "b" / "train.csv")  # told by its bytes
    output = check(later, capsys)[1]
    assert f"the ledger of {tmp_path / 'a' / 'train.csv'} continues, known by rows" in output
    assert said_to_be_spent(output) == said_to_be_spent(check(before, capsys)[1]) != {"0"}


def test_other_people_have_other_ledgers(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    charge(project(tmp_path / "a", patients(400, seed=2)), home)
    output = check(project(tmp_path / "b", patients(400, seed=3)), capsys)[1]
    assert "no data like this is known" in output
    assert said_to_be_spent(output) == {"0"}


def test_in_another_folder_of_data_a_ledger_is_said_to_begin(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = project(tmp_path / "a", patients(400, seed=2))
    charge(run, home)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "other"))
    output = check(run, capsys)[1]
    begun = "new ledgers begin (edge-0 to edge-1): no data like this is known in"
    assert f"{begun} {tmp_path / 'other' / 'tacit'}" in output
    assert said_to_be_spent(output) == {"0"}


def test_rows_of_two_ledgers_are_refused_until_they_are_one(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = patients(800, seed=2)
    halves = [project(tmp_path / name, rows[at::2], name=name) for at, name in enumerate("ab")]
    for half in halves:
        charge(half, home)
    both = project(tmp_path / "both", rows, rows=400)
    code, output = check(both, capsys)
    assert code == 5
    assert "has people or rows of two ledgers, a and b" in output
    assert '`tacit ledger join "a" "b"`' in output
    [spent] = said_to_be_spent(check(halves[0], capsys)[1])
    with pytest.raises(SystemExit) as ended:
        main(["ledger", "join", "a", "b"])
    assert not ended.value.code
    for run in (both, *halves):
        [summed] = said_to_be_spent(check(run, capsys)[1])
        assert float(spent) < float(summed) < 2 * float(spent)  # composed, never as if anew


def test_an_owner_may_say_that_people_are_others(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unit = {"unit": "who", "unit_rows": 2}
    charge(project(tmp_path / "a", patients(400, seed=2), name="north", **unit), home)
    other = [row.replace("s3p", "s2p") for row in patients(400, seed=3)]  # who are numbered alike
    south = project(tmp_path / "b", other, name="south", **unit)
    assert "the ledger of north continues, known by people" in check(south, capsys)[1]
    text = south.read_text(encoding="utf-8")
    text = text.replace('name = "south"', 'name = "south"\napart_from = ["north"]')
    south.write_text(text, encoding="utf-8")
    others = "of the people (of the smaller data) are those of north, which data.apart_from says"
    output = check(south, capsys)[1]
    assert "no other data like this is known" in output
    assert f"about 100% {others}" in output
    charge(south, home)
    assert said_to_be_spent(check(south, capsys)[1]) != {"0"}


def two_clinics(folder: Path, home: Path, spent: int) -> Path:
    """Return a run on people of the south, who have the numbers of those of the north.

    The north has paid.
    """
    unit = {"unit": "who", "unit_rows": 2}
    charge(project(folder / "a", patients(400, seed=2), name="north", **unit), home, spent)
    other = [row.replace("s3p", "s2p") for row in patients(400, seed=3)]
    run = project(folder / "b", other, name="south", test="p.csv", **unit)
    test_set = ["who,age,dose,outcome", *patients(40, seed=5)]
    (run.parent / "p.csv").write_text("\n".join(test_set), encoding="utf-8")
    return run


def say_that_they_are_others(run: Path) -> None:
    text = run.read_text(encoding="utf-8")
    run.write_text(text.replace("[data]", '[data]\napart_from = ["north"]'), encoding="utf-8")


REFUSED = {
    "budget": "trained out at this budget",
    "test set": "the test set is public",
    "folder": "exists and is not an earlier `tacit run`",
    "resume": "--resume: there is no run",
    "policy": "policy max_epsilon=0.1",
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_run_that_is_refused_binds_its_rows_to_no_ledger(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str], why: str
) -> None:
    south = two_clinics(tmp_path, home, 20 if why == "budget" else 3)
    public, of_others = south.parent / "p.csv", (south.parent / "p.csv").read_bytes()
    if why == "test set":
        lines = (south.parent / "train.csv").read_text().splitlines()
        public.write_text("\n".join(lines[:-1]), encoding="utf-8")
    (tmp_path / "policy.toml").write_text("max_epsilon = 0.1")
    out, more = tmp_path / "out", list[str]()
    if why == "folder":
        (out / "state").mkdir(parents=True)
    elif why == "resume":
        more = ["--resume"]
    elif why == "policy":
        more = ["--policy", str(tmp_path / "policy.toml")]
    before = sorted(path.read_bytes() for path in home.glob("ledgers/*/*.json"))
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["run", str(south), "--out", str(out), *more])
    output = capsys.readouterr().err
    assert ended.value.code
    assert REFUSED[why] in output
    if why == "budget":  # and it is said whose rows they are taken for
        assert "this data (known by its people as north; if those are other people" in output
    assert sorted(path.read_bytes() for path in home.glob("ledgers/*/*.json")) == before
    public.write_bytes(of_others)
    say_that_they_are_others(south)
    output = check(south, capsys)[1]
    assert "no other data like this is known" in output
    assert "not in force" not in output


def test_data_that_is_known_by_its_name_is_said_to_need_another_for_other_people() -> None:
    words = own_budget._in_words(LedgerOrigin("clinic", "name"))
    assert words == (
        " (known by its name, clinic; if those are other people, give them another data.name)"
    )
    assert own_budget._in_words(LedgerOrigin(None, "")) == ""


def test_what_was_said_after_a_run_is_said_to_be_not_in_force(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    south = two_clinics(tmp_path, home, 3)
    charge(south, home, 1)
    say_that_they_are_others(south)
    output = check(south, capsys)[1]
    assert "the ledger of north continues" in output
    assert "data.apart_from is not in force for north: this data has that ledger already" in output


@pytest.mark.parametrize("share", [1.0, 0.2])
def test_a_test_set_of_private_rows_is_refused(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str], share: float
) -> None:
    rows = patients(400, seed=2)
    run = project(tmp_path / "a", rows, test="public.csv")
    public = tmp_path / "a" / "public.csv"
    private = rows[1 : round(399 * share) + 1]
    lines = ["who,age,dose,outcome", *private, *patients(399 - len(private), seed=5)]
    public.write_text("\n".join(lines) + "\n", encoding="utf-8")
    code, output = check(run, capsys)
    assert code == 2
    assert f"data.test='public.csv': about {share:.0%} of it are rows of train.csv" in output
    public.write_text("\n".join(["who,age,dose,outcome", *patients(399, seed=5)]), encoding="utf-8")
    assert check(run, capsys)[0] == 0


def test_a_test_set_of_other_rows_of_the_same_people_is_said_to_be_one(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = project(tmp_path / "a", patients(400, seed=2), test="p.csv", unit="who", unit_rows=2)
    lines = [row.replace("s5p", "s2p") for row in patients(300, seed=5)]
    public = tmp_path / "a" / "p.csv"
    public.write_text("\n".join(["who,age,dose,outcome", *lines]), encoding="utf-8")
    code, output = check(run, capsys)
    assert code == 0
    assert "note: about 100% of the units (who) of p.csv are in train.csv, too" in output


def test_honest_rows_that_are_much_alike_are_not_refused(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(4)
    answers = [
        f"x,{chance.choice([20, 70])},0.5,{chance.choice(['home', 'ward'])}" for _ in "a" * 900
    ]
    run = project(tmp_path / "a", answers[:500], test="p.csv", rows_max=500)
    public = tmp_path / "a" / "p.csv"
    public.write_text("\n".join(["who,age,dose,outcome", *answers[500:]]), encoding="utf-8")
    code, output = check(run, capsys)
    assert code == 0
    assert "note: about 100% of the different rows of p.csv are in train.csv, too" in output
    assert "its rows are too few or too much alike for a changed copy to be known" in output


def test_settings_are_not_tuned_on_private_rows(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = patients(400, seed=2)
    run = project(tmp_path / "a", rows)
    public = tmp_path / "public.csv"
    public.write_text("\n".join(["who,age,dose,outcome", *rows[1:]]), encoding="utf-8")
    command = ["tune", str(run), "--public", str(public), "--trials", "1"]
    with pytest.raises(SystemExit) as ended:
        main(command)
    assert ended.value.code == 5
    assert "about 100% of it are rows of train.csv" in capsys.readouterr().err
    charge(run, home)
    (tmp_path / "a" / "train.csv").unlink()  # and the ledger knows them still
    with pytest.raises(SystemExit) as ended:
        main(command)
    assert ended.value.code == 5
    assert "which a ledger knows; use public" in capsys.readouterr().err


def test_what_is_kept_of_rows_is_the_owners_alone(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = project(tmp_path / "a", patients(400, seed=2), unit="who", unit_rows=2)
    charge(run, home)
    files = [home / "ledgers" / "sketch.key", *home.glob("ledgers/*/units-*.json")]
    assert len(files) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    content = json.loads(files[1].read_text())
    check(run, capsys)
    assert "s2p" not in files[1].read_text()
    assert content["units"]["hashes"][:16] not in check(run, capsys)[1]


@pytest.mark.slow
def test_next_months_export_goes_on_with_the_ledger_of_a_real_run(
    tmp_path: Path, home: Path
) -> None:
    rows = patients(400, seed=2)
    outputs, command = [], [sys.executable, "-m", "tacit_services.cli.main", "run"]
    for month, content in (("2026-10", rows), ("2026-11", [*rows[50:], *patients(60, seed=9)])):
        run = project(tmp_path / month, content)
        completed = subprocess.run(
            [*command, str(run), "--out", str(tmp_path / f"out-{month}")],
            capture_output=True,
            text=True,
            check=True,
            timeout=5 * PATIENCE,
            env=environment(COLUMNS="300"),
        )
        outputs.append(completed.stdout)
    assert "new ledgers begin (edge-0 to edge-1): no data like this is known" in outputs[0]
    name = tmp_path / "2026-10" / "train.csv"
    [spent] = re.findall(rf"the ledger of {name} continues, known by .*: ε = ([0-9.]+)", outputs[1])
    assert float(spent) > 0
    logged = (tmp_path / "out-2026-11" / "state" / "edge-0.log").read_text()
    assert f"the ledger of {name} continues" in logged
    summary = json.loads((tmp_path / "out-2026-11" / "summary.json").read_text())
    assert summary["privacy"]["epsilon"] > float(spent)
