"""Public rows in the place of private ones: what settings are tried on before anything is spent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from tacit.datasets.benchmarks.load import Dataset
from tacit.datasets.edge_rows import EdgeRows, Index, Units
from tacit.datasets.own.dealing import edges_of
from tacit.datasets.own.rows import EncodedRows
from tacit.datasets.own.rows_file import UnitRows
from tacit.datasets.source import EdgePart
from tacit.datasets.target import Target

_TEST_SHARE = 5  # one unit in this many is kept apart, to test on


@dataclass(frozen=True, slots=True, eq=False)
class StandIn:
    """Public rows in place of private ones: some units to train on, others to test on.

    x (n, *shape), y (n,): all rows. units: for each unit to train on, the indices of its rows.
    """

    x: torch.Tensor
    y: torch.Tensor
    units: list[Index]
    test: Dataset

    def edges(self, count: int, rows: int, of_unit: UnitRows | None, seed: int) -> list[EdgeRows]:
        """Return `count` edges with `rows` units each, drawn with replacement.

        So an edge has as many units as it will have, and noise has the weight that it will have.
        of_unit: how a unit's rows count; None: each row is a unit.
        """
        chance = np.random.default_rng(seed)
        return [self._edge(chance, rows, of_unit) for _ in range(count)]

    def _edge(self, chance: np.random.Generator, rows: int, of_unit: UnitRows | None) -> EdgeRows:
        return self.edge_of(chance.integers(0, len(self.units), rows), of_unit)

    def edge_of(self, places: Index, of_unit: UnitRows | None) -> EdgeRows:
        """Return an edge with the units at these places of `units`, at least one."""
        drawn = [self.units[place] for place in places]
        index = np.concatenate(drawn)
        starts = np.concatenate(([0], np.cumsum([len(unit) for unit in drawn])))
        order = np.arange(len(index))
        if of_unit is None:
            units = None
        else:
            units = Units(order, starts, of_unit.most, of_unit.mean)
        return EdgeRows(_with_public_row(self.x[index]), _with_public_row(self.y[index]), units)


@dataclass(frozen=True, slots=True, eq=False)
class PublicParts:
    """Public rows as a simulated run has them: a part for each edge, and rows to test on."""

    parts: Sequence[EdgePart]
    test: Dataset


def stand_in(parts: list[EncodedRows], target: Target, seed: int, *, each_alone: bool) -> StandIn:
    """Return the rows of a public file, with a fifth of its units apart.

    each_alone: a row is a unit, also one that is like another.
    """
    x = np.concatenate([part.x for part in parts])
    y = np.concatenate([part.y for part in parts])
    units = np.concatenate([part.units for part in parts])
    apart = edges_of(units, seed=seed, edges=_TEST_SHARE) == 0
    test = Dataset(
        torch.from_numpy(x[apart]), torch.from_numpy(y[apart]), target.codes, "public/test"
    )
    training = np.flatnonzero(~apart)
    if each_alone:
        owned = list(training[:, None])
    else:
        owned = _by_unit(training, units[training])
    return StandIn(torch.from_numpy(x), torch.from_numpy(y), owned, test)


def _by_unit(rows: Index, units: npt.NDArray[np.void]) -> list[Index]:
    """Return the numbers of each unit's rows."""
    order = np.argsort(units, kind="stable")
    bounds = np.flatnonzero(units[order][1:] != units[order][:-1]) + 1
    return [rows[part] for part in np.split(order, bounds)]


def _with_public_row(values: torch.Tensor) -> torch.Tensor:
    return torch.cat((values, values.new_zeros(1, *values.shape[1:])))
