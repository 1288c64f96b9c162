"""Keys of a run file that have too many parts, as `a.a.a…`.

The reader of TOML takes memory that grows with the square of their number: 1.5 GB for 20,000, from
a text of 40 KB. So they are looked for before it reads.
"""

from __future__ import annotations

import re

from tacit.errors import ConfigError

MOST_PARTS = 16
_PART = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
_DOT = r"[ \t]*+\.[ \t]*+"
# What a text consists of. Each alternative is taken whole and never looked at again, so that the
# time grows with the text alone. Texts of several lines come before keys: both begin with quotes.
_PIECE = re.compile(
    r"\#[^\n]*+"
    r'|"""(?:[^"\\]|\\[\s\S]|"(?!""))*+(?:"{3,5}|\Z)'
    r"|'''(?:[^']|'(?!''))*+(?:'{3,5}|\Z)"
    rf"|(?P<long>(?:{_PART}{_DOT}){{{MOST_PARTS}}})"
    rf"|{_PART}"
    r"""|"(?:[^"\\\n]|\\.)*+|'[^'\n]*+"""  # whose end is missing
    r"""|[^A-Za-z0-9_"'\#-]++"""
)


def refuse_long_keys(text: str, origin: str) -> None:
    """Return where no key of the TOML `text` has more than MOST_PARTS parts.

    It takes time in proportion to the text. Raises ConfigError, in one line that names `origin`.
    """
    for piece in _PIECE.finditer(text):
        if piece["long"] is not None:
            line = text.count("\n", 0, piece.start()) + 1
            raise ConfigError(
                f"{origin}: line {line}: a key of more than {MOST_PARTS} parts with dots between "
                "them; no section of a run file has so many"
            )
