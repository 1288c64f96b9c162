"""e^y and tanh x without a branch, by one polynomial; libm's take other ways for other numbers.

y is k·ln 2 + r with a whole number k and |r| ≤ ½ ln 2, so e^y = 2^k·e^r. The code computes e^r - 1,
by the first eleven terms of its series, so that nothing is lost where y is near 0. All of it is in
float64, to within 2^-45. Its rounding to float32 is the only one that counts. A result is the
float32 next to the true one, or (for less than one number in ten thousand) its neighbour.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.kernels.jit import inner

_LOG2 = 0.6931471805599453
_PER_LOG2 = 1.4426950408889634
_WHOLE = 1.5 * 2.0**52  # a number that this is added to has lost what is behind its point
_ONE = np.int64(1023 << 52)  # the bits of 1.0
_LEAST = -87.3  # e to it is float32's smallest number that is not denormal, or little more
_ENOUGH = 20.0  # tanh of it is 1 in float32; so it is of what is larger
_ROOT_HALF = 0.7071067811865476
_AT_ZERO = 0.3989422804014327  # density of the standard normal there
_SIGN, _SIZE = np.int32(-(2**31)), np.int32(2**31 - 1)  # bits of a float32


@inner
def _power(y: float) -> tuple[float, float]:
    """Return e^r - 1 and 2^k, for -1000 < y < 1000; nan for nan."""
    shifted = y * _PER_LOG2 + _WHOLE
    r = y - (shifted - _WHOLE) * _LOG2
    series = 1 / 362880 + r * (1 / 3628800 + r * (1 / 39916800))
    series = 1 / 720 + r * (1 / 5040 + r * (1 / 40320 + r * series))
    series = 1 / 6 + r * (1 / 24 + r * (1 / 120 + r * series))
    two_to_k = (np.float64(shifted).view(np.int64) << 52) + _ONE
    return r * (1.0 + r * (0.5 + r * series)), np.int64(two_to_k).view(np.float64)


@inner
def exponential(y: float) -> float:
    """Return e^y, for y ≤ 0, with 0 where float32 would call it denormal, and nan for nan."""
    small = y < _LEAST
    power, scale = _power(_LEAST if small else y)
    return 0.0 if small else scale * power + scale


@inner
def sigmoid(z: NDArray[np.float32]) -> None:
    """Replace z by 1/(1 + e^-z), in place: 0 or 1 for ±inf, nan for nan."""
    for j in range(len(z)):
        y = np.float64(z[j])
        small = exponential(-abs(y))
        above = 1.0 / (1.0 + small)
        z[j] = np.float32(small * above if y < 0 else above)


@inner
def _below(x: float) -> float:
    """Return how much of a standard normal is below x, to within 2e-7 of it.

    It is half of erfc(-x/√2): Chebyshev's approximation of "Numerical Recipes", section 6.2.
    """
    z = abs(x) * _ROOT_HALF
    t = 1.0 / (1.0 + 0.5 * z)
    series = 1.48851587 + t * (-0.82215223 + t * 0.17087277)
    series = -0.18628806 + t * (0.27886807 + t * (-1.13520398 + t * series))
    series = 1.00002368 + t * (0.37409196 + t * (0.09678418 + t * series))
    tail = 0.5 * t * exponential(-z * z - 1.26551223 + t * series)
    return tail if x < 0 else 1.0 - tail


@inner
def gelu(z: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """Write z·Φ(z), of Φ the standard normal's distribution."""
    for j in range(len(z)):
        x = np.float64(z[j])
        out[j] = np.float32(x * _below(x))


@inner
def add_gelu_slope(
    z: NDArray[np.float32], d: NDArray[np.float32], out: NDArray[np.float32]
) -> None:
    """Compute out += d·(Φ(z) + z·φ(z)), the derivative of `gelu`."""
    for j in range(len(z)):
        x = np.float64(z[j])
        slope = _below(x) + x * _AT_ZERO * exponential(-0.5 * x * x)
        out[j] += np.float32(d[j] * slope)


@inner
def tanh(z: NDArray[np.float32]) -> None:
    """Replace z by tanh z, in place: ±0 for ±0, ±1 for ±inf, nan for nan."""
    for j in range(len(z)):
        size = abs(np.float64(z[j]))
        power, scale = _power(-2.0 * (_ENOUGH if size > _ENOUGH else size))
        less = scale * power + (scale - 1.0)  # e^-2|z| - 1
        sign = np.float32(z[j]).view(np.int32) & _SIGN
        bits = (np.float32(less / (2.0 + less)).view(np.int32) & _SIZE) | sign
        z[j] = np.int32(bits).view(np.float32)
