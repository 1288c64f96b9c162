"""Whose privacy a run's ε is, in words for an owner."""

from __future__ import annotations

from tacit.shown import printable

_NAME = 40  # characters of a column's name
_ROWS = ("row", "record")


def unit_words(unit: str) -> str:
    """Return what a unit is."""
    if unit in _ROWS:
        return "one row"
    return f"all rows with the same {printable(unit, _NAME)} together"


def unit_caution(unit: str) -> str | None:
    """Return what an owner should know of a unit; None: it is all that somebody has."""
    if unit not in _ROWS:
        return None
    return (
        "A person with two rows is protected less: ε is for each row. The researcher can ask again "
        "with data.unit, the column that says whose a row is; then it is for the person."
    )
