"""A front as a graph: no code of it runs on private records, and a site needs none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tacit import exported
from tacit.config.preflight import warnings
from tacit.datasets.features import apply, shape_with
from tacit.datasets.features.graph_front import FrozenFront
from tacit.errors import ConfigError
from tacit.graphs.freezing import freeze
from tacit.graphs.graph_file import Example, read_graph
from tacit.graphs.interpreter import Program
from tests.unit.datasets.test_front import NETS, WIDE, front, network, run, steps
from tests.unit.datasets.test_own_kinds import fresh
from tests.unit.exported.test_exported import results
from tests.unit.project.test_new_targets import tacit

MORE = """

class Counts(nn.Module):
    runs = 0

    def forward(self, x):
        Counts.runs += 1
        return x.flatten(1) * 2


class Hides(nn.Module):
    def forward(self, x):
        largest = torch.tensor([0.0])
        largest[0] = x.detach().max()
        return x.flatten(1) if largest.item() < 2 else -x.flatten(1)
"""
SHAPE = (1, 6, 6)
GRAPH = [{"front": "front.graph.json"}]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the front's code and weights, which is the current one."""
    folder = fresh(tmp_path / "run")
    (folder / "nets.py").write_text(NETS + MORE, encoding="utf-8")
    save_file(network().get_submodule("front").state_dict(), folder / "front.safetensors")
    monkeypatch.chdir(folder)
    return folder


def freeze_it(name: str = "Front", out: str = "front.graph.json") -> int:
    """Freeze a front of the current folder, as its author does."""
    more = []
    if name == "Front":
        (Path("front.safetensors")).rename("weights.safetensors")
        more = ["--weights", "weights.safetensors", "--arguments", f"wide = {WIDE}"]
    code: int = tacit("freeze", f"nets:{name}", "--front", "--shape", "1,6,6", *more, "--out", out)
    return code


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Strange", r"nets\.py:\d+: asks for a number of a row"),
        ("Ragged", r"nets\.py:\d+: asks for a number of a row"),
        ("Late", r"asks for a number of a row|writes to a buffer"),
        ("Writes", "writes to its input; work on a copy"),
        ("Hides", "asks for a number of a row|takes other steps for other numbers"),
    ],
)
def test_a_front_that_cannot_become_a_graph_is_refused_in_one_line(
    folder: Path, name: str, why: str
) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        shape_with((front(folder, name, "{}"),), SHAPE)
    assert str(caught.value).startswith(f"data.features.front=nets:{name}: ")
    assert str(caught.value).endswith('; or say control_flow = "trusted" in this step')
    assert "\n" not in str(caught.value)


def test_a_trusted_front_is_said_and_one_that_becomes_a_graph_needs_no_trust(folder: Path) -> None:
    step = {"front": "nets:Strange", "control_flow": "trusted"}
    definition = run(folder, {"name": "logistic"}, features=[step]).define()
    said = [line for line in warnings(definition, 74) if "nets:Strange" in line]
    assert len(said) == 1
    assert "is tried, not known" in said[0]
    assert definition.promise.guarantee.trusted.startswith("whoever wrote the code of a front")
    plain = run(folder, {"name": "logistic"}, features=steps()).define()
    assert not any("trusted" in line for line in warnings(plain, 74))
    assert plain.promise.guarantee.trusted.startswith("nobody")


def test_no_code_of_a_front_runs_on_records(folder: Path) -> None:
    step = front(folder, "Counts", "{}")
    assert shape_with((step,), SHAPE) == (36,)
    counts = sys.modules["nets"].Counts
    runs = counts.runs
    assert runs
    records = torch.rand(5, *SHAPE, generator=torch.Generator().manual_seed(1))
    assert torch.equal(apply((step,), records, private=True), records.flatten(1) * 2)
    assert counts.runs == runs


def test_a_frozen_front_gives_the_features_of_its_code_without_it(
    folder: Path, tmp_path: Path
) -> None:
    from_code = run(folder, {"name": "logistic"}, features=steps())
    expected = from_code.source.edge(0, None, tmp_path / "code").rows.for_edge(2).x
    assert freeze_it() == 0
    for file in ("nets.py", "weights.safetensors"):
        (folder / file).unlink()
    run_file = run(folder, {"name": "logistic"}, features=GRAPH)
    assert run_file.source.shape == ((4 * WIDE,), 2)
    rows = run_file.source.edge(0, None, tmp_path / "graph").rows.for_edge(2).x
    assert torch.equal(rows, expected)
    stated = run_file.stated()
    digest = read_graph(folder / "front.graph.json").digest()
    assert stated["code"] == {"front front.graph.json": digest}
    assert stated["data"]["features"] == GRAPH


