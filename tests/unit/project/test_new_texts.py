"""A text from a public sample to predictions: new names it, then check, train, export, predict."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests.helpers import own_texts
from tests.helpers.own_simulation import simulated
from tests.unit.project.test_new_targets import predicted, tacit

TEXT = 'text = "vocabulary.json", length = '
CLASSIFIER = 'name = "python"\nentry = "nets:Classifier"\narguments = { words = 20 }'


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def with_ages(path: Path) -> Path:
    """Add a column of numbers to the table."""
    rows = list(csv.reader(io.StringIO(path.read_text())))
    lines = [["age", *rows[0]], *([str(20 + at % 50), *row] for at, row in enumerate(rows[1:]))]
    path.write_text("".join(",".join(line) + "\n" for line in lines))
    return path


def test_a_text_is_named_and_is_no_category(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_ages(own_texts.notes(tmp_path / "sample.csv", 300, seed=1))
    assert tacit("new", "ward", "--table", "sample.csv", "--target", "outcome") == 0
    said = capsys.readouterr().out
    assert "note is a text, and is not read: it takes a public tokenizer's file" in said
    [line] = [
        line for line in (tmp_path / "ward/run.toml").read_text().splitlines() if "note" in line
    ]
    assert line == (
        "# note: is not read; it is a text, of about 7 words a row; to read it: "
        f"{{ {TEXT}32 }}, as the only feature"
    )


def test_a_table_of_a_text_alone_says_how_it_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_texts.notes(tmp_path / "sample.csv", 300, seed=1)
    assert tacit("new", "ward", "--table", "sample.csv") == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "'note' is a text, of about 7 words a row; to read it: { text = " in line


@pytest.mark.parametrize("words", [3, 8])
def test_a_category_of_long_values_stays_one(tmp_path: Path, words: int) -> None:
    lines = [f"{' '.join(['often'] * words)} {at % 3},{at % 50},{at % 2}" for at in range(300)]
    (tmp_path / "sample.csv").write_text("\n".join(["what,age,outcome", *lines]) + "\n")
    assert tacit("new", "ward", "--table", "sample.csv") == 0
    assert 'what = { values = ["often' in (tmp_path / "ward/run.toml").read_text()


def ready(tmp_path: Path, **changed: object) -> None:
    own_texts.vocabulary(tmp_path, **changed)
    own_texts.notes(tmp_path / "train.csv", 1200, seed=2)
    own_texts.notes(tmp_path / "public.csv", 300, seed=3)


def test_a_text_is_classified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ready(tmp_path, post_processor=own_texts.enclosed())
    run = own_texts.run_file(tmp_path, '"outcome"', CLASSIFIER)
    assert tacit("check", str(run)) == 0
    summary = simulated(run, tmp_path / "out")
    assert summary["metrics"]["accuracy"] > 0.8
    assert tacit("export", "model", "--run", "out") == 0
    files = sorted(path.name for path in (tmp_path / "model/code").iterdir())
    assert files == ["nets.py", "vocabulary.json"]
    for path in ("train.csv", "vocabulary.json", "nets.py"):
        (tmp_path / path).unlink()  # the folder is enough
    answers = predicted(capsys, "model", "--table", "public.csv")
    assert list(answers[0]) == ["row", "prediction", "p(home)", "p(ward)"]
    rows = list(csv.DictReader(io.StringIO(Path("public.csv").read_text())))
    right = [
        answer["prediction"] == row["outcome"] for answer, row in zip(answers, rows, strict=True)
    ]
    assert sum(right) / len(right) == pytest.approx(summary["metrics"]["accuracy"])


def test_an_exported_text_with_another_vocabulary_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ready(tmp_path)
    run = own_texts.run_file(tmp_path, '"outcome"', CLASSIFIER, updates=2)
    simulated(run, tmp_path / "out")
    assert tacit("export", "model", "--run", "out") == 0
    own_texts.vocabulary(tmp_path / "model/code", normalizer=None)
    capsys.readouterr()
    assert tacit("predict", "model", "--table", "public.csv", "--trust-code") == 3
    assert "is not the code that the model was trained with" in capsys.readouterr().err


@pytest.mark.parametrize("model", ["lstm", "graph"])
def test_the_next_token_is_learnt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str
) -> None:
    ready(tmp_path)
    keys = 'name = "lstm"\nembedding = 4\nhidden = [8]'
    run = own_texts.run_file(tmp_path, '{ next_token = "note" }', keys)
    if model == "graph":
        frozen = ["--shape", "12", "--integers", "20", "--arguments", "words = 20"]
        assert tacit("freeze", "nets:Language", *frozen, "--out", "net.graph.json") == 0
        keys = 'name = "graph"\nfile = "net.graph.json"\nloss = "token_cross_entropy"'
        run = own_texts.run_file(tmp_path, '{ next_token = "note" }', keys, updates=10)
    assert tacit("check", str(run)) == 0
    summary = simulated(run, tmp_path / "out")
    metrics, constant = summary["metrics"], summary["constant_errors"]
    assert list(metrics) == list(constant) == ["accuracy", "perplexity"]
    assert metrics["perplexity"] < 20  # of as many tokens
    assert constant["perplexity"] < 17
    assert summary["constant"]["loss"] > 2
    assert tacit("export", "model", "--run", "out") == 0
    capsys.readouterr()
    assert tacit("predict", "model", "--table", "public.csv", "--json") == 0
    answers = json.loads(capsys.readouterr().out)
    assert len(answers) == 300
    assert {len(answer["value"].split()) for answer in answers} == {12}
    # A word for each number, up to the text's end.
    rows = list(csv.DictReader(io.StringIO(Path("public.csv").read_text())))
    for answer, row in zip(answers, rows, strict=True):
        numbers = [int(number) for number in answer["value"].split()][: len(row["note"].split())]
        assert answer["words"] == " ".join(own_texts.EVERY[number] for number in numbers)
    lines = predicted(capsys, "model", "--table", "public.csv")
    assert list(lines[0]) == ["row", "prediction", "words"]
    assert [line["words"] for line in lines] == [answer["words"] for answer in answers]
