"""tacit's own networks as graphs: the same vector, outputs and gradients of every row."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tacit.config.frozen_sections import frozen_model
from tacit.datasets.target import Target
from tacit.errors import ConfigError
from tacit.models import NAMES, build
from tacit.models.graph.frozen_entry import FreezeRequest
from tacit.models.graph.graph_model import GraphModel, write_parts
from tacit.models.graph.graph_network import GraphNetwork
from tacit.models.objectives import objective_of
from tacit.models.vectors import example_gradients
from tests.helpers.own_simulation import simulated
from tests.helpers.run_files import toml
from tests.unit.project.test_new_targets import tacit

CLASSES, ROWS = 5, 3


@dataclass(frozen=True)
class Zoo:
    """A network of tacit's own: its name, an example's shape, and its sizes."""

    name: str
    shape: tuple[int, ...]
    sizes: dict[str, Any]

    def request(self, classes: int = CLASSES) -> FreezeRequest:
        """Return what freezes it."""
        listed = {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in self.sizes.items()
        }
        return FreezeRequest(
            self.name, Path(), self.shape, None, listed, 7, None, classes, 0, ("*",), None
        )


SMALL = (1, 14, 14)
CASES = {
    "logistic": Zoo("logistic", SMALL, {}),
    "svm": Zoo("svm", (9,), {}),
    "mlp": Zoo("mlp", SMALL, {"hidden": (12, 8)}),
    "mlp of tanh": Zoo("mlp", (9,), {"hidden": (12,), "activation": "tanh"}),
    "cnn": Zoo("cnn", (1, 28, 28), {"hidden": (50,)}),
    "cnn that pools every other time": Zoo(
        "cnn", SMALL, {"channels": (4, 4, 6, 6), "kernel": 3, "pool_every": 2}
    ),
    "cnn with norms": Zoo(
        "cnn", SMALL, {"channels": (4, 6), "kernel": 3, "normalization": "group"}
    ),
    "resnet": Zoo("resnet", (3, 8, 8), {"width": 4, "blocks": 2}),
    "mobilenet": Zoo("mobilenet", (3, 8, 8), {"width": 4}),
    "lstm": Zoo("lstm", (6,), {"embedding": 4, "hidden": (5, 3)}),
}


def test_every_network_is_among_the_cases() -> None:
    assert {case.name for case in CASES.values()} == set(NAMES)


def as_a_site_has_it(case: Zoo, folder: Path) -> GraphModel:
    """Return the network from the two files that freezing writes."""
    frozen = frozen_model(case.request())
    (folder / "net.graph.json").write_text(frozen.graph.text())
    (folder / "net.safetensors").write_bytes(frozen.file)
    network = GraphNetwork("net.graph.json", None, None, ("*",), folder)
    if case.name == "lstm":
        text = Target("text", tokens=CLASSES, length=case.shape[0])
        model = network.build(case.shape, 0, 0.0, objective_of(text), CLASSES)
    else:
        model = network.build(case.shape, CLASSES, 0.0)
    assert isinstance(model, GraphModel)
    return model


@pytest.mark.parametrize("name", CASES)
def test_a_graph_has_the_outputs_and_the_gradients_of_the_network(
    name: str, tmp_path: Path
) -> None:
    case = CASES[name]
    model = build(case.name, case.shape, CLASSES, **case.sizes)
    graph = as_a_site_has_it(case, tmp_path)
    assert graph.layout == model.layout
    assert torch.equal(graph.init(0), model.init(7))
    chance = torch.Generator().manual_seed(2)
    params = model.init(7) + 0.1 * torch.randn(model.size, generator=chance)
    x, y = model.random_batch(ROWS, chance)
    with torch.no_grad():
        assert torch.allclose(graph.logits(params, x), model.logits(params, x), 1e-5, 1e-5)
    own = example_gradients(model, params, x, y)
    compute = graph.row_gradient(params)
    for row, label, expected in zip(x, y, own, strict=True):
        out = torch.empty(model.size)
        write_parts(compute(row[None], label), out)
        assert float((out - expected).abs().max()) <= 1e-5 * float(expected.abs().max())


def test_what_is_no_network_of_tacits_is_refused() -> None:
    with pytest.raises(ConfigError, match="--classes 0: cnn scores at least 2 classes"):
        frozen_model(CASES["cnn"].request(classes=0))
    with pytest.raises(ConfigError, match=r"--arguments: hiden=.*did you mean hidden"):
        frozen_model(Zoo("mlp", (9,), {"hiden": (3,)}).request())
    with pytest.raises(ConfigError, match='expected "module:name"'):
        frozen_model(Zoo("forest", (9,), {}).request())


SIZES = {"channels": [4, 6], "kernel": 3, "hidden": [8]}


def trained(folder: Path, model: dict[str, Any]) -> dict[str, Tensor]:
    """Return what 20 updates on digits make of a model."""
    text = toml(
        run={"updates": 20, "seed": 3},
        model=model,
        algorithm={"name": "fedasync", "learning_rate": 1.0},
        privacy={"mechanism": "none", "clip": 1.0, "batch": 32.0},
        edges={"count": 2},
    )
    run = folder / f"{model['name']}.toml"
    run.write_text(text)
    simulated(run, folder / model["name"])
    return load_file(folder / model["name"] / "model.safetensors")


def test_a_frozen_network_trains_as_the_network_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sizes = ", ".join(f"{key} = {value}" for key, value in SIZES.items())
    shape = ["--shape", "1x8x8", "--classes", "10", "--seed", "3"]
    assert tacit("freeze", "cnn", *shape, "--arguments", sizes, "--out", "net.graph.json") == 0
    graph = trained(tmp_path, {"name": "graph", "file": "net.graph.json"})
    network = trained(tmp_path, {"name": "cnn", **SIZES})
    start = build("cnn", (1, 8, 8), 10, channels=(4, 6), kernel=3, hidden=(8,))
    for name, before in start.unflatten(start.init(3)).items():
        assert torch.allclose(graph[name], network[name], 1e-3, 1e-5)
        assert not torch.allclose(before, network[name], 1e-2, 1e-3)
