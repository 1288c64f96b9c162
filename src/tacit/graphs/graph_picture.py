"""A picture of a graph: its layers from top to bottom, as SVG.

A path that leaves the column goes past it on the right, as a residual one does. The same graph has
the same bytes, and their number is bounded for every file. All words are written as text: no
name of a file becomes markup. There is no script, no link, and nothing is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from tacit.graphs.graph_facts import GraphFacts, name_words, operation_words, shape_words
from tacit.graphs.graph_folds import LayerRow, Repeat
from tacit.shown import printable

MOST_BOXES = 40
_LANES = 12  # paths beside each other, past the column
_LEFT, _TOP, _WIDTH, _HEIGHT, _GAP = 76, 96, 420, 44, 30
_STEP = 12  # between lanes
_CHARACTER = 7.3  # the width of one, at most
_STYLE = """\
svg{background:#fff;font-family:ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace}
text{fill:#1d2430}.quiet{fill:#56606f}.name{font-size:12px;font-weight:600}.small{font-size:11px}
.box{fill:#f4f5f7;stroke:#9aa3af}.trained{fill:#dcecff;stroke:#3d7cc9}
.fixed{fill:#e3e5e8;stroke:#7b8491}
.path{fill:none;stroke:#56606f;stroke-width:1.3}.tip{fill:#56606f}
.frame{fill:none;stroke:#9aa3af;stroke-dasharray:4 3}
@media (prefers-color-scheme:dark){svg{background:#14181f}text{fill:#e6e9ee}.quiet{fill:#a3adbb}
.box{fill:#20262f;stroke:#66707e}.trained{fill:#16365c;stroke:#5b9be6}
.fixed{fill:#343a43;stroke:#8c95a1}
.path{stroke:#a3adbb}.tip{fill:#a3adbb}.frame{stroke:#66707e}}"""


@dataclass(frozen=True, slots=True)
class _Lane:
    """A path past the column: from a row, to all rows further down that read it."""

    source: int
    readers: tuple[int, ...]
    place: int


def picture(facts: GraphFacts) -> str:
    """Return the picture as the text of an SVG file."""
    view = facts.rows(MOST_BOXES)
    lanes, missing = _lanes(view.rows)
    notes = _notes(missing)
    width = _LEFT + _WIDTH + 28 + _STEP * max((lane.place + 1 for lane in lanes), default=0)
    end = _y(len(view.rows) + 1) + _HEIGHT
    shape = shape_words(facts.input)
    parts = [
        *_heading(facts),
        *(part for repeat in view.repeats for part in _frame(repeat, width)),
        *_box(0, ("the example", "", facts.example, ""), "box"),
        *_edge(0, shape, reads=bool(view.rows) and 0 in view.rows[0].layer.sources),
    ]
    for number, row in enumerate(view.rows, 1):
        parts += _box(number, _words(row), _kind(row))
        below = view.rows[number : number + 1]
        reads = not below or number in below[0].layer.sources
        parts += _edge(number, shape_words(row.layer.shape), reads=reads)
    output = f"{shape_words(facts.output)} numbers"
    parts += _box(len(view.rows) + 1, ("the output", "", output, ""), "box")
    parts += [part for lane in lanes for part in _path(lane)]
    parts += [
        _text(_LEFT, end + 10 + 18 * place, "small quiet", note)
        for place, note in enumerate(notes, 1)
    ]
    return _document(width, end + 26 + 18 * len(notes), parts)


def _document(width: int, height: int, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img">'
    )
    title = "<title>The network, layer by layer, from the example to the output</title>"
    return "\n".join([head, title, f"<style>{_STYLE}</style>", *parts, "</svg>"]) + "\n"


def _heading(facts: GraphFacts) -> list[str]:
    size = f"{facts.trained:,} numbers trained, {facts.fixed:,} fixed"
    cost = f"{facts.multiply_adds:,} multiply-adds a row, forward"
    digest = f"SHA-256 {facts.digest[:32]}…"
    return [
        _text(_LEFT, 28, "name", size),
        _text(_LEFT, 48, "small quiet", cost),
        _text(_LEFT, 66, "small quiet", digest),
    ]


def _notes(missing: int) -> list[str]:
    notes = [
        "blue: trained weights; grey: fixed ones; plain: none of its own",
        "m-a: multiply-adds of a row, forward",
    ]
    if missing:
        notes.append(f"{missing:,} more paths are not drawn; tacit show lists all")
    return notes


def _y(row: int) -> int:
    return _TOP + row * (_HEIGHT + _GAP)


def _kind(row: LayerRow) -> str:
    if row.layer.trained:
        return "box trained"
    return "box fixed" if row.layer.fixed else "box"


def _words(row: LayerRow) -> tuple[str, str, str, str]:
    """Return a box's words: upper left and right, lower left and right."""
    layer = row.layer
    if layer.trained and layer.fixed:
        size = f"{layer.trained:,} trained, {layer.fixed:,} fixed"
    elif layer.fixed:
        size = f"{layer.fixed:,} fixed"
    else:
        size = f"{layer.trained:,} trained" if layer.trained else ""
    cost = f"{layer.multiply_adds:,} m-a" if layer.multiply_adds else ""
    return name_words(row, 60), size, operation_words(layer), cost


def _box(row: int, words: tuple[str, str, str, str], kind: str) -> Iterator[str]:
    y = _y(row)
    yield (f'<rect class="{kind}" x="{_LEFT}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>')
    upper, size, lower, cost = words
    right = _LEFT + _WIDTH - 10
    for line, left, beside, style in ((18, upper, size, "name"), (35, lower, cost, "small")):
        if left:
            most = _room(beside)
            yield _text(_LEFT + 10, y + line, style, _cut(left, most))
        if beside:
            yield _text(right, y + line, "small quiet", beside, end=True)


def _room(beside: str) -> int:
    """Return how many characters there is room for, left of these."""
    return int((_WIDTH - 20) / _CHARACTER) - len(beside) - 2


def _cut(words: str, most: int) -> str:
    """Return words that take the room of at most `most` letters; other scripts' take two."""
    taken = 0
    for place, character in enumerate(words):
        taken += 1 if character.isascii() or character in "×…" else 2
        if taken > most:
            return f"{words[: max(0, place - 1)]}…"
    return words


def _edge(row: int, shape: str, *, reads: bool) -> Iterator[str]:
    """Draw what a row gives, and where the next one reads it the path to that."""
    x = _LEFT + _WIDTH // 2
    y = _y(row) + _HEIGHT
    if reads:
        yield f'<path class="path" d="M{x} {y}V{y + _GAP - 5}"/>'
        yield _tip(x, y + _GAP, down=True)
    yield _text(x + 10, y + _GAP // 2 + 4, "small quiet", _cut(shape, 26))


def _tip(x: int, y: int, *, down: bool) -> str:
    if down:
        return f'<path class="tip" d="M{x} {y}l-4 -7h8z"/>'
    return f'<path class="tip" d="M{x} {y}l7 -4v8z"/>'


def _lanes(rows: Sequence[LayerRow]) -> tuple[list[_Lane], int]:
    """Return the paths that are drawn past the column, and how many are not."""
    readers: dict[int, list[int]] = {}
    for number, row in enumerate(rows, 1):
        for source in row.layer.sources:
            if source < number - 1:
                readers.setdefault(source, []).append(number)
    lanes: list[_Lane] = []
    missing = 0
    # A short path goes nearer to the column.
    for source, numbers in sorted(readers.items(), key=lambda each: (each[1][-1] - each[0], each)):
        taken = {lane.place for lane in lanes if _meet(lane, source, numbers[-1])}
        place = next((place for place in range(_LANES) if place not in taken), None)
        if place is None:
            missing += len(numbers)
        else:
            lanes.append(_Lane(source, tuple(numbers), place))
    return lanes, missing


def _meet(lane: _Lane, first: int, last: int) -> bool:
    return lane.source < last and first < lane.readers[-1]


def _path(lane: _Lane) -> Iterator[str]:
    """Draw a path from the lower right of its source to the upper right of each reader."""
    right = _LEFT + _WIDTH
    x = right + 18 + _STEP * lane.place
    begin = _y(lane.source) + _HEIGHT - 10
    end = _y(lane.readers[-1]) + 10
    yield (
        f'<path class="path" d="M{right} {begin}H{x - 6}Q{x} {begin} {x} {begin + 6}'
        f'V{end - 6}Q{x} {end} {x - 6} {end}H{right + 6}"/>'
    )
    for reader in lane.readers:
        y = _y(reader) + 10
        if y != end:
            yield f'<path class="path" d="M{x} {y}H{right + 6}"/>'
        yield _tip(right, y, down=False)


def _frame(repeat: Repeat, width: int) -> Iterator[str]:
    y = _y(repeat.first) - 8
    height = _y(repeat.last) + _HEIGHT + 8 - y
    yield (
        f'<rect class="frame" x="{_LEFT - 8}" y="{y}" width="{width - _LEFT - 2}" '
        f'height="{height}" rx="8"/>'
    )
    yield _text(_LEFT - 14, y + height // 2 + 4, "name", f"{repeat.times:,}×", end=True)


def _text(x: int, y: int, style: str, words: str, *, end: bool = False) -> str:
    anchor = ' text-anchor="end"' if end else ""
    return f'<text class="{style}" x="{x}" y="{y}"{anchor}>{escape(printable(words))}</text>'