def test_a_frozen_front_that_was_changed_or_does_not_fit_is_refused(folder: Path) -> None:
    assert freeze_it(out="net.graph.json") == 0
    graph, values = folder / "net.graph.json", folder / "net.safetensors"
    names = {"front": "net.graph.json"}

    def shape_of(*features: dict[str, Any]) -> object:
        return run(folder, {"name": "logistic"}, features=list(features)).source.shape

    source = run(folder, {"name": "logistic"}, features=[names]).source
    text, numbers = graph.read_text(), values.read_bytes()
    graph.write_text(text.replace("relu.default", "tanh.default"))
    with pytest.raises(ConfigError, match="is another graph than the run definition says"):
        _ = source.shape
    graph.write_text(text)
    save_file({"other": torch.zeros(1)}, values)
    with pytest.raises(ConfigError, match=r"net\.safetensors is not what the run definition says"):
        shape_of(names)
    with pytest.raises(ConfigError, match=r"^data\.features\.front=net\.graph\.json: .*has no "):
        shape_of({**names, "weights": "net.safetensors"})
    values.write_bytes(numbers)
    with pytest.raises(ConfigError, match=r"takes records of \[1, 6, 6\] numbers; the data has"):
        shape_of(names, names)
    assert shape_of(names) == ((4 * WIDE,), 2)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"front": "none.graph.json"}, "no such file"),
        ({"front": "../front.graph.json"}, "leaves the run file's folder"),
        ({"front": "a.graph.json", "arguments": {"wide": 2}}, "arguments: is for a module"),
        ({"front": "a.graph.json", "control_flow": "trusted"}, "control_flow: is for a module"),
        ({"front": "empty.graph.json"}, "is no JSON"),
        ({"front": "bare.graph.json"}, "no such file"),
    ],
)
def test_files_that_are_no_front_are_refused(
    folder: Path, step: dict[str, Any], message: str
) -> None:
    (folder / "empty.graph.json").write_bytes(b"")
    scalar = freeze(
        "net", nn.Flatten(), Example(shape=SHAPE, dtype="float32", below=None), torch.zeros(2)
    )
    (folder / "bare.graph.json").write_text(scalar.graph.text())
    with pytest.raises(ConfigError, match=message):
        _ = run(folder, {"name": "logistic"}, features=[step]).source.shape


def test_a_graph_with_a_loss_is_no_front() -> None:
    def loss(output: Tensor, _: Tensor) -> Tensor:
        return output.square().sum()

    example = Example(shape=SHAPE, dtype="float32", below=None)
    frozen = freeze("net", nn.Flatten(), example, torch.zeros(2), loss=loss)
    with pytest.raises(ConfigError, match="expected a tensor"):
        FrozenFront(frozen.checked, frozen.values)


class Watched(Program):
    """A program that notes where in memory it is given records."""

    addresses: ClassVar[list[int]] = []

    def bound(self, weights: Mapping[str, Tensor]) -> Callable[..., Tensor]:
        """Return its function."""
        run = super().bound(weights)

        def noted(x: Tensor) -> Tensor:
            self.addresses.append(x.data_ptr())
            return run(x)

        return noted


def test_where_a_record_lies_changes_no_bit_of_its_features() -> None:
    """Libraries' products may round by the address of what they multiply."""
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(63, 33), nn.Tanh(), nn.Linear(33, 129)).requires_grad_(False)
    example = Example(shape=(63,), dtype="float32", below=None)
    frozen = freeze("net", module, example, torch.zeros(2), trainable=())
    network = frozen.checked.network
    watched = Watched(("$x",), network.steps, frozen.graph.output)
    ready = FrozenFront(replace(frozen.checked, network=watched), frozen.values)
    record = torch.rand(63)
    views = [torch.zeros(200)[place : place + 63].copy_(record) for place in range(16)]
    assert len({view.data_ptr() % 64 for view in views}) == 16
    assert len({ready.features(view).numpy().tobytes() for view in views}) == 1
    assert {address % 64 for address in watched.addresses} == {0}


def test_an_exported_model_with_a_frozen_front_needs_no_trust(folder: Path, tmp_path: Path) -> None:
    assert freeze_it() == 0
    (folder / "nets.py").unlink()
    run_file = run(folder, {"name": "logistic"}, features=GRAPH)
    params = results(tmp_path / "out", run_file)
    exported.export(tmp_path / "out", tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model" / "code").iterdir()) == [
        "front.graph.json",
        "front.safetensors",
    ]
    model = exported.read(tmp_path / "model")
    predictions = [
        prediction.value for prediction in exported.predict(model, "arrays", folder / "rows.npz")
    ]
    x = torch.from_numpy(np.load(folder / "rows.npz")["x"]).float()
    with torch.no_grad():
        scores = model.model.logits(params, network().get_submodule("front")(x))
    assert predictions == [str(int(label)) for label in scores.argmax(1)]


def test_what_is_no_front_is_not_frozen_as_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert freeze_it("Sum") == 2
    assert "gives one record two answers" in capsys.readouterr().err
    assert freeze_it("Strange") == 2
    assert "asks for a number of a row" in capsys.readouterr().err
    assert not list(folder.glob("*.graph.json"))
