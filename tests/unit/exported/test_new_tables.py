"""`tacit predict` on tables: what it says of cells that the model does not know, and of errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tacit_services.cli.main import main

from tacit import config, exported
from tests.unit.exported.test_exported import results, written


@pytest.fixture
def model(tmp_path: Path) -> Path:
    run = config.load(written(tmp_path / "run", decimal=",", separator=";"))
    results(tmp_path / "out", run)
    exported.export(tmp_path / "out", tmp_path / "model")
    return tmp_path / "model"


def predict(
    capsys: pytest.CaptureFixture[str], model: Path, text: str, *more: str
) -> tuple[int, str, str]:
    table = model.parent / "new.csv"
    table.write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        main(["predict", str(model), "--trust-code", "--table", str(table), *more])
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


def test_cells_that_the_model_does_not_know_are_said(
    capsys: pytest.CaptureFixture[str], model: Path
) -> None:
    code, out, err = predict(capsys, model, "sex;age\nf;50,5\nx;500\ny;20\n")
    assert code == 0
    assert len(out.splitlines()) == 4
    age, sex = sorted(err.splitlines())
    assert age.startswith("note: new.csv: column 'age': 1 of 3 rows is beyond its bounds (")
    assert sex.startswith("note: new.csv: column 'sex': 2 of 3 rows have none of its values (f, m)")
    assert predict(capsys, model, "sex;age\nf;50,5\n")[2] == ""


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("sex;age\nf;50,5\nm;50.5\n", "column 'age': expected numbers"),
        ("sex;alter\nf;50,5\n", "column 'age': there is none among 2"),
        ("50,5;f\n20,1;m\n", "data.header = false"),
        ("sex,age\nf,50\n", "data.separator"),
        ("sex;age\nf;\n", "a missing value"),
    ],
)
def test_an_error_says_that_the_models_form_is_fixed(
    capsys: pytest.CaptureFixture[str], model: Path, text: str, what: str
) -> None:
    code, _, err = predict(capsys, model, text)
    assert code == 3
    assert what in err
    assert len(err.splitlines()) == 1
    if "data." in err:
        assert "fixed (separator = ';', decimal = ','): write the new rows so" in err


def test_a_column_is_carried_beside_each_prediction(
    capsys: pytest.CaptureFixture[str], model: Path
) -> None:
    text = "fall;sex;age\nA-7;f;50\n;m;20\n=1;m;30\n"
    code, out, _ = predict(capsys, model, text, "--id", "fall")
    assert code == 0
    lines = [line.split(",") for line in out.splitlines()]
    assert lines[0][:3] == ["fall", "row", "prediction"]
    assert [line[:2] for line in lines[1:]] == [["A-7", "1"], ["", "2"], ["'=1", "3"]]
    _, out, _ = predict(capsys, model, text, "--id", "fall", "--json")
    assert [row["id"] for row in json.loads(out)] == ["A-7", "", "=1"]
    code, out, err = predict(capsys, model, text, "--id", "case")
    assert (code, out) == (3, "")
    assert "column 'case': there is none among 3" in err


def test_a_card_has_the_constant_and_what_the_probabilities_are_worth(tmp_path: Path) -> None:
    run = config.load(written(tmp_path / "run"))
    results(tmp_path / "out", run)
    path = tmp_path / "out" / "summary.json"
    summary = json.loads(path.read_text(encoding="utf-8"))
    bins = [{"predicted": 0.2, "observed": 0.3, "rows": 900}, {"rows": 124}]
    summary["calibration"] = {"log_loss": 0.2021, "brier": 0.118, "error": 0.034, "bins": bins}
    summary["constant"] = {"accuracy": 0.564, "log_loss": 0.685, "brier": 0.492}
    path.write_text(json.dumps(summary), encoding="utf-8")
    exported.export(tmp_path / "out", tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert (
        "accuracy 0.75; log\\_loss 0.2021, brier 0.118, calibration error 0.034; on 1,024" in card
    )
    same = "public rows. Always the same answer: accuracy 0.564, log\\_loss 0.685, brier 0.492 |"
    assert same in card
