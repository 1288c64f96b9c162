"""`tacit new` and `tacit check`: from a public sample to a run, before anything is spent."""

from __future__ import annotations

import json
import random
import tomllib
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from tacit_services.cli.main import main
from tacit_services.identity import own_ledgers
from tacit_services.offers.offer_reading import definition_at_host
from tacit_services.offers.packing import pack
from tacit_services.offers.researcher_key import ResearcherKey
from tacit_services.project.templates import NETS

from tacit import config
from tacit.algorithms import registry
from tacit.algorithms.mapa.mapa import MapaServer
from tacit.algorithms.mapa.mapa_settings import Mapa
from tacit.config.own_table import TableData
from tacit.datasets.own.file_reading import digest
from tacit.known_data.owned import Owned
from tacit.models.additive import AdditiveModel
from tacit.privacy.ledger import Ledger

LOGISTIC = 'name = "logistic"'
NETWORK = 'name = "python"\nentry = "{}"\narguments = {{ inputs = 6, outputs = {} }}'


def table(path: Path, rows: int, seed: int, outcome: str = "yes") -> None:
    chance = random.Random(seed)
    lines = ["id,age,weight,ward,note,outcome"]
    for number in range(rows):
        age = chance.randint(18, 94)
        label = outcome if age + chance.gauss(0, 10) > 55 else "no"
        ward = chance.choice("ABC")
        lines.append(f"p{number // 3},{age},{chance.gauss(70, 9):.1f},{ward},n{number},{label}")
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a public sample, in the folder where the commands are given."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    table(tmp_path / "sample.csv", 300, seed=1)
    return tmp_path / "sample.csv"


