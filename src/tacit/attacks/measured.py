"""How well an attack's scores tell members from others: AUC and hit rates, each with an interval.

Intervals hold with CONFIDENCE if rows are independent. The rows of one model are nearly so: they
share the model. An interval is wide where rows are few, and shows it.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy import stats

from tacit.attacks.attack_report import HitRate, ShareEstimate

ScoreVector = npt.NDArray[np.float64]
CONFIDENCE = 0.95
_TAIL = (1 - CONFIDENCE) / 2


def proportion(hits: int, count: int) -> ShareEstimate:
    """Return hits/count with the interval of Clopper and Pearson. count: at least 1."""
    interval = stats.binomtest(hits, count).proportion_ci(CONFIDENCE, method="exact")
    return ShareEstimate(value=hits / count, low=float(interval.low), high=float(interval.high))


def auc(members: ScoreVector, others: ScoreVector) -> ShareEstimate:
    """Return the chance that a member's score is above another's. A tie counts half.

    members (m,), others (n,), each at least 2. The variance is DeLong's (Biometrics 1988,
    doi:10.2307/2531595), by ranks (Sun and Xu, doi:10.1109/LSP.2014.2337313). The interval is made
    on the logarithm of the odds, so it stays within [0, 1]. Where all scores are apart the variance
    is 0, and the interval is that of as many successes as the smaller group has rows.
    """
    m, n = len(members), len(others)
    ranks = stats.rankdata(np.concatenate((members, others)))
    above = (ranks[:m] - stats.rankdata(members)) / n  # share of others below each member
    below = 1 - (ranks[m:] - stats.rankdata(others)) / m  # share of members above each other
    value = float(above.mean())
    if value in (0.0, 1.0):
        few = min(m, n)
        return proportion(round(value) * few, few)
    spread = math.sqrt(float(above.var(ddof=1)) / m + float(below.var(ddof=1)) / n)
    odds = math.log(value / (1 - value))
    reach = float(stats.norm.isf(_TAIL)) * spread / (value * (1 - value))
    low, high = (1 / (1 + math.exp(-min(max(odds + way * reach, -700), 700))) for way in (-1, 1))
    return ShareEstimate(value=value, low=low, high=high)


def hit_rate(members: ScoreVector, others: ScoreVector, rate: float) -> HitRate:
    """Return the share of members above the threshold that at most `rate` of the others pass.

    The threshold is the (k + 1)-th largest of the n others, k = ⌊rate·n⌋. It depends on no member,
    so the interval of the hits is exact (Clopper and Pearson). The true share of others above it
    has the distribution Beta(k + 1, n - k), for any distribution of theirs (Wilks 1941,
    doi:10.1214/aoms/1177731788).
    """
    count = len(others)
    allowed = min(math.floor(rate * count), count - 1)
    threshold = np.sort(others)[count - 1 - allowed]
    hits = int((members > threshold).sum())
    low, high = stats.beta.ppf((_TAIL, 1 - _TAIL), allowed + 1, count - allowed)
    return HitRate(
        rate=rate,
        alarms=int((others > threshold).sum()),
        alarms_low=float(low),
        alarms_high=float(high),
        hits=hits,
        share=proportion(hits, len(members)),
    )
