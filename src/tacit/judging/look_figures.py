"""What is read from the noisy sums of a look: figures, each with the interval that noise leaves.

A figure is a function of the sums. Its interval is found by drawing the noise again around them, as
that of an answer to a question (`tacit.questions.estimates`). Parts count the same units in several
ways, so without noise some of their sums are equal. The nearest sums of which that is true have
less noise: `consistent`. Everything here is post-processing.

    of classes   accuracy, auc (of two classes), each class's recall
    of a number  rmse and mae, in the file's unit; an error counts as `reach` at most
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tacit.judging.look_sheet import BINS, CELLS, EVEN, LookSheet
from tacit.questions.row_parts import Reals

_DRAWS, _FEW = 4000, 1000
_DRAWN = 1 << 20  # numbers at most; of a wide sheet there are fewer draws
_TAILS = (2.5, 97.5)
_SURE = 4.0  # standard deviations above 0 that a number of units needs before it is divided by
_SEED = 1

OfSums = Callable[[Reals], Reals]  # of sums (n, width), a figure of each (n,)


@dataclass(frozen=True, slots=True)
class NoisyFigure:
    """A figure, and between what the noise leaves it, with 95 %."""

    value: float
    low: float
    high: float

    def rounded(self) -> dict[str, float]:
        """Return it as JSON has it."""
        return {key: round(getattr(self, key), 6) for key in ("value", "low", "high")}


@dataclass(frozen=True, slots=True, eq=False)
class LookSums:
    """The sums (width,) of a look over all edges that have answered. noise: of each, its deviation.

    They are `consistent`, and in units: a part's scale is divided out by `counts`.
    """

    sheet: LookSheet
    sums: Reals
    noise: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "sums", consistent(self.sheet, self.sums[None])[0])

    def counts(self, name: str) -> Reals:
        """Return the sums of a part: numbers of units."""
        part = self.sheet.parts[name]
        counts: Reals = self.sums[part.place] / part.scale
        return counts

    @property
    def units(self) -> float:
        """About how many held-out units there are."""
        name = next(iter(self.sheet.parts))
        if self.sheet.bounds is not None:
            return float(self.counts(name)[0] * math.sqrt(3))
        return float(self.counts(name).sum())

    @property
    def visible(self) -> bool:
        """Whether there are so many units that the noise leaves a figure at all."""
        part = self.sheet.parts[next(iter(self.sheet.parts))]
        terms = 3.0 if self.sheet.bounds is not None else float(part.width)
        return self.units > _SURE * self.noise / part.scale * math.sqrt(terms)


def figures(look: LookSums) -> dict[str, NoisyFigure]:
    """Return the figures of a look by name, the one that models are compared by first."""
    if not look.visible:
        return {}
    drawn = _drawn(look)
    return {
        name: _interval(figure, look.sums, drawn, bounds)
        for name, figure, bounds in _figures(look.sheet)
        if all(_seen_units(look, drawn, places) for places in _divisors(look.sheet, name))
    }


def beyond_constant(look: LookSums) -> NoisyFigure | None:
    """Return how much better the model is than always the same answer; None: noise hides it."""
    if not look.visible:
        return None
    figure = _less_than_mean if look.sheet.bounds is not None else _more_than_largest
    return _interval(figure(look.sheet), look.sums, _drawn(look), (-math.inf, math.inf))


def gain(later: LookSums, earlier: LookSums) -> NoisyFigure | None:
    """Return how much better the later model is, by the figure that models are compared by.

    It is positive where the later model is better. None: noise hides it.
    """
    if not (later.visible and earlier.visible):
        return None
    _, figure, bounds = next(iter(_figures(later.sheet)))
    sign = 1.0 if later.sheet.bounds is None else -1.0
    generator = np.random.default_rng(_SEED)
    values, draws = [], []
    for look in (later, earlier):
        values.append(float(np.clip(figure(look.sums[None])[0], *bounds)))
        draws.append(figure(_drawn(look, generator, _FEW)))
    value = sign * (values[0] - values[1])
    below, above = np.percentile(sign * (draws[0] - draws[1]), _TAILS)
    return NoisyFigure(
        value, float(min(below, 2 * value - above)), float(max(above, 2 * value - below))
    )


def spread(sheet: LookSheet, each: Reals, noise: float) -> dict[str, float] | None:
    """Return how far the edges' own figures lie apart, beside what the noise alone would make.

    each: the sums of every edge (edges, width). noise: of one edge's. Edges that the noise hides
    are left out; None: fewer than two are left.
    """
    visible = [sums for sums in each if LookSums(sheet, sums, noise).visible]
    if len(visible) < 2:
        return None
    _, figure, bounds = next(iter(_figures(sheet)))
    values = np.clip(figure(consistent(sheet, np.stack(visible))), *bounds)
    by_noise = [float(figure(_drawn(LookSums(sheet, sums, noise))).std()) for sums in visible]
    return {
        "least": round(float(values.min()), 6),
        "median": round(float(np.median(values)), 6),
        "most": round(float(values.max()), 6),
        "noise": round(float(np.median(by_noise)), 6),
        "edges": len(visible),
    }


def reliability(look: LookSums) -> list[dict[str, float]]:
    """Return of each cell of probabilities the share that came true, where the noise leaves one."""
    if look.sheet.bounds is not None or not look.visible:
        return []
    drawn = _drawn(look)
    cells = []
    for cell in range(CELLS):
        share = _share_of_cell(look.sheet, cell)
        first = _place(look.sheet, "scores").start
        if _seen_units(look, drawn, [first + cell, first + CELLS + cell]):
            figure = _interval(share, look.sums, drawn, (0.0, 1.0))
            cells.append({"from": BINS[cell], "to": BINS[cell + 1], **figure.rounded()})
    return cells


def _drawn(
    look: LookSums, generator: np.random.Generator | None = None, most: int = _DRAWS
) -> Reals:
    generator = generator or np.random.default_rng(_SEED)
    draws = max(400, min(most, _DRAWN // len(look.sums)))
    noise = look.noise * generator.standard_normal((draws, len(look.sums)))
    return look.sums + consistent(look.sheet, noise)


def consistent(sheet: LookSheet, sums: Reals) -> Reals:
    """Return the nearest of sums (n, width) whose parts agree on what they count alike."""
    rows = np.stack(list(_agreements(sheet)))
    nearest: Reals = sums - (sums @ rows.T) @ np.linalg.pinv(rows @ rows.T) @ rows
    return nearest


def _agreements(sheet: LookSheet) -> Iterator[Reals]:
    """Yield vectors (width,) whose product with the sums of rows is 0."""
    if sheet.bounds is not None:
        yield _difference(sheet, ("errors", [0]), ("numbers", [0]))
        return
    cells = range(CELLS)
    if len(sheet.target.names) == 2:
        right = [*range(EVEN), *range(CELLS + EVEN, 2 * CELLS)]
        wrong = [*range(EVEN, CELLS), *range(CELLS, CELLS + EVEN)]
    else:
        right, wrong = [*cells], [CELLS + cell for cell in cells]
        width = sheet.parts["classes"].width
        for place in (0, 1):
            of_all = list(range(place, width, 2))
            yield _difference(sheet, ("guesses", [place]), ("classes", of_all))
    yield _difference(sheet, ("guesses", [0]), ("scores", right))
    yield _difference(sheet, ("guesses", [1]), ("scores", wrong))


def _difference(sheet: LookSheet, *alike: tuple[str, list[int]]) -> Reals:
    """Return the vector of what some places of a part count, less those of another part."""
    vector = np.zeros(sheet.width)
    for sign, (name, places) in zip((1, -1), alike, strict=True):
        part = sheet.parts[name]
        vector[[part.place.start + place for place in places]] = sign / part.scale
    return vector


def _interval(
    figure: OfSums, sums: Reals, drawn: Reals, bounds: tuple[float, float]
) -> NoisyFigure:
    value = float(figure(sums[None])[0])
    below, above = np.percentile(np.nan_to_num(figure(drawn)), _TAILS)
    # The figures lie around the noisy one about as it lies around the true one: mirrored. Where
    # they bend, the interval that is not mirrored is added.
    low, high = min(below, 2 * value - above), max(above, 2 * value - below)
    return NoisyFigure(*(float(np.clip(each, *bounds)) for each in (value, low, high)))


def _figures(sheet: LookSheet) -> Iterator[tuple[str, OfSums, tuple[float, float]]]:
    """Yield name, function and bounds of each figure; the one that models are compared by first."""
    if sheet.bounds is not None:
        unit = sheet.bounds.reach * sheet.target.span
        yield "rmse", _root(sheet, unit), (0.0, unit)
        yield "mae", _mean_error(sheet, unit), (0.0, unit)
        return
    guesses = _place(sheet, "guesses")
    yield "accuracy", lambda sums: _ratio(sums[:, guesses][:, 0], sums[:, guesses].sum(1)), (0, 1)
    if len(sheet.target.names) == 2:
        yield "auc", _area(sheet), (0.0, 1.0)
    for number, name in enumerate(sheet.target.names):
        yield f"accuracy of {name}", _recall(sheet, number), (0.0, 1.0)


def _place(sheet: LookSheet, name: str) -> slice:
    return sheet.parts[name].place


def _ratio(part: Reals, all_of_it: Reals) -> Reals:
    ratio: Reals = part / np.where(np.abs(all_of_it) < 1e-9, 1e-9, all_of_it)
    return ratio


def _of_class(sheet: LookSheet, number: int) -> tuple[list[int], list[int]]:
    """Return the places of a class's units that were guessed, and of all of them."""
    if len(sheet.target.names) == 2:
        first = _place(sheet, "scores").start + number * CELLS
        cells = range(EVEN, CELLS) if number else range(EVEN)
        return [first + cell for cell in cells], [first + cell for cell in range(CELLS)]
    first = _place(sheet, "classes").start + 2 * number
    return [first], [first, first + 1]


