"""What people read of an additive model: a table of its bins; and of it and a linear one, reasons."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tacit_services.cli.main import main
from torch import Tensor

from tacit import config, exported
from tacit.errors import ConfigError, DataError
from tacit.exported.additive_terms import BinFigures
from tacit.exported.column_functions import ColumnFunctions
from tacit.exported.flattening import flatten
from tacit.models.additive import AdditiveModel
from tests.helpers.run_files import toml
from tests.unit.exported.test_exported import TABLE, new_rows, results, written

TARGETS: dict[str, Any] = {
    "two classes": {"values": ["home", "ward"]},
    "three classes": {"values": ["home", "ward", "other"]},
    "a number": {"low": 10, "high": 30},
}


def model_of(
    folder: Path, target: str = "two classes", *, known: bool = False, **keys: Any
) -> exported.Exported:
    """Export an additive model of random numbers, and read it back.

    known: whether the run knew the rows and the noise of its bins. keys: of [algorithm].
    """
    folder.mkdir(exist_ok=True)
    (folder / "run").mkdir()
    columns = {**TABLE["columns"], "outcome": TARGETS[target]}
    path = folder / "run" / "run.toml"
    data = {"dataset": None, **TABLE, "columns": columns}
    model = {"name": "additive"}
    text = toml(run={"updates": 9}, data=data, model=model, algorithm={"name": "ebm", **keys})
    path.write_text(text, encoding="utf-8")
    run = config.load(path)
    network = run.build_model()
    assert isinstance(network, AdditiveModel)
    params = torch.randn(network.size, generator=torch.Generator().manual_seed(1))
    results(folder / "out", run, params)
    if known:
        figures = BinFigures(
            np.arange(1, network.width + 1, dtype=np.float64), np.full(network.width, 0.125)
        )
        functions = ColumnFunctions(network, params, run.source.target, figures)
        text = json.dumps(functions.document())
        (folder / "out" / "functions.json").write_text(text, encoding="utf-8")
    exported.export(folder / "out", folder / "model")
    return exported.read(folder / "model")


def bins(folder: Path, model: str = "model") -> list[dict[str, str]]:
    with (folder / model / "bins.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_spreadsheet_reads_every_bin(tmp_path: Path) -> None:
    model_of(tmp_path)
    lines = bins(tmp_path)
    assert list(lines[0]) == [
        "column",
        "from",
        "to",
        "value",
        "log odds of ward",
        "rows",
        "deviation",
    ]
    assert [line["column"] for line in lines] == ["age"] * 32 + ["sex"] * 4 + ["(intercept)"]
    assert (lines[0]["from"], lines[0]["to"], lines[31]["to"]) == ("0", "3.125", "100")
    assert [line["value"] for line in lines[32:36]] == ["f", "m", "other", "none"]
    facts = json.loads((tmp_path / "model" / "model.json").read_text())
    assert [term["columns"] for term in facts["functions"]["terms"]] == [["age"], ["sex"]]
    assert facts["functions"]["terms"][0]["bins"][1]["from"] == 3.125


def test_what_the_run_knew_of_its_bins_is_in_every_file(tmp_path: Path) -> None:
    model = model_of(tmp_path, known=True)
    assert [line["rows"] for line in bins(tmp_path)[:3]] == ["1", "2", "3"]
    assert {line["deviation"] for line in bins(tmp_path)} == {"0.1250"}
    age, sex = model.facts["functions"]["terms"]
    added = np.array([each["added"][0] for each in age["bins"]])
    rows = np.arange(1, 33)
    assert age["importance"] == pytest.approx((rows * abs(added)).sum() / rows.sum(), abs=1e-5)
    assert age["by_noise"] == sex["by_noise"] == pytest.approx(0.125 * 0.798, abs=1e-3)
    folder = tmp_path / "model"
    card = (folder / "README.md").read_text()
    order = sorted(["age", "sex"], key=lambda name: card.index(f"| {name} | "))
    assert order == (["age", "sex"] if age["importance"] > sex["importance"] else ["sex", "age"])
    assert "functions.svg" in card
    picture = (folder / "functions.svg").read_text()
    assert picture.count('class="band f0"') == picture.count('class="whisker c0"') == 1


def test_a_pair_is_a_heat_map_and_a_reason_and_can_be_flattened(tmp_path: Path) -> None:
    model = model_of(tmp_path, known=True, pairs=[["sex", "age"]])
    folder = tmp_path / "model"
    lines = [line for line in bins(tmp_path) if line["column"] == "age × sex"]
    assert len(lines) == 8 * 4
    assert lines[5]["value"] == "12.5 to 25 × m"
    assert {line["deviation"] for line in lines} == {"0.1250"}
    picture = (folder / "functions.svg").read_text()
    assert all(words in picture for words in ('class="more s4"', 'class="unsure"', "age × sex"))
    assert "| age × sex |" in (folder / "README.md").read_text()
    table = new_rows(tmp_path / "new.csv")
    for row in exported.predict(model, "table", table, explain=True):
        assert row.reasons is not None
        assert list(row.reasons) == ["age", "sex", "age × sex", "(intercept)"]
        odds = row.probabilities["ward"] / row.probabilities["home"]
        assert sum(row.reasons.values()) == pytest.approx(np.log(odds), abs=1e-4)
    flatten(folder, "age × sex", ["12.5 to 25 × m"], tmp_path / "model-2")
    [zero] = [line for line in bins(tmp_path, "model-2") if line["log odds of ward"] == "0.0000"]
    assert (zero["value"], zero["deviation"]) == ("12.5 to 25 × m", "")
    flatten(folder, "age × sex", [], tmp_path / "model-3")
    assert {line["column"] for line in bins(tmp_path, "model-3")} == {"age", "sex", "(intercept)"}
    assert "age × sex: all bins: set to 0" in (tmp_path / "model-3" / "README.md").read_text()


def test_a_run_that_knew_nothing_has_no_band(tmp_path: Path) -> None:
    model_of(tmp_path)
    assert "so there is no band" in (tmp_path / "model" / "README.md").read_text()
    picture = (tmp_path / "model" / "functions.svg").read_text()
    assert 'class="curve c0"' in picture
    assert 'class="band' not in picture


@pytest.mark.parametrize(
    "damaged",
    [
        '{"outputs": [], "terms": []}',
        '{"terms": NaN}',
        "[]",
        '{"outputs": [], "terms": [{"columns": [], "bins": [{"added": [], "rows": -1}]}], "intercept": {"added": []}}',
    ],
)
def test_damaged_figures_of_bins_are_refused(tmp_path: Path, damaged: str) -> None:
    model_of(tmp_path)
    (tmp_path / "out" / "functions.json").write_text(damaged)
    with pytest.raises(DataError, match=r"functions\.json: is damaged"):
        exported.export(tmp_path / "out", tmp_path / "model-2")


@pytest.mark.parametrize("target", TARGETS)
def test_the_reasons_of_a_row_add_up_to_its_prediction(tmp_path: Path, target: str) -> None:
    model = model_of(tmp_path, target)
    table = new_rows(tmp_path / "new.csv")
    x = torch.tensor([[0.5, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 1]])
    scores: Tensor = model.model.logits(model.params, x).double()
    predictions = list(exported.predict(model, "table", table, explain=True))
    for row, scored in zip(predictions, scores, strict=True):
        assert row.reasons is not None
        assert list(row.reasons) == ["age", "sex", "(intercept)"]
        together = sum(row.reasons.values())
        if target == "a number":
            assert isinstance(row.value, float)
            assert together == pytest.approx(row.value, abs=1e-3)
        elif target == "two classes":
            assert together == pytest.approx(float(scored[1] - scored[0]), abs=1e-5)
        else:
            assert together == pytest.approx(float((scored - scored.mean()).max()), abs=1e-5)


def test_the_command_writes_a_column_for_each_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model_of(tmp_path)
    table = new_rows(tmp_path / "new.csv")
    with pytest.raises(SystemExit, match="0"):
        main(["predict", str(tmp_path / "model"), "--table", str(table), "--explain"])
    head, *lines = csv.reader(capsys.readouterr().out.splitlines())
    assert head[2:] == ["p(home)", "p(ward)", "by age", "by sex", "by (intercept)"]
    assert [len(line) for line in lines] == [7, 7, 7]


def test_another_model_has_no_reasons(tmp_path: Path) -> None:
    results(tmp_path / "out", config.load(written(tmp_path / "run")))
    exported.export(tmp_path / "out", tmp_path / "model")
    model = exported.read(tmp_path / "model", trust_code=True)
    with pytest.raises(ConfigError, match="--explain"):
        list(exported.predict(model, "table", new_rows(tmp_path / "new.csv"), explain=True))


@pytest.mark.parametrize("target", TARGETS)
def test_the_terms_of_a_linear_model_add_up_to_its_score(tmp_path: Path, target: str) -> None:
    data = {**TABLE, "columns": {**TABLE["columns"], "outcome": TARGETS[target]}}
    name = "linear" if target == "a number" else "logistic"
    run = tmp_path / "run.toml"
    algorithm = {"name": "fedasync", "learning_rate": 1.0}
    text = toml(
        run={"updates": 9},
        data={"dataset": None, **data},
        model={"name": name},
        algorithm=algorithm,
    )
    run.write_text(text, encoding="utf-8")
    loaded = config.load(run)
    size = loaded.build_model().size
    results(tmp_path / "out", loaded, torch.randn(size, generator=torch.Generator().manual_seed(3)))
    exported.export(tmp_path / "out", tmp_path / "model")
    model = exported.read(tmp_path / "model")
    x = torch.tensor([[0.5, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 1]])
    scores = model.model.logits(model.params, x).double()
    table = new_rows(tmp_path / "new.csv")
    for row, scored in zip(
        exported.predict(model, "table", table, explain=True), scores, strict=True
    ):
        assert row.reasons is not None
        assert list(row.reasons) == ["age", "sex", "(intercept)"]
        together = sum(row.reasons.values())
        if target == "a number":
            assert together == pytest.approx(row.value, abs=1e-3)
        elif target == "two classes":
            assert together == pytest.approx(float(scored[1] - scored[0]), abs=1e-5)
        else:
            assert together == pytest.approx(float((scored - scored.mean()).max()), abs=1e-5)
