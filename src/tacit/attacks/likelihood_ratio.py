"""Membership by likelihood ratio, as LiRA (Carlini et al., arXiv:2112.03570), with few shadow runs.

A shadow run is trained by the same definition on other draws of members. Of each record there is a
signal of every shadow run, with the record among the members and without. Both are taken for
normal. Each record has a mean of its own, and all records have one variance. With few shadow runs
that does better than a variance of each (section IV.C there). The mean of k signals is uncertain
itself, so a new signal has the variance σ²(1 + 1/k).

    score = ln N(signal | mean with, variance with) - ln N(signal | mean without, variance without)
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy import stats

from tacit.attacks.measured import ScoreVector

Draws = npt.NDArray[np.bool_]  # (runs, records)
_LEAST = 1e-12  # of a variance, where all signals are alike


def draws(runs: int, records: int, inside: int, seed: int) -> Draws:
    """Return for each run (runs, records) whether a record is a member, `inside` of them.

    Each record is left out as often as any other, give or take once. Which ones is drawn by `seed`.
    """
    chance = np.random.default_rng(seed)
    left_out = np.zeros(records, np.int64)
    drawn = np.ones((runs, records), np.bool_)
    for run in drawn:
        without = np.lexsort((chance.random(records), left_out))[: records - inside]
        run[without] = False
        left_out[without] += 1
    return drawn


def fewest_runs(records: int, inside: int) -> int:
    """Return how many runs it takes for each record to be with and without: at least 2 of each."""
    return 2 * math.ceil(max(records / max(records - inside, 1), records / max(inside, 1)))


def likelihood_ratios(
    signals: npt.NDArray[np.float64], inside: Draws, attacked: ScoreVector
) -> ScoreVector:
    """Return the score (n,) of each record, higher for a member.

    signals: (runs, n) of the shadow runs, inside: as `draws` made it, attacked: (n,) of the model
    under attack. Raises ValueError where a record is always, or never, among the members.
    """
    with_, without = (_normal(signals, chosen) for chosen in (inside, ~inside))
    scores: ScoreVector = stats.norm.logpdf(attacked, *with_) - stats.norm.logpdf(
        attacked, *without
    )
    return scores


def _normal(signals: npt.NDArray[np.float64], chosen: Draws) -> tuple[ScoreVector, ScoreVector]:
    """Return mean and deviation (n,) of a new signal, by those that are chosen."""
    count = chosen.sum(0)
    if not count.all():
        raise ValueError("shadow runs: a record is among the members always, or never")
    mean = np.where(chosen, signals, 0.0).sum(0) / count
    apart = np.where(chosen, signals - mean, 0.0)
    degrees = max(int((count - 1).sum()), 1)
    variance = max(float((apart**2).sum()) / degrees, _LEAST)
    return mean, np.sqrt(variance * (1 + 1 / count))