def _recall(sheet: LookSheet, number: int) -> OfSums:
    guessed, of_it = _of_class(sheet, number)
    return lambda sums: _ratio(sums[:, guessed].sum(1), sums[:, of_it].sum(1))


def _divisors(sheet: LookSheet, name: str) -> list[list[int]]:
    """Return the places of the units, of a class each, by whose number a figure is divided."""
    names = list(sheet.target.names)
    if name == "auc":
        classes = [0, 1]
    elif name.startswith("accuracy of "):
        classes = [names.index(name.removeprefix("accuracy of "))]
    else:
        classes = []
    return [_of_class(sheet, number)[1] for number in classes]


def _seen_units(look: LookSums, drawn: Reals, places: list[int]) -> bool:
    """Check that there are units in these places beyond the noise of their sum."""
    noise = float(drawn[:, places].sum(1).std())
    return float(look.sums[places].sum()) > _SURE * noise


def _area(sheet: LookSheet) -> OfSums:
    """Return the area under the ROC curve of the cells; two units in one cell count half."""
    place = _place(sheet, "scores")

    def area(sums: Reals) -> Reals:
        scores = sums[:, place]
        first, second = scores[:, :CELLS], scores[:, CELLS:]
        below = np.cumsum(first, axis=1) - first / 2
        return _ratio((second * below).sum(1), first.sum(1) * second.sum(1))

    return area


