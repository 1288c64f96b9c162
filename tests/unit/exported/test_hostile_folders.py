"""Folders of strangers: whatever is in them, one line says what is wrong, and nothing is run."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save
from torch import Tensor

from tacit import config, exported
from tacit.config import RunFile
from tacit.errors import ConfigError, DataError, TacitError
from tests.helpers.run_files import toml
from tests.unit.exported.test_exported import NETS, TABLE, new_rows, results, tacit, written


def run_of(folder: Path, data: dict[str, Any], **model: Any) -> RunFile:
    """Return a run on own data with a model of tacit's own."""
    text = toml(
        run={"updates": 9},
        data={"dataset": None, **data},
        model=model,
        algorithm={"name": "fedasync", "learning_rate": 1.0},
        privacy={"batch": 10, "clip": 1.0},
    )
    return config.parse(text, "test", folder=folder)


def table_model(folder: Path, classes: tuple[str, ...] = ("home", "ward")) -> Path:
    """Export a folder of a table with tacit's own network: nothing in it is code."""
    data = {**TABLE, "columns": {**TABLE["columns"], "outcome": {"values": list(classes)}}}
    results(folder / "out", run_of(folder, data, name="mlp", hidden=[4]))
    exported.export(folder / "out", folder / "model", folder)
    return folder / "model"


def rewritten(model: Path, state: dict[str, Tensor]) -> None:
    """Write other weights into the folder, and their SHA-256 into its model.json."""
    content = save(state)
    (model / "model.safetensors").write_bytes(content)
    facts = json.loads((model / "model.json").read_text())
    facts["weights_sha256"] = hashlib.sha256(content).hexdigest()
    (model / "model.json").write_text(json.dumps(facts))


@pytest.mark.parametrize("missing", ["run", "code", "weights_sha256"])
def test_a_missing_field_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], missing: str
) -> None:
    model = table_model(tmp_path)
    facts = json.loads((model / "model.json").read_text())
    del facts[missing]
    (model / "model.json").write_text(json.dumps(facts))
    assert tacit("predict", str(model), "--table", str(new_rows(tmp_path / "new.csv"))) == 3
    errors = capsys.readouterr().err
    assert errors == (
        f"tacit: {model}/model.json: is damaged: {missing}: Field required; get it again from who "
        "wrote it\n"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[" * 200_000, "too deep"),
        ('{"format": 1, "run": ' + '{"a":' * 200 + "1" + "}" * 201, "more than 64 deep"),
        ('{"format": 1, "code": {"entry": 3}}', "is damaged"),
        ('{"format": ' + "9" * 5000 + "}", "is damaged"),
        ("\xff", "is damaged"),
    ],
)
def test_other_json_is_one_line(tmp_path: Path, content: str, message: str) -> None:
    model = table_model(tmp_path)
    (model / "model.json").write_text(content, encoding="latin-1")
    with pytest.raises(DataError, match=message) as refused:
        exported.read(model)
    assert "\n" not in str(refused.value)


def test_a_model_that_was_never_trained_is_refused_before_memory_is_taken(tmp_path: Path) -> None:
    model = table_model(tmp_path)
    facts = json.loads((model / "model.json").read_text())
    facts["run"]["model"]["hidden"] = [16_000, 16_000]
    (model / "model.json").write_text(json.dumps(facts))
    with pytest.raises(DataError, match="has fewer numbers than the model, 256,"):
        exported.read(model)


CHANGES: dict[str, Any] = {
    "expected float32 of shape [4, 4], found float32 of shape [2, 8]": lambda tensor: (
        tensor.reshape(2, 8)
    ),
    "found int64 of shape [4, 4]": lambda tensor: tensor.to(torch.int64),
    "found float32 of shape [0]": lambda tensor: tensor.flatten()[:0].clone(),
    "not finite": lambda tensor: tensor * float("nan"),
    "not finite (nan or inf)": lambda tensor: tensor / 0,
}


