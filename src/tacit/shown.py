"""Words of others, shown safely.

They are names of classes, columns, files and edges, and reasons of peers. They may hold what a
terminal obeys (ESC), what ends a line, and what turns a line around (U+202E). They may also hold
what is not seen (U+200B), and what a spreadsheet computes (`=…`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

_MOST_OF_A_VALUE = 200  # characters
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_CELLS = re.compile(r"([;|])")  # where a spreadsheet may begin a cell, too
# Letters and marks that print, and that nobody sees.
_INVISIBLE = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
    + "".join(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
)


def seen(character: str) -> bool:
    """Check whether a character prints and a reader sees it; so does the usual blank."""
    return character.isprintable() and character not in _INVISIBLE


def printable(text: str, limit: int | None = None) -> str:
    """Return `limit` characters of a text, or all, for logs and terminals, in one line.

    What is not seen is `?`: control and formatting characters, ends of lines, blanks but the usual
    one, half characters, and letters and marks without a shape.
    """
    cut = text[:limit]
    if cut.isascii() and cut.isprintable():
        return cut
    return "".join(character if seen(character) else "?" for character in cut)


def quoted(wrong: object) -> str:
    """Return a wrong value as an error line repeats it: as Python writes it, and not too long.

    >>> quoted("old"), len(quoted([0] * 100_000)) < 250
    ("'old'", True)
    """
    text = repr(wrong)
    if len(text) <= _MOST_OF_A_VALUE:
        return text
    half = _MOST_OF_A_VALUE // 2
    return f"{text[:half]} … {text[-half:]} ({len(text):,} characters)"


def lines(text: str) -> str:
    """Return the text for a terminal, line by line as it is."""
    return "\n".join(map(printable, text.split("\n")))


def cell(text: str) -> str:
    """Return the text as a cell of a CSV: printable, and taken for text where a formula begins.

    So is what stands behind a `;` or a `|`, at which a spreadsheet may part cells. A number, with a
    sign too, stays as it is.
    """
    plain = printable(text)
    if _is_number(plain):
        return plain
    return "".join(map(_inert, _CELLS.split(plain)))


def _inert(plain: str) -> str:
    if plain.lstrip().startswith(_FORMULA):
        return f"'{plain}"
    return plain


def cells(row: Iterable[str]) -> list[str]:
    """Return a row of a CSV."""
    return [cell(value) for value in row]


def as_json(value: Any, indent: int | None = 2) -> str:
    """`value` as JSON, letters as they are, and what is not seen as \\u and its number."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return "".join(
        letter if seen(letter) or letter == "\n" else _escaped(letter) for letter in text
    )


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def toml(value: Any) -> str:
    """Return a value as a run file has it.

    >>> toml({"kind": "local steps", "steps_min": 3})
    '{kind = "local steps", steps_min = 3}'
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {toml(each)}" for name, each in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)
