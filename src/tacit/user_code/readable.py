"""Source that shows a reader what it runs: code is approved by reading it.

Source is refused if an editor shows it otherwise than Python reads it. That is another coding than
UTF-8 (in UTF-7 a comment ends where nobody sees it), and characters that turn text around or are
not seen. It is also what moves a terminal's cursor or a line's beginning without a new line.
"""

from __future__ import annotations

import io
import tokenize
import unicodedata

from tacit.shown import seen

MOST = 1 << 20  # bytes of one file of source
_SEEN_AS_WRITTEN = ("\n", "\t")
_UTF_8 = ("utf-8", "utf-8-sig")
_BLANK = "Zs"  # a category: blanks of any width


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
    if not seen(character) and unicodedata.category(character) != _BLANK:
        name = unicodedata.name(character, "a control character").lower()
        raise ValueError(
            f"line {line}: U+{ord(character):04X} ({name}) is not seen, or hides what is run; "
            "take it out, or write it as an escape"
        )