@pytest.mark.parametrize("message", CHANGES)
def test_weights_that_do_not_fit_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], message: str
) -> None:
    model = table_model(tmp_path)
    state = load_file(model / "model.safetensors")
    rewritten(model, {**state, "dense1.weight": CHANGES[message](state["dense1.weight"])})
    assert tacit("predict", str(model), "--table", str(new_rows(tmp_path / "new.csv"))) == 3
    captured = capsys.readouterr()
    assert message in captured.err
    assert "'dense1.weight'" in captured.err
    assert (captured.out, captured.err.count("\n")) == ("", 1)


def test_weights_of_other_names_and_more_bytes_are_refused(tmp_path: Path) -> None:
    model = table_model(tmp_path)
    state = load_file(model / "model.safetensors")
    rewritten(model, {f"net.{name}": tensor for name, tensor in state.items()})
    with pytest.raises(DataError, match=r"has no 'dense1\.bias'"):
        exported.read(model)
    rewritten(model, {**state, "more": torch.zeros(3)})
    with pytest.raises(DataError, match="has 'more', which the model has not"):
        exported.read(model)
    rewritten(model, {**state, "more": torch.zeros(1 << 19)})
    with pytest.raises(DataError, match=r"has more than [0-9,]+ bytes"):
        exported.read(model)


