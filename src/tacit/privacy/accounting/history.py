"""Histories: rows of equal releases, as a ledger has them and the accountant counts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

Purpose = Literal["training", "question", "judging"]
# The rows that a release is of, where a ledger's units are split: those that are trained on, those
# that are held out, or all of them.
UnitSide = Literal["both", "training", "held_out"]
SIDES: Final[tuple[UnitSide, ...]] = ("training", "held_out")


@dataclass(frozen=True, slots=True)
class Spend:
    """One row of a history: `count` releases at sampling rate q and noise multiplier z.

    noise_multiplier: z, the noise's standard deviation over the sensitivity. For `knorm` it is the
    scale of its radius over the sensitivity, which is 1/ε of one release. z = 0 means a release
    without a valid mechanism (no noise, or the paper's): ε is infinite from then on. purpose: whose
    budget it counts against. The cost is the same. side: the rows that they are of.
    """

    sampling_rate: float
    noise_multiplier: float
    count: int
    mechanism: str = "gaussian"
    purpose: Purpose = "training"
    side: UnitSide = "both"


History = tuple[Spend, ...]


def merged(history: Iterable[Spend]) -> History:
    """Return the history with equal rows added up and empty ones dropped, in a fixed order."""
    counts: dict[tuple[float, float, str, Purpose, UnitSide], int] = {}
    for row in history:
        key = (row.sampling_rate, row.noise_multiplier, row.mechanism, row.purpose, row.side)
        counts[key] = counts.get(key, 0) + row.count
    return tuple(
        Spend(q, z, n, mechanism, purpose, side)
        for (q, z, mechanism, purpose, side), n in sorted(counts.items())
        if n
    )


def by_side(history: Iterable[Spend]) -> tuple[History, ...]:
    """Return what was released of the units of each side; one history where no side is named.

    A unit is on one side for the life of its ledger. So what a ledger costs is the largest of
    these, and never their sum (docs/privacy.md, "Judging").
    """
    rows = merged(history)
    if all(row.side == "both" for row in rows):
        return (rows,)
    return tuple(of_side(rows, side) for side in SIDES)


def of_side(history: Iterable[Spend], side: UnitSide) -> History:
    """Return what was released of the units of one side."""
    return of_all_rows(row for row in history if row.side in (side, "both"))


def of_all_rows(history: Iterable[Spend]) -> History:
    """Return the history as if each release were of all rows: it costs no less on either side."""
    return merged(replace(row, side="both") for row in history)


def for_all_purposes(history: Iterable[Spend]) -> History:
    """Return the history without purposes, for who asks what it costs."""
    return merged(replace(row, purpose="training") for row in history)


def of_purpose(history: Iterable[Spend], purpose: Purpose) -> History:
    """Return the rows of this purpose."""
    return tuple(row for row in history if row.purpose == purpose)


def beyond(history: History, *others: History) -> History:
    """Return what to add to `history` so that it costs no less than each of the others, at every δ.

    Another ledger has another split. So what it has released of either side counts as of all rows,
    and of `history` only what is of all rows counts. At one rate, mechanism and purpose it is of
    one kind: releases of which less noise costs no less. Of each kind and for every z, the sum has
    as many releases at z or less noise as any of the others. So each release of another has one of
    the sum to itself, of its kind and with no more noise. The further releases of the sum can only
    cost. Of one kind and z that is what the largest count has more. Of histories without a kind in
    common it is all of them. Beyond nothing, it is a bound on all.
    """
    ours = _counts(row for row in history if row.side == "both")
    theirs = [_counts(rows) for other in others for rows in by_side(other)]
    lacking = []
    for kind in sorted({kind for each in theirs for kind in each}):
        mechanism, q, purpose = kind
        places = sorted({z for each in theirs for z in each.get(kind, ())})
        added = 0
        for z in places:
            needed = max(_up_to(z, each.get(kind)) for each in theirs)
            more = needed - _up_to(z, ours.get(kind)) - added
            if more > 0:
                lacking.append(Spend(q, z, more, mechanism, purpose))
                added += more
    return tuple(lacking)


def _counts(history: Iterable[Spend]) -> dict[tuple[str, float, Purpose], Counter[float]]:
    """Return the number of releases at each z, by mechanism, sampling rate and purpose."""
    counts: dict[tuple[str, float, Purpose], Counter[float]] = {}
    for row in history:
        kind = counts.setdefault((row.mechanism, row.sampling_rate, row.purpose), Counter())
        kind[row.noise_multiplier] += row.count
    return counts


def _up_to(z: float, counts: Counter[float] | None) -> int:
    """Return the number of these that have no more noise than z."""
    return sum(count for noise, count in (counts or {}).items() if noise <= z)
