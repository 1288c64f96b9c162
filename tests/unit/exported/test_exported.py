"""A trained model as a folder: what is in it, what it says of new rows, what it refuses."""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import json
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save, save_file
from tacit_services.cli.main import main
from tacit_services.journal.weights import weights
from torch import Tensor

from tacit import config, exported, rounding
from tacit.config import RunFile
from tacit.config.fingerprint import differences
from tacit.datasets import load
from tacit.errors import ConfigError, DataError
from tacit.models.zoo.modules import Cnn
from tests.conftest import ROOT
from tests.helpers.run_files import toml

NETS = """
from torch import nn


class Net(nn.Module):
    \"\"\"Two dense layers, of which the first is frozen, and a tied third.\"\"\"

    def __init__(self, inputs, outputs):
        super().__init__()
        self.front = nn.Linear(inputs, 4)
        self.head = nn.Linear(4, 4)
        self.again = self.head
        self.last = nn.Linear(4, outputs)

    def forward(self, x):
        return self.last(self.again(self.head(self.front(x).tanh())).tanh())
"""
TABLE: dict[str, Any] = {
    "kind": "table",
    "train": "private.csv",
    "target": "outcome",
    "rows": 100,
    "name": "ward-7",
    "columns": {
        "age": {"low": 0, "high": 100},
        "sex": {"values": ["f", "m"]},
        "outcome": {"values": ["home", "ward"]},
    },
}
DAYS = {**TABLE["columns"], "outcome": {"low": 10, "high": 30}}
PRIVACY: dict[str, Any] = {
    "guarantee": "(epsilon, delta)-DP per row, at each edge, against everyone else",
    "unit": "row",
    "adjacency": "add-or-remove-one",
    "noise_at": "edge",
    "trusted": "nobody but the edge itself",
    "delta": 1e-5,
    "epsilon": 1.5,
}


def written(folder: Path, outputs: int = 2, **data: Any) -> Path:
    """Write a run file of an own table and module."""
    folder.mkdir()
    (folder / "nets.py").write_text(NETS, encoding="utf-8")
    model = {
        "name": "python",
        "entry": "nets:Net",
        "arguments": {"inputs": 4, "outputs": outputs},
        "trainable": ["head.*", "last.*"],
    }
    text = toml(
        run={"updates": 9},
        data={"dataset": None, **TABLE, **data},
        model=model,
        algorithm={"name": "fedasync", "learning_rate": 1.0},
        privacy={"batch": 10, "clip": 1.0},
    )
    path = folder / "run.toml"
    path.write_text(text, encoding="utf-8")
    return path


def results(folder: Path, run: RunFile, params: Tensor | None = None) -> Tensor:
    """Write what an aggregator leaves when such a run has ended, and return the parameters."""
    folder.mkdir()
    model = run.build_model()
    params = model.init(7) * 3 if params is None else params
    content = weights(model, params)
    (folder / "model.safetensors").write_bytes(content)
    summary = {
        "run_file_sha256": run.fingerprint(),
        "model_sha256": hashlib.sha256(content).hexdigest(),
        "metrics": {"accuracy": 0.75},
        "privacy": PRIVACY,
        "tacit_version": "0.2.0",
        "edges": 3,
        "applied": 9,
    }
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    definition = {"format": 1, "folder": str(run.folder.absolute()), "run": differences(run)}
    (folder / "definition.json").write_text(json.dumps(definition), encoding="utf-8")
    return params


def module_of(folder: Path, outputs: int) -> torch.nn.Module:
    """Load the user's own module from the folder, as anybody can."""
    spec = importlib.util.spec_from_file_location("handed_on", folder / "code" / "nets.py")
    assert spec is not None
    assert spec.loader is not None
    code = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(code)
    network: torch.nn.Module = code.Net(4, outputs)
    network.load_state_dict(load_file(folder / "model.safetensors"))
    return network


def new_rows(path: Path) -> Path:
    path.write_text("sex,extra,age\nf,1,50\nm,2,0\nother,3,100\n", encoding="utf-8")
    return path


X = torch.tensor([[0.5, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 1]])


def test_the_users_own_module_loads_it_and_says_the_same(tmp_path: Path) -> None:
    results(tmp_path / "out", config.load(written(tmp_path / "run")))
    exported.export(tmp_path / "out", tmp_path / "model")
    shutil.rmtree(tmp_path / "run")  # the folder is enough
    predictions = list(
        exported.predict(
            exported.read(tmp_path / "model", trust_code=True),
            "table",
            new_rows(tmp_path / "new.csv"),
        )
    )
    with torch.no_grad():
        shares = module_of(tmp_path / "model", 2)(X).softmax(1)
    assert [prediction.row for prediction in predictions] == ["1", "2", "3"]
    assert [prediction.value for prediction in predictions] == [
        ("home", "ward")[place] for place in shares.argmax(1)
    ]
    probabilities = [list(prediction.probabilities.values()) for prediction in predictions]
    assert np.allclose(probabilities, shares.numpy(), atol=1e-6)


