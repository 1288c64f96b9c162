"""The history that ε is computed of during a run: a little more than was spent, never less.

Composing takes up to 100 ms, time that training would miss; so it is done for eight counts an
octave, or 64 where there is time, and each result serves every edge until its count passes it.
"""

from __future__ import annotations

from dataclasses import replace

from tacit.privacy.accounting import History

# Significant bits that a count is rounded up to, tried until ε is within the budget: four of them
# add at most an eighth, seven a 64th.
ROUGHER, FINER = (4, 6, 8), (7, 9)


def ahead(history: History, bits: int = ROUGHER[0]) -> History:
    """Round every count up to `bits` significant bits."""
    return tuple(replace(row, count=_rounded_up(row.count, bits)) for row in history)


def _rounded_up(count: int, bits: int) -> int:
    step = 1 << max(0, count.bit_length() - bits)
    return -(-count // step) * step
