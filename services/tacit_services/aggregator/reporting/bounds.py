"""The history that ε is computed of during a run: a little more than was spent, never less.

Composing takes up to 50 ms, time that training would miss; so it is done for eight counts an
octave, and each result serves every edge until its count passes it.
"""

from __future__ import annotations

from dataclasses import replace

from tacit.privacy.accounting import History

# Significant bits that a count is rounded up to, tried until ε is within the budget.
ROUGHER = (4, 6, 8)


def ahead(history: History, bits: int = ROUGHER[0]) -> History:
    """Round every count up to `bits` significant bits; four of them add at most an eighth."""
    return tuple(replace(row, count=_rounded_up(row.count, bits)) for row in history)


def _rounded_up(count: int, bits: int) -> int:
    step = 1 << max(0, count.bit_length() - bits)
    return -(-count // step) * step
