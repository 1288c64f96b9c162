"""Rows that nobody has, drawn from the noisy answers of `tacit ask`: what `tacit tune` tries on.

Idea. Each column is drawn by what the answers tell of it: quantiles, a histogram, counts. Where a
pair of a column with the target was asked, the column follows the target: by the crosstab, or by
the correlation, over ranks. Columns do not follow one another beside that.

Guarantee. All of it is post-processing of what was released, so it costs no ε. A settings search on
such rows sees what the answers tell, and nothing else: it is no measure of a model's quality.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.config import RunFile
from tacit.config.own_column import ColumnSection
from tacit.config.own_table import TableData
from tacit.datasets.own.schema import text_of
from tacit.errors import ConfigError
from tacit.questions.question import Question, QuestionKind, parse

_MOST, _FEWEST = 20_000, 500  # rows
_FULL = 0.99  # the most that a correlation counts as

RankShares = npt.NDArray[np.float64]
ColumnCells = npt.NDArray[np.object_]


class MadeUpRows:
    """The rows that answers tell of, for a run whose columns they are of."""

    def __init__(self, run: RunFile, documents: Sequence[Mapping[str, Any]]) -> None:
        """Raise ConfigError for a run of other data, and where no pair with the target was asked.

        Without a pair no column tells of the target, and every setting would look alike.
        """
        if not isinstance(run.data, TableData) or not isinstance(run.data.target, str):
            raise ConfigError("--answers: are for a table with one target column")
        self._data = run.data
        self._target = run.data.target
        self._rows = run.data.rows or _FEWEST
        self._asked = {question: document for document in documents
                       for question in [parse(document["question"])]}  # fmt: skip
        if not any(self._pair(name) for name in run.data.columns if name != self._target):
            raise ConfigError(
                "--answers: no pair with the target was asked, so made-up rows say nothing of "
                f'it; ask "crosstab COLUMN {self._target}" or "correlation COLUMN {self._target}"'
            )

    def write(self, path: Path, seed: int) -> None:
        """Write the rows as CSV, in the form of the run's table."""
        count = min(max(self._rows, _FEWEST), _MOST)
        generator = np.random.default_rng(seed)
        target = self._drawn(self._target, generator.random(count))
        columns = {
            name: target if name == self._target else self._following(name, target, generator)
            for name in self._data.columns
        }
        if self._data.unit is not None and self._data.unit not in columns:
            columns[self._data.unit] = np.arange(count).astype(object)
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))

    # -- a column --

    def _following(
        self, name: str, target: ColumnCells, generator: np.random.Generator
    ) -> ColumnCells:
        """Return a column's cells, which follow the target as far as a pair tells how."""
        question = self._pair(name)
        if question is None:
            return self._drawn(name, generator.random(len(target)))
        if question.kind == "crosstab":
            return self._by_crosstab(question, name, target, generator)
        between = self._asked[question]["value"]
        ranks = _following_ranks(_numbers(target), between, generator)
        return self._drawn(name, ranks)

    def _drawn(self, name: str, shares: RankShares) -> ColumnCells:
        """Return a cell for each share in [0, 1): the column's value that so many lie below."""
        section = self._data.columns[name]
        if section.values is not None:
            values = list(map(text_of, section.values))
            weights = np.array([self._counts(name).get(value, 0.0) for value in values])
            if not weights.sum():
                weights = np.ones(len(values))
            ends = np.cumsum(weights / weights.sum())
            places = np.searchsorted(ends, shares, side="right").clip(0, len(values) - 1)
            words: ColumnCells = np.array(values, object)[places]
            return words
        at, values_at = self._distribution(name, section)
        cells: ColumnCells = np.interp(shares, at, values_at).astype(object)
        return cells

    def _distribution(self, name: str, section: ColumnSection) -> tuple[list[float], list[float]]:
        """Return shares and the values that they lie below, ascending, of a number."""
        if section.low is None or section.high is None:
            raise ConfigError(
                f"--answers: data.columns.{name}: has neither values nor bounds, so no cell of it "
                "can be made up; use --public"
            )
        points = {0.0: float(section.low), 1.0: float(section.high)}
        points |= dict(self._quantiles(name))
        shares = sorted(points)
        values = np.maximum.accumulate([points[share] for share in shares])
        return shares, list(np.clip(values, section.low, section.high))

    def _quantiles(self, name: str) -> Iterator[tuple[float, float]]:
        for question, document in self._of(name, "histogram"):
            low, high, cells = question.numbers
            counts = np.array([_count(value) for value in document["values"][: int(cells)]])
            if counts.sum():
                edges = np.linspace(low, high, int(cells) + 1)[1:-1]
                yield from zip(np.cumsum(counts / counts.sum())[:-1], edges, strict=True)
        for question, document in self._of(name, "quantile"):
            each = document.get("values", [document])
            for share, answer in zip(question.numbers, each, strict=True):
                if answer["value"] is not None:
                    yield share, float(answer["value"])

    def _counts(self, name: str) -> dict[str, float]:
        return {
            value["label"]: _count(value)
            for _, document in self._of(name, "counts")
            for value in document["values"]
        }

    # -- pairs --

    def _pair(self, name: str) -> Question | None:
        """Return the question that tells how a column follows the target; None: there is none."""
        for question, document in self._asked.items():
            if set(question.columns) == {name, self._target}:
                if question.kind == "crosstab" and self._data.columns[name].values is not None:
                    return question
                if question.kind == "correlation" and document["value"] is not None:
                    return question
        return None

    def _by_crosstab(
        self, question: Question, name: str, target: ColumnCells, generator: np.random.Generator
    ) -> ColumnCells:
        values = [text_of(value) for value in self._data.columns[name].values or ()]
        counts = self._asked[question]["values"]
        swapped = question.columns[0] == self._target
        cells = np.empty(len(target), object)
        for word in dict.fromkeys(target):
            weights = np.array([
                sum(_count(pair) for pair in counts
                    if pair["label"] == ", ".join((word, value) if swapped else (value, word)))
                for value in values
            ])  # fmt: skip
            if not weights.sum():
                weights = np.ones(len(values))
            rows = np.flatnonzero(target == word)
            cells[rows] = generator.choice(values, len(rows), p=weights / weights.sum())
        return cells

    def _of(self, name: str, kind: QuestionKind) -> Iterator[tuple[Question, Mapping[str, Any]]]:
        for question, document in self._asked.items():
            if question.kind == kind and question.columns == (name,):
                yield question, document


def _count(answer: Mapping[str, Any]) -> float:
    """Return a number of rows; what the noise hides is taken as none."""
    return max(0.0, answer["value"] or 0.0)


def _numbers(cells: ColumnCells) -> RankShares:
    """Return cells as numbers; of words that are none, their places in the alphabet."""
    try:
        return cells.astype(np.float64)
    except ValueError:
        return np.unique(cells.astype(str), return_inverse=True)[1].astype(np.float64)


def _following_ranks(
    target: RankShares, between: float, generator: np.random.Generator
) -> RankShares:
    """Return shares in (0, 1) whose values correlate with `target` by about `between`."""
    spread = float(target.std()) or 1.0
    sure = min(max(between, -_FULL), _FULL)
    mixed = sure * (target - target.mean()) / spread
    mixed += math.sqrt(1 - sure**2) * generator.standard_normal(len(target))
    order = np.argsort(np.argsort(mixed))
    shares: RankShares = (order + 0.5) / len(target)
    return shares
