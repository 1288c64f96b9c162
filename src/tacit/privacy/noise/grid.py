"""The grid of public steps on which noise is drawn, and how far its table reaches.

Numbers alone: what noise costs is counted by them, without torch.
"""

from __future__ import annotations

REACH = 13.5  # standard deviations beyond which the discrete Gaussian's table ends: 2^-131
GRID_BITS = 12  # a release is rounded to a grid at least 2^12 times finer than its noise


def noise_units(multiplier: float) -> float:
    """Return S, the standard deviation of the discrete Gaussian in grid steps.

    C is S/z <= 2^12 of them. Above z = 4 the table of S would grow too large, so C becomes fewer
    steps. Truncation then costs utility (a tenth of a row's norm at z = 25 and 10,000 parameters),
    never privacy.

    >>> noise_units(1.0), noise_units(4.0), noise_units(25.0)
    (4096.0, 16384.0, 16384.0)
    """
    return 2.0**GRID_BITS * min(4.0, multiplier)


def grid_step(clip: float, multiplier: float) -> float:
    """Return g = zC/S, the value of one grid step. It is public, as C and z are.

    >>> grid_step(2.0, 1.0) == 2.0 / 4096
    True
    """
    return multiplier * clip / noise_units(multiplier)
