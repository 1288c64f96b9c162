"""`tacit tune`: settings by simulation on public rows; private ones are refused and not needed."""

from __future__ import annotations

import json
import math
import random
import shutil
from pathlib import Path

import pytest
from tacit_services.cli.main import main
from tacit_services.identity import own_ledgers
from tacit_services.project import public_rows, tuning

from tacit import config
from tacit.config import RunFile
from tests.conftest import ROOT
from tests.helpers.run_files import toml

COLUMNS = {
    "age": {"low": 0, "high": 100},
    "dose": {"low": 0, "high": 1},
    "outcome": {"values": ["home", "ward"]},
}


def rows(path: Path, count: int, seed: int) -> Path:
    chance = random.Random(seed)
    lines = ["who,age,dose,outcome"]
    for number in range(count):
        age, dose = chance.uniform(0, 100), chance.random()
        sick = chance.random() < 1 / (1 + math.exp(8 * (dose - age / 100)))
        lines.append(f"p{number // 2},{age:.1f},{dose:.2f},{'ward' if sick else 'home'}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def run_of(folder: Path, **data: object) -> Path:
    text = toml(
        data={
            "dataset": None,
            "kind": "table",
            "train": "train.csv",
            "target": "outcome",
            "rows": 300,
            "columns": COLUMNS,
            **data,
        },
        run={"updates": 40},
        algorithm={"name": "fedasync", "learning_rate": 4.0, "steps_min": 1},
        privacy={"pushes": 20, "batch": 60, "clip": 0.5, "epsilon": 4.0},
        edges={"count": 2},
    )
    path = folder / "run.toml"
    path.write_text("# mine\n" + text, encoding="utf-8")
    return path


def tacit(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "tacit"


def searched(run: RunFile, public: str, home: Path, trials: int, seed: int) -> tuning.TuningResult:
    return tuning.tune(
        run, public_rows.public_rows(run, public, None, home), trials=trials, seed=seed
    )


@pytest.mark.exhaustive
def test_what_the_file_says_is_tried_first_and_the_best_is_written_beside_its_comments(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    public = rows(tmp_path / "public.csv", 400, seed=1)  # and no private file at all
    command = ["tune", str(run_of(tmp_path)), "--public", str(public), "--trials", "4"]
    out = tmp_path / "tuned.toml"
    assert tacit(*command, "--json", "--out", str(out)) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith(
        "1/4 privacy.clip 0.5, privacy.batch 60, algorithm.learning_rate 4, privacy.pushes 20, "
        "run.updates 40:"
    )
    report = json.loads(captured.out)
    assert report["metric"] == "auc"
    assert report["best"] == report["trials"][0]
    assert report["best"]["metric"] == max(trial["metric"] for trial in report["trials"])
    assert report["best"]["metric"] > 0.65
    assert out.read_text().startswith("# mine\n")
    tuned, best = config.load(out), report["best"]["values"]
    assert (tuned.privacy.clip, tuned.privacy.batch) == (
        best["privacy.clip"],
        best["privacy.batch"],
    )
    assert not home.exists()  # no ledger was asked to pay, or made
    assert tacit(*command, "--out", str(out)) == 2
    assert "nothing is overwritten" in capsys.readouterr().err


def test_the_same_search_finds_the_same(tmp_path: Path, home: Path) -> None:
    public = rows(tmp_path / "public.csv", 200, seed=1)
    run = config.load(run_of(tmp_path, unit="who", unit_rows=2))
    same = public_rows.public_rows(run, str(public), None, home)
    reports = [tuning.tune(run, same, trials=3, seed=5) for _ in range(2)]
    assert reports[0] == reports[1]


@pytest.mark.parametrize("in_ledger", [False, True])
def test_rows_that_a_ledger_knows_are_refused(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str], in_ledger: bool
) -> None:
    run = run_of(tmp_path)
    train = rows(tmp_path / "train.csv", 300, seed=2)
    if not in_ledger:  # a copy, before any ledger knows the file
        copy = shutil.copy(train, tmp_path / "copy.csv")
        assert tacit("tune", str(run), "--public", str(copy), "--trials", "1") == 5
    if in_ledger:  # and have another name now
        owned = config.load(run).source.owned(0)
        assert owned is not None
        own_ledgers.place(owned, 0, home)
        train = Path(shutil.move(train, tmp_path / "public.csv"))
    assert tacit("tune", str(run), "--public", str(train), "--trials", "1") == 5
    errors = capsys.readouterr().err
    assert ("a ledger knows it" if in_ledger else "is a training file") in errors
    public = rows(tmp_path / "other.csv", 300, seed=3)  # the control
    assert tacit("tune", str(run), "--public", str(public), "--trials", "1") == 0


def test_published_data_is_tuned_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = toml(
        run={"updates": 20},
        algorithm={"name": "dp-pasgd", "tau": 2, "learning_rate": 0.5},
        privacy={"pushes": 50, "clip": 1.0, "batch": 40},
        edges={"count": 2},
    )
    (tmp_path / "run.toml").write_text(text, encoding="utf-8")
    command = ["tune", str(tmp_path / "run.toml"), "--public", "digits", "--trials", "1"]
    assert tacit(*command) == 0
    assert "best accuracy on public rows" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("public", "message", "code"),
    [("missing.csv", "no such file", 2), ("few.csv", "fewer than 50 rows say nothing", 2)],
)
def test_what_cannot_be_tuned_on_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], public: str, message: str, code: int
) -> None:
    rows(tmp_path / "few.csv", 9, seed=1)
    run = run_of(tmp_path)
    assert tacit("tune", str(run), "--public", str(tmp_path / public), "--trials", "1") == code
    assert message in capsys.readouterr().err


