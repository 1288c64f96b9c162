"""Noise: the discrete Gaussian by a guide table, and normals by Box and Muller.

The plain twins `_places`, `_pairs` and `gaussian` of `tacit.privacy.noise.mechanisms` define what
is computed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.kernels.jit import entry, inner

_BLOCK = 512  # pairs worked on at a time: they stay in the first cache
_MANTISSA = np.int64(2**52 - 1)
_ONE = np.int64(1023 << 52)  # the bits of 1.0
_LOG2 = 0.6931471805599453


@entry
def places(
    words: NDArray[np.uint64],
    high: NDArray[np.uint64],
    guide: NDArray[np.int32],
    shift: int,
    out: NDArray[np.int64],
) -> int:
    """Write how many of the sorted `high` are <= words[i] to out[i]; return how many equal one.

    guide[j] is how many are < j·2^shift, for j = 0 … 2^(64-shift). So a word is searched for
    between two neighbouring entries: one step at most for most words, up to 17 in the tails. The
    time depends on the noise, and on nothing else.
    """
    equal, last = 0, len(high) - 1
    for i in range(len(words)):
        word = words[i]
        bucket = np.intp(word >> np.uint64(shift))
        low, top = guide[bucket], guide[bucket + 1]
        while top - low > 1:
            middle = (low + top) >> 1
            low, top = (middle, top) if high[middle] <= word else (low, middle)
        # The last step has no branch, as a processor could not predict its outcome.
        low += np.int32((top > low) & (high[min(low, last)] <= word))
        out[i] = low
        equal += (low > 0) & (high[max(low, 1) - 1] == word)
    return equal


@inner
def _logarithms(
    x: NDArray[np.float64], bits: NDArray[np.int64], exponents: NDArray[np.float64]
) -> None:
    """Replace x by ln x, to within 2^-51, for normal numbers > 0; `bits` is the same memory."""
    for i in range(len(x)):
        # Taken at √2 of 2^-½ … 2^½, so that ln x is small where x is near 1.
        shifted = bits[i] - np.int64(0x3FE6A09E667F3BCD)
        exponents[i] = shifted >> 52
        bits[i] = (shifted & _MANTISSA) + np.int64(0x3FE6A09E667F3BCD)
    for i in range(len(x)):
        s = (x[i] - 1.0) / (x[i] + 1.0)
        z = s * s
        series = 1 / 19 + z * (1 / 21 + z * (1 / 23))
        series = 1 / 11 + z * (1 / 13 + z * (1 / 15 + z * (1 / 17 + z * series)))
        series = 1 / 3 + z * (1 / 5 + z * (1 / 7 + z * (1 / 9 + z * series)))
        x[i] = exponents[i] * _LOG2 + 2.0 * (s + s * z * series)


@inner
def _turns(t: NDArray[np.float64], cosine: NDArray[np.float64], sine: NDArray[np.float64]) -> None:
    """Write cos 2πt and sin 2πt, to within 2^-51, for t in [0, 1]."""
    for i in range(len(t)):
        quarter = np.floor(4.0 * t[i] + 0.5)
        a = (t[i] - 0.25 * quarter) * 6.283185307179586
        z = a * a
        s = -1 / 1307674368000 + z * (1 / 355687428096000)
        s = -1 / 5040 + z * (1 / 362880 + z * (-1 / 39916800 + z * (1 / 6227020800 + z * s)))
        s = a + a * z * (-1 / 6 + z * (1 / 120 + z * s))
        c = -1 / 87178291200 + z * (1 / 20922789888000)
        c = -1 / 720 + z * (1 / 40320 + z * (-1 / 3628800 + z * (1 / 479001600 + z * c)))
        c = 1.0 + z * (-0.5 + z * (1 / 24 + z * c))
        odd = (quarter == 1.0) | (quarter == 3.0)
        x, y = (s, c) if odd else (c, s)
        cosine[i] = -x if (quarter == 1.0) | (quarter == 2.0) else x
        sine[i] = -y if (quarter == 2.0) | (quarter == 3.0) else y


@inner
def _halves(
    a: NDArray[np.float64],
    b: NDArray[np.float64],
    c: NDArray[np.float64],
    d: NDArray[np.float64],
    out: NDArray[np.float64],
) -> None:
    """Compute out = half the sum of the four.

    It is by views, as an index that may be negative takes a gather.
    """
    for i in range(len(out)):
        out[i] = 0.5 * (a[i] + b[i] + c[i] + d[i])


@entry
def normals(
    words: NDArray[np.uint64], draws: NDArray[np.float64], out: NDArray[np.float64]
) -> None:
    """Fill out (P/2,) with normals, each half the sum of four of the draws (2, P) from 2P words.

    The draws are Box and Muller's: r·cos 2πt, then r·sin 2πt; the words of the radii come first.
    The four draws of a normal come from different pairs.
    """
    pairs = len(words) // 2
    for start in range(0, pairs, _BLOCK):
        size = min(_BLOCK, pairs - start)
        first, second = words[start:], words[pairs + start :]
        radius, turn = np.empty(size), np.empty(size)
        for i in range(size):
            radius[i] = (np.float64(np.int64(first[i] >> np.uint64(12))) + 0.5) * 2.0**-52
            turn[i] = (np.float64(np.int64(second[i] >> np.uint64(12))) + 0.5) * 2.0**-52
        _logarithms(radius, radius.view(np.int64), np.empty(size))
        cosine, sine = draws[0, start : start + size], draws[1, start : start + size]
        _turns(turn, cosine, sine)
        for i in range(size):
            length = np.sqrt(-2.0 * radius[i])
            cosine[i] *= length
            sine[i] *= length
    half, count = pairs // 2, len(out)
    _halves(draws[0, :count], draws[0, half:], draws[1, pairs - 1 :], draws[1, half - 1 :], out[:1])
    _halves(draws[0, 1:count], draws[0, half + 1 :], draws[1], draws[1, half:], out[1:])


@entry
def add_on_grid(
    total: NDArray[np.float64], std: float, grid: float, noise: NDArray[np.float64]
) -> int:
    """Write noise = total + std·noise, rounded to multiples of `grid`.

    Returns how many totals are not finite. Every operation is rounded by itself, as torch's are:
    the same bits.
    """
    lost = 0
    for i in range(len(noise)):
        value = total[i]
        lost += not abs(value) < np.inf
        noise[i] = np.rint((value + std * noise[i]) / grid) * grid
    return lost
