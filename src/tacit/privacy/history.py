"""Histories: rows of equal releases, as a ledger has them and the accountant counts them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spend:
    """One row of a history: `count` releases at sampling rate q and noise multiplier z.

    noise_multiplier: z, the noise's standard deviation over the sensitivity; for `knorm`, the scale
    of its radius over the sensitivity, which is 1/ε of one release. z = 0 means a release without a
    valid mechanism (no noise, or the paper's): ε is infinite from then on.
    """

    sampling_rate: float
    noise_multiplier: float
    count: int
    mechanism: str = "gaussian"


History = tuple[Spend, ...]


def merged(history: Iterable[Spend]) -> History:
    """Return the history with equal rows added up and empty ones dropped, in a fixed order."""
    counts: dict[tuple[float, float, str], int] = {}
    for row in history:
        key = (row.sampling_rate, row.noise_multiplier, row.mechanism)
        counts[key] = counts.get(key, 0) + row.count
    return tuple(Spend(q, z, n, mechanism) for (q, z, mechanism), n in sorted(counts.items()) if n)
