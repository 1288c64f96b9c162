"""Source that shows a reader what it runs: code is approved by reading it.

Refused is what an editor shows otherwise than Python reads it: another coding than UTF-8 (in UTF-7
a comment ends where nobody sees it), characters that turn text around or are not seen, and what
moves a terminal's cursor or a line's beginning without a new line.
"""

from __future__ import annotations

import io
import tokenize
import unicodedata

MOST = 1 << 20  # bytes of one file of source
_SEEN_AS_WRITTEN = ("\n", "\t")
_UTF_8 = ("utf-8", "utf-8-sig")
# Letters and marks that nobody sees. Others that are not seen are of category Cf.
_INVISIBLE = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
    + "".join(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
)
_HIDING = ("Cc", "Cf", "Co", "Cn", "Zl", "Zp")


def check(source: bytes) -> None:
    """Raise ValueError, which names the line, for source that may look otherwise than it runs."""
    if len(source) > MOST:
        raise ValueError(f"has more than {MOST:,} bytes")
    try:
        coding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    except SyntaxError as error:
        raise ValueError(f"is not UTF-8 text: {error.msg}") from error
    if coding not in _UTF_8:
        raise ValueError(f"is declared to be {coding}; only UTF-8 is run, as everybody reads it so")
    text = source.decode("utf-8-sig").replace("\r\n", "\n")
    for number, line in enumerate(text.split("\n"), 1):
        for character in line:
            if not character.isascii() or not character.isprintable():
                _check(character, number)


def _check(character: str, line: int) -> None:
    if character in _SEEN_AS_WRITTEN:
        return
    if character in _INVISIBLE or unicodedata.category(character) in _HIDING:
        name = unicodedata.name(character, "a control character").lower()
        raise ValueError(
            f"line {line}: U+{ord(character):04X} ({name}) is not seen, or hides what is run; "
            "take it out, or write it as an escape"
        )
