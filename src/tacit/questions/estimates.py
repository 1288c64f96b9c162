"""Answers from noisy sums: each with the interval that the noise leaves, rounded as it allows.

An interval holds the exact figure of the rows that were asked, with 95 %. It comes of the figures
that noise, drawn anew by its public law, would give around the sums. What the rows tell of the
people that they were drawn from is less sure by the *sampling*, which is stated beside it. All of
it is post-processing of what was released.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tacit.questions.rank_codes import ranks
from tacit.questions.row_parts import Bins, Moments, Pairs, Ranks, Reals
from tacit.questions.sheet import AskedQuestion, QuestionSheet
from tacit.questions.spelled_values import counted
from tacit.questions.spelling import Spelled

_DRAWS = 10_000  # of the noise, around the sums
_TAILS = (2.5, 97.5)  # per cent
_DEVIATIONS = 1.96  # that a normal law leaves within with 95 %
_SURE = 4.0  # standard deviations that a number of rows is above 0, before it divides
FigureOf = Callable[[Reals], Reals]  # of sums (draws, width), a figure of each: (draws,)


@dataclass(frozen=True, slots=True)
class Estimate:
    """An answer. None stands for all that the noise hides: then `suppressed` is true.

    low, high: the interval. sampling: half of what chance in who the rows are of adds, 95 %.
    label: of one among several values: the cell, the share, or the category.
    """

    label: str
    value: float | None
    low: float | None
    high: float | None
    sampling: float | None = None

    @property
    def suppressed(self) -> bool:
        """Whether the noise hides it."""
        return self.value is None


_HIDDEN = Estimate("", None, None, None)


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """The answers to one question: one, or several."""

    question: str
    values: tuple[Estimate, ...]
    several: bool


def answers(sheet: QuestionSheet, sums: Reals, deviation: float) -> list[AnsweredQuestion]:
    """Return the answers to a sheet's questions.

    sums: noisy sums of all rows' vectors (width,). deviation: of the noise in each of them.
    """
    generator = np.random.default_rng(0)  # its draws are public: they hide nothing
    return [
        _answers(subject, sums[subject.place] / subject.scale, deviation / subject.scale, generator)
        for subject in sheet.asked
    ]


def _answers(
    subject: AskedQuestion, sums: Reals, deviation: float, generator: np.random.Generator
) -> AnsweredQuestion:
    question = subject.question
    part = subject.part
    if isinstance(part, Moments):
        values = [_moment(question.kind, part, sums, deviation, generator)]
    elif isinstance(part, Ranks):
        values = list(_quantiles(part, question.numbers, sums, deviation))
    elif isinstance(part, Spelled):
        values = list(_frequent(part, sums, deviation))
    elif isinstance(part, Bins):
        labels = [*_cells(part.edges), f"below {part.edges[0]:g}", f"above {part.edges[-1]:g}"]
        values = [
            _number_of_rows(label, value, deviation)
            for label, value in zip([*labels, "missing"], sums, strict=True)
        ]
    elif isinstance(part, Pairs):
        values = [
            _number_of_rows(label, value, deviation)
            for label, value in zip(_pairs(part), sums, strict=True)
        ]
    else:
        values = [_number_of_rows("", float(sums[0]), deviation)]
    several = len(values) > 1
    return AnsweredQuestion(question.text, tuple(values), several)


def _number_of_rows(label: str, value: float, deviation: float) -> Estimate:
    """Return a number of rows. Hidden: it may be 0, or no more than its noise."""
    half = _DEVIATIONS * deviation
    if value < half:
        return Estimate(label, None, 0.0, _outward(max(0.0, value + half), half, up=True), 0.0)
    step = _step(half)
    low, high = _outward(value - half, half, up=False), _outward(value + half, half, up=True)
    return Estimate(label, _rounded(value, step), max(0.0, low), high, 0.0)


def _frequent(part: Spelled, sums: Reals, deviation: float) -> Iterator[Estimate]:
    """Yield the values that stand out. How many rows have another one is not known."""
    for each in counted(part.column, sums[1:], deviation):
        yield _number_of_rows(each.text, each.count, each.deviation)
    yield Estimate("other", None, None, None)
    yield _number_of_rows("missing", float(sums[0]), deviation)


# -- moments ---------------------------------------------------------------------------------------


def _moment(
    kind: str, part: Moments, sums: Reals, deviation: float, generator: np.random.Generator
) -> Estimate:
    moments, noise = sums * math.sqrt(part.width), deviation * math.sqrt(part.width)
    low, high = part.bounds[0]
    half = (high - low) / 2
    rows = float(moments[0])
    if rows < _SURE * noise:
        return _HIDDEN
    around = moments + noise * _draws(len(moments), generator)
    if kind == "mean":
        figure, least, most = _mean_of(low, half), low, high
        sampling = None
        if part.squares:
            spread = float(_deviation_of(half)(moments[None])[0])
            sampling = _DEVIATIONS * spread / math.sqrt(rows)
    elif kind == "std":
        figure, least, most = _deviation_of(half), 0.0, half
        sampling = _DEVIATIONS * float(figure(moments[None])[0]) / math.sqrt(2 * rows)
    else:
        # Of a column whose spread may be 0, a correlation may be anything.
        if (np.percentile(_spreads(around), _TAILS[0], axis=0) <= 0).any():
            return _HIDDEN
        figure, least, most = _correlation, -1.0, 1.0
        between = float(np.clip(figure(moments[None])[0], -1, 1))
        sampling = _DEVIATIONS * (1 - between**2) / math.sqrt(rows)
    estimate = _drawn(figure, moments, around, (least, most), sampling)
    if kind == "std" and estimate.low == 0:
        return _at_most(half, moments, around)
    return estimate


def _draws(width: int, generator: np.random.Generator) -> Reals:
    """Return standard normal draws (_DRAWS, width), and of each the opposite: they lie evenly."""
    half = generator.standard_normal((_DRAWS // 2, width))
    return np.concatenate([half, -half])


def _mean_of(low: float, half: float) -> FigureOf:
    def figure(moments: Reals) -> Reals:
        mean: Reals = low + half * (1 + moments[:, 1] / moments[:, 0])
        return mean

    return figure


def _deviation_of(half: float) -> FigureOf:
    def figure(moments: Reals) -> Reals:
        deviation: Reals = half * np.sqrt(np.clip(_variance(moments), 0, None))
        return deviation

    return figure


def _variance(moments: Reals) -> Reals:
    """Return variances (draws,) of numbers scaled to [-1, 1]; noise makes some negative."""
    mean, square = moments[:, 1] / moments[:, 0], moments[:, 2] / moments[:, 0]
    variance: Reals = square - mean**2
    return variance


def _at_most(half: float, moments: Reals, around: Reals) -> Estimate:
    """Return how large a standard deviation may be, that may be 0."""
    noise = _DEVIATIONS * float(_variance(around).std())
    high = half * math.sqrt(max(0.0, float(_variance(moments[None])[0])) + noise)
    return Estimate("", None, 0.0, _outward(min(high, half), high, up=True))


def _correlation(moments: Reals) -> Reals:
    a, b, ab = (moments[:, place] / moments[:, 0] for place in (1, 2, 5))
    spreads = np.clip(_spreads(moments), 1e-9, None)
    between: Reals = np.clip((ab - a * b) / np.sqrt(spreads.prod(axis=1)), -1, 1)
    return between


def _spreads(moments: Reals) -> Reals:
    """Return the variances (draws, 2) of two columns."""
    means, squares = moments[:, 1:3] / moments[:, :1], moments[:, 3:5] / moments[:, :1]
    spreads: Reals = squares - means**2
    return spreads


def _drawn(
    figure: FigureOf,
    sums: Reals,
    around: Reals,
    bounds: tuple[float, float],
    sampling: float | None,
) -> Estimate:
    """Return a figure of noisy sums, with the interval of figures of sums `around` them."""
    value = float(figure(sums[None])[0])
    # The figures lie around the noisy one about as it lies around the true one: mirrored. Where
    # they bend, the interval that is not mirrored is added.
    below, above = np.percentile(figure(around), _TAILS)
    low = float(np.clip(min(below, 2 * value - above), *bounds))
    high = float(np.clip(max(above, 2 * value - below), *bounds))
    if low <= bounds[0] and high >= bounds[1]:
        return _HIDDEN
    return _written("", float(np.clip(value, *bounds)), low, high, sampling)


# -- quantiles -------------------------------------------------------------------------------------


def _quantiles(
    part: Ranks, shares: tuple[float, ...], sums: Reals, deviation: float
) -> Iterator[Estimate]:
    """Yield the quantiles, with the edges between which the noise leaves each."""
    edges = np.array(part.edges)
    centred = ranks(sums[None])[0]
    moves = deviation * ranks(np.identity(len(sums)))  # by one deviation of each sum
    rows = 2 * float(centred[-1])
    if rows < _SURE * 2 * float(np.linalg.norm(moves[:, -1])):
        yield from (Estimate(f"{share:g}", None, None, None) for share in shares)
        return
    noisy = centred + rows / 2
    # They ascend. The largest up to an edge is too large, and the smallest from it on too small.
    most = np.maximum.accumulate(noisy)
    least = np.minimum.accumulate(noisy[::-1])[::-1]
    below = (most + least) / 2
    for share in shares:
        # How many rows too many lie below each edge, and how far noise moves that.
        excess = centred + (1 - 2 * share) * centred[-1]
        moved = _DEVIATIONS * np.linalg.norm(moves + (1 - 2 * share) * moves[:, -1:], axis=0)
        low = _last_edge(edges, excess + moved < 0)
        high = _first_edge(edges, excess - moved > 0)
        if np.count_nonzero((low <= edges) & (edges <= high)) > len(edges) / 2:
            yield Estimate(f"{share:g}", None, None, None)
            continue
        value = min(max(_crossing(edges, below, share * rows), low), high)
        wide = _DEVIATIONS * math.sqrt(share * (1 - share) / rows)
        begin, end = (
            _crossing(edges, below, min(max(place, 0.0), 1.0) * rows)
            for place in (share - wide, share + wide)
        )
        estimate = _written(f"{share:g}", value, low, high, (end - begin) / 2)
        yield replace(estimate, value=None, sampling=None) if _lost(estimate, value) else estimate


def _lost(estimate: Estimate, value: float) -> bool:
    """Check whether so much noise lies to one side of a quantile that it would be written as 0."""
    assert estimate.low is not None
    assert estimate.high is not None
    middle, half = (estimate.low + estimate.high) / 2, (estimate.high - estimate.low) / 2
    return estimate.value == 0 != value and abs(value - middle) > half / 2


def _crossing(edges: Reals, below: Reals, aim: float) -> float:
    """Return where ascending numbers of rows reach `aim`, straight between two edges."""
    place = int(np.clip(np.searchsorted(below, aim), 1, len(edges) - 1))
    before, after = float(below[place - 1]), float(below[place])
    share = 0.5 if after <= before else min(max((aim - before) / (after - before), 0.0), 1.0)
    return float(edges[place - 1] + share * (edges[place] - edges[place - 1]))


def _last_edge(edges: Reals, surely_below: npt.NDArray[np.bool_]) -> float:
    places = np.flatnonzero(surely_below)
    return float(edges[places[-1]]) if len(places) else float(edges[0])


def _first_edge(edges: Reals, surely_above: npt.NDArray[np.bool_]) -> float:
    places = np.flatnonzero(surely_above)
    return float(edges[places[0]]) if len(places) else float(edges[-1])


# -- words and rounding ----------------------------------------------------------------------------


def _cells(edges: tuple[float, ...]) -> list[str]:
    return [f"{low:g} to {high:g}" for low, high in pairwise(edges)]


def _pairs(part: Pairs) -> list[str]:
    labels = [""]
    for values in part.values:
        categories = (*values, "other", "missing")
        labels = [
            f"{label}, {value}" if label else value for label in labels for value in categories
        ]
    return labels


def _written(label: str, value: float, low: float, high: float, sampling: float | None) -> Estimate:
    """Return an answer with as many digits as its interval leaves."""
    half = max((high - low) / 2, 1e-12)
    return Estimate(
        label,
        _rounded(value, _step(half)),
        _outward(low, half, up=False),
        _outward(high, half, up=True),
        None if sampling is None else _rounded(sampling, _step(max(sampling, 1e-12))),
    )


def _step(half: float) -> float:
    """Return the power of ten that a figure is rounded to: at most a fifth of its interval's half.

    >>> _step(37.0), _step(120.0), _step(0.031)
    (1.0, 10.0, 0.001)
    """
    return float(10.0 ** math.floor(math.log10(half / 5)))


def _rounded(value: float, step: float) -> float:
    digits = max(0, -round(math.log10(step)))
    return round(round(value / step) * step, digits)


def _outward(value: float, half: float, *, up: bool) -> float:
    """Return the next figure outward that is written like the answer."""
    step = _step(half)
    digits = max(0, -round(math.log10(step)))
    way = math.ceil if up else math.floor
    return round(way(value / step) * step, digits)
