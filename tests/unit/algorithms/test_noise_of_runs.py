"""The band of an additive model's bins is what the noise of the releases really leaves in them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tacit.algorithms.ebm.ebm_server import EbmServer
from tacit.datasets.target import Target
from tacit.exported.shown_scores import shown_deviation, shown_scores
from tacit.protocol.messages import GlobalModel
from tacit.questions.row_parts import Reals
from tests.unit.algorithms.test_ebm import answered, greet, rows, server

PARTS = (0.6, 0.3, 0.1)  # of the rows, at each of three edges
ROWS = 6000


def made_up(labels: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows whose target is likelier to be high where the first column is."""
    chance = torch.Generator().manual_seed(5)
    x, _ = rows(labels, ROWS)
    raised = x[:, 0] + 0.3 * torch.randn(ROWS, generator=chance)
    if not labels:
        return x, raised.clamp(0.0, 1.0)
    return x, (raised * labels).clamp(0, labels - 1).long()


def trained(labels: int, seed: int, noise: float = 1.0) -> EbmServer:
    """Return the server of a run whose edges answer in turn; noise: times what it should be."""
    role = server(labels)
    chance = torch.Generator().manual_seed(seed)
    x, y = made_up(labels)
    ends = [0, *np.cumsum([round(part * ROWS) for part in PARTS]).tolist()]
    edges = [f"edge-{number}" for number in range(len(PARTS))]
    tasks = {edge: greet(role, edge) for edge in edges}
    while not role.halted:
        for number, edge in enumerate(edges):
            task = tasks[edge]
            mine = slice(ends[number], ends[number + 1])
            update = replace(answered(role, task, x[mine], y[mine]), edge=edge)
            plan = role._plans.named(edge)
            deviation = noise * plan.noise_multiplier * role.clip_at(task.version) / plan.batch
            vector = update.vector + deviation * torch.randn(len(update.vector), generator=chance)
            for out in role.on_message(replace(update, vector=vector)):
                if isinstance(out.message, GlobalModel):
                    tasks[edge] = out.message
            if role.halted:
                break
    return role


def target(role: EbmServer) -> Target:
    if not role._model.labels:
        return Target("number")
    return Target("classes", ("a", "b", "c")[: role._model.labels])


def shown(role: EbmServer) -> Reals:
    scores = role.params.double().numpy().reshape(role._model.classes, -1) * role._model.part
    return shown_scores(scores, target(role))


def deviations(role: EbmServer) -> Reals:
    read = role.bins_read()
    assert read is not None
    known = read.deviations()
    assert known is not None
    return known * shown_deviation(target(role))


def ratio(labels: int, runs: int, noise: float = 1.0) -> float:
    """Return the deviation among runs that differ in their noise, beside that of their bands."""
    roles = [trained(labels, seed, noise) for seed in range(runs)]
    real = np.stack([shown(role) for role in roles]).var(axis=0, ddof=1).mean()
    band = deviations(roles[0]) ** 2
    return float(np.sqrt(real / band.mean()))


@pytest.mark.parametrize(
    "labels", [2, *(pytest.param(other, marks=pytest.mark.exhaustive) for other in (0, 3))]
)
def test_the_band_is_what_noise_leaves(labels: int) -> None:
    """To a third: it is computed from one run, and on rows that are made up."""
    assert 0.66 < ratio(labels, 5) < 1.5


@pytest.mark.exhaustive
def test_a_band_of_half_the_noise_would_be_seen() -> None:
    assert ratio(2, 5, noise=2.0) > 1.5
