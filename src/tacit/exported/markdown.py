"""Words of others within Markdown."""

from __future__ import annotations

import re

from tacit.shown import printable

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#!&])")


def marked(words: str) -> str:
    """Return words with the names of a file as text: no Markdown, no HTML."""
    return _MARKDOWN.sub(r"\\\1", printable(words))
