"""Rows clipped and added up in one pass, in whole steps or in float64.

Twins: `integer_sum`, `clipped_sum` and `outer_sum` of `tacit.privacy.clipping`, which say what is
guaranteed. Every row is treated in the same order of operations, wherever it stands, and no branch
or address depends on a number in it: a row that does not count is masked by its bits.

Numbers of a row: g (d,) float32, its norm in float64, the factor min(1, C'/norm) or 0.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tacit.kernels.jit import dot, entry, inner

_MAX_NORM = 2.0**60  # the same as in tacit.privacy.clipping

_Row = NDArray[np.float32]
_Rows = NDArray[np.float32]
_Integers = NDArray[np.int32]
_Wide = NDArray[np.float64]


@dot
def _square(g: _Row) -> float:
    """‖g‖², in float64: off by d·2^-53 of it at most, in whatever order it is added."""
    total = 0.0
    for j in range(len(g)):
        value = np.float64(g[j])
        total += value * value
    return total


@inner
def _factor(norm: float, reduced: float) -> float:
    """min(1, C'/norm); 0 for a row that is not finite, or too long."""
    return min(1.0, reduced / norm) if norm <= _MAX_NORM else 0.0


@inner
def _add_steps(g: _Row, factor: np.float32, used: bool, limit: int, total: _Integers) -> None:
    """total += the whole numbers in g·factor, if their squares' sum is at most `limit`."""
    bits, keep, squares = g.view(np.int32), np.int32(-1 if used else 0), np.int64(0)
    for j in range(len(g)):
        step = np.int32(np.int32(bits[j] & keep).view(np.float32) * factor)  # cuts toward zero
        squares += np.int64(step) * np.int64(step)
        total[j] += step
    if squares > limit:  # never, as the factor leaves 2^-16 of room
        for j in range(len(g)):
            total[j] -= np.int32(np.int32(bits[j] & keep).view(np.float32) * factor)


@inner
def _add_scaled(g: _Row, factor: float, total: _Wide) -> None:
    """total += factor·g; nothing where factor is 0, whatever stands in g."""
    bits, keep = g.view(np.int32), np.int32(-1 if factor != 0.0 else 0)
    for j in range(len(g)):
        total[j] += factor * np.float64(np.int32(bits[j] & keep).view(np.float32))


@entry
def add_integers(
    rows: _Rows, factors: _Row, used: NDArray[np.bool_], limit: int, total: _Integers
) -> None:
    """total += the whole numbers in each row (d,) times its factor, where `used`."""
    for i in range(len(rows)):
        _add_steps(rows[i], factors[i], used[i], limit, total)


@entry
def clip_integers(rows: _Rows, reduced: float, step: float, limit: int, total: _Integers) -> None:
    """total += each row clipped to `reduced` and cut to whole steps."""
    for i in range(len(rows)):
        norm = math.sqrt(_square(rows[i]))
        factor = np.float32(_factor(norm, reduced) / step)
        _add_steps(rows[i], factor, norm <= _MAX_NORM, limit, total)


@entry
def clip_floats(rows: _Rows, used: NDArray[np.bool_], reduced: float, total: _Wide) -> None:
    """total += each row clipped to `reduced`, where `used`."""
    for i in range(len(rows)):
        factor = _factor(math.sqrt(_square(rows[i])), reduced)
        _add_scaled(rows[i], factor if used[i] else 0.0, total)


@inner
def _norms(delta: _Row, x: _Row) -> float:
    """‖(δ ⊗ x, δ)‖."""
    return math.sqrt(_square(delta)) * math.sqrt(_square(x) + 1.0)


@entry
def outer_integers(
    deltas: _Rows,
    x: _Rows,
    index: NDArray[np.int64],
    reduced: float,
    step: float,
    limit: int,
    total: _Integers,
    row: _Row,
) -> None:
    """total (o·i + o,) += each (δ_i ⊗ x_index, δ_i), clipped and cut to whole steps.

    row (o·i + o,): one such row, which is written, as its length is known before it is.
    """
    inputs = x.shape[1]
    for i in range(len(deltas)):
        delta, values = deltas[i], x[index[i]]
        norm = _norms(delta, values)
        for o in range(len(delta)):
            part, scale = row[o * inputs : (o + 1) * inputs], delta[o]
            for j in range(inputs):
                part[j] = scale * values[j]
        row[len(delta) * inputs :] = delta
        factor = np.float32(_factor(norm, reduced) / step)
        _add_steps(row, factor, norm <= _MAX_NORM, limit, total)


@entry
def outer_floats(
    deltas: _Rows, x: _Rows, index: NDArray[np.int64], reduced: float, total: _Wide
) -> None:
    """total (o·i + o,) += each (δ_i ⊗ x_index, δ_i), clipped."""
    inputs, outputs = x.shape[1], deltas.shape[1]
    for i in range(len(deltas)):
        delta, values = deltas[i], x[index[i]]
        factor = _factor(_norms(delta, values), reduced)
        for o in range(outputs):
            scale = factor * np.float64(delta[o]) if factor > 0.0 else 0.0
            part = total[o * inputs : (o + 1) * inputs]
            _add_scaled(values, scale, part)
            total[outputs * inputs + o] += scale
