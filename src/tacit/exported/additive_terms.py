"""The terms of an additive model as people and files have them: each with its columns and bins.

A term is of one column, or of several together. What each of its bins adds is in the unit of
`shown_scores`. Beside it are the rows of the bin, and the standard deviation that the noise of the
run's releases leaves, where these are known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.models.additive import AdditiveModel
from tacit.models.bins import BinEdges
from tacit.models.pair_cells import PairCells
from tacit.questions.row_parts import Reals

_OF_NOISE = math.sqrt(2 / math.pi)  # the mean distance from 0 of what has the deviation 1


@dataclass(frozen=True, slots=True)
class BinFigures:
    """Of each bin (W,): noisy rows, and the deviation of what it adds; nan where it is unknown."""

    rows: Reals
    deviations: Reals


@dataclass(frozen=True, slots=True)
class AdditiveTerm:
    """A term. columns: their names. added: (outputs, b). rows, deviations: (b,), or nan.

    sides: of a pair of columns, what lies in the cells of either; empty: of one column.
    """

    columns: tuple[str, ...]
    numeric: bool
    bins: tuple[BinEdges, ...]
    added: Reals
    rows: Reals
    deviations: Reals
    sides: tuple[tuple[str, ...], ...] = ()

    @property
    def name(self) -> str:
        """The columns, in one word."""
        return " × ".join(self.columns)

    @property
    def importance(self) -> float | None:
        """How far it moves a row, on average over all rows and outputs; None: rows are unknown."""
        return self._mean_of(np.abs(self.added).mean(axis=0))

    @property
    def by_noise(self) -> float | None:
        """How far noise alone would move a row on average, of a column that says nothing."""
        return self._mean_of(_OF_NOISE * self.deviations)

    def _mean_of(self, values: Reals) -> float | None:
        total = float(self.rows.sum())
        if not total > 0 or bool(np.isnan(values).any()):
            return None
        return float((self.rows * values).sum()) / total

    def document(self) -> dict[str, Any]:
        """Return the term as JSON has it."""
        return {
            "columns": list(self.columns),
            "importance": rounded(self.importance),
            "by_noise": rounded(self.by_noise),
            "bins": [
                _ends(edges) | place
                for edges, place in zip(
                    self.bins, places(self.added, self.rows, self.deviations), strict=True
                )
            ],
        }


def terms_of(
    model: AdditiveModel, table: Reals, figures: BinFigures, numbers: Sequence[int]
) -> list[AdditiveTerm]:
    """Return the terms of these numbers; table: what each bin adds (outputs, W)."""
    terms = []
    for number in numbers:
        term = model.terms[number]
        part = slice(model.starts[number], model.starts[number + 1])
        columns, labels = (
            (term.columns, term.labels) if isinstance(term, PairCells) else ((term.name,), ())
        )
        terms.append(
            AdditiveTerm(
                columns,
                term.numeric,
                tuple(map(term.edges, range(term.bins))),
                table[:, part],
                figures.rows[part],
                figures.deviations[part],
                labels,
            )
        )
    return terms


def places(added: Reals, rows: Reals, deviations: Reals) -> Iterator[dict[str, Any]]:
    """Yield what JSON has of each bin: what it adds, its rows, its deviation."""
    for values, count, deviation in zip(
        added.T.tolist(), rows.tolist(), deviations.tolist(), strict=True
    ):
        yield {
            "added": [rounded(value) for value in values],
            "rows": None if math.isnan(count) else round(count, 1),
            "deviation": None if math.isnan(deviation) else rounded(deviation),
        }


def rounded(value: float | None) -> float | None:
    """Return a number with six decimals."""
    return None if value is None else round(value, 6)


def _ends(edges: BinEdges) -> dict[str, Any]:
    if edges.value is None:
        return {"from": edges.low, "to": edges.high}
    return {"value": edges.value}
