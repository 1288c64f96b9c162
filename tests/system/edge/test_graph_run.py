"""Runs of what no edge has as code, a network or a front: each has the two files of its graph."""

from __future__ import annotations

import json
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tacit.graphs.freezing import freeze
from tacit.graphs.graph_file import Example
from tests.helpers.processes import deployment
from tests.helpers.run_files import toml
from tests.helpers.servers import mosquitto

WIDTH, ROWS, EDGES = 6, 300, 3


class Gated(nn.Module):
    """Two layers with a gate and a residual path: of no kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.gate = nn.Linear(WIDTH, 8), nn.Linear(WIDTH, 8)
        self.norm, self.out = nn.LayerNorm(8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores (B, 2)."""
        mixed = torch.tanh(self.inner(x)) * torch.sigmoid(self.gate(x))
        scores: Tensor = self.out(self.norm(mixed) + mixed)
        return scores


class Front(nn.Module):
    """Features of a row, by public weights."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm = nn.Linear(WIDTH, 12), nn.LayerNorm(12)

    def forward(self, x: Tensor) -> Tensor:
        """Return features (B, 12)."""
        return torch.tanh(self.norm(self.inner(x)))


def run_of(model: dict[str, Any], **data: Any) -> str:
    """Return the run file that all machines have."""
    arrays = {
        "kind": "arrays", "dataset": None, "train": "rows.npz", "shape": [WIDTH],
        "low": 0.0, "high": 1.0, "classes": 2, "rows": ROWS, "rows_max": ROWS,
    }  # fmt: skip
    return toml(
        run={"name": "graphs", "updates": 45},
        data=arrays | data,
        model=model,
        algorithm={"name": "mapa", "learning_rate": 1.0},
        privacy={"noise_multiplier": 0.8, "clip": 1.0, "batch": 60.0, "epsilon": 100.0},
        edges={"count": EDGES},
    )


@dataclass(frozen=True)
class Kind:
    """A run of a graph. changed: one of its operations. key: of the definition that names it."""

    module: type[nn.Module]
    run: str
    changed: str
    key: str


KINDS = {
    "model": Kind(
        Gated, run_of({"name": "graph", "file": "net.graph.json"}), "sigmoid.default", "code.graph="
    ),
    "front": Kind(
        Front,
        run_of({"name": "logistic"}, features=[{"front": "net.graph.json"}]),
        "tanh.default",
        "code.front net.graph.json=",
    ),
}


def folders(place: Path, kind: Kind) -> list[Path]:
    """Make a folder for the aggregator, and one for each edge with rows of its own."""
    torch.manual_seed(1)
    network = freeze(
        "module",
        kind.module(),
        Example(shape=(WIDTH,), dtype="float32", below=None),
        torch.tensor([0, 1]),
    )
    made = []
    for number in range(EDGES + 1):
        folder = place / f"machine-{number}"
        folder.mkdir()
        (folder / "net.graph.json").write_text(network.graph.text())
        (folder / "net.safetensors").write_bytes(network.file)
        (folder / "run.toml").write_text(kind.run)
        x = np.random.default_rng(number).random((ROWS, WIDTH)).astype(np.float32)
        np.savez(folder / "rows.npz", x=x, y=(x[:, 0] + x[:, 1] > 1).astype(np.int64))
        made.append(folder)
    return made


def machine(folder: Path) -> dict[str, str]:
    """Return the settings of a machine of its own: its run file, and what it knows of rows."""
    return {"TACIT_RUN_FILE": str(folder / "run.toml"), "XDG_DATA_HOME": str(folder / "home")}


@pytest.mark.parametrize("name", KINDS)
def test_three_machines_train_without_code_and_one_that_has_another_graph_is_refused(
    name: str, tmp_path: Path
) -> None:
    kind = KINDS[name]
    host, *machines = folders(tmp_path, kind)
    # The last machine has one operation that is another.
    last = machines[-1] / "net.graph.json"
    shutil.copytree(machines[-1], good := tmp_path / "mended")
    last.write_text(last.read_text().replace(kind.changed, "relu.default"))
    with mosquitto(tmp_path) as broker:
        address = f"{broker.host}:{broker.port}"
        with deployment(host, kind.run, address, "memory://", "graphs") as run:
            run.aggregator()
            for number, folder in enumerate(machines):
                run.edge(number, **machine(folder))
            stranger = run.services[-1]
            assert stranger.wait() != 0
            assert kind.key in stranger.log
            # With the same file as all others it takes part.
            run.edge(EDGES - 1, **machine(good))
            for service in run.services:
                assert service is stranger or service.wait() == 0, service.log
            summary = run.summary()
    assert summary["applied"] == 45
    definition = json.loads((run.out / "definition.json").read_text())["run"]
    stated = tomllib.loads(kind.run)
    assert definition["model"] == stated["model"]
    assert definition["data"].get("features") == stated["data"].get("features")
    assert not list(tmp_path.rglob("*.py"))
