"""The rows that shadow runs draw members from, and how members are dealt to edges.

Records are numbered from 0. Only members that an edge has are members of a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from tacit.attacks.attacked_rows import RecordRows
from tacit.attacks.likelihood_ratio import Draws
from tacit.config.definition import Definition
from tacit.config.own_data import OwnData
from tacit.datasets import Benchmark, Dataset
from tacit.datasets.own.rows_file import UnitRows
from tacit.datasets.source import EdgePart
from tacit.datasets.stand_in import StandIn
from tacit.errors import ConfigError


@dataclass(frozen=True, slots=True)
class DealtMembers:
    """The rows of every edge, and the truth: inside (records,), who is at one of them."""

    parts: list[EdgePart]
    inside: npt.NDArray[np.bool_]


class ShadowRows(Protocol):
    """Rows that are nobody's secret, for shadow runs."""

    @property
    def rows(self) -> RecordRows:
        """All rows, with their records."""
        ...

    def dealt(self, definition: Definition[Any], drawn: Draws, seed: int) -> DealtMembers:
        """Return edges whose members are of those `drawn` (records,), dealt by `seed`."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class PublishedRows:
    """A published data set, training rows first: x, y, and groups where it is dealt by groups.

    trained_on: how many training rows there are. A draw has as many, so each edge has as many rows
    as in the run.
    """

    x: npt.NDArray[Any]
    y: npt.NDArray[Any]
    groups: npt.NDArray[Any] | None
    classes: int
    trained_on: int

    @classmethod
    def of(cls, source: Benchmark, train: Dataset, test: Dataset) -> PublishedRows:
        """Return the rows of a run on published data. Raises ConfigError."""
        groups = None
        if source.dealing.method == "natural":
            if train.groups is None or test.groups is None:
                raise ConfigError(
                    f"data.partition=natural: the test rows of {source.name} have no groups to be "
                    "dealt by; use --shadows 0"
                )
            groups = torch.cat((train.groups, test.groups)).numpy()
        x, y = (torch.cat(pair).numpy() for pair in ((train.x, test.x), (train.y, test.y)))
        return cls(x, y, groups, train.classes, len(train))

    @property
    def rows(self) -> RecordRows:
        """All rows, each a record."""
        return RecordRows.each_alone(torch.from_numpy(self.x), torch.from_numpy(self.y))

    @property
    def as_trained(self) -> Draws:
        """The draw of the run itself: all training rows."""
        return np.arange(len(self.y)) < self.trained_on

    def dealt(self, definition: Definition[Any], drawn: Draws, seed: int) -> DealtMembers:
        """Return edges that have the rows which the run's own division gives them."""
        source = definition.source
        assert isinstance(source, Benchmark)
        numbers = np.flatnonzero(drawn)
        by = self.y if self.groups is None else self.groups
        divided = source.dealing.parts(torch.from_numpy(by[numbers]))
        inside = np.zeros(len(self.y), np.bool_)
        parts = []
        for part in divided[: definition.edges.count]:
            places = numbers[part.numpy()]
            inside[places] = True
            rows = Dataset(
                torch.from_numpy(self.x[places]), torch.from_numpy(self.y[places]), self.classes,
                source.name,
            )  # fmt: skip
            parts.append(EdgePart(rows, len(places)))
        return DealtMembers(parts, inside)


@dataclass(frozen=True, slots=True, eq=False)
class StandInRows:
    """Public or made-up rows in the form of an owner's: records are the units of `stand_in`."""

    stand_in: StandIn
    of_unit: UnitRows | None

    @classmethod
    def of(cls, data: OwnData, stand_in: StandIn) -> StandInRows:
        """Return the rows of a run on own data."""
        if data.unit is None:
            return cls(stand_in, None)
        return cls(stand_in, UnitRows(data.unit_rows or 1, data.unit_gradient == "mean"))

    @property
    def rows(self) -> RecordRows:
        """All rows of the units."""
        units = self.stand_in.units
        index = np.concatenate(units)
        record = np.repeat(np.arange(len(units)), [len(unit) for unit in units])
        return RecordRows(self.stand_in.x[index], self.stand_in.y[index], record)

    def dealt(self, definition: Definition[Any], drawn: Draws, seed: int) -> DealtMembers:
        """Return edges that share the members evenly, each with at most as many as in the run.

        A member is at one edge only. The plan of an edge is the run's, so a record has the noise
        and the chance to be drawn that it has in the run.
        """
        chance = np.random.default_rng(seed)
        most = definition.plans.rows
        members = chance.permutation(np.flatnonzero(drawn))[: most * definition.edges.count]
        inside = np.zeros(len(drawn), np.bool_)
        inside[members] = True
        parts = [
            EdgePart(self.stand_in.edge_of(places, self.of_unit), most)
            for places in np.array_split(members, definition.edges.count)
        ]
        return DealtMembers(parts, inside)
