"""Words of others, shown safely.

Names of classes, columns, files and edges, reasons of peers. They may hold what a terminal obeys
(ESC), what ends a line, what turns a line around (U+202E), what is not seen (U+200B), and what a
spreadsheet computes (`=…`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")


def printable(text: str, limit: int | None = None) -> str:
    """`limit` characters of a text, or all, for logs and terminals, in one line.

    What does not print is `?`: control and formatting characters, ends of lines, blanks but the
    usual one, half characters.
    """
    cut = text[:limit]
    if cut.isprintable():
        return cut
    return "".join(character if character.isprintable() else "?" for character in cut)


def lines(text: str) -> str:
    """The text for a terminal, line by line as it is."""
    return "\n".join(map(printable, text.split("\n")))


def cell(text: str) -> str:
    """The text as a cell of a CSV: printable, and taken for text where it begins as a formula.

    A number, with a sign too, stays as it is.
    """
    plain = printable(text)
    return f"'{plain}" if plain.lstrip().startswith(_FORMULA) and not _is_number(plain) else plain


def cells(row: Iterable[str]) -> list[str]:
    """A row of a CSV."""
    return [cell(one) for one in row]


def as_json(value: Any, indent: int | None = 2) -> str:
    """`value` as JSON, letters as they are, and what does not print as \\u and its number."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return "".join(one if one.isprintable() or one == "\n" else _escaped(one) for one in text)


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