def tacit(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def test_a_new_run_has_the_samples_columns_bounds_and_classes(sample: Path) -> None:
    (sample.parent / ".clinic.new").mkdir()  # of a process that was killed
    (sample.parent / ".clinic.new" / "junk").touch()
    assert tacit("new", "clinic", "--table", str(sample), "--unit", "id") == 0
    folder = sample.parent / "clinic"
    assert {path.name for path in folder.iterdir()} == {
        "run.toml", "policy.toml", "README.md", "public.csv", ".gitignore",
    }  # fmt: skip
    assert not (sample.parent / ".clinic.new").exists()
    table(folder / "train.csv", 6000, seed=2)
    data = config.load(folder / "run.toml").data
    assert isinstance(data, TableData)
    assert list(data.columns) == ["age", "weight", "ward", "outcome"]
    assert (data.columns["age"].low, data.columns["age"].high) == (18, 94)
    assert data.columns["ward"].values == ("A", "B", "C")
    assert data.columns["outcome"].values == ("no", "yes")
    assert (data.unit, data.unit_rows) == ("id", 3)
    assert "# note: is not read; it has 300 different values" in (folder / "run.toml").read_text()


def test_sites_with_a_file_each_need_their_files_and_one_number(
    sample: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tacit("new", "clinic", "--table", str(sample), "--sites", "3") == 0
    assert "into clinic/siteN.csv, then" in capsys.readouterr().out
    folder = sample.parent / "clinic"
    for site in range(3):
        table(folder / f"site{site}.csv", 4000 + site, seed=2 + site)
    run = config.load(folder / "run.toml")
    assert (run.edges.count, run.run.updates) == (3, 54)
    assert isinstance(run.data, TableData)
    assert (run.data.train, run.data.rows) == ("site{edge}.csv", 5000)
    assert tacit("check", "clinic/run.toml") == 0
    assert "4000 to 4002 rows an edge, 5000 taken" in capsys.readouterr().out


@pytest.mark.parametrize("more", [(), ("--unit", "id", "--sites", "3")])
def test_a_run_for_a_federation_can_be_offered_as_it_is_written(
    sample: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    assert tacit("new", "clinic", "--table", str(sample), "--federation", *more) == 0
    assert "tacit submit clinic/run.toml" in capsys.readouterr().out
    folder = sample.parent / "clinic"
    assert not (folder / "policy.toml").exists()
    text = (folder / "run.toml").read_text()
    assert "train =" not in text
    key = ResearcherKey.kept(sample.parent / "researcher.pem", "ada")
    packed = pack(folder / "run.toml", "clinic", key, sample.parent / "packed")
    assert packed.test == "public.csv"
    run = definition_at_host(packed.offer, packed.folder, packed.test)
    count = 3 if more else 2
    assert (run.edges.count, run.edges.min, run.run.updates) == (count, count, count * 18)
    assert tacit("check", "clinic/run.toml") == 2
    assert "this run file is for a federation: tacit submit" in capsys.readouterr().err


def test_a_site_checks_its_own_file_alone(sample: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Given the machine of a site, with the run file and the file of its own rows,
    assert tacit("new", "clinic", "--table", str(sample), "--sites", "3") == 0
    folder = sample.parent / "clinic"
    table(folder / "site1.csv", 4001, seed=3)
    # when all are checked, then the others' files are missing;
    assert tacit("check", "clinic/run.toml") == 2
    assert "site0.csv" in capsys.readouterr().err
    # when its own is, then its rows and its ledger are, and what comes next is the edge.
    assert tacit("check", "clinic/run.toml", "--identity", "1") == 0
    output = capsys.readouterr().out
    assert "4001 to 4001 rows an edge" in output
    assert "ledger of edge-1" in output
    assert "edge-0" not in output
    assert "next: TACIT_RUN_FILE=clinic/run.toml TACIT_IDENTITY=1 tacit edge" in output
    # A bad cell of it is named, and an identity that the run has not is refused.
    text = (folder / "site1.csv").read_text(encoding="utf-8").splitlines()
    text[1] = ",".join(["x"] * len(text[0].split(",")))
    (folder / "site1.csv").write_text("\n".join(text) + "\n", encoding="utf-8")
    assert tacit("check", "clinic/run.toml", "--identity", "1") == 3
    assert "column 'age': expected numbers, found string, in row 1" in capsys.readouterr().err
    assert tacit("check", "clinic/run.toml", "--identity", "3") == 2
    assert "0 to 2" in capsys.readouterr().err


def test_a_table_that_a_ledger_knows_does_not_become_public(
    sample: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    owned = Owned(str(sample.parent / "patients{edge}.csv"), digest(sample), "row", "")
    own_ledgers.place(owned, 0, sample.parent / "home" / "tacit")
    table(sample.parent / "patients3.csv", 300, seed=2)
    for name in (sample.name, "patients3.csv"):  # by its bytes, by its path
        assert tacit("new", "clinic", "--table", name) == 5
        assert f"{name}: a ledger knows it" in capsys.readouterr().err
    assert not (sample.parent / "clinic").exists()


def test_nothing_is_overwritten(sample: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tacit("new", "clinic", "--table", str(sample)) == 0
    before = (sample.parent / "clinic" / "run.toml").read_text()
    assert tacit("new", "clinic") == 2
    assert "is there already" in capsys.readouterr().err
    assert (sample.parent / "clinic" / "run.toml").read_text() == before


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--table", "nowhere.csv"], 3, "--table nowhere.csv: No such file"),
        (["--table", "sample.csv", "--target", "height"], 2, "--target 'height': sample.csv has"),
        (["--table", "twice.csv"], 3, "twice.csv: two columns are called 'age'; rename one"),
        (["--table", "sample.csv", "--target", "note"], 2, "has 300 different values"),
    ],
)
def test_what_cannot_be_guessed_is_said_in_one_line(
    sample: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str
) -> None:
    (sample.parent / "twice.csv").write_text("age,age,outcome\n1,2,yes\n3,4,no\n")
    assert tacit("new", "clinic", *arguments) == code
    assert message in capsys.readouterr().err
    assert not (sample.parent / "clinic").exists()


@pytest.mark.parametrize("name", ['x"', "x\n[data]\ntrain = 1", "x\x7f", "x\\", "x\udcff", "x\r"])
def test_a_name_that_would_be_read_as_a_part_of_the_file_is_refused(
    sample: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    odd = sample.with_name(f"sample.csv{name}")
    odd.write_bytes(sample.read_bytes())
    for arguments in (
        [name],
        ["clinic", "--table", odd.name],
        ["clinic", "--model", f"nets:{name}"],
        ["clinic", "--unit", "x\udcff"],
    ):
        assert tacit("new", *arguments) == 2
        assert "; rename it" in (errors := capsys.readouterr().err)
        assert len(errors.splitlines()) == 1
    assert {path.name for path in sample.parent.iterdir()} == {sample.name, odd.name}


def test_columns_and_values_of_any_name_are_what_they_are_in_the_file(sample: Path) -> None:
    column, values = 'age\n(years) "x" \x7f \\', ('a"\n', "b\x7f\\")
    columns = {
        column: [number // 2 for number in range(40)],
        "é\tid": [f"\x7f\n{n}" for n in range(300)][:40],
    }
    content = pa.table(columns | {"end\x7f": list(values) * 20})
    parquet.write_table(content, sample.parent / "odd.parquet")
    assert tacit("new", "clinic", "--table", "odd.parquet", "--target", "end\x7f") == 0
    data_section = tomllib.loads((sample.parent / "clinic" / "run.toml").read_text())["data"]
    assert data_section["target"] == "end\x7f"
    assert column in data_section["columns"]
    assert set(data_section["columns"]["end\x7f"]["values"]) == {value.strip() for value in values}


def lines_of(output: str) -> list[str]:
    """Return the lines of `output`, but the progress ("reading …") that a slow machine adds."""
    return [line for line in output.splitlines() if not line.endswith("…")]


def checked(sample: Path, capsys: pytest.CaptureFixture[str], *changes: tuple[str, str]) -> str:
    """Return what `tacit check` prints of a new run with `changes`."""
    folder = sample.parent / "clinic"
    if not folder.exists():
        assert tacit("new", "clinic", "--table", str(sample), "--model", "logistic") == 0
        table(folder / "train.csv", 6000, seed=2)
        (folder / "nets.py").write_text(NETS)
    text = (folder / "run.toml").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "run.toml").write_text(text)
    capsys.readouterr()
    code = tacit("check", str(folder / "run.toml"))
    captured = capsys.readouterr()
    return captured.out if code == 0 else f"{code} {captured.err}"


def test_a_run_that_is_well_is_said_to_be(sample: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = checked(sample, capsys)
    for fact in ("rows an edge", "test set           300 rows", "parameters", "releases left"):
        assert fact in report
    assert "drown" not in report
    assert not (sample.parent / "home").exists()  # nothing was registered, nothing charged


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("epsilon = 4.0", "epsilon = 0.02"), "the noise may drown what is learnt"),
        (("# learning_rate is", "learning_rate = 0.0001 # is"), "the model will hardly move"),
        (("batch = 0.25", "batch = 1000\nnoise_multiplier = 2.0"), "is over half of the 1200 rows"),
        (
            ("[data.columns]", 'unit = "id"\nunit_rows = 3\npeople = "shared"\n[data.columns]'),
            "but who is at all of 5 risks",
        ),
    ],
)
def test_what_makes_learning_unlikely_is_said(
    sample: Path, capsys: pytest.CaptureFixture[str], change: tuple[str, str], message: str
) -> None:
    assert message in checked(sample, capsys, change)


def test_a_class_that_nobody_has_is_named(sample: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no training row" not in checked(sample, capsys)
    table(sample.parent / "clinic" / "train.csv", 6000, seed=2, outcome="no")
    assert "note: no training row is of class yes:" in checked(sample, capsys)


def test_a_guard_that_compares_edges_of_other_classes_is_warned_of(
    sample: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    warning, compared = "whose rows differ here", "[guard]\nsums = true\nagreement = true\n[data]"
    assert warning not in checked(sample, capsys, ("[data]", compared))
    rows = sample.parent / "clinic" / "train.csv"
    table(rows, 6000, seed=2, outcome="no")
    rows.write_text(rows.read_text() + "p,60,70.0,A,n,yes\n")  # one edge alone has a yes
    assert warning in checked(sample, capsys)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('test = "public.csv"', 'test = "train.csv"'), "2 tacit: data.test='train.csv': is the"),
        (('train = "train.csv"', 'train = "../sample.csv"'), "leaves the run file's folder"),
        (('train = "train.csv"', 'train = "other.csv"'), "no such file"),
        (('target = "outcome"', 'target = "height"'), "is not in [data.columns], which has age, weight, ward, outcome"),
        (('["no", "yes"]', '["no", "maybe"]'), "a value outside its values (no, maybe), in row"),
        ((LOGISTIC, NETWORK.format("nets:Other", 2)), "nets has no class or function Other"),
        ((LOGISTIC, NETWORK.format("../nets:Net", 2)), 'expected "module:name"'),
        ((LOGISTIC, NETWORK.format("nets:Net", 3)), "gives [4, 3] for 4 examples; expected [4, 2]"),
        (("# rows = 5000", "rows = 600\nrows_max = 700 # "), "more rows than data.rows_max=700"),
    ],
)  # fmt: skip
def test_a_run_that_cannot_work_is_refused_in_one_line(
    sample: Path, capsys: pytest.CaptureFixture[str], change: tuple[str, str], message: str
) -> None:
    refused = checked(sample, capsys, change)
    assert message in refused
    assert len(lines_of(refused)) == 1
    assert refused[0] in "235"


def spend(sample: Path, left: int = 0) -> None:
    """Charge the ledger of each edge of the project's run for all but `left` releases."""
    run = config.load(sample.parent / "clinic" / "run.toml")
    for number in range(run.edges.count):
        plan, owned = run.plan(number), run.source.owned(number)
        assert owned is not None
        place = own_ledgers.place(owned, number, sample.parent / "home" / "tacit")
        with closing(Ledger(place.path, place.dataset)) as ledger:
            q, z, count = plan.sampling_rate, plan.noise_multiplier, plan.pushes_left(()) or 0
            ledger.charge(q, z, plan.mechanism, secret=True, count=count - left)


def test_a_budget_that_earlier_runs_have_nearly_spent_is_warned_of(
    sample: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "earlier runs" not in checked(sample, capsys)
    spend(sample, left=2)
    edges = config.load(sample.parent / "clinic" / "run.toml").edges.count
    assert f"pay for {2 * edges} updates; the run ends there" in checked(sample, capsys)


def test_a_budget_that_is_spent_is_no_next_step(
    sample: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "next: tacit run " in checked(sample, capsys)
    spend(sample)
    assert tacit("check", "clinic/run.toml") == 5
    captured = capsys.readouterr()
    assert "0 releases left" in captured.out
    assert "next:" not in captured.out
    assert "tacit run will not start: ledgers" in captured.err
    assert "Another run needs other data, or a larger privacy.epsilon" in captured.err


def test_what_the_time_counts_is_said(sample: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [time_line] = [
        line for line in checked(sample, capsys).splitlines() if line.startswith("time ")
    ]
    assert "s of computing on" in time_line
    assert "s of reading rows; starting the processes and sending messages come on top" in time_line


def test_a_table_without_a_row_or_with_two_columns_of_one_name_is_refused_in_one_line(
    sample: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checked(sample, capsys)
    train = sample.parent / "clinic" / "train.csv"
    head, *rows = train.read_text().splitlines()
    for content, message in (
        ([head], "train.csv: has no rows"),
        ([head.replace("id", "age"), *rows], "train.csv: 2 columns are called 'age'; rename all"),
    ):
        train.write_text("\n".join(content) + "\n")
        assert tacit("check", "clinic/run.toml") in (2, 3)
        errors = capsys.readouterr().err
        assert message in errors
        assert len(lines_of(errors)) == 1


def test_a_folder_for_a_run_file_is_answered_with_the_file_in_it(
    sample: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checked(sample, capsys)
    assert tacit("check", "clinic") == 2
    assert capsys.readouterr().err == (
        "tacit: run file clinic: is a folder; did you mean clinic/run.toml?\n"
    )


def test_the_steps_follow_from_the_samples_rows_and_the_noise(
    sample: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """x has age, weight, and 4 places of ward: about √(1 + 1 + 1) long, and √4 with the bias."""
    checked(sample, capsys)
    run = config.load(sample.parent / "clinic" / "run.toml")
    assert isinstance(run.algorithm, Mapa)
    assert run.algorithm.learning_rate is None
    assert run.privacy.clip == run.algorithm.deviation == pytest.approx(2.0, abs=0.3)
    assert run.algorithm.smoothness == pytest.approx(0.4, abs=0.15)

    def first_rate(epsilon: float) -> float:
        privacy = run.privacy.model_copy(update={"epsilon": epsilon})
        definition = run.model_copy(update={"privacy": privacy}).define()
        server = registry.server(definition, run.build_model())
        assert isinstance(server, MapaServer)
        return server.learning_rate()

    assert first_rate(0.1) < 0.7 * first_rate(4.0)


@pytest.mark.parametrize("target", ["outcome", "age"])
def test_a_table_has_a_function_of_each_column_and_the_command_says_why(
    sample: Path, capsys: pytest.CaptureFixture[str], target: str
) -> None:
    assert tacit("new", "clinic", "--table", str(sample), "--target", target) == 0
    assert "note: the model is a function of each column (ebm): it needs" in capsys.readouterr().out
    folder = sample.parent / "clinic"
    table(folder / "train.csv", 600, seed=2)
    run = config.load(folder / "run.toml")
    assert (run.algorithm.name, run.model.name, run.run.updates) == ("ebm", "additive", 90)
    assert isinstance(run.build_model(), AdditiveModel)
    assert not (folder / "nets.py").exists()


def test_a_linear_model_of_numbers_is_refused_in_one_line(
    sample: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ("--target", "age", "--model", "logistic")
    assert tacit("new", "clinic", "--table", str(sample), *more) == 2
    assert "say --model network" in capsys.readouterr().err


def test_a_table_of_numbers_to_learn_may_have_a_module_beside_it(sample: Path) -> None:
    more = ("--target", "age", "--model", "network")
    assert tacit("new", "clinic", "--table", str(sample), *more) == 0
    folder = sample.parent / "clinic"
    assert (folder / "nets.py").exists()
    table(folder / "train.csv", 600, seed=2)
    assert config.load(folder / "run.toml").build_model().classes == 1


@pytest.mark.parametrize("rows", [40, 90, 400, 1200])
def test_a_new_run_is_checked_well_with_few_rows(
    sample: Path, capsys: pytest.CaptureFixture[str], rows: int
) -> None:
    assert tacit("new", "clinic", "--table", str(sample), "--model", "logistic") == 0
    table(sample.parent / "clinic" / "train.csv", rows, seed=rows)
    assert tacit("check", "clinic/run.toml") == 0
    run = config.load(sample.parent / "clinic" / "run.toml")
    assert run.privacy.batch == max(1, rows // 5 // 4)


def test_a_report_can_be_read_by_a_program(
    sample: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checked(sample, capsys)
    assert tacit("check", "clinic/run.toml", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["facts"]["test set"] == "300 rows"
    assert any("counted in train.csv" in note for note in report["warnings"])
