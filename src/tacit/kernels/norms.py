"""Group and layer normalization on one row, with or without a scale and a bias for each channel.

A group's mean and variance are over all places of its channels. A layer normalization is that of
one group, at each place by itself (`each`). Sums are in float32 over 32 places, then in float64.

`step` is a record of `tape_layout.OPERATION`; d… is the loss's derivative by …
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.kernels.jit import inner, viewing
from tacit.kernels.lanes import fma, load, rising, spread, store
from tacit.kernels.tape_layout import RISING

_EPSILON = 1e-5  # torch's
_RUN = 32  # places added up in float32

_Floats = NDArray[np.float32]
_Wide = NDArray[np.float64]
_Step = Any  # a record of tape_layout.OPERATION


@inner
def _add_sums(z: _Floats, at: int, places: int, width: int, copy: int, totals: _Wide) -> None:
    """Compute totals (width,) += the sum of each channel; copy: memory for 8 numbers."""
    one = spread(np.float32(1), 8)
    for j in range(0, width, 8):
        for start in range(0, places, _RUN):
            total = spread(np.float32(0), 8)
            for p in range(start, min(start + _RUN, places)):
                total = fma(one, load(z, at + p * width + j, 8), total)
            store(z, copy, total)
            for k in range(8):
                totals[j + k] += z[copy + k]


@inner
def _add_squares(
    z: _Floats, at: int, means: int, places: int, width: int, copy: int, totals: _Wide
) -> None:
    """Compute totals (width,) += the sum of each channel's squares, less its mean."""
    minus = spread(np.float32(-1), 8)
    for j in range(0, width, 8):
        mean = load(z, means + j, 8)
        for start in range(0, places, _RUN):
            total = spread(np.float32(0), 8)
            for p in range(start, min(start + _RUN, places)):
                off = fma(minus, mean, load(z, at + p * width + j, 8))
                total = fma(off, off, total)
            store(z, copy, total)
            for k in range(8):
                totals[j + k] += z[copy + k]


@inner
def _add_products(
    z: _Floats, at: int, d: int, places: int, width: int, copy: int, totals: _Wide
) -> None:
    """Compute totals (width,) += the sum of each channel's products of d and z."""
    for j in range(0, width, 8):
        for start in range(0, places, _RUN):
            total = spread(np.float32(0), 8)
            for p in range(start, min(start + _RUN, places)):
                here = p * width + j
                total = fma(load(z, d + here, 8), load(z, at + here, 8), total)
            store(z, copy, total)
            for k in range(8):
                totals[j + k] += z[copy + k]


@viewing
def normalize_groups(step: _Step, params: _Floats, memory: _Floats, totals: _Wide) -> None:
    """Write `hat`, of which each group has mean 0 and variance 1, and the output."""
    places, width = step.places // step.each, step.outputs
    for block in range(step.each):
        x = step.x + block * places * width
        hat = step.hat + block * places * width
        out = step.out + block * places * width
        means = step.moments + 2 * block * width
        _find_moments(step, memory, x, means, places, totals)
        _scale(step, params, memory, x, means, hat, out, places)


@viewing
def _find_moments(
    step: _Step, memory: _Floats, x: int, means: int, places: int, totals: _Wide
) -> None:
    """Write a mean and 1/deviation for each channel: its group's; 0 for one that fills up."""
    width, size = step.outputs, step.channels // step.groups
    count = places * size
    totals[:width] = 0.0
    _add_sums(memory, x, places, width, step.copy, totals)
    for c in range(step.channels, width):
        memory[means + c] = memory[means + width + c] = np.float32(0)
    for g in range(step.groups):
        total = 0.0
        for c in range(g * size, (g + 1) * size):
            total += totals[c]
        for c in range(g * size, (g + 1) * size):
            memory[means + c] = np.float32(total / count)
    totals[:width] = 0.0
    _add_squares(memory, x, means, places, width, step.copy, totals)
    for g in range(step.groups):
        total = 0.0
        for c in range(g * size, (g + 1) * size):
            total += totals[c]
        inverse = np.float32(1.0 / math.sqrt(total / count + _EPSILON))
        for c in range(g * size, (g + 1) * size):
            memory[means + width + c] = inverse


