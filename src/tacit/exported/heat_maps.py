"""The heat map of a pair of columns, as a part of the picture of an additive model.

A cell's colour says what it adds, in steps of a fifth of the most that a cell of the pair adds or
takes away. A cell is crossed out where the band that noise allows has 0 in it. Of several outputs
it is the one that the pair moves most, which is named. The first column goes from top to bottom.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tacit.exported.additive_terms import AdditiveTerm
from tacit.exported.svg_words import CHARACTER, shortened, text
from tacit.questions.row_parts import Reals

_STEPS = 5  # of colour, in either direction
_DEVIATIONS = 2.0  # from the value to an end of its band
_LEFT, _RIGHT, _UPPER, _LOWER = 82, 236, 46, 160  # of the map, within a panel
_LEGEND, _BOX = 244, 9.5  # where the legend begins, and how high each of its colours is
HEAT_STYLE = """
.more{fill:#b4460f}.less{fill:#0b63b5}.s0{opacity:.06}.s1{opacity:.25}.s2{opacity:.45}
.s3{opacity:.65}.s4{opacity:.9}.unsure{fill:none;stroke:#56606f;stroke-width:.7}
@media (prefers-color-scheme:dark){.more{fill:#f0986a}.less{fill:#6cb2f5}.unsure{stroke:#a3adbb}}"""


def heat_map(term: AdditiveTerm, outputs: Sequence[str], x: int, y: int) -> Iterator[str]:
    """Write the map of a pair, its sides and its legend, in the panel at (x, y)."""
    output = int(np.abs(term.added).max(axis=1).argmax())
    rows, columns = (len(side) for side in term.sides)
    added = term.added[output].reshape(rows, columns)
    most = max(float(np.abs(added).max()), 1e-12)
    high, wide = (_LOWER - _UPPER) / rows, (_RIGHT - _LEFT) / columns
    cells: dict[str, list[str]] = {}
    for row, values in enumerate(added.tolist()):
        for column, value in enumerate(values):
            corner = f"M{x + _LEFT + wide * column:.1f} {y + _UPPER + high * row:.1f}"
            cells.setdefault(_style(value, most), []).append(
                f"{corner}h{wide:.1f}v{high:.1f}h-{wide:.1f}z"
            )
    for style, shapes in sorted(cells.items()):
        yield f'<path class="{style}" d="{"".join(shapes)}"/>'
    reach = np.nan_to_num(_DEVIATIONS * term.deviations).reshape(rows, columns)
    yield from _crosses(added, reach, x, y)
    yield from _sides(term, x, y)
    yield from _legend(most, bool(reach.any()), x, y)
    if len(outputs) > 1:
        name = shortened(outputs[output].removeprefix("score of "), 20)
        yield text(x + _LEFT, y + _LOWER + 30, "quiet", f"of {name}")


def _style(value: float, most: float) -> str:
    step = min(_STEPS - 1, int(abs(value) / most * _STEPS))
    return f"{'more' if value > 0 else 'less'} s{step}"


def _crosses(added: Reals, reach: Reals, x: int, y: int) -> Iterator[str]:
    """Cross out the cells whose band has 0 in it."""
    rows, columns = added.shape
    high, wide = (_LOWER - _UPPER) / rows, (_RIGHT - _LEFT) / columns
    lines = [
        f"M{x + _LEFT + wide * (column + 0.2):.1f} {y + _UPPER + high * (row + 0.8):.1f}"
        f"l{0.6 * wide:.1f} -{0.6 * high:.1f}"
        for row, column in np.argwhere(np.abs(added) < reach).tolist()
    ]
    if lines:
        yield f'<path class="unsure" d="{"".join(lines)}"/>'


def _sides(term: AdditiveTerm, x: int, y: int) -> Iterator[str]:
    """Write what lies in the first and the last cell of either column."""
    down, across = term.sides
    most = int((_LEFT - 8) / CHARACTER)
    for label, place in ((down[0], _UPPER + 11), (down[-1], _LOWER - 3)):
        yield text(x + _LEFT - 4, y + place, "quiet", shortened(label, most), end=True)
    most = int((_RIGHT - _LEFT) / 2 / CHARACTER)
    yield text(x + _LEFT, y + _LOWER + 16, "quiet", shortened(across[0], most))
    yield text(x + _RIGHT, y + _LOWER + 16, "quiet", shortened(across[-1], most), end=True)


def _legend(most: float, banded: bool, x: int, y: int) -> Iterator[str]:
    """Draw the colours from the most that a cell adds to the most that it takes away."""
    top = y + _UPPER
    for place in range(2 * _STEPS):
        step = _STEPS - 1 - place if place < _STEPS else place - _STEPS
        kind = "more" if place < _STEPS else "less"
        box = f"M{x + _LEGEND} {top + _BOX * place:.1f}h10v{_BOX}h-10z"
        yield f'<path class="{kind} s{step}" d="{box}"/>'
    for words, below in ((f"{most:.2g}", 8.0), ("0", 51.0), (f"{-most:.2g}", 94.0)):
        yield text(x + _LEGEND + 14, top + below, "quiet", words)
    if banded:
        yield f'<path class="unsure" d="M{x + _LEGEND} {top + 110}l10 -8"/>'
        yield text(x + _LEGEND + 14, top + 111, "quiet", "noise?")