def test_the_number_of_pushes_is_searched_with_the_updates_and_a_rate_of_its_own_is_not(
    tmp_path: Path, home: Path
) -> None:
    public = rows(tmp_path / "public.csv", 200, seed=1)
    run = config.load(run_of(tmp_path))
    result = searched(run, str(public), home, trials=3, seed=5)
    tried = {trial.values["privacy.pushes"]: trial.values["run.updates"] for trial in result.trials}
    assert len(tried) > 1
    assert all(updates == 2 * pushes for pushes, updates in tried.items())  # two edges
    own = '[algorithm]\nname = "mapa"\n'
    path = run_of(tmp_path)
    text = path.read_text().split("[algorithm]")
    rest = text[1].partition("[")[2]
    path.write_text(f"{text[0]}{own}[{rest}")
    result = searched(config.load(path), str(public), home, trials=1, seed=5)
    assert "algorithm.learning_rate" not in result.best.values
    assert "algorithm.smoothness" in result.best.values


def test_values_of_the_file_beyond_the_usual_bounds_are_tried_first(
    tmp_path: Path, home: Path
) -> None:
    public = rows(tmp_path / "public.csv", 200, seed=1)
    path = run_of(tmp_path)
    path.write_text(path.read_text().replace("batch = 60", "batch = 300"))  # all rows
    result = searched(config.load(path), str(public), home, trials=1, seed=5)
    assert result.best.values["privacy.batch"] == 300


def test_a_batch_that_the_passes_make_is_not_searched(tmp_path: Path, home: Path) -> None:
    folder = shutil.copytree(ROOT / "examples" / "algorithms", tmp_path / "algorithms")
    run = config.load(folder / "dp_ftrl.toml")
    result = searched(run, "digits", home, trials=1, seed=1)
    assert result.best.values.keys() == {
        "privacy.clip", "algorithm.learning_rate", "privacy.pushes", "run.updates"
    }  # fmt: skip


def test_the_steps_that_follow_from_the_noise_stay_so_in_a_new_run(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    public = rows(tmp_path / "public.csv", 200, seed=1)
    assert tacit("new", "clinic", "--table", str(public), "--model", "logistic") == 0
    folder = tmp_path / "clinic"
    rows(folder / "train.csv", 600, seed=2)
    run = config.load(folder / "run.toml")
    result = searched(run, str(folder / "public.csv"), home, trials=2, seed=5)
    for trial in result.trials:
        assert trial.values.keys() == {
            "privacy.clip", "privacy.batch", "algorithm.smoothness", "privacy.pushes", "run.updates"
        }  # fmt: skip
    assert result.trials[0].values["run.updates"] == 5 * result.trials[0].values["privacy.pushes"]
    text = (folder / "run.toml").read_text(encoding="utf-8")
    (folder / "tuned.toml").write_text(
        tuning.written(text, result.best.values, folder), encoding="utf-8"
    )
    tuned = config.load(folder / "tuned.toml")
    assert tuned.privacy.batch == result.best.values["privacy.batch"]