@inner
def _scale(
    step: _Step, params: _Floats, memory: _Floats, x: int, means: int, hat: int, out: int,
    places: int,
) -> None:  # fmt: skip
    width, minus, none = step.outputs, spread(np.float32(-1), 8), spread(np.float32(0), 8)
    for j in range(0, width, 8):
        mean, inverse = load(memory, means + j, 8), load(memory, means + width + j, 8)
        weight, bias = spread(np.float32(1), 8), none
        if step.weight >= 0:
            weight = load(params, step.weight + j, 8)
        if step.bias >= 0:
            bias = load(params, step.bias + j, 8)
        for p in range(places):
            at = p * width + j
            off = fma(minus, mean, load(memory, x + at, 8))
            v = fma(inverse, off, none)
            store(memory, hat + at, v)
            v = fma(weight, v, bias)
            store(memory, out + at, rising(v, v) if step.follows == RISING else v)


@inner
def stop_falling(step: _Step, memory: _Floats) -> None:
    """Put zeros into d_out where the output is not above 0: what a ReLU at the end gives back."""
    for j in range(0, step.places * step.outputs, 8):
        d = rising(load(memory, step.out + j, 8), load(memory, step.d_out + j, 8))
        store(memory, step.d_out + j, d)


@viewing
def normalize_back(
    step: _Step, params: _Floats, memory: _Floats, totals: _Wide, gradient: _Floats
) -> None:
    """Write the gradient by scale and bias, and add to dx."""
    if step.follows == RISING:
        stop_falling(step, memory)
    places, width = step.places // step.each, step.outputs
    for block in range(step.each):
        at = block * places * width
        hat, d = step.hat + at, step.d_out + at
        sums, products = totals[:width], totals[width : 2 * width]
        totals[: 2 * width] = 0.0
        _add_sums(memory, d, places, width, step.copy, sums)
        _add_products(memory, hat, d, places, width, step.copy, products)
        for c in range(width):
            if step.weight >= 0:
                gradient[step.weight + c] += np.float32(products[c])
            if step.bias >= 0:
                gradient[step.bias + c] += np.float32(sums[c])
        if step.dx >= 0:
            _find_factors(step, params, memory, block, places, totals)
            _scale_back(step, memory, hat, d, step.dx + at, places)


@viewing
def _find_factors(
    step: _Step, params: _Floats, memory: _Floats, block: int, places: int, totals: _Wide
) -> None:
    """Write to `copy` what d, 1 and hat are multiplied by, for each channel."""
    width, size = step.outputs, step.channels // step.groups
    inverses, count = step.moments + 2 * block * width + width, places * size
    for c in range(step.channels, width):
        for k in range(3):
            memory[step.copy + k * width + c] = np.float32(0)
    for g in range(step.groups):
        mean = along = 0.0
        for c in range(g * size, (g + 1) * size):
            weight = 1.0
            if step.weight >= 0:
                weight = np.float64(params[step.weight + c])
            mean += weight * totals[c]
            along += weight * totals[width + c]
        for c in range(g * size, (g + 1) * size):
            inverse, factor = memory[inverses + c], np.float32(1)
            if step.weight >= 0:
                factor = params[step.weight + c]
            memory[step.copy + c] = inverse * factor
            memory[step.copy + width + c] = np.float32(-inverse * mean / count)
            memory[step.copy + 2 * width + c] = np.float32(-inverse * along / count)


@inner
def _scale_back(step: _Step, memory: _Floats, hat: int, d: int, dx: int, places: int) -> None:
    one, width = spread(np.float32(1), 8), step.outputs
    for j in range(0, width, 8):
        u, v = load(memory, step.copy + j, 8), load(memory, step.copy + width + j, 8)
        w = load(memory, step.copy + 2 * width + j, 8)
        for p in range(places):
            at = p * width + j
            more = fma(u, load(memory, d + at, 8), fma(w, load(memory, hat + at, 8), v))
            store(memory, dx + at, fma(one, more, load(memory, dx + at, 8)))
