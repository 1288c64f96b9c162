"""The audit's test J: an edge that releases histograms of residuals, and broken ones.

The edge is made as that of `ebm`. The attacker sends a model that is sure of one class, so that the
residuals of others are as long as can be, and reads the bytes of the messages. Of an edge with a
pair of columns the model's shares ask for the cells of that pair alone, as a search does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from tacit.algorithms.base.gradient_edge import GradientTask
from tacit.audit.message_attacks import in_or_out
from tacit.audit.population import MOST_ROWS, Population
from tacit.audit.statistics import SHARE, Finding
from tacit.audit.subject import CLIP, ROWS, Randomness, Subject
from tacit.audit.worlds import MessageSource, World
from tacit.datasets import Dataset
from tacit.models.additive import FAR, AdditiveModel
from tacit.models.bins import BinnedColumn, category_column, number_column
from tacit.models.pair_cells import PairCells
from tacit.privacy.noise.randomness import Random
from tacit.privacy.plan import Plan
from tacit.privacy.private_sum.choice import Ways
from tacit.privacy.private_sum.histogram_sums import HistogramSums
from tacit.privacy.private_sum.rounded_sums import Integers
from tacit.questions.row_parts import Entries, PlaceNumbers

LOUD_Z: Final = 0.02  # noise that hides nothing: what is summed is read off the wire
Z: Final = 0.5  # near μ = 2 a wrong factor is found with the fewest messages
MOVES: Final = 24
PUSHES: Final = 500
COLUMNS: Final = (
    number_column("age", 0, 4, 0.0, 1.0),
    category_column("job", 1, ("cook", "nurse"), 2),
    number_column("income", 3, 3, 0.0, 1.0),
)


@dataclass(frozen=True)
class _Boosted(AdditiveModel):
    """An additive model of rows (1, 1, 4), as the audit's worlds have them."""

    @classmethod
    def made(cls) -> AdditiveModel:
        """Return the audited model, of this kind."""
        return cls("additive", (1, 1, 4), 2, columns=COLUMNS, labels=2)


HONEST: Final = Subject(
    "ebm, discrete_gaussian",
    mechanism="discrete_gaussian",
    z=Z,
    task=GradientTask(),
    model=_Boosted.made(),
)
PAIR: Final = PairCells(0, 2, COLUMNS[0], COLUMNS[2])


@dataclass(frozen=True)
class _Paired(AdditiveModel):
    """The audited model with a pair of columns."""

    @classmethod
    def made(cls) -> AdditiveModel:
        """Return the audited model, of this kind."""
        return cls("additive", (1, 1, 4), 2, columns=COLUMNS, labels=2, pairs=(PAIR,))


PAIRED: Final = HONEST.but(name="ebm, a pair", model=_Paired.made())
HistogramTest = Callable[[Subject, Randomness], list[Finding]]

# -- worlds ----------------------------------------------------------------------------------------


def _rows(count: int, label: int, number: float) -> Dataset:
    """Return rows that are alike: `number` in both numbers, a nurse."""
    row = torch.tensor([number, 0.0, 1.0, number])
    labels = torch.full((count,), label, dtype=torch.int64)
    return Dataset(row.repeat(count, 1).view(count, 1, 1, 4), labels, 2, "audit")


def _honest_model(subject: Subject) -> AdditiveModel:
    model = subject.model
    assert isinstance(model, AdditiveModel)
    return model


def _sure_of(model: AdditiveModel, label: int) -> Tensor:
    """Return the parameters (d,) of a task, sure of a class: of cells alone where it has any."""
    scores = torch.zeros(2, model.width)
    scores[label, -1] = FAR
    if not model.pairs:
        return scores.flatten()
    cells = np.array([False] * len(model.columns) + [True] * len(model.pairs) + [False])
    return model.with_shares(scores, model.even_shares(cells))


def _gradient(model: AdditiveModel, params: Tensor, row: Dataset) -> Tensor:
    """Return the direction (d,) of a row's gradient, as the honest model has it."""
    gradient = -torch.from_numpy(model.residuals(params, row.x, row.y).dense(model.size)[0])
    direction: Tensor = gradient.double() / gradient.double().norm()
    return direction


def _silent_world(subject: Subject) -> World:
    """Return a world whose model is sure, and right, of every row but the canary."""
    model = _honest_model(subject)
    params, loud = _sure_of(model, 0), _rows(1, 1, 1.0)
    return World(params, _rows(ROWS - 1, 0, 0.0), loud, _gradient(model, params, loud))


def _people(subject: Subject) -> Population:
    """Return the silent world with people: the canary's many rows are loud."""
    world = _silent_world(subject)
    of = np.append(np.arange(ROWS - 1), np.full(MOST_ROWS, ROWS - 1))
    loud = world.canary.take(torch.zeros(MOST_ROWS, dtype=torch.int64))
    return Population(world.params, world.rows, loud, world.direction, of, mean=False)


# -- tests -----------------------------------------------------------------------------------------


def canary(subject: Subject, source: Randomness) -> list[Finding]:
    """Bound what one message shows of one row, in either direction."""
    findings = in_or_out("histogram", subject, source, _silent_world(subject), PUSHES)
    return [finding for finding in findings if finding.quantity == "μ"]


def person(subject: Subject, source: Randomness) -> list[Finding]:
    """Bound what one message shows of a person with 50 rows, in either direction."""
    findings = in_or_out("histogram, person", subject, source, _people(subject), PUSHES)
    return [finding for finding in findings if finding.quantity == "μ"]


