"""Labels, counts and events from a public sample to predictions: new, check, train, export."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from tacit_services.cli.main import main

from tacit import config
from tacit.config.own_table import TableData
from tacit.datasets.own.table import TableReader
from tests.helpers.own_simulation import simulated


def tacit(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def labelled(path: Path, count: int, seed: int) -> Path:
    """Write a table of two labels, each of which follows from numbers, and one that a few have."""
    chance = np.random.default_rng(seed)
    x = chance.normal(size=(count, 3)).round(3)
    fever = chance.random(count) < 1 / (1 + np.exp(1 - 2 * x[:, 0]))
    rash = chance.random(count) < 1 / (1 + np.exp(2 - 2 * x[:, 1]))
    lines = ["fever,heat,rash,skin,weight"]
    for row, hot, red in zip(x, fever, rash, strict=True):
        lines.append(f"{int(hot)},{row[0]},{'yes' if red else 'no'},{row[1]},{row[2]}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def shortened(folder: Path, **keys: object) -> Path:
    """Give the run file of `folder` other values of some keys, which it has."""
    path = folder / "run.toml"
    lines = path.read_text().splitlines()
    for key, value in keys.items():
        [place] = [place for place, line in enumerate(lines) if line.startswith(f"{key} = ")]
        lines[place] = f"{key} = {value}"
    path.write_text("\n".join(lines) + "\n")
    return path


def predicted(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, str]]:
    capsys.readouterr()
    assert tacit("predict", *arguments, "--trust-code") == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


def test_several_labels_from_a_sample_to_predictions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labelled(tmp_path / "sample.csv", 600, seed=1)
    arguments = ["new", "ward", "--table", "sample.csv", "--target", "rash", "--target", "fever"]
    assert tacit(*arguments) == 0
    assert "a label holds at the second of its values: rash at yes, fever at 1" in (
        capsys.readouterr().out
    )
    labelled(tmp_path / "ward/train.csv", 3000, seed=2)
    run = shortened(tmp_path / "ward", updates=60, count=2, pushes=30)
    data = config.load(run).data
    assert isinstance(data, TableData)
    assert data.target == ("rash", "fever")
    assert tacit("check", str(run)) == 0
    summary = simulated(run, tmp_path / "out")
    metrics, constant = summary["metrics"], summary["constant_errors"]
    assert summary["test_accuracy"] is None
    assert metrics["auc of fever"] > 0.8
    assert metrics["auc of rash"] > 0.8
    assert metrics["log_loss"] < constant["log_loss"] - 0.03
    assert summary["test_loss"] < summary["constant"]["loss"] - summary["constant"]["error"]
    assert metrics["accuracy"] > constant["accuracy"]
    assert tacit("export", "model", "--run", "out") == 0
    card = (tmp_path / "model/README.md").read_text()
    assert "several labels at once: rash, fever" in card
    answers = predicted(capsys, "model", "--table", "sample.csv")
    assert list(answers[0]) == ["row", "prediction", "p(rash)", "p(fever)"]
    assert {answer["prediction"] for answer in answers} == {"", "rash", "fever", "rash; fever"}
    for answer in answers:
        labels = [name for name in ("rash", "fever") if float(answer[f"p({name})"]) > 0.5]
        assert answer["prediction"] == "; ".join(labels)
    assert tacit("predict", "model", "--table", "sample.csv", "--trust-code", "--json") == 0
    first = json.loads(capsys.readouterr().out)[0]
    assert first["probabilities"].keys() == {"rash", "fever"}


def counted(path: Path, count: int, seed: int) -> Path:
    """Write a table whose visits follow from a number, some of them -9 for no value."""
    chance = np.random.default_rng(seed)
    x = chance.normal(size=(count, 2)).round(3)
    visits = chance.poisson(np.exp(0.8 * x[:, 0] + 0.7))
    visits[: count // 50] = -9
    lines = ["heat,weight,visits"]
    lines += [f"{row[0]},{row[1]},{number}" for row, number in zip(x, visits, strict=True)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_count_from_a_sample_to_predictions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counted(tmp_path / "sample.csv", 600, seed=1)
    assert tacit("new", "plain", "--table", "sample.csv") == 0
    assert "does visits count something? It has whole numbers from 0 to" in capsys.readouterr().out
    assert tacit("new", "ward", "--table", "sample.csv", "--target", "visits", "--counts") == 0
    text = (tmp_path / "ward/run.toml").read_text()
    assert "visits = { low = 0, high = " in text
    assert ", counts = true, missing_codes = [-9] }" in text
    assert 'bad_rows = "leave out"  # the sample has rows without visits' in text
    counted(tmp_path / "ward/train.csv", 3000, seed=2)
    run = shortened(tmp_path / "ward", updates=60, count=2, pushes=30)
    assert tacit("check", str(run)) == 0
    summary = simulated(run, tmp_path / "out")
    metrics, constant = summary["metrics"], summary["constant_errors"]
    assert metrics["deviance"] < constant["deviance"] - 0.3
    assert metrics["mae"] < constant["mae"]
    assert summary["test_loss"] < summary["constant"]["loss"] - summary["constant"]["error"]
    assert tacit("export", "model", "--run", "out") == 0
    assert "a count from 0 to " in (tmp_path / "model/README.md").read_text()
    answers = predicted(capsys, "model", "--table", "sample.csv")
    assert list(answers[0]) == ["row", "prediction"]
    assert len(answers) == 600  # x of every row is there
    rates = np.array([float(answer["prediction"]) for answer in answers])
    rows = csv.DictReader(io.StringIO(Path("sample.csv").read_text()))
    heats = np.array([float(row["heat"]) for row in rows])
    assert np.corrcoef(np.log(rates), heats)[0, 1] > 0.8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "heat", "--counts"], "--counts: heat has cells in the sample that are no"),
        (["--target", "visits", "--target", "heat", "--counts"], "--counts: is for one --target"),
    ],
)
def test_counts_that_are_none_are_refused_in_one_line(
    tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    counted(tmp_path / "sample.csv", 60, seed=1)
    assert tacit("new", "ward", "--table", "sample.csv", *arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def followed(path: Path, count: int, seed: int) -> Path:
    """Write a table of patients who are followed for some days, and of whom some die."""
    chance = np.random.default_rng(seed)
    x = chance.normal(size=(count, 2)).round(3)
    death = chance.exponential(200 * np.exp(-x[:, 0]))
    seen = chance.uniform(50, 500, count)
    days = np.minimum(death, seen).round().astype(int)
    lines = ["heat,weight,days,died"]
    for row, day, died in zip(x, days, death < seen, strict=True):
        lines.append(f"{row[0]},{row[1]},{day},{'yes' if died else 'no'}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_the_time_to_an_event_from_a_sample_to_predictions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    followed(tmp_path / "sample.csv", 600, seed=1)
    arguments = ["new", "ward", "--table", "sample.csv", "--time", "days", "--event", "died"]
    assert tacit(*arguments) == 0
    assert "the event came where died at yes, at that time" in capsys.readouterr().out
    followed(tmp_path / "ward/train.csv", 3000, seed=2)
    run = shortened(tmp_path / "ward", updates=60, count=2, pushes=30)
    data = config.load(run).data
    assert isinstance(data, TableData)
    target = TableReader(data.schema_of_rows(Path())).target
    assert target.kind == "event"
    assert len(target.cuts) == 8
    assert tacit("check", str(run)) == 0
    summary = simulated(run, tmp_path / "out")
    metrics, constant = summary["metrics"], summary["constant_errors"]
    assert metrics["concordance"] > 0.65
    assert constant["concordance"] == 0.5
    assert metrics["nll"] < constant["nll"] - 0.04
    assert metrics["nll"] == pytest.approx(summary["test_loss"])
    assert summary["test_loss"] < summary["constant"]["loss"] - summary["constant"]["error"]
    assert tacit("export", "model", "--run", "out") == 0
    assert "the time to an event, died, from 0 to" in (tmp_path / "model/README.md").read_text()
    answers = predicted(capsys, "model", "--table", "sample.csv")
    columns = [f"p({share})" for share in target.shares]
    assert list(answers[0]) == ["row", "prediction", *columns]
    for answer in answers:
        chances = [float(answer[column]) for column in columns]
        assert chances == sorted(chances)
        assert 0 <= float(answer["prediction"]) <= target.cuts[-1]
    rows = csv.DictReader(io.StringIO(Path("sample.csv").read_text()))
    heats = np.array([float(row["heat"]) for row in rows])
    times = np.array([float(answer["prediction"]) for answer in answers])
    assert np.corrcoef(times, heats)[0, 1] < -0.8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--time", "days"], "--time, --event: the time to an event has two columns; name both"),
        (["--time", "days", "--event", "days"], "has two columns; name both"),
        (["--time", "days", "--event", "died", "--target", "heat"], "leave out --target"),
        (["--time", "days", "--event", "died", "--counts"], "leave out --target and --counts"),
        (["--time", "days", "--event", "heat"], "heat: has 60 different values in the sample"),
        (["--time", "died", "--event", "died2"], "--target 'died2': sample.csv has heat"),
        (["--time", "died", "--event", "heat2"], "--target 'heat2': sample.csv has heat"),
    ],
)
def test_an_event_that_is_none_is_refused_in_one_line(
    tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    followed(tmp_path / "sample.csv", 60, seed=1)
    assert tacit("new", "ward", "--table", "sample.csv", *arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_intervals_without_an_event_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    followed(tmp_path / "sample.csv", 200, seed=1)
    arguments = ["new", "w", "--table", "sample.csv", "--time", "days", "--event", "died"]
    assert tacit(*arguments) == 0
    lines = followed(tmp_path / "w/train.csv", 200, seed=2).read_text().splitlines()
    late = [line for line in lines[1:] if float(line.split(",")[2]) > 100]
    (tmp_path / "w/train.csv").write_text("\n".join([lines[0], *late]) + "\n")
    run = shortened(tmp_path / "w", updates=4, count=1)
    first = config.load(run).source.target.shares[0]
    capsys.readouterr()
    assert tacit("check", str(run)) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"no training row has the event in the interval of {first}, " in printed


@pytest.mark.parametrize(
    "options",
    [["--target", "a", "--target", "b"], ["--counts"], ["--time", "days", "--event", "died"]],
)
def test_an_example_without_a_sample_is_a_run_file(tmp_path: Path, options: list[str]) -> None:
    assert tacit("new", "ward", *options) == 0
    run = tmp_path / "ward/run.toml"
    run.write_text(run.read_text().replace("# rows = 5000", "rows = 5000"))
    assert config.load(run).build_model().size > 0


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (["fever", "weight"], "weight: has "),
        (["fever", "cold"], "--target 'cold': sample.csv has fever, heat"),
        (["fever", "fever"], "--target: names a column twice"),
    ],
)
def test_labels_that_are_none_are_refused_in_one_line(
    tmp_path: Path, targets: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    labelled(tmp_path / "sample.csv", 60, seed=1)
    options = [part for name in targets for part in ("--target", name)]
    assert tacit("new", "ward", "--table", "sample.csv", *options) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "ward").exists()


def test_pictures_have_no_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p").mkdir()
    assert tacit("new", "ward", "--images", "p", "--target", "a", "--target", "b") == 2
    assert "--target a: a folder of pictures says only their classes" in capsys.readouterr().err


def test_a_label_that_no_row_has_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labelled(tmp_path / "sample.csv", 200, seed=1)
    assert tacit("new", "w", "--table", "sample.csv", "--target", "rash", "--target", "fever") == 0
    train = labelled(tmp_path / "w/train.csv", 200, seed=2)
    train.write_text(train.read_text().replace(",yes,", ",no,"))
    run = shortened(tmp_path / "w", updates=4, count=1)
    capsys.readouterr()
    assert tacit("check", str(run)) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "no training row has label rash: the model cannot learn it" in printed