def _share_of_cell(sheet: LookSheet, cell: int) -> OfSums:
    """Return the share of a cell's units that are of the second class, or were guessed."""
    first = _place(sheet, "scores").start
    true = first + (CELLS + cell if len(sheet.target.names) == 2 else cell)
    both = [first + cell, first + CELLS + cell]
    return lambda sums: _ratio(sums[:, true], sums[:, both].sum(1))


def _root(sheet: LookSheet, unit: float) -> OfSums:
    place = _place(sheet, "errors")
    return lambda sums: (
        unit * np.sqrt(np.clip(_ratio(sums[:, place][:, 2], sums[:, place][:, 0]), 0, None))
    )


def _mean_error(sheet: LookSheet, unit: float) -> OfSums:
    place = _place(sheet, "errors")
    return lambda sums: unit * _ratio(sums[:, place][:, 1], sums[:, place][:, 0])


def _more_than_largest(sheet: LookSheet) -> OfSums:
    """Return the accuracy less the share of the largest class."""
    guesses = _place(sheet, "guesses")
    of_all = [_of_class(sheet, number)[1] for number in range(len(sheet.target.names))]

    def more(sums: Reals) -> Reals:
        classes = np.stack([sums[:, of_it].sum(1) for of_it in of_all], 1)
        largest = _ratio(classes.max(1), classes.sum(1))
        return _ratio(sums[:, guesses][:, 0], sums[:, guesses].sum(1)) - largest

    return more


def _less_than_mean(sheet: LookSheet) -> OfSums:
    """Return the RMSE of the mean, less that of the model, in the file's unit."""
    assert sheet.bounds is not None
    half = (sheet.bounds.high - sheet.bounds.low) / 2 * sheet.target.span
    root = _root(sheet, sheet.bounds.reach * sheet.target.span)
    place = _place(sheet, "numbers")

    def less(sums: Reals) -> Reals:
        numbers = sums[:, place]
        mean, square = (_ratio(numbers[:, power], numbers[:, 0]) for power in (1, 2))
        deviation: Reals = half * np.sqrt(np.clip(square - mean**2, 0, None)) - root(sums)
        return deviation

    return less