def test_a_number_is_said_in_the_unit_of_the_file(tmp_path: Path) -> None:
    results(tmp_path / "out", config.load(written(tmp_path / "run", outputs=1, columns=DAYS)))
    exported.export(tmp_path / "out", tmp_path / "model")
    model = exported.read(tmp_path / "model", trust_code=True)
    predictions = list(exported.predict(model, "table", new_rows(tmp_path / "new.csv")))
    with torch.no_grad():
        expected = 10 + 20 * module_of(tmp_path / "model", 1)(X).flatten()
    assert [prediction.value for prediction in predictions] == pytest.approx(
        expected.tolist(), rel=1e-5
    )


def test_it_names_no_file_and_no_owner_and_says_whose_privacy_it_is(tmp_path: Path) -> None:
    results(tmp_path / "out", config.load(written(tmp_path / "run")))
    files = exported.export(tmp_path / "out", tmp_path / "model")
    names = {str(path.relative_to(tmp_path / "model")) for path in files}
    written_files = ("README.md", "model.json", "network.svg")
    assert names == {*written_files, "model.safetensors", "code/nets.py"}
    for name in written_files:
        text = (tmp_path / "model" / name).read_text(encoding="utf-8")
        assert not any(word in text for word in ("private.csv", "ward-7", str(tmp_path)))
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    for words in (
        "| ε | 1.5,",
        "| δ | 1e-05 |",
        "home, ward",
        "accuracy 0.75",
        "nobody but the edge",
    ):
        assert words in card
    for file in ("model.safetensors", "code/nets.py"):
        digest = hashlib.sha256((tmp_path / "model" / file).read_bytes()).hexdigest()
        assert f"| {file}, SHA-256 | `{digest}` |\n" in card
    assert "It is no file's SHA-256" in card


