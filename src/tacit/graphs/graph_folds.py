"""A graph's layers in few rows: what repeats stands there once, and a long middle is one row.

So what people look at is bounded for every file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tacit.graphs.graph_layers import GraphLayer

_LONGEST = 64  # layers of what repeats
_NEAR = 64  # a layer that is further before is named by its own number


@dataclass(frozen=True, slots=True)
class LayerRow:
    """A row: a layer, or several that are left out.

    layer: its sources are rows' numbers, and 0 is the example. layers: how many it stands for.
    """

    layer: GraphLayer
    layers: int = 1


@dataclass(frozen=True, slots=True)
class Repeat:
    """Rows, by number, from the first to the last, that come `times` times after each other."""

    first: int
    last: int
    times: int


@dataclass(frozen=True, slots=True)
class FoldedLayers:
    """Rows, from number 1, and which of them repeat."""

    rows: tuple[LayerRow, ...]
    repeats: tuple[Repeat, ...]


def folded(layers: Sequence[GraphLayer], most: int) -> FoldedLayers:
    """Return at most `most` rows of the layers; most: at least 3.

    Whether two parts that read the example read the same, or each what is before it, is what makes
    fewer rows.
    """
    rows, repeats = min(
        (_folded(layers, _marks(layers, last)) for last in (0, -1)), key=lambda way: len(way[0])
    )
    return _cut(rows, repeats, most)


def _folded(
    layers: Sequence[GraphLayer], marks: Sequence[int]
) -> tuple[list[LayerRow], list[Repeat]]:
    row_of = [0]  # of the example, then of each layer
    kept: list[int] = []  # of each row, its layer's number
    repeats: list[Repeat] = []
    place = 0
    runs = _runs(marks)
    repeated = [_repeated(runs, place) for place in range(len(layers))]
    while place < len(layers):
        period, times = _best(repeated, place)
        first = len(kept) + 1
        for number in range(place, place + period * times):
            row_of.append(first + (number - place) % period)
        kept += range(place, place + period)
        if times > 1:
            repeats.append(Repeat(first, len(kept), times))
        place += period * times
    rows = [_renumbered(layers[number], first, row_of) for first, number in enumerate(kept, 1)]
    return rows, repeats


def _marks(layers: Sequence[GraphLayer], last: int) -> list[int]:
    """Return a number for each layer: the same for those that differ in their names alone.

    last: the last source that is named by its own number where it is near.
    """
    numbers: dict[object, int] = {}
    marks = []
    for place, layer in enumerate(layers, 1):
        sources = tuple(
            (True, place - source) if last < source >= place - _NEAR else (False, source)
            for source in layer.sources
        )
        weights = tuple((weight.shape, weight.dtype, weight.trained) for weight in layer.weights)
        mark = (
            layer.operations, sources, layer.shape, weights, layer.again, layer.multiply_adds,
        )  # fmt: skip
        marks.append(numbers.setdefault(mark, len(numbers)))
    return marks


def _runs(marks: Sequence[int]) -> list[list[int]]:
    """Return for each period, from 1, and each place how many marks from there come again."""
    runs = []
    for period in range(1, min(_LONGEST, len(marks) // 2) + 1):
        run = [0] * (len(marks) + 1)
        for place in range(len(marks) - period - 1, -1, -1):
            if marks[place] == marks[place + period]:
                run[place] = run[place + 1] + 1
        runs.append(run)
    return runs


def _best(repeated: Sequence[tuple[int, int]], place: int) -> tuple[int, int]:
    """Return what repeats from here, or one layer where what begins inside of it saves more."""
    period, times = repeated[place]
    inside = repeated[place + 1 : place + period * times]
    if any(_saved(each) > _saved((period, times)) for each in inside):
        return (1, 1)
    return (period, times)


def _saved(repeat: tuple[int, int]) -> int:
    return repeat[0] * (repeat[1] - 1)


def _repeated(runs: Sequence[Sequence[int]], place: int) -> tuple[int, int]:
    """Return the period that begins here and saves most rows, and how many times it comes."""
    choices = [(period, run[place] // period + 1) for period, run in enumerate(runs, 1)]
    return max(choices, key=_saved, default=(1, 1))


def _renumbered(layer: GraphLayer, row: int, row_of: Sequence[int]) -> LayerRow:
    sources = {row_of[source] for source in layer.sources}
    return LayerRow(replace(layer, sources=tuple(sorted(sources - {row}))))


def _cut(rows: list[LayerRow], repeats: list[Repeat], most: int) -> FoldedLayers:
    """Put the middle rows into one where there are more than `most`."""
    if len(rows) <= most:
        return FoldedLayers(tuple(rows), tuple(repeats))
    gap = _gap(len(rows), repeats, most)
    before = range(1, gap.start)
    after = range(gap.stop, len(rows) + 1)
    number = {row: row for row in range(gap.start)}
    number |= dict.fromkeys(gap, gap.start)
    number |= {row: gap.start + place for place, row in enumerate(after, 1)}
    shorter = [
        *(_moved(rows[row - 1], row, number) for row in before),
        _moved(_middle(rows, gap, repeats), gap.start, number),
        *(_moved(rows[row - 1], number[row], number) for row in after),
    ]
    whole = tuple(
        Repeat(number[each.first], number[each.last], each.times)
        for each in repeats
        if each.first not in gap
    )
    return FoldedLayers(tuple(shorter), whole)


def _gap(rows: int, repeats: Sequence[Repeat], most: int) -> range:
    """Return the numbers of the rows that are left out: none is a part of what repeats."""
    first = most // 2 + 1
    last = rows - (most - first)
    for repeat in repeats:
        if repeat.first < first <= repeat.last:
            first = repeat.first
        if repeat.first <= last < repeat.last:
            last = repeat.last
    return range(first, last + 1)


def _moved(row: LayerRow, own: int, number: Mapping[int, int]) -> LayerRow:
    """Return a row whose sources have their new numbers."""
    sources = {number[source] for source in row.layer.sources} - {own}
    return replace(row, layer=replace(row.layer, sources=tuple(sorted(sources))))


def _middle(rows: Sequence[LayerRow], gap: range, repeats: Sequence[Repeat]) -> LayerRow:
    """Return several rows as one; its sources are still theirs."""
    times = {
        row: repeat.times for repeat in repeats for row in range(repeat.first, repeat.last + 1)
    }
    layers = [(rows[row - 1].layer, times.get(row, 1)) for row in gap]
    together = GraphLayer(
        name="",
        line="",
        operations=(),
        sources=tuple({source for layer, _ in layers for source in layer.sources}),
        shape=layers[-1][0].shape,
        weights=tuple(weight for layer, count in layers for weight in layer.weights * count),
        again=False,
        multiply_adds=sum(layer.multiply_adds * count for layer, count in layers),
    )
    return LayerRow(together, sum(count for _, count in layers))
