"""A bound on the norm of an honest update, which a server can know without knowing any data.

Only magnitudes are judged. A poisoned update as long as an honest one cannot be told from it: the
noise that protects the data hides the poison, too (docs/privacy.md).
"""

from __future__ import annotations

import math

_ROUNDING = (
    1 + 2.0**-10
)  # the noise's grid is 2^12 times finer than its standard deviation, and float32 beyond that


def norm_bound(
    clip: float,
    batch: float,
    noise_multiplier: float,
    size: int,
    *,
    factor: float = 1.0,
    false_alarm: float = 1e-9,
) -> float:
    """Return the l2 norm that an honest (sum + noise)/L exceeds with probability <= `false_alarm`.

    clip: C; batch: L > 0; noise of standard deviation z·C in each of `size` coordinates. The sum
    has norm C·B at most, with B examples in a Poisson batch of mean factor·L or less; with t =
    ln(2/false_alarm), B <= m + sqrt(2mt) + t/3 (Bernstein, m = factor·L) and ||noise|| <=
    zC(sqrt(d) + sqrt(2t)) (Gaussian concentration; Hsu, Kakade, Zhang 2012 for the discrete
    Gaussian), each but with probability false_alarm/2. The triangle inequality holds whatever the
    data is, so this is no assumption about gradients.
    """
    t, mean = math.log(2 / false_alarm), factor * batch
    examples = mean + math.sqrt(2 * mean * t) + t / 3
    noise = noise_multiplier * (math.sqrt(size) + math.sqrt(2 * t))
    return clip / batch * (examples + noise) * _ROUNDING
