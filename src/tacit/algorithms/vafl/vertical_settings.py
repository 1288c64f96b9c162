"""From a vertical run file to its parts: protocol, models of both sides, privacy plan. Public numbers only."""

from __future__ import annotations

import math

from torch import Tensor

from tacit.algorithms.vafl.step_rules import Protocol, Steps
from tacit.config import RunFile
from tacit.config.algorithms import Vafl
from tacit.datasets import Dataset, party_columns, party_view
from tacit.errors import ConfigError
from tacit.models import checked_size
from tacit.models.zoo.embeddings import Embedding, embedding
from tacit.privacy import gdp
from tacit.privacy.embeddings import EmbeddingPlan, Mode


def section(run: RunFile) -> Vafl:
    """The [algorithm] section. Raises ConfigError for a run that is not vertical."""
    if not isinstance(run.algorithm, Vafl):
        raise ConfigError(f"algorithm.name={run.algorithm.name!r} is not vertical; a party can only take part in vafl")
    return run.algorithm


def protocol(run: RunFile) -> Protocol:
    """What all roles share."""
    a, parties = section(run), run.edges.count
    t = parties if a.synchronous else a.t
    delay = a.delay_bound if a.max_delay is None else a.max_delay
    steps = Steps(
        a.steps_rule, a.learning_rate, a.server_share, a.smoothness, a.convexity, delay, a.tail, a.ratio,
        a.rarest or 1 / parties, a.scale, run.run.updates, t,
    )  # fmt: skip
    return Protocol(parties, round(run.privacy.batch), steps, t, a.synchronous, a.max_delay, run.run.seed)


def party_model(run: RunFile, shape: tuple[int, ...]) -> Embedding:
    """h_m of a party whose blocks have `shape`. Raises ConfigError."""
    a = section(run)
    made = embedding(
        a.embedding, shape, a.width, hidden=a.hidden, channels=a.channels, kernel=a.kernel, activation=a.activation,
        smoothing=a.smoothing,
    )  # fmt: skip
    checked_size(made)
    return made


def view(run: RunFile, x: Tensor, party: int) -> Tensor:
    """What party number `party` of the testbed holds of the examples x (n, *shape). Raises ConfigError."""
    sizes, quadrants = party_columns(run.data.dataset), section(run).quadrants
    return party_view(x, party, run.edges.count, quadrants=quadrants, sizes=sizes)


def regularization(run: RunFile, party: int) -> float:
    """λ of party number `party`."""
    given = section(run).regularization
    return given[party] if len(given) > 1 else given[0]


def privacy_plan(run: RunFile, party: int) -> EmbeddingPlan:
    """The privacy plan of party number `party`: its own ε_m, one z calibrated for it, exactly (gdp.py).

    `cached`, `fresh`: pushes/z² = μ(ε, δ)². `dp_sgd`: half of μ² for releases and half for steps. `trained`: pushes
    are uploads, of `batch` vectors each, all of which depend on every record: pushes·batch/z² = μ².
    """
    a, p = section(run), run.privacy
    epsilon = run.epsilon(party)
    mode: Mode = a.mode if p.mechanism == "gaussian" else "paper" if p.mechanism == "paper" else "none"
    z = p.noise_multiplier or 0.0
    if mode in ("cached", "fresh", "dp_sgd", "trained") and not z:
        times = {"dp_sgd": 2, "trained": round(p.batch)}.get(mode, 1)
        z = math.sqrt(p.pushes * times) / gdp.mu_within(epsilon, p.delta)
    return EmbeddingPlan(mode, p.clip or 1.0, z, epsilon, p.delta, a.step_clip, z)


def record_ids(data: Dataset) -> list[str]:
    """A name for every row, the same at every party of the testbed: who it is, and which of their rows it is."""
    numbers = range(len(data)) if data.ids is None else data.ids.tolist()
    seen: dict[int, int] = {}
    found = []
    for number in numbers:
        seen[number] = seen.get(number, -1) + 1
        found.append(f"{data.name}/{number}/{seen[number]}")
    return found