def test_outputs_that_are_not_finite_are_said_and_are_no_class(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = table_model(tmp_path)
    state = load_file(model / "model.safetensors")
    rewritten(model, {name: torch.full_like(tensor, 3e38) for name, tensor in state.items()})
    assert tacit("predict", str(model), "--table", str(new_rows(tmp_path / "new.csv"))) == 3
    captured = capsys.readouterr()
    assert (
        "row 1: the model's outputs are not finite numbers, so nothing is predicted" in captured.err
    )
    assert captured.out == ""


def test_a_run_whose_model_is_not_finite_is_not_exported(tmp_path: Path) -> None:
    results(tmp_path / "out", config.load(written(tmp_path / "run")))
    path = tmp_path / "out" / "model.safetensors"
    path.write_bytes(
        save({name: tensor * float("inf") for name, tensor in load_file(path).items()})
    )
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    summary["model_sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (tmp_path / "out" / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(DataError, match="not finite"):
        exported.export(tmp_path / "out", tmp_path / "model")


@pytest.mark.parametrize("missing", ["model_sha256", "privacy", "metrics"])
def test_a_damaged_summary_is_one_line_too(tmp_path: Path, missing: str) -> None:
    results(tmp_path / "out", config.load(written(tmp_path / "run")))
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    del summary[missing]
    (tmp_path / "out" / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(DataError, match=f"summary.json: is damaged: {missing}: Field required"):
        exported.export(tmp_path / "out", tmp_path / "model")


def test_code_that_cannot_be_read_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results(tmp_path / "out", config.load(written(tmp_path / "run")))
    exported.export(tmp_path / "out", tmp_path / "model")
    (tmp_path / "model" / "code" / "nets.py").write_text("-" * 100_000)
    rows = ["--table", str(new_rows(tmp_path / "new.csv"))]
    assert tacit("predict", str(tmp_path / "model"), "--trust-code", *rows) == 3
    assert "nets cannot be read" in capsys.readouterr().err


def test_code_of_a_folder_runs_only_if_it_is_trusted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mark = tmp_path / "executed"
    path = written(tmp_path / "run")
    (path.parent / "nets.py").write_text(f"open({str(mark)!r}, 'w').close()\n{NETS}")
    results(tmp_path / "out", config.load(path))
    assert tacit("export", str(tmp_path / "model"), "--run", str(tmp_path / "out")) == 0
    rows = ["--table", str(new_rows(tmp_path / "new.csv"))]
    assert capsys.readouterr().out.endswith(
        f"next: tacit predict {tmp_path / 'model'} --table new.csv --trust-code\n"
    )
    mark.unlink()
    code = tmp_path / "model" / "code" / "nets.py"
    assert tacit("predict", str(tmp_path / "model"), *rows) == 2
    captured = capsys.readouterr()
    assert not mark.exists()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    for words in (str(code), hashlib.sha256(code.read_bytes()).hexdigest(), "--trust-code"):
        assert words in captured.err
    with pytest.raises(ConfigError, match="would run"):
        exported.read(tmp_path / "model")
    assert tacit("predict", str(tmp_path / "model"), "--trust-code", *rows) == 0
    assert mark.exists()
    assert "--trust-code" in (tmp_path / "model" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("key", ["entry", "loss"])
def test_code_of_an_installed_package_is_not_run_unasked_either(tmp_path: Path, key: str) -> None:
    model = table_model(tmp_path)
    facts = json.loads((model / "model.json").read_text())
    facts["run"]["model"] = {"name": "python", "entry": "tacit.models.zoo.modules:Cnn"}
    if key == "loss":
        facts["run"]["model"]["loss"] = "tacit.models.losses:mse"
    (model / "model.json").write_text(json.dumps(facts))
    with pytest.raises(TacitError) as refused:
        exported.read(model)
    facts["code"] = refused_code(refused.value, model, facts)
    (model / "model.json").write_text(json.dumps(facts))
    with pytest.raises(ConfigError, match=r"tacit\.models.zoo.modules:Cnn of an installed package"):
        exported.read(model)


def refused_code(error: TacitError, model: Path, facts: dict[str, Any]) -> dict[str, str]:
    """Return the SHA-256s that a hostile folder can compute as well as anybody."""
    assert "is not the code" in str(error)
    run = RunFile.model_validate(facts["run"], context={"folder": model / "code"})
    hashes: dict[str, str] = run.stated()["code"]
    return hashes


def test_a_folder_with_tacits_own_network_needs_no_trust(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = table_model(tmp_path)
    assert tacit("predict", str(model), "--table", str(new_rows(tmp_path / "new.csv"))) == 0
    assert "--trust-code" not in (model / "README.md").read_text(encoding="utf-8")


EVIL = (
    "\x1b]0;owned\x07",
    "two\nlines",
    "\u202eexe.txt",
    "=HYPERLINK(1)",
    "-2+3|x",
    "-1.5",
    "@a",
    "zero\u200bwidth",
    "line\u2028end",
    "| <b>*x*</b> |",
)


def test_names_of_classes_say_nothing_to_a_terminal_or_a_spreadsheet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = table_model(tmp_path, EVIL)
    rows = ["--table", str(new_rows(tmp_path / "new.csv"))]
    out = tmp_path / "said.csv"
    assert tacit("predict", str(model), *rows) == 0
    output = capsys.readouterr().out
    assert tacit("predict", str(model), *rows, "--out", str(out)) == 0
    text = out.read_text(encoding="utf-8")
    assert output == text
    assert all(text_line.isprintable() for text_line in text.split("\n"))
    heading, *lines = csv.reader(text.splitlines())
    assert heading[2:4] == ["p(?]0;owned?)", "p(two?lines)"]
    allowed = ("?", "t", "'", "-1.5", "z", "l", "|")
    assert all(line[1].startswith(allowed) and len(line) == 12 for line in lines)
    assert tacit("predict", str(model), *rows, "--json") == 0
    printed = capsys.readouterr().out
    assert all(text_line.isprintable() for text_line in printed.split("\n"))
    assert list(json.loads(printed)[0]["probabilities"]) == list(EVIL)  # exact, escaped
    card = (model / "README.md").read_text(encoding="utf-8")
    assert r"\| \<b\>\*x\*\</b\> \|" in card
    for name in ("README.md", "model.json"):
        content = (model / name).read_text(encoding="utf-8")
        assert all(text_line.isprintable() for text_line in content.split("\n"))


IMAGES = {"kind": "images", "train": "p", "rows": 100, "size": 8, "channels": 1}
VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 2**31, 2**63, 1e308, float("nan"), float("inf"), "", "x", "\x1b[2J"),
    *("../x", "a:b", [], {}, [[]], ["f", "f"], "lstm", "resnet", "python", "party", "vafl"),
    *("gossip", "a" * 5000, 65_536, [65_536] * 40, ["scattering"], {"low": 0, "high": 1}),
)


def mutated(chance: random.Random, content: Any) -> Any:
    """Return `content` with up to three values replaced or deleted."""
    content = json.loads(json.dumps(content))
    for _ in range(chance.choice([1, 1, 2, 3])):
        places = list(_places(content))
        if not places:
            return content
        holder, key = chance.choice(places)
        if chance.random() < 0.2:
            del holder[key]
        else:
            holder[key] = json.loads(json.dumps(chance.choice(VALUES)))
    return content


def _places(content: Any) -> Any:
    keys = content if isinstance(content, dict) else range(len(content))
    for key in keys:
        yield content, key
        if isinstance(content[key], dict | list):
            yield from _places(content[key])


def tried(model: Path, kind: exported.RowsKind, rows: Path) -> None:
    """Read the folder and predict: a refusal in one line is all that may happen."""
    code = 3
    try:
        list(exported.predict(exported.read(model), kind, rows))
    except TacitError as error:
        code = error.exit_code
    assert code in (2, 3)


@pytest.mark.parametrize("seed", range(2))
def test_mutated_folders_never_end_in_a_traceback(tmp_path: Path, seed: int) -> None:
    chance, (rows, pictures) = random.Random(seed), (new_rows(tmp_path / "new.csv"), tmp_path / "p")
    pictures.mkdir()
    Image.new("L", (20, 20)).save(pictures / "1.png")
    (tmp_path / "t").mkdir()
    images = run_of(tmp_path, {**IMAGES, "classes": ["a", "b"]}, name="cnn", channels=[2], kernel=3)
    results(tmp_path / "out", images)
    exported.export(tmp_path / "out", tmp_path / "i", tmp_path)
    cases: list[tuple[Path, exported.RowsKind, Path]] = [
        (table_model(tmp_path / "t"), "table", rows),
        (tmp_path / "i", "images", pictures),
    ]
    for _ in range(75):
        model, kind, new = chance.choice(cases)
        shutil.copytree(model, tmp_path / "work")
        facts = json.loads((model / "model.json").read_text())
        (tmp_path / "work" / "model.json").write_text(json.dumps(mutated(chance, facts)))
        tried(tmp_path / "work", kind, new)
        content = bytearray((model / "model.safetensors").read_bytes())
        for _ in range(3):
            content[chance.randrange(len(content))] = chance.randrange(256)
        (tmp_path / "work" / "model.safetensors").write_bytes(content)
        facts["weights_sha256"] = hashlib.sha256(content).hexdigest()
        (tmp_path / "work" / "model.json").write_text(json.dumps(facts))
        tried(tmp_path / "work", kind, new)
        shutil.rmtree(tmp_path / "work")


def test_a_folder_where_a_file_is_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    model = table_model(tmp_path)
    (model / "model.json").unlink()
    os.mkfifo(model / "model.json")
    process = subprocess.run(
        [sys.executable, "-m", "tacit_services.cli.main", "predict", str(model), "--table", "x"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == 3
    assert "is a pipe; expected a file" in process.stderr


def test_a_damaged_picture_among_others_costs_its_own_prediction_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    images = run_of(tmp_path, {**IMAGES, "classes": ["a", "b"]}, name="logistic")
    results(tmp_path / "out", images)
    exported.export(tmp_path / "out", tmp_path / "i", tmp_path)
    monkeypatch.chdir(tmp_path)
    for number in range(4):
        Path("new", "a").mkdir(parents=True, exist_ok=True)
        Image.new("L", (20, 20), 60 * number).save(f"new/a/{number}.png")
    Path("new/a/1.png").write_bytes(Path("new/a/1.png").read_bytes()[:45])
    said = "a/1.png: a file is not a whole picture"
    assert tacit("predict", "i", "--images", "new") == 3
    captured = capsys.readouterr()
    rows = [line.split(",")[0] for line in captured.out.splitlines()]
    assert rows == ["row", "a/0.png", "a/2.png", "a/3.png"]
    assert said in captured.err
    assert captured.err.endswith("tacit: --images new: 1 picture has no prediction (named above)\n")
    assert tacit("predict", "i", "--images", "new", "--json", "--out", "said.csv") == 3
    assert len(json.loads(capsys.readouterr().out)) == 3
    assert tacit("predict", "i", "--images", "new/a/1.png") == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("1.png: a file is not a whole picture")
    assert captured.err.endswith("tacit: --images new/a/1.png: has no picture that can be read\n")
    Path("links").mkdir()
    Path("links/link.png").symlink_to("../new/a/0.png")
    assert tacit("predict", "i", "--images", "links/link.png") == 0
    assert "\nlink.png," in capsys.readouterr().out
