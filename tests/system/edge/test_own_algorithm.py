"""A run whose algorithm is code at the host only: each edge has the run file and its rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tacit import config
from tacit.errors import ConfigError
from tests.helpers.processes import deployment
from tests.helpers.run_files import toml
from tests.helpers.servers import mosquitto

WIDTH, ROWS, EDGES = 6, 300, 3
CODE = '''
"""Momentum at the server, over edges that take two local steps."""

import torch

from tacit.algorithms import AlgorithmServer, AlgorithmSettings, LocalStepsTask, ServerAlgorithm


class MomentumSettings(AlgorithmSettings):
    decay: float = 0.5

    def computes(self):
        return LocalStepsTask(steps_min=2, learning_rate=0.2)


class MomentumServer(AlgorithmServer):
    saved = ("momentum",)

    def begin(self):
        self.momentum = torch.zeros_like(self.params)

    def step(self, update, tau):
        self.momentum = self.settings.decay * self.momentum + update.vector
        self.move(self.params + self.momentum)


class Momentum(ServerAlgorithm):
    settings = MomentumSettings
    role = MomentumServer
'''
EDGE = {"kind": "local steps", "steps_min": 2, "learning_rate": 0.2}


def run_file(**changes: object) -> str:
    algorithm = {"name": None, "entry": "momentum:Momentum", "decay": 0.4, "edge": EDGE} | changes
    return toml(
        run={"name": "momentum", "updates": 45},
        data={
            "kind": "arrays", "dataset": None, "train": "rows.npz", "shape": [WIDTH],
            "low": 0.0, "high": 1.0, "classes": 2, "rows": ROWS, "rows_max": ROWS,
        },
        model={"name": "logistic"},
        algorithm=algorithm,
        privacy={"noise_multiplier": 0.8, "clip": 1.0, "batch": 60.0, "epsilon": 100.0},
        edges={"count": EDGES},
    )  # fmt: skip


def folder(place: Path, number: int, text: str) -> Path:
    """Make a machine's folder, with rows of its own; the first has the algorithm's code."""
    made = place / f"machine-{number}"
    made.mkdir()
    (made / "run.toml").write_text(text)
    if number == 0:
        (made / "momentum.py").write_text(CODE)
    x = np.random.default_rng(number).random((ROWS, WIDTH)).astype(np.float32)
    np.savez(made / "rows.npz", x=x, y=(x[:, 0] + x[:, 1] > 1).astype(np.int64))
    return made


def machine(folder: Path) -> dict[str, str]:
    return {"TACIT_RUN_FILE": str(folder / "run.toml"), "XDG_DATA_HOME": str(folder / "home")}


def test_edges_without_the_code_train_and_one_with_another_task_is_refused(tmp_path: Path) -> None:
    text = run_file()
    host, *machines = [folder(tmp_path, number, text) for number in range(EDGES + 1)]
    other = machines[-1] / "run.toml"
    other.write_text(text.replace("steps_min = 2", "steps_min = 3"))
    with mosquitto(tmp_path) as broker:
        address = f"{broker.host}:{broker.port}"
        with deployment(host, text, address, "memory://", "momentum") as run:
            run.aggregator()
            for number, folder_ in enumerate(machines):
                run.edge(number, **machine(folder_))
            stranger = run.services[-1]
            assert stranger.wait() != 0
            assert "algorithm.edge.steps_min=3, here 2" in stranger.log
            other.write_text(text)
            run.edge(EDGES - 1, **machine(machines[-1]))
            for service in run.services:
                assert service is stranger or service.wait() == 0, service.log
            summary = run.summary()
    assert summary["applied"] == 45
    definition = json.loads((run.out / "definition.json").read_text())
    assert len(definition["run"]["algorithm"]["code"]) == 64


def refused(place: Path, text: str) -> str:
    (place / "run.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        config.load(place / "run.toml")
    return str(caught.value)


def test_a_site_without_the_code_is_told_what_the_run_file_must_state(tmp_path: Path) -> None:
    """What only the code knows, a run file for sites states."""
    why = refused(tmp_path, run_file(edge=None))
    assert "no module momentum beside the run file" in why
    text = run_file().replace("noise_multiplier = 0.8\n", "")
    assert "its code is not here, so the run file must state privacy.pushes" in refused(
        tmp_path, text
    )


def test_a_host_whose_run_file_states_another_task_is_refused(tmp_path: Path) -> None:
    host = folder(tmp_path, 0, run_file(edge={"kind": "gradient"}))
    why = refused(host, (host / "run.toml").read_text())
    assert (
        'algorithm.edge = {kind = "gradient"}: the algorithm\'s code asks for {kind = "local steps"'
        in why
    )