@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_a_card_says_where_nothing_was_private(tmp_path: Path, epsilon: float | None) -> None:
    results(tmp_path / "out", config.load(written(tmp_path / "run")))
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    summary["privacy"]["epsilon"] = epsilon
    (tmp_path / "out" / "summary.json").write_text(json.dumps(summary))
    exported.export(tmp_path / "out", tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert ("It was not trained privately" in card) == (epsilon is None)


@pytest.mark.parametrize("ledgers", [0, 1, 2])
def test_a_card_says_that_people_are_taken_for_others_but_not_for_whom(
    tmp_path: Path, ledgers: int
) -> None:
    names = ["north-3", str(tmp_path / "east.csv")][:ledgers]
    run = config.load(written(tmp_path / "run", apart_from=names))
    results(tmp_path / "out", run)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    stated = run.define().promise.total({}).document()
    assert stated.get("apart_from", 0) == ledgers
    summary["privacy"] = stated | {"epsilon": 1.5, "edges": {}}
    (tmp_path / "out" / "summary.json").write_text(json.dumps(summary))
    for path in exported.export(tmp_path / "out", tmp_path / "model"):
        if path.suffix in (".md", ".json"):
            text = path.read_text(encoding="utf-8")
            assert "north-3" not in text
            assert "east.csv" not in text
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    phrase = {0: "", 1: "those of one other ledger, on", 2: "those of 2 other ledgers, on"}[ledgers]
    assert ("taken for other people" in card) == bool(ledgers)
    assert phrase in card
    assert "\n\nIn words" in card


BUILT_IN: dict[str, dict[str, Any]] = {
    "logistic": {},
    "mlp": {"hidden": [8, 4], "activation": "tanh"},
    "cnn": {"channels": [4, 6], "kernel": 3, "hidden": [5], "normalization": "group"},
    "cnn, pooled once": {"channels": [4, 6], "kernel": 3, "pool_every": 2},
    "resnet": {"width": 4},
    "mobilenet": {"width": 4},
    "own": {},
}


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_cards_lines_make_the_network_that_was_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if name == "own":
        run = config.load(written(tmp_path / "run"))
    else:
        sizes = {"name": name.partition(",")[0], **BUILT_IN[name]}
        text = toml(
            run={"updates": 9},
            data={"dataset": "digits"},
            model=sizes,
            algorithm={"name": "fedasync", "learning_rate": 1.0},
        )
        run = config.parse(text, "test")
    params = results(tmp_path / "out", run)
    exported.export(tmp_path / "out", tmp_path / "model", run.folder)
    monkeypatch.chdir(tmp_path / "model")
    monkeypatch.setattr("sys.path", [*sys.path])
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    _, _, after = card.partition("or in Python, in this folder:\n\n")
    namespace: dict[str, Any] = {}
    exec(textwrap.dedent(after.partition("\n\nRows")[0]), namespace)
    model = run.build_model()
    x, _ = model.random_batch(3, torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert torch.allclose(
            namespace["network"](x), model.logits(params, x), rtol=1e-4, atol=1e-5
        )


def test_results_from_another_machine_find_the_code_beside_them_or_ask_for_it(
    tmp_path: Path,
) -> None:
    # Given results that were copied out of a container, whose run file's folder is not here,
    results(tmp_path / "out", config.load(written(tmp_path / "run")))
    code = (tmp_path / "run" / "nets.py").read_text(encoding="utf-8")
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(ConfigError, match="is not on this machine; bring a copy"):
        exported.export(tmp_path / "out", tmp_path / "model")
    # when a copy of the code lies beside them, then it is found, if it is what was trained.
    (tmp_path / "out" / "nets.py").write_text(code + "# another", encoding="utf-8")
    with pytest.raises(ConfigError, match="is not on this machine"):
        exported.export(tmp_path / "out", tmp_path / "model")
    (tmp_path / "out" / "nets.py").write_text(code, encoding="utf-8")
    exported.export(tmp_path / "out", tmp_path / "model")
    exported.read(tmp_path / "model", trust_code=True)


def test_other_code_than_was_trained_is_refused_before_it_runs(tmp_path: Path) -> None:
    results(tmp_path / "out", config.load(written(tmp_path / "run")))
    exported.export(tmp_path / "out", tmp_path / "model")
    exported.read(tmp_path / "model", trust_code=True)  # the control
    evil = f"open({str(tmp_path / 'executed')!r}, 'w')\n" + NETS
    for place in (tmp_path / "run", tmp_path / "model" / "code"):
        (place / "nets.py").write_text(evil, encoding="utf-8")
    with pytest.raises(ConfigError, match="its code is not what was trained"):
        exported.export(tmp_path / "out", tmp_path / "second")
    with pytest.raises(DataError, match="is not the code that the model was trained with"):
        exported.read(tmp_path / "model", trust_code=True)
    assert not (tmp_path / "executed").exists()


def test_other_weights_than_were_written_are_refused(tmp_path: Path) -> None:
    results(tmp_path / "out", config.load(written(tmp_path / "run")))
    exported.export(tmp_path / "out", tmp_path / "model")
    path = tmp_path / "model" / "model.safetensors"
    save_file({name: tensor + 1 for name, tensor in load_file(path).items()}, path)
    with pytest.raises(DataError, match="another SHA-256"):
        exported.read(tmp_path / "model", trust_code=True)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("definition.json", None, "name a run that has ended"),
        ("summary.json", "{", "is damaged"),
        ("definition.json", "[]", "is damaged"),
        ("definition.json", '{"folder": ".", "run": {"run": {}}}', "is not a run of this tacit"),
    ],
)
def test_what_is_no_ended_run_is_one_line(
    tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    results(tmp_path / "out", config.load(written(tmp_path / "run")))
    if content is None:
        (tmp_path / "out" / name).unlink()
    else:
        (tmp_path / "out" / name).write_text(content)
    with pytest.raises(DataError, match=message):
        exported.export(tmp_path / "out", tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    results(tmp_path / "out", config.load(written(tmp_path / "run")))
    (tmp_path / "model").mkdir()
    with pytest.raises(ConfigError, match="is there already"):
        exported.export(tmp_path / "out", tmp_path / "model")


def test_rows_of_another_kind_are_refused(tmp_path: Path) -> None:
    results(tmp_path / "out", config.load(written(tmp_path / "run")))
    exported.export(tmp_path / "out", tmp_path / "model")
    with pytest.raises(ConfigError, match="the model learnt from table; use --table"):
        list(
            exported.predict(exported.read(tmp_path / "model", trust_code=True), "images", tmp_path)
        )


def tacit(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_a_new_row_that_does_not_fit_is_shown_to_who_asks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results(tmp_path / "out", config.load(written(tmp_path / "run")))
    exported.export(tmp_path / "out", tmp_path / "model")
    (tmp_path / "new.csv").write_text("sex,age\nf,50\nm,old\n", encoding="utf-8")
    assert (
        tacit(
            "predict", str(tmp_path / "model"), "--trust-code", "--table", str(tmp_path / "new.csv")
        )
        == 3
    )
    errors = capsys.readouterr().err
    assert errors.startswith(
        "tacit: new.csv: column 'age': expected numbers, found string, in row 2 of the data (name a"
    )
    assert len(errors.splitlines()) == 1


@pytest.mark.slow
def test_a_simulated_run_of_digits_is_exported_and_predicts_pictures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = toml(
        data={"dataset": "digits"},
        model={"name": "mlp", "hidden": [8]},
        algorithm={"name": "fedasync", "learning_rate": 1.0},
        privacy={"clip": 1.0},
        run={"updates": 60},
        edges={"count": 2},
    )
    (tmp_path / "run.toml").write_text(text, encoding="utf-8")
    out, model = str(tmp_path / "out"), tmp_path / "model"
    assert tacit("simulate", str(tmp_path / "run.toml"), "--out", out) == 0
    assert tacit("export", str(model), "--run", out) == 0
    network = Cnn((1, 8, 8), 10, channels=(), hidden=(8,))
    network.load_state_dict(load_file(model / "model.safetensors"))

    test, lines = load("digits", "test", None), ["path,label"]
    for row, (x, y) in enumerate(zip(test.x, test.y, strict=True)):
        pixels = (x[0] * 255).round().to(torch.uint8).numpy()
        Image.fromarray(pixels).save(tmp_path / f"{row}.png")
        lines.append(f"{row}.png,{int(y)}")
    (tmp_path / "new.csv").write_text("\n".join(lines), encoding="utf-8")
    assert f"next: tacit predict {model} --images FOLDER\n" in capsys.readouterr().out
    assert tacit("predict", str(model), "--images", str(tmp_path / "new.csv")) == 0
    predictions = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    with torch.no_grad():
        expected = network(test.x).argmax(1).tolist()
    same = sum(
        int(prediction["prediction"]) == label
        for prediction, label in zip(predictions, expected, strict=True)
    )
    assert same >= len(expected) - 2  # pixels were rounded to bytes
    assert predictions[3]["row"] == "3.png"
    assert "not trained privately" in (model / "README.md").read_text(encoding="utf-8")
    assert tacit("predict", str(model)) == 2
    assert "one of --table, --images, --arrays, --rows" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    nothing = ["--images", str(tmp_path / "empty"), "--out", str(tmp_path / "nothing.csv")]
    assert tacit("predict", str(model), *nothing) == tacit("predict", str(model), *nothing[:2]) == 3
    refused = capsys.readouterr()
    assert refused.out == ""
    assert refused.err.count("empty: has no pictures\n") == 2
    assert not (tmp_path / "nothing.csv").exists()
    assert tacit("export", str(model), "--run", out) == 2
    assert "name another folder, or move that one away" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("epsilon", "odds"),
    [
        (0.0, "1"),
        (0.1, "1.2"),
        (1.0, "2.8"),
        (2.0, "7.4"),
        (3.994, "55"),
        (4.0, "55"),
        (6.0, "404"),
        (8.0, "2,990"),
        (1000.0, "10^435"),
    ],
)
def test_a_card_rounds_what_epsilon_means_up(epsilon: float, odds: str) -> None:
    assert rounding.odds(epsilon) == odds
    if odds in ("2.8", "7.4", "55"):
        document = (ROOT / "docs" / "privacy-officer.md").read_text(encoding="utf-8")
        assert f"{odds} times" in document


def test_the_best_and_the_averaged_model_are_exported_by_name(tmp_path: Path) -> None:
    run = config.load(written(tmp_path / "run"))
    out = tmp_path / "out"
    results(out, run)
    model = run.build_model()
    other = save(model.unflatten(torch.full((model.size,), 0.5)))
    (out / "averaged.safetensors").write_bytes(other)
    digest = hashlib.sha256(other).hexdigest()
    summary = json.loads((out / "summary.json").read_text())
    entry = {"file": "averaged.safetensors", "model_sha256": digest, "metrics": {"accuracy": 0.9}}
    summary["models"] = {"averaged": entry}
    (out / "summary.json").write_text(json.dumps(summary))
    exported.export(out, tmp_path / "averaged", which="averaged")
    averaged = exported.read(tmp_path / "averaged", trust_code=True)
    assert torch.equal(averaged.params, torch.full((model.size,), 0.5))
    assert averaged.facts["metrics"] == {"accuracy": 0.9}
    assert averaged.facts["trained_sha256"] == digest
    exported.export(out, tmp_path / "last")
    assert not torch.equal(
        exported.read(tmp_path / "last", trust_code=True).params, averaged.params
    )
    with pytest.raises(ConfigError, match=r"--which best: .* has last, averaged"):
        exported.export(out, tmp_path / "best", which="best")
