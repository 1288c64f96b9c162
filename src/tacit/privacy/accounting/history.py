"""Histories: rows of equal releases, as a ledger has them and the accountant counts them."""

from __future__ import annotations

from collections import Counter
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


def beyond(history: History, *others: History) -> History:
    """Return what to add to `history` so that it costs no less than each of the others, at every δ.

    At one rate and mechanism it is of one kind: releases of which less noise costs no less. Of each
    kind and for every z, the sum has as many releases at z or less noise as any of the others. So
    each release of another has one of the sum to itself, of its kind and with no more noise; and
    what the sum has more can only cost. Of one kind and z that is what the largest count has more;
    of histories without a kind in common it is all of them. Beyond nothing, it is a bound on all.
    """
    ours = _counts(history)
    theirs = [_counts(other) for other in others]
    lacking = []
    for mechanism, q in sorted({kind for each in theirs for kind in each}):
        places = sorted({z for each in theirs for z in each.get((mechanism, q), ())})
        added = 0
        for z in places:
            needed = max(_up_to(z, each.get((mechanism, q))) for each in theirs)
            more = needed - _up_to(z, ours.get((mechanism, q))) - added
            if more > 0:
                lacking.append(Spend(q, z, more, mechanism))
                added += more
    return tuple(lacking)


def _counts(history: History) -> dict[tuple[str, float], Counter[float]]:
    """Return the number of releases at each z, by mechanism and sampling rate."""
    counts: dict[tuple[str, float], Counter[float]] = {}
    for row in history:
        kind = counts.setdefault((row.mechanism, row.sampling_rate), Counter())
        kind[row.noise_multiplier] += row.count
    return counts


def _up_to(z: float, counts: Counter[float] | None) -> int:
    """Return the number of these that have no more noise than z."""
    return sum(count for noise, count in (counts or {}).items() if noise <= z)
