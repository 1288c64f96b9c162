"""The rules of a tokenizer's file: that they take a bounded time for every text.

The file may come from a stranger, and is used on private texts. A rule that lets a text grow, or a
regular expression that tries again and again, would let one word of a text hold up a site. From
that the author of the file would read that the word is there.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from tacit.errors import ConfigError

# Python's own reader of patterns, and the parts that a pattern has.
parser: Any = import_module("re._parser")
kinds: Any = import_module("re._constants")
MOST_GROWTH = 64  # characters of a text's one, after all rules
_STEPS = ("normalizer", "pre_tokenizer", "decoder")
_SEVERAL = ("normalizers", "pretokenizers", "decoders")
# Kinds of characters, and numbers of them, which Python writes otherwise.
_CLASSES = re.compile(r"\\[pP]\{\^?\w+\}|\\[pP][A-Z]")
_CODES = re.compile(r"\\[xu]\{[0-9A-Fa-f]{1,6}\}")
_REPEATS = (kinds.MAX_REPEAT, kinds.MIN_REPEAT, kinds.POSSESSIVE_REPEAT)
_FEW = 4  # times: no more than so many are no loop
_SINGLE = (kinds.LITERAL, kinds.NOT_LITERAL, kinds.ANY, kinds.IN, kinds.CATEGORY)


def check_rules(document: dict[str, Any], where: str) -> None:
    """Check what a tokenizer's file does to a text. Raises ConfigError, naming the rule."""
    for step in _STEPS:
        growth = 1
        for rule in _rules(document.get(step)):
            growth *= _growth(rule)
            if growth > MOST_GROWTH:
                why = f"{rule.get('type')} lets a text grow more than {MOST_GROWTH} times"
            else:
                why = _unbounded(rule)
            if why:
                raise ConfigError(
                    f"{where}: {step}: {why}; one text could hold up whoever reads it"
                )


def _rules(step: Any) -> Iterator[dict[str, Any]]:
    """Yield a step's rules, and those of each sequence in it. The library has read the file."""
    waiting = [step]
    while waiting:
        rule = waiting.pop(0)
        if isinstance(rule, dict):
            inside = [each for name in _SEVERAL for each in rule.get(name) or []]
            waiting = inside + waiting
            if not inside:
                yield rule


def _growth(rule: dict[str, Any]) -> int:
    """Return how many characters a rule makes of one, at most."""
    match rule.get("type"):
        case "Replace":
            pattern = rule.get("pattern")
            stated = pattern.get("String", "") if isinstance(pattern, dict) else ""
            return max(1, -(-len(str(rule.get("content", ""))) // max(1, len(str(stated)))))
        case "Prepend":
            return 1 + len(str(rule.get("prepend", "")))
        case "Precompiled":
            return max(1, _longest(str(rule.get("precompiled_charsmap") or "")))
    return 1


def _longest(charsmap: str) -> int:
    """Return the length of the longest text that a table of characters puts in a character's place.

    The table has a number of bytes, so many bytes, and texts that zeros end.
    """
    try:
        content = base64.b64decode(charsmap)
    except (ValueError, binascii.Error):
        return MOST_GROWTH + 1
    texts = content[4 + int.from_bytes(content[:4], "little") :]
    return max(map(len, texts.split(b"\0")), default=0)


def _unbounded(rule: dict[str, Any]) -> str:
    """Return why a rule's regular expression may try very often; "": it does not, or has none."""
    pattern = rule.get("pattern")
    if not isinstance(pattern, dict) or "Regex" not in pattern:
        return ""
    stated = str(pattern["Regex"])
    try:
        parsed = parser.parse(_CODES.sub("x", _CLASSES.sub(r"\\w", stated)))
    except (re.error, RecursionError, OverflowError):
        why = "is not of a form that tacit can judge"
    else:
        why = _loops(parsed, inside=False)
    return f"the regular expression {stated[:80]!r} {why}" if why else ""


def _loops(parsed: Any, *, inside: bool) -> str:
    """Return what is in a pattern that may be tried in very many ways. inside: of a loop."""
    for kind, value in parsed:
        if kind in (kinds.GROUPREF, kinds.GROUPREF_EXISTS):
            return "refers to what it has read"
        if inside and kind not in _SINGLE and kind is not kinds.SUBPATTERN:
            return "has a loop or a choice in a loop"
        within, parts = _parts(kind, value)
        for part in parts:
            if why := _loops(part, inside=inside or within):
                return why
    return ""


def _parts(kind: Any, value: Any) -> tuple[bool, list[Any]]:
    """Return whether a part of a pattern is a loop, and the patterns in it."""
    if kind in _REPEATS:
        _, most, body = value
        return most is kinds.MAXREPEAT or most > _FEW, [body]
    if kind is kinds.BRANCH:
        return False, list(value[1])
    if kind is kinds.SUBPATTERN:
        return False, [value[-1]]
    if kind in (kinds.ASSERT, kinds.ASSERT_NOT):
        return False, [value[1]]
    if kind is kinds.ATOMIC_GROUP:
        return False, [value]
    return False, []
