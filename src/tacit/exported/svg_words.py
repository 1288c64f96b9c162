"""Words in a picture: text elements whose content is never markup."""

from __future__ import annotations

from html import escape

from tacit.shown import printable

CHARACTER = 6.7  # the width of one, at most


def shortened(words: str, most: int) -> str:
    """Return words of at most `most` characters."""
    return words if len(words) <= most else f"{words[: most - 1]}…"


def text(
    x: float, y: float, style: str, words: str, *, end: bool = False, middle: bool = False
) -> str:
    """Return words at a place, as an element of SVG. They begin, end or have their middle there."""
    anchor = ' text-anchor="end"' if end else ' text-anchor="middle"' if middle else ""
    return f'<text class="{style}" x="{x}" y="{y}"{anchor}>{escape(printable(words))}</text>'
