"""What to write instead of what is no TOML: a decimal comma, a key or a text without quotes."""

from __future__ import annotations

import re

from tacit.shown import printable

_LINE = re.compile(r"at line (\d+)")
_COMMA = re.compile(r"=\s*[+-]?\d+,\d+\s*(#.*)?$")
_KEY = re.compile(r"""^\s*([^"'#=\[\]{}]+?)\s*=""")
_BARE = re.compile(r"[A-Za-z0-9_.\s-]+")
_WORD = re.compile(r"=\s*[^\W\d]")
_TRUTH = re.compile(r"=\s*(True|False|TRUE|FALSE|yes|no)\s*(#.*)?$")


def what_to_write(text: str, error: Exception) -> str:
    """Return words to end an error's line with, about the line of `text` that it names.

    >>> what_to_write("epsilon = 4,0", ValueError("… (at line 1, column 12)"))[2:]
    'a number has a decimal point, as 4.0'
    """
    place = _LINE.search(str(error))
    lines = text.split("\n")
    if place is None or int(place[1]) > len(lines):
        return ""
    line = lines[int(place[1]) - 1][:1000]
    if _COMMA.search(line):
        return "; a number has a decimal point, as 4.0"
    key = _KEY.match(line)
    if key and not _BARE.fullmatch(key[1]):
        return f'; a key with other letters than a to z needs quotes: "{printable(key[1], 100)}"'
    if _TRUTH.search(line):
        return "; write true or false"
    if "Invalid value" in str(error) and _WORD.search(line):
        return "; a text needs quotes"
    if "overwrite" in str(error) or "twice" in str(error):
        return "; a key stands twice in its section"
    return ""
