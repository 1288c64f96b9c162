"""Make a vertical run's protocol, models and privacy plans from its definition.

Public numbers only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.algorithms.vafl.step_rules import Protocol, StepRule
from tacit.algorithms.vafl.vafl_settings import Vafl
from tacit.config.definition import Definition
from tacit.datasets import Dataset, party_columns, party_view
from tacit.datasets.own.own_columns import OwnColumns
from tacit.errors import ConfigError
from tacit.models import checked_size
from tacit.models.zoo.embedding_networks import Embedding, embedding, of_columns
from tacit.privacy.accounting import gdp
from tacit.privacy.release.embeddings import EmbeddingPlan


@dataclass(frozen=True, slots=True)
class Vertical:
    """What a vertical run's roles are built from: its definition and the protocol they share."""

    definition: Definition[Vafl]
    protocol: Protocol

    @property
    def settings(self) -> Vafl:
        """The [algorithm] section."""
        return self.definition.algorithm

    @property
    def own(self) -> OwnColumns | None:
        """The own columns that the run is of; None: columns of a published data set."""
        source = self.definition.source
        return source if isinstance(source, OwnColumns) else None

    @property
    def public_test(self) -> bool:
        """Whether people who are tested on are public, so that no noise hides their columns."""
        return self.settings.public_test or self.own is not None

    def places(self, number: int) -> int | None:
        """Return how many numbers of party `number`'s embedding say something; None: all do."""
        if self.settings.embedding != "columns":
            return None
        if self.own is not None:
            return self.own.places[number]
        shape, _ = self.definition.source.shape
        return self.view(torch.zeros(1, *shape), number).shape[1]

    def party_model(self, shape: tuple[int, ...], number: int = 0) -> Embedding:
        """Return h_m of party `number`, whose blocks have `shape`. Raises ConfigError."""
        a = self.settings
        if a.embedding == "columns":
            if self.own is not None:
                files = self.own.parties[number]
                return of_columns(files.affine, len(files.features), a.width)
            if len(shape) != 1:
                raise ConfigError(f"algorithm.embedding=columns: {shape} is no row of columns")
            plain = (1.0,) * shape[0], (0.0,) * shape[0]
            return of_columns(plain, shape[0], a.width)
        network = embedding(
            a.embedding,
            shape,
            a.width,
            hidden=a.hidden,
            channels=a.channels,
            kernel=a.kernel,
            activation=a.activation,
            smoothing=a.smoothing,
        )
        checked_size(network)
        return network

    def view(self, x: Tensor, party: int) -> Tensor:
        """Return the part of the examples x (n, *shape) that party `party` of the testbed holds.

        Raises ConfigError.
        """
        sizes = party_columns(self.definition.source.name)
        parties = self.protocol.parties
        return party_view(x, party, parties, quadrants=self.settings.quadrants, sizes=sizes)

    def regularization(self, party: int) -> float:
        """Return λ of party number `party`."""
        strengths = self.settings.regularization
        if len(strengths) > 1:
            return strengths[party]
        return strengths[0]

    def plan(self, party: int) -> EmbeddingPlan:
        """Return the privacy plan of party number `party`.

        It has the party's own ε_m, and one z that is calibrated for it, exactly (gdp.py). `cached`,
        `fresh`: pushes/z² = μ(ε, δ)². `dp_sgd`: half of μ² for releases and half for steps.
        `trained`: pushes are uploads, of `batch` vectors each, all of which depend on every record:
        pushes·batch/z² = μ².
        """
        a = self.settings
        p = self.definition.privacy
        mode = a.release_mode(p.mechanism)
        epsilon = self.definition.plans.epsilon(party)
        z = p.noise_multiplier or 0.0
        if mode in ("cached", "fresh", "dp_sgd", "trained") and not z:
            times = {"dp_sgd": 2, "trained": round(p.batch)}.get(mode, 1)
            z = math.sqrt(p.pushes * times) / gdp.mu_within(epsilon, p.delta)
        return EmbeddingPlan(mode, p.constant_clip, z, epsilon, p.delta, a.step_clip, z)

    def named(self, party: str) -> EmbeddingPlan:
        """Return the privacy plan of the party called `party`."""
        return self.plan(self.definition.plans.number(party))


def vertical(definition: Definition[Any]) -> Vertical:
    """Return the settings of a vertical run. Raises ConfigError for a run that is not vertical."""
    a = definition.algorithm
    batch = definition.privacy.batch
    seed = definition.run.seed
    parties = definition.edges.count
    if not isinstance(a, Vafl):
        raise ConfigError(
            f"algorithm.name={a.name!r} is not vertical; a party can only take part in vafl"
        )
    t = parties if a.synchronous else a.t
    steps = StepRule(
        a.steps_rule,
        a.learning_rate,
        a.server_share,
        a.smoothness,
        a.convexity,
        a.delay_bound if a.max_delay is None else a.max_delay,
        a.tail,
        a.ratio,
        a.rarest or 1 / parties,
        a.scale,
        definition.run.updates,
        t,
        a.factor,
    )
    protocol = Protocol(parties, round(batch), steps, t, a.synchronous, a.max_delay, seed)
    return Vertical(definition, protocol)


def record_ids(data: Dataset) -> list[str]:
    """Return an id for every row, the same at every party of the testbed.

    It says who the row is of, and which of their rows it is.
    """
    numbers = range(len(data)) if data.ids is None else data.ids.tolist()
    occurrences: dict[int, int] = {}
    ids = []
    for number in numbers:
        occurrences[number] = occurrences.get(number, -1) + 1
        ids.append(f"{data.name}/{number}/{occurrences[number]}")
    return ids
