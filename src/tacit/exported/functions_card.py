"""The part of a model card on an additive model: what drives it, and what was changed by hand.

Both are sections of their own, so that a card can be written anew where the model is changed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tacit.exported.column_functions import BINS, ColumnFunctions
from tacit.exported.markdown import marked
from tacit.exported.stored import StoredFlattening
from tacit.models.additive import AdditiveModel

PICTURE = "functions.svg"
_MOST_COLUMNS = 100  # lines of the table
_DRIVES = "## What drives it"
_BY_HAND = "## Changed by hand"
_SECTION = re.compile(rf"^(?:{_DRIVES}|{_BY_HAND})\n.*?(?=^## )", flags=re.MULTILINE | re.DOTALL)
_BEFORE = "## What it tells of the people it learnt from"

_TEXT = """\
{heading}

![What each column adds to the score, with the band that the noise allows]({picture})

{words}

| column | moves a row by, on average | noise alone would by | lowest | highest |
|---|---|---|---|---|
{lines}
{more}
`{bins}` has all bins: what lies in each, what it adds ({unit}), its rows and its deviation.

"""
_KNOWN = """\
How far a column moves a row is the mean of what it adds, without its sign, over all rows. The rows
of a bin are noisy counts. The band of a bin is two standard deviations of what the noise of all
releases makes of its value, found by making the run again on made-up rows; a column near "noise
alone" may say nothing. Chance in whose rows they are is not in the band. Nor is what smoothing
does, which draws bins of few rows to their neighbours and to 0. Columns that go together share
what they say, and are less sure than their bands. It all follows from what was released, so it
adds nothing to ε."""
_UNKNOWN = """\
Nothing is known of the noise of this model's bins, so there is no band."""
_CHANGED = """\
{heading}

Somebody changed what bins add, after the training. What was measured above was measured before.
The privacy is the same: nothing was read but the model.

{lines}

"""


def sections(functions: ColumnFunctions, flattened: Sequence[StoredFlattening]) -> str:
    """Return the sections, as Markdown; flattened: what was changed by hand, in order."""
    terms = [functions.terms[place] for place in functions.by_importance()]
    lines = [
        f"| {marked(term.name)} | {_number(term.importance)} | {_number(term.by_noise)} "
        f"| {_number(float(term.added.min()))} | {_number(float(term.added.max()))} |"
        for term in terms[:_MOST_COLUMNS]
    ]
    missing = len(terms) - len(lines)
    known = any(term.importance is not None for term in terms)
    drives = _TEXT.format(
        heading=_DRIVES,
        picture=PICTURE,
        words=_KNOWN if known else _UNKNOWN,
        lines="\n".join(lines),
        more=f"\n{missing:,} more columns move rows less.\n" if missing > 0 else "",
        bins=BINS,
        unit=marked(", ".join(functions.outputs)),
    )
    return drives + _by_hand(functions.model, flattened)


def renewed(card: str, new: str) -> str:
    """Return a card whose sections are `new`. Where it has none, they come before the last part."""
    without = _SECTION.sub("", card)
    place = without.find(_BEFORE)
    if place < 0:
        return f"{without.rstrip()}\n\n{new}"
    return without[:place] + new + without[place:]


def _by_hand(model: AdditiveModel, flattened: Sequence[StoredFlattening]) -> str:
    if not flattened:
        return ""
    lines = [f"- {marked(words(model, each))}" for each in flattened]
    return _CHANGED.format(heading=_BY_HAND, lines="\n".join(lines))


def words(model: AdditiveModel, change: StoredFlattening) -> str:
    """Return a change in words: which bins of which column, and what they were set to."""
    column = next(each for each in model.terms if each.name == change.column)
    if len(change.bins) == column.bins:
        where = "all bins"
    else:
        where = ", ".join(str(column.edges(number)) for number in change.bins)
    to = "0" if change.to == "zero" else "the mean of their neighbours"
    return f"{change.column}: {where}: set to {to}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