def moves(subject: Subject, source: Randomness) -> list[Finding]:
    """Check that a row far beyond the bounds moves its own bins, by C, and no other row."""
    model = _honest_model(subject)
    subject, params = subject.but(z=LOUD_Z), _sure_of(model, 0)
    far = _rows(1, 1, 1e3)
    others = _rows(ROWS - 1, 1, 0.9)
    others.x[: ROWS // 2, ..., [0, 3]] = 0.1  # so that bins by the rows have both in them
    world = World(params, others, far, _gradient(model, params, far))
    inside, outside = (
        MessageSource(subject, source, world, canary=included).vectors(MOVES).mean(dim=0)
        for included in (True, False)
    )
    apart = (inside - outside) * subject.batch / CLIP
    deviation = LOUD_Z * math.sqrt(2 / MOVES)
    along = float(apart @ world.direction)
    beside = apart - along * world.direction
    chance = float(stats.chi2.sf(float(beside @ beside) / deviation**2, len(beside) - 1))
    length = math.sqrt(max(0.0, float(apart @ apart) - len(apart) * deviation**2))
    alarm = chance < SHARE / 2 or along > 1 + deviation * float(stats.norm.isf(SHARE / 2))
    name = "histogram, others stay"
    return [Finding(name, subject.name, "C a unit", 1.0, length, alarm, subject.honest)]


TESTS: Final[tuple[HistogramTest, ...]] = (canary, person, moves)

# -- broken edges ----------------------------------------------------------------------------------


class ResidualsAsTheyAre(HistogramSums):
    """Forgets to clip residuals, which a model of the server's can make √2 long, or longer."""

    def _rounded(self, vectors: Entries, clip: float, step: float) -> Integers:
        return _nearest(vectors.values.astype(np.float64) / step)


class CellsAsTheyAre(HistogramSums):
    """Clips what a row has in the bins of columns, and forgets the cells of pairs."""

    def _rounded(self, vectors: Entries, clip: float, step: float) -> Integers:
        clipped = super()._rounded(vectors, clip, step)
        plain = _nearest(vectors.values.astype(np.float64) / step)
        return np.where(_in_cells(self.model, vectors), plain, clipped)


class GridsTwice(HistogramSums):
    """Counts a row in a pair's grid once for each of the two columns."""

    def _rounded(self, vectors: Entries, clip: float, step: float) -> Integers:
        clipped = super()._rounded(vectors, clip, step)
        return np.where(_in_cells(self.model, vectors), 2 * clipped, clipped)


def _in_cells(
    model: AdditiveModel, vectors: Entries
) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Return for each entry (B, S) whether it is in a cell of a pair."""
    places = vectors.places % model.width
    return (places >= model.starts[len(model.columns)]) & (places < model.starts[-1])


class ColumnsClippedApart(HistogramSums):
    """Clips the residual of each column to C: together they are √(K + 1) C long."""

    def _rounded(self, vectors: Entries, clip: float, step: float) -> Integers:
        plain = vectors.values.astype(np.float64).reshape(len(vectors.values), 2, -1)
        lengths = np.maximum(np.linalg.norm(plain, axis=1, keepdims=True), clip)
        return _nearest((plain * (clip / lengths)).reshape(vectors.values.shape) / step)


class RowsInHistograms(HistogramSums):
    """Clips rows where a person's rows are promised to count together."""

    def _vectors(self) -> Iterator[Entries]:
        yield self._entries(self.x[:-1], self.y[:-1])


@dataclass(frozen=True)
class _Stretched(_Boosted):
    """Cuts bins between the least and the largest number at hand, so one row moves all others."""

    def bins_of(self, x: Tensor) -> PlaceNumbers:
        """Return bins by what the rows have."""
        columns = [
            number_column(column.name, column.place, column.bins, *_ends(column, x))
            if column.numeric
            else column
            for column in self.columns
        ]
        made = AdditiveModel(self.name, self.shape, 2, columns=tuple(columns), labels=2)
        return made.bins_of(x)


class BinsByTheRows(HistogramSums):
    """Has bins that follow its rows."""

    def __init__(self, data: object, model: AdditiveModel, plan: Plan, random: Random) -> None:
        super().__init__(data, _Stretched.made(), plan, random)  # type: ignore[arg-type]


def _ends(column: BinnedColumn, x: Tensor) -> tuple[float, float]:
    numbers = x.flatten(1)[:, column.place]
    return float(numbers.min()), float(numbers.max()) + 1e-6


def _nearest(steps: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Integers:
    nearest: Integers = np.floor(steps + 0.5).astype(np.int64)
    return nearest


def _mutant(name: str, way: type[HistogramSums], of: Subject = HONEST) -> Subject:
    return of.but(name=f"MUTANT ebm, {name}", honest=False, ways=Ways(histograms=way))


# (the test that must catch it, mutant)
MUTANTS: Final[tuple[tuple[HistogramTest, Subject], ...]] = (
    (canary, _mutant("residuals not clipped", ResidualsAsTheyAre)),
    (canary, _mutant("columns clipped apart", ColumnsClippedApart)),
    (person, _mutant("rows instead of people", RowsInHistograms)),
    (moves, _mutant("bins by the rows", BinsByTheRows)),
    (canary, _mutant("cells not clipped", CellsAsTheyAre, PAIRED)),
    (canary, _mutant("a grid twice", GridsTwice, PAIRED)),
    (person, _mutant("cells of rows, not people", RowsInHistograms, PAIRED)),
)


def histogram_tests(source: Randomness, *, mutants: bool) -> Iterator[Finding]:
    """Yield what all tests find of an honest edge, and one finding for each mutant if wanted."""
    for test in TESTS:
        yield from test(HONEST, source)
    for test in (canary, person):
        yield from test(PAIRED, source)
    for test, subject in MUTANTS if mutants else ():
        yield max(
            test(subject, source),
            key=lambda finding: (finding.alarm, finding.measured / (finding.claim or 1.0)),
        )
