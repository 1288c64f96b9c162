"""A picture of an additive model: the function of each column, with the band that noise allows.

A pair of columns is a heat map, in which cells that noise may have made are crossed out. The term
that moves rows most is first. All panels of columns have one scale, so a flat one moves little. The
same functions have the same bytes, and their number is bounded. All words are written as text: no
name of a file becomes markup. There is no script, no link, and nothing is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tacit.exported.additive_terms import AdditiveTerm
from tacit.exported.column_functions import ColumnFunctions
from tacit.exported.heat_maps import HEAT_STYLE, heat_map
from tacit.exported.svg_words import CHARACTER, shortened, text
from tacit.questions.row_parts import Reals

MOST_PANELS = 24
_MOST_OUTPUTS = 5  # functions in a panel
_MOST_NAMES = 8  # values that are written under a category's bins
_DEVIATIONS = 2.0  # from the value to an end of its band
_ACROSS, _WIDTH, _HEIGHT, _TOP = 3, 300, 200, 62
_LEFT, _RIGHT, _UPPER, _LOWER = 52, 288, 46, 160  # of the drawing, within a panel
_STYLE = """\
svg{background:#fff;font-family:ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace}
text{fill:#1d2430;font-size:11px}.quiet{fill:#56606f}.name{font-size:12px;font-weight:600}
.zero{fill:none;stroke:#9aa3af;stroke-dasharray:3 3}.frame{fill:none;stroke:#d5dae1}
.curve{fill:none;stroke-width:1.8}.band{opacity:.25}.whisker{fill:none;stroke-width:1}
.c0{stroke:#0b63b5}.f0{fill:#0b63b5}.c1{stroke:#b4460f}.f1{fill:#b4460f}.c2{stroke:#1b7a43}
.f2{fill:#1b7a43}.c3{stroke:#8b3fa8}.f3{fill:#8b3fa8}.c4{stroke:#7a6a00}.f4{fill:#7a6a00}
@media (prefers-color-scheme:dark){svg{background:#14181f}text{fill:#e6e9ee}.quiet{fill:#a3adbb}
.zero{stroke:#66707e}.frame{stroke:#343a43}
.c0{stroke:#6cb2f5}.f0{fill:#6cb2f5}.c1{stroke:#f0986a}.f1{fill:#f0986a}.c2{stroke:#63d297}
.f2{fill:#63d297}.c3{stroke:#cf9be6}.f3{fill:#cf9be6}.c4{stroke:#d9c64a}.f4{fill:#d9c64a}}"""


@dataclass(frozen=True, slots=True)
class _Scale:
    """The value at the lower and the upper end of every panel."""

    low: float
    high: float

    def y(self, value: float) -> float:
        """Return how far below a panel's top a value lies."""
        part = (value - self.low) / (self.high - self.low)
        return round(_LOWER - part * (_LOWER - _UPPER), 1)


def picture(functions: ColumnFunctions) -> str:
    """Return the picture as the text of an SVG file."""
    shown = [functions.terms[place] for place in functions.by_importance()[:MOST_PANELS]]
    scale = _scale([term for term in shown if not term.sides])
    parts = list(_heading(functions, len(functions.terms) - len(shown)))
    for number, term in enumerate(shown):
        row, column = divmod(number, _ACROSS)
        parts += _panel(term, functions.outputs, scale, column * _WIDTH, _TOP + row * _HEIGHT)
    rows = math.ceil(len(shown) / _ACROSS)
    return _document(_ACROSS * _WIDTH, _TOP + rows * _HEIGHT + 8, parts)


def _document(width: int, height: int, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img">'
    )
    title = "<title>What each column adds to the score, with the band that noise allows</title>"
    return "\n".join([head, title, f"<style>{_STYLE}{HEAT_STYLE}</style>", *parts, "</svg>"]) + "\n"


def _heading(functions: ColumnFunctions, missing: int) -> Iterator[str]:
    outputs = functions.outputs
    what = outputs[0] if len(outputs) == 1 else "score of each class, beside the mean of all"
    yield text(12, 24, "name", shortened(f"What each bin adds: {what}", 120))
    if len(outputs) > 1:
        yield from _legend(outputs)
        return
    notes = ["band: two standard deviations of the releases' noise"]
    if missing:
        notes.append(f"{missing:,} more columns are in bins.csv")
    yield text(12, 46, "quiet", "; ".join(notes))


def _legend(outputs: Sequence[str]) -> Iterator[str]:
    """Write which function is whose."""
    x = 12
    for number, name in enumerate(outputs[:_MOST_OUTPUTS]):
        word = shortened(name.removeprefix("score of "), 20)
        yield f'<path class="curve c{number}" d="M{x} 42h16"/>'
        yield text(x + 22, 46, "quiet", word)
        x += 36 + round(CHARACTER * len(word))
    if len(outputs) > _MOST_OUTPUTS:
        yield text(x, 46, "quiet", f"and {len(outputs) - _MOST_OUTPUTS} more: bins.csv")


def _scale(terms: Sequence[AdditiveTerm]) -> _Scale:
    """Return a scale that has all values, their bands, and 0."""
    low = high = 0.0
    for term in terms:
        reach = np.nan_to_num(_DEVIATIONS * term.deviations)
        low = min(low, float((term.added - reach).min()))
        high = max(high, float((term.added + reach).max()))
    if high - low < 1e-12:
        return _Scale(low - 1.0, high + 1.0)
    return _Scale(low, high)


def _panel(
    term: AdditiveTerm, outputs: Sequence[str], scale: _Scale, x: int, y: int
) -> Iterator[str]:
    yield text(x + 12, y + 16, "name", shortened(term.name, 38))
    yield text(x + 12, y + 34, "quiet", _importance(term))
    if term.sides:
        yield from heat_map(term, outputs, x, y)
        return
    frame = f"M{x + _LEFT} {y + _UPPER}V{y + _LOWER}H{x + _RIGHT}"
    yield f'<path class="frame" d="{frame}"/>'
    yield f'<path class="zero" d="M{x + _LEFT} {y + scale.y(0.0)}H{x + _RIGHT}"/>'
    for value in (scale.low, 0.0, scale.high):
        if value == 0.0 or abs(scale.y(value) - scale.y(0.0)) > 12:
            yield text(x + _LEFT - 5, y + scale.y(value) + 4, "quiet", f"{value:.2g}", end=True)
    for number, added in enumerate(term.added[:_MOST_OUTPUTS]):
        if term.numeric:
            yield from _steps(number, added, term.deviations, scale, x, y)
        else:
            yield from _values(number, added, term.deviations, scale, x, y)
    yield from _under(term, x, y + _LOWER + 16)


def _importance(term: AdditiveTerm) -> str:
    importance, by_noise = term.importance, term.by_noise
    if importance is None:
        return ""
    noise = "" if by_noise is None else f", noise alone {by_noise:.2g}"
    return f"moves a row by {importance:.2g}{noise}"


def _steps(
    number: int, added: Reals, deviations: Reals, scale: _Scale, x: int, y: int
) -> Iterator[str]:
    """Draw a number's function, a step for each bin."""
    width = (_RIGHT - _LEFT) / len(added)
    cuts = [round(x + _LEFT + width * cut, 1) for cut in range(len(added) + 1)]
    reach = np.nan_to_num(_DEVIATIONS * deviations)
    if reach.any():
        upper = _stairs(cuts, [y + scale.y(value) for value in (added + reach).tolist()])
        lower = [y + scale.y(value) for value in (added - reach).tolist()]
        back = _stairs(cuts[::-1], lower[::-1]).replace("M", "L", 1)
        yield f'<path class="band f{number}" d="{upper}{back}Z"/>'
    line = _stairs(cuts, [y + scale.y(value) for value in added.tolist()])
    yield f'<path class="curve c{number}" d="{line}"/>'


def _stairs(cuts: Sequence[float], heights: Sequence[float]) -> str:
    first = f"M{cuts[0]} {heights[0]:.1f}H{cuts[1]}"
    steps = zip(heights[1:], cuts[2:], strict=True)
    return first + "".join(f"V{height:.1f}H{cut}" for height, cut in steps)


def _values(
    number: int, added: Reals, deviations: Reals, scale: _Scale, x: int, y: int
) -> Iterator[str]:
    """Draw what each value of a category adds: a line across, and its band as a whisker."""
    width = (_RIGHT - _LEFT) / len(added)
    reach = np.nan_to_num(_DEVIATIONS * deviations).tolist()
    lines, whiskers = [], []
    for place, (value, far) in enumerate(zip(added.tolist(), reach, strict=True)):
        middle = x + _LEFT + width * (place + 0.5)
        lines.append(f"M{middle - 0.35 * width:.1f} {y + scale.y(value):.1f}h{0.7 * width:.1f}")
        if far:
            low, high = y + scale.y(value - far), y + scale.y(value + far)
            whiskers.append(f"M{middle:.1f} {low:.1f}V{high:.1f}")
    yield f'<path class="curve c{number}" d="{"".join(lines)}"/>'
    if whiskers:
        yield f'<path class="whisker c{number}" d="{"".join(whiskers)}"/>'


def _under(term: AdditiveTerm, x: int, y: int) -> Iterator[str]:
    """Write what lies in the bins."""
    first, last = term.bins[0], term.bins[-1]
    if first.low is not None and last.high is not None:
        yield text(x + _LEFT, y, "quiet", f"{first.low:.6g}")
        yield text(x + _RIGHT, y, "quiet", f"{last.high:.6g}", end=True)
        return
    if len(term.bins) > _MOST_NAMES:
        yield text(x + _LEFT, y, "quiet", f"{len(term.bins):,} values, as in bins.csv")
        return
    width = (_RIGHT - _LEFT) / len(term.bins)
    for place, edges in enumerate(term.bins):
        word = shortened(edges.value or "", max(2, int(width / CHARACTER)))
        yield text(round(x + _LEFT + width * (place + 0.5)), y, "quiet", word, middle=True)
