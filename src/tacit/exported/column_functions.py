"""The functions of an additive model, for people: a table of bins, and the reasons of a row."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from tacit.datasets.target import Target
from tacit.exported.additive_terms import BinFigures, places, terms_of
from tacit.exported.shown_scores import of_the_highest, output_names, shown_deviation, shown_scores
from tacit.exported.stored import StoredFunctions, StoredPlace
from tacit.models.additive import AdditiveModel
from tacit.models.bins import BinnedColumn
from tacit.models.bins_read import BinsRead
from tacit.models.pair_cells import PairCells
from tacit.questions.row_parts import Reals
from tacit.shown import cells

BINS = "bins.csv"
_INTERCEPT = "(intercept)"


class ColumnFunctions:
    """What each bin adds to each output. outputs: their names; table: (outputs, W).

    Pairs of columns that add nothing anywhere are left out.
    """

    def __init__(
        self,
        model: AdditiveModel,
        params: Tensor,
        target: Target,
        figures: BinFigures | None = None,
    ) -> None:
        """figures: of all bins, where they are known."""
        self.model = model
        scores = params.double().numpy().reshape(model.classes, -1) * model.part
        self.outputs = output_names(target)
        self.table: Reals = shown_scores(scores, target)
        self.figures = _unknown(model) if figures is None else figures
        shown = np.flatnonzero(model.says(params)).tolist()
        self._read = [*shown, len(model.terms)]  # of a row's places, those that say something
        self.terms = terms_of(model, self.table, self.figures, shown)

    def by_importance(self) -> list[int]:
        """Return the terms' places, those first that move rows most; unknown ones last."""
        importance = [-(term.importance or 0.0) for term in self.terms]
        return sorted(range(len(self.terms)), key=importance.__getitem__)

    def document(self) -> dict[str, Any]:
        """Return all of it as JSON has it: outputs, terms, and the intercept."""
        last = slice(-1, None)
        figures = self.figures
        [intercept] = places(self.table[:, last], figures.rows[last], figures.deviations[last])
        return {
            "outputs": self.outputs,
            "terms": [term.document() for term in self.terms],
            "intercept": intercept,
        }

    def as_csv(self) -> str:
        """Return a line for each bin: what lies in it, what it adds, its rows and deviation."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        head = ["column", "from", "to", "value", *self.outputs, "rows", "deviation"]
        writer.writerow(cells(head))
        for line in self._lines():
            writer.writerow(cells(line))
        return text.getvalue()

    def _lines(self) -> Iterator[list[str]]:
        for term in self.terms:
            figures = zip(term.rows.tolist(), term.deviations.tolist(), strict=True)
            for edges, added, (rows, deviation) in zip(
                term.bins, term.added.T.tolist(), figures, strict=True
            ):
                ends = ["" if end is None else f"{end:.6g}" for end in (edges.low, edges.high)]
                yield [term.name, *ends, edges.value or "", *_cells(added, rows, deviation)]
        last = self.figures.rows[-1], self.figures.deviations[-1]
        yield [_INTERCEPT, "", "", "", *_cells(self.table[:, -1].tolist(), *map(float, last))]

    @property
    def names(self) -> list[str]:
        """The terms, and the intercept."""
        return [*(term.name for term in self.terms), _INTERCEPT]

    def reasons(self, x: Tensor) -> list[dict[str, float]]:
        """Return, for each row of x (n, *shape), what each of its columns and pairs adds.

        It is of the single output, or of the class of the highest score.
        """
        places_of_rows = self.model.bins_of(x)[:, self._read]
        added = self.table[:, places_of_rows]  # outputs, rows, columns
        chosen = of_the_highest(added).tolist()
        return [dict(zip(self.names, row, strict=True)) for row in chosen]


def figures_read(read: BinsRead, target: Target, *, noise: bool) -> BinFigures:
    """Return the figures of a run's bins, in the words of its target.

    noise: whether the deviations are wanted, which takes seconds.
    """
    deviations = read.deviations() if noise else None
    if deviations is None:
        return BinFigures(read.rows, np.full(len(read.rows), math.nan))
    return BinFigures(read.rows, deviations * shown_deviation(target))


def stored_figures(model: AdditiveModel, stored: StoredFunctions) -> BinFigures | None:
    """Return the figures of all bins as a file has them; None: it is of another model."""
    figures = _unknown(model)
    starts = {_names(term): start for term, start in zip(model.terms, model.starts, strict=False)}
    bins = {_names(term): term.bins for term in model.terms}
    stored_names = {tuple(term.columns) for term in stored.terms}
    if any((column.name,) not in stored_names for column in model.columns):
        return None
    for term in stored.terms:
        name = tuple(term.columns)
        if bins.get(name) != len(term.bins):
            return None
        _fill(figures, starts[name], term.bins)
    _fill(figures, model.width - 1, [stored.intercept])
    return figures


def _names(term: BinnedColumn | PairCells) -> tuple[str, ...]:
    return term.columns if isinstance(term, PairCells) else (term.name,)


def _fill(figures: BinFigures, start: int, bins: Sequence[StoredPlace]) -> None:
    """Write what is known of bins that follow one another."""
    for place, each in enumerate(bins, start):
        figures.rows[place] = math.nan if each.rows is None else each.rows
        figures.deviations[place] = math.nan if each.deviation is None else each.deviation


def _unknown(model: AdditiveModel) -> BinFigures:
    return BinFigures(np.full(model.width, math.nan), np.full(model.width, math.nan))


def _cells(added: list[float], rows: float, deviation: float) -> list[str]:
    return [
        *(f"{each:.4f}" for each in added),
        "" if math.isnan(rows) else f"{rows:.0f}",
        "" if math.isnan(deviation) else f"{deviation:.4f}",
    ]
