"""Rows clipped and added up in one pass, in whole steps or in float64.

Twins: `integer_sum`, `clipped_sum` and `outer_sum` of `tacit.privacy.private_sum.clipping`, which
state what is guaranteed. Every row is treated in the same order of operations, wherever it stands.
No branch or address depends on a number in it: a row that does not count is masked by its bits.
(`_too_long` is a branch, and always goes one way.)

Numbers of a row: g (d,) float32, its norm in float64, the factor min(1, C'/norm) or 0.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tacit.kernels.jit import dot, entry, inner
from tacit.kernels.layout import MAX_NORM

_EXACT = 2**24  # float32 has every whole number below
_TOGETHER = 4  # rows added in one pass over the sum

_Row = NDArray[np.float32]
_Rows = NDArray[np.float32]
_Integers = NDArray[np.int32]
_Wide = NDArray[np.float64]


@dot
def _square(g: _Row) -> float:
    """Return ‖g‖², in float64: off by d·2^-53 of it at most, in any order of adding."""
    total = 0.0
    for j in range(len(g)):
        value = np.float64(g[j])
        total += value * value
    return total


@inner
def _factor(norm: float, reduced: float) -> float:
    """Return min(1, C'/norm); 0 for a row that is not finite, or too long."""
    return min(1.0, reduced / norm) if norm <= MAX_NORM else 0.0


@inner
def _mask(factor: float) -> np.int32:
    """Return all bits, or none where factor is 0: without `if`, which compiles to a branch."""
    bits = np.float64(factor).view(np.int64)
    return np.int32((bits | -bits) >> 63)


@dot
def _add_steps(
    g: _Row, scale: np.float32, factor: np.float32, keep: np.int32, total: _Integers
) -> np.float32:
    """Add the whole numbers in (scale·g)·factor to total, and return the sum of their squares.

    They are cut toward zero: -factor takes back what factor adds. keep: -1, or 0 for a row that
    adds nothing, for every content of it. float32 adds the squares exactly below 2^24, in any
    order. A sum that reaches 2^24 never reads as less.
    """
    squares = np.float32(0)
    for j in range(len(g)):
        bits = np.float32(scale * g[j]).view(np.int32) & keep
        step = np.int32(np.int32(bits).view(np.float32) * factor)
        squares += np.float32(step) * np.float32(step)
        total[j] += step
    return squares


@inner
def _too_long(squares: np.float32, limit: int) -> bool:
    """Check whether a row's integers may be longer than `limit` allows.

    They never are, as the factor leaves 2^-16 of room: so such a row is added, and taken back.
    """
    return not squares < np.float32(min(limit + 1, _EXACT))


@inner
def _add_row(g: _Row, factor: np.float32, used: bool, limit: int, total: _Integers) -> None:
    """Compute total += the whole numbers in g·factor, if their squares' sum is at most `limit`."""
    unit, keep = np.float32(1), np.int32(-1 if used else 0)
    if _too_long(_add_steps(g, unit, factor, keep, total), limit):
        _add_steps(g, unit, -factor, keep, total)


@inner
def _add_scaled(g: _Row, factor: float, total: _Wide) -> None:
    """Compute total += factor·g, and nothing where factor is 0, for every content of g."""
    bits, keep = g.view(np.int32), _mask(factor)
    for j in range(len(g)):
        total[j] += factor * np.float64(np.int32(bits[j] & keep).view(np.float32))


@entry
def add_integers(
    rows: _Rows, factors: _Row, used: NDArray[np.bool_], limit: int, total: _Integers
) -> None:
    """Compute total += the whole numbers in each row (d,) times its factor, where `used`."""
    for i in range(len(rows)):
        _add_row(rows[i], factors[i], used[i], limit, total)


@entry
def clip_integers(rows: _Rows, reduced: float, step: float, limit: int, total: _Integers) -> None:
    """Compute total += each row clipped to `reduced` and cut to whole steps."""
    for i in range(len(rows)):
        norm = math.sqrt(_square(rows[i]))
        factor = np.float32(_factor(norm, reduced) / step)
        _add_row(rows[i], factor, norm <= MAX_NORM, limit, total)


@entry
def square(g: _Row) -> float:
    """Return the sum of the squares of a part g of a row."""
    return _square(g)


@entry
def factor_of(squares: _Wide, reduced: float) -> float:
    """Return the factor of a row whose parts have these sums of squares."""
    total = 0.0
    for k in range(len(squares)):
        total += squares[k]
    return _factor(math.sqrt(total), reduced)


@entry
def add_part(g: _Row, factor: float, step: float, total: _Integers) -> float:
    """Compute total += a part g of a row, times its factor, in whole steps.

    Returns the sum of the whole numbers' squares.
    """
    scale, keep = np.float32(factor / step), _mask(factor)
    return float(_add_steps(g, np.float32(1), scale, keep, total))


@entry
def add_part_floats(g: _Row, factor: float, total: _Wide) -> None:
    """Compute total += a part g of a row, times its factor."""
    _add_scaled(g, factor, total)


@entry
def clip_floats(rows: _Rows, used: NDArray[np.bool_], reduced: float, total: _Wide) -> None:
    """Compute total += each row clipped to `reduced`, where `used`."""
    for i in range(len(rows)):
        factor = _factor(math.sqrt(_square(rows[i])), reduced)
        _add_scaled(rows[i], factor if used[i] else 0.0, total)


@inner
def _norms(delta: _Row, x: _Row) -> float:
    """Return ‖(δ ⊗ x, δ)‖."""
    return math.sqrt(_square(delta)) * math.sqrt(_square(x) + 1.0)


@inner
def _add_outer(
    delta: _Row, x: _Row, factor: np.float32, used: bool, total: _Integers
) -> np.float32:
    """Return `_add_steps` of (δ ⊗ x, δ): a row that is never written out."""
    inputs, unit, keep = len(x), np.float32(1), np.int32(-1 if used else 0)
    squares = _add_steps(delta, unit, factor, keep, total[len(delta) * inputs :])
    for o in range(len(delta)):
        part = total[o * inputs : (o + 1) * inputs]
        squares += _add_steps(x, delta[o], factor, keep, part)
    return squares


@entry
def outer_integers(
    deltas: _Rows,
    x: _Rows,
    index: NDArray[np.int64],
    reduced: float,
    step: float,
    limit: int,
    total: _Integers,
) -> None:
    """Compute total (o·i + o,) += each (δ_i ⊗ x_index, δ_i), clipped and cut to whole steps."""
    for i in range(len(deltas)):
        delta, values = deltas[i], x[index[i]]
        norm = _norms(delta, values)
        factor, used = np.float32(_factor(norm, reduced) / step), norm <= MAX_NORM
        if _too_long(_add_outer(delta, values, factor, used, total), limit):
            _add_outer(delta, values, -factor, used, total)


@inner
def _widen(x: _Row, scale: float, keep: np.int32, out: _Wide) -> None:
    """Compute out = scale·x in float64, zeros where nothing is kept, for every content of x."""
    bits = x.view(np.int32)
    for j in range(len(x)):
        out[j] = scale * np.float64(np.int32(bits[j] & keep).view(np.float32))


@inner
def _add4(out: _Wide, scales: _Wide, x0: _Wide, x1: _Wide, x2: _Wide, x3: _Wide) -> None:
    """Compute out += scales·x, one of the four after another, as if each were added by itself."""
    s0, s1, s2, s3 = scales[0], scales[1], scales[2], scales[3]
    for j in range(len(out)):
        sum0 = out[j] + s0 * x0[j]
        sum1 = sum0 + s1 * x1[j]
        sum2 = sum1 + s2 * x2[j]
        out[j] = sum2 + s3 * x3[j]


@entry
def outer_floats(
    deltas: _Rows,
    x: _Rows,
    index: NDArray[np.int64],
    used: NDArray[np.bool_],
    reduced: float,
    total: _Wide,
) -> None:
    """Compute total (o·i + o,) += each (δ_i ⊗ x_index, δ_i), clipped, where `used`.

    Four rows are added at a time, in their order: the last ones may have rows of zeros beside them.
    """
    inputs, outputs, count = x.shape[1], deltas.shape[1], len(deltas)
    factors = np.zeros(count + _TOGETHER)
    for i in range(count):
        factor = _factor(_norms(deltas[i], x[index[i]]), reduced)
        factors[i] = factor if used[i] else 0.0
    wide, scales = np.empty((_TOGETHER, inputs)), np.empty((_TOGETHER, outputs))
    for start in range(0, count, _TOGETHER):
        for k in range(_TOGETHER):
            factor, i = factors[start + k], min(start + k, count - 1)
            keep = _mask(factor)
            _widen(x[index[i]], 1.0, keep, wide[k])
            _widen(deltas[i], factor, keep, scales[k])
        for o in range(outputs):
            part = total[o * inputs : (o + 1) * inputs]
            _add4(part, scales[:, o], wide[0], wide[1], wide[2], wide[3])
            for k in range(_TOGETHER):
                total[outputs * inputs + o] += scales[k, o]
