"""A model as an ONNX file answers as it does in tacit, by onnxruntime, whatever the number of rows."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from tacit_services.cli.main import main
from torch import Tensor

from tacit import config, exported
from tacit.config import RunFile
from tacit.datasets.target import Target
from tacit.errors import ConfigError
from tacit.exported.onnx_file import onnx_file
from tacit.graphs.graph_check import checked
from tacit.models import Model
from tacit.models.graph.graph_model import GraphModel
from tacit.models.objectives import objective_of
from tests.helpers.forty_modules import CASES
from tests.helpers.graphs import PLACES, WORDS, frozen_case, frozen_transformer
from tests.helpers.run_files import toml
from tests.unit.exported.test_column_functions import model_of
from tests.unit.exported.test_exported import BUILT_IN, DAYS, X, new_rows, results, written

SEVERAL = ("conv2d", "lstm", "causal attention", "residual", "low rank", "batch norm in eval")
# ONNX has no word for one of its operations.
WITHOUT_WORDS = {"pools"}


def graph_model(name: str) -> GraphModel:
    frozen = frozen_case(name)
    network = checked(frozen.graph, frozen.values, torch.tensor([0, 2]))
    outputs = network.output[-1]
    return GraphModel(
        name, CASES[name].shape, outputs, checked=network, values=frozen.values, labels=outputs
    )


def answered(content: bytes, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scores and answers of onnxruntime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options)
    scores, answers = session.run(["scores", "answers"], {"rows": x.numpy()})
    return torch.from_numpy(np.array(scores)), torch.from_numpy(np.array(answers))


def check_same(model: Model, params: Tensor, content: bytes) -> None:
    for count in (1, 3):
        x, _ = model.random_batch(count, torch.Generator().manual_seed(2))
        with torch.no_grad():
            own = model.logits(params, x)
            shares = model.probabilities(own)
        scores, answers = answered(content, x)
        assert float((scores - own).abs().max()) <= 1e-5 * float(own.abs().max())
        assert float((answers - shares).abs().max()) <= 1e-5


def check_graph(name: str) -> None:
    model = graph_model(name)
    params = model.init(0) + 0.01
    check_same(model, params, onnx_file(model, params, Target("classes", ("a", "b", "c"))))


@pytest.mark.parametrize("name", SEVERAL)
def test_a_graph_answers_the_same(name: str) -> None:
    check_graph(name)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sorted(set(CASES) - set(SEVERAL) - WITHOUT_WORDS))
def test_every_other_graph_answers_the_same(name: str) -> None:
    check_graph(name)


def built_in(name: str) -> RunFile:
    text = toml(
        run={"updates": 9},
        data={"dataset": "digits"},
        model={"name": name.partition(",")[0], **BUILT_IN[name]},
        algorithm={"name": "fedasync", "learning_rate": 1.0},
    )
    return config.parse(text, "test")


@pytest.mark.parametrize("name", sorted(set(BUILT_IN) - {"own"}))
def test_a_network_of_tacits_answers_the_same(tmp_path: Path, name: str) -> None:
    run = built_in(name)
    params = results(tmp_path / "out", run)
    exported.export(tmp_path / "out", tmp_path / "model", with_onnx=True)
    content = (tmp_path / "model" / "model.onnx").read_bytes()
    check_same(run.build_model(), params, content)


@pytest.mark.parametrize(
    "target",
    [
        "two classes",
        pytest.param("three classes", marks=pytest.mark.exhaustive),
        pytest.param("a number", marks=pytest.mark.exhaustive),
    ],
)
def test_an_additive_model_answers_as_predict_does(tmp_path: Path, target: str) -> None:
    """At the ends of bins, beyond the bounds and for unknown values, too."""
    model = model_of(tmp_path, target)
    x = torch.tensor([[0.5, 1, 0, 0], [1 / 32, 0, 0, 1], [1, 0, 1, 0], [-3, 0, 0, 0], [7, 1, 0, 0]])
    content = onnx_file(model.model, model.params, model.run.source.target)
    scores, answers = answered(content, x)
    with torch.no_grad():
        own = model.model.logits(model.params, x)
    assert torch.allclose(scores, own, rtol=1e-5, atol=1e-6)
    if target == "a number":
        expected = model.run.source.target.unscaled(own.flatten())[:, None]
    else:
        expected = model.model.probabilities(own)
    assert torch.allclose(
        answers, expected.reshape(answers.shape).to(answers), rtol=1e-5, atol=1e-6
    )


@pytest.mark.slow
def test_the_language_model_answers_the_same(tmp_path: Path) -> None:
    run = config.parse(
        toml(
            run={"updates": 9},
            data={"dataset": "wikitext-2"},
            model={"name": "lstm", "embedding": 4, "hidden": [8]},
            algorithm={"name": "fedasync", "learning_rate": 1.0},
        ),
        "test",
    )
    model = run.build_model()
    params = model.init(3)
    check_same(model, params, onnx_file(model, params, run.source.target))


@pytest.mark.parametrize("number", [False, True])
def test_an_own_module_answers_as_predict_does(tmp_path: Path, number: bool) -> None:
    more: dict[str, Any] = {"outputs": 1, "columns": DAYS} if number else {}
    results(tmp_path / "out", config.load(written(tmp_path / "run", **more)))
    exported.export(tmp_path / "out", tmp_path / "model", with_onnx=True)
    model = exported.read(tmp_path / "model", trust_code=True)
    rows = list(exported.predict(model, "table", new_rows(tmp_path / "new.csv")))
    _, answers = answered((tmp_path / "model" / "model.onnx").read_bytes(), X)
    expected: list[Any]
    if number:
        expected = [row.value for row in rows]
    else:
        expected = [list(row.probabilities.values()) for row in rows]
    assert np.allclose(answers.numpy(), expected, rtol=1e-5, atol=1e-6)


TARGETS = {
    "labels": Target("labels", ("a", "b", "c")),
    "event": Target("event", ("death",), low=0.0, cuts=(1.0, 2.0, 4.0)),
    "tokens": Target("tokens", length=PLACES, tokens=WORDS),
}


@pytest.mark.parametrize("kind", TARGETS)
def test_answers_are_in_the_words_of_the_target(kind: str) -> None:
    target = TARGETS[kind]
    if kind == "tokens":
        frozen, shape = frozen_transformer(1), (PLACES,)
    else:
        frozen, shape = frozen_case("mlp"), (6,)
    model = GraphModel(
        kind, shape, 3, checked=frozen.checked, values=frozen.values, objective=objective_of(target)
    )
    params = model.init(0)
    x, _ = model.random_batch(2, torch.Generator().manual_seed(1))
    with torch.no_grad():
        scores = model.logits(params, x)
    assert model.objective is not None
    if kind == "event":
        expected = torch.tensor(
            [list(shares.values()) for _, shares in model.objective.predictions(scores)]
        )
    else:
        expected = model.objective.means(scores)
    _, answers = answered(onnx_file(model, params, target), x)
    assert torch.allclose(answers.double(), expected.double(), rtol=1e-5, atol=1e-6)


def test_a_rows_answer_has_the_same_bits_in_any_company() -> None:
    model = graph_model("encoder")
    params = model.init(0)
    content = onnx_file(model, params, Target("classes", ("a", "b", "c")))
    x, _ = model.random_batch(7, torch.Generator().manual_seed(4))
    together = answered(content, x)[0]
    for place in range(7):
        assert torch.equal(answered(content, x[place : place + 1])[0][0], together[place])
    x[1:] = float("inf")
    assert torch.equal(answered(content, x)[0][0], together[0])


def test_the_command_writes_it_and_the_card_says_what_it_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results(tmp_path / "out", config.load(written(tmp_path / "run")))
    place = tmp_path / "model"
    with pytest.raises(SystemExit) as end:
        main(["export", str(place), "--run", str(tmp_path / "out"), "--onnx"])
    assert end.value.code == 0
    lines = capsys.readouterr()
    assert "model.onnx" in lines.out
    assert lines.err == ""
    card = (place / "README.md").read_text(encoding="utf-8")
    digest = hashlib.sha256((place / "model.onnx").read_bytes()).hexdigest()
    assert f"| model.onnx, SHA-256 | `{digest}` |" in card
    assert "`model.onnx` takes `rows`, any number of examples of 4 numbers" in card
    assert "`answers`: the probability of each class" in card
    exported.read(place, trust_code=True)


def test_without_the_extra_one_line_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tacit-9.dist-info").mkdir()
    (tmp_path / "tacit-9.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.4\nName: tacit\nVersion: 9\nProvides-Extra: onnx\n"
        "Requires-Dist: nowhere-to-be-found; extra == 'onnx'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SystemExit) as end:
        main(["export", str(tmp_path / "model"), "--run", str(tmp_path / "out"), "--onnx"])
    assert end.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "pip install 'tacit[onnx]'" in line


def test_what_onnx_has_no_words_for_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    frozen = frozen_case("pools")
    (tmp_path / "net.graph.json").write_text(frozen.graph.text())
    (tmp_path / "net.safetensors").write_bytes(frozen.file)
    text = toml(
        run={"updates": 9},
        data={
            "kind": "arrays", "dataset": None, "train": "rows.npz", "shape": [1, 8, 8], "low": 0.0,
            "high": 1.0, "classes": 3, "rows": 100,
        },
        model={"name": "graph", "file": "net.graph.json"},
        algorithm={"name": "fedasync", "learning_rate": 1.0},
        privacy={"batch": 10, "clip": 1.0},
    )  # fmt: skip
    (tmp_path / "run.toml").write_text(text)
    results(tmp_path / "out", config.load(tmp_path / "run.toml"))
    with pytest.raises(
        ConfigError, match=r"--onnx: net\.graph\.json .*adaptive_max_pool2d"
    ) as error:
        exported.export(tmp_path / "out", tmp_path / "model", with_onnx=True)
    assert len(str(error.value).splitlines()) == 1
    assert not (tmp_path / "model").exists()
    # Without it the folder is made, with the picture and the layers of the graph.
    exported.export(tmp_path / "out", tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert "![The network, layer by layer](network.svg)" in card
    assert "| 2 | 5 | linear | 1 | 3 | 51 | 48 |" in card
    assert (tmp_path / "model" / "network.svg").read_text().startswith("<svg ")
