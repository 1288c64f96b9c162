"""Convolutions of any stride and padding on one row, with channels side by side at each place.

A window's numbers of one line lie side by side, too. So a convolution of one line of places is a
product of matrices that read the input where it lies (`matrices`). Its gradient by the weights is
one. That by the input is one with turned weights, over the derivative inside a padding of its own.
Where the window skips places, it is added tap by tap instead.

`step` is a record of `tape_layout.OPERATION`; d… is the loss's derivative by …
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.kernels.jit import inner, viewing
from tacit.kernels.lanes import fma, load, spread, store
from tacit.kernels.layers import copy, outer
from tacit.kernels.matrices import add_columns, add_product, add_row_product, clear, fill_rows

_Floats = NDArray[np.float32]
_Step = Any  # a record of tape_layout.OPERATION


@viewing
def surround(
    memory: _Floats, x: int, side: int, width: int, before: int, wide: int, padded: int
) -> None:
    """Copy a picture x (side, side, width) into one of `wide` lines, `before` places from its edge.

    What is around it is zero.
    """
    clear(memory[padded : padded + wide * wide * width])
    run = side * width
    for y in range(side):
        at = padded + ((y + before) * wide + before) * width
        copy(memory[at : at + run], memory[x + y * run : x + (y + 1) * run])


@viewing
def take_back(
    memory: _Floats, padded: int, wide: int, width: int, before: int, side: int, dx: int
) -> None:
    """Add the inside of a picture of `wide` lines to dx (side, side, width)."""
    one, run = spread(np.float32(1), 8), side * width
    for y in range(side):
        at = padded + ((y + before) * wide + before) * width
        for j in range(0, run, 8):
            v = load(memory, dx + y * run + j, 8)
            store(memory, dx + y * run + j, fma(one, load(memory, at + j, 8), v))


@viewing
def convolve(step: _Step, params: _Floats, memory: _Floats) -> None:
    """Write the output (places, outputs): of one place and no window, it is a dense layer's."""
    source = step.x
    if step.pad:
        source = step.padded
        surround(memory, step.x, step.side, step.inputs, step.pad, step.wide, source)
    _begin(step, params, memory)
    if step.places == 1 and step.kernel == 1:
        add_row_product(
            memory, source, params, step.weight, step.outputs, memory, step.out, step.outputs,
            step.inputs,
        )  # fmt: skip
        return
    run = step.kernel * step.inputs
    for line in range(step.lines):
        add_product(
            memory, source + line * step.stride * step.wide * step.inputs,
            step.stride * step.inputs, 1, step.wide * step.inputs,
            params, step.weight, step.outputs, run * step.outputs,
            memory, step.out + line * step.across * step.outputs, step.outputs,
            step.across, step.outputs, run, step.kernel,
        )  # fmt: skip


@viewing
def _begin(step: _Step, params: _Floats, memory: _Floats) -> None:
    """Write the bias to every place of the output, or zeros."""
    if step.bias < 0:
        clear(memory[step.out : step.out + step.places * step.outputs])
    else:
        fill_rows(params, step.bias, step.places, step.outputs, memory, step.out)


@viewing
def convolve_back(step: _Step, params: _Floats, memory: _Floats, gradient: _Floats) -> None:
    """Write the gradient by weights and bias, and add to dx."""
    if step.bias >= 0:
        add_columns(memory, step.d_out, step.places, step.outputs, gradient, step.bias)
    run = step.kernel * step.inputs
    source = step.padded if step.pad else step.x
    if step.places == 1 and step.kernel == 1:
        weights = gradient[step.weight : step.weight + step.inputs * step.outputs]
        d = memory[step.d_out : step.d_out + step.outputs]
        x = memory[step.x : step.x + step.inputs]
        outer(x, d, weights.reshape(step.inputs, step.outputs))
    else:
        for k in range(step.kernel):
            add_product(
                memory, source + k * step.wide * step.inputs,
                1, step.stride * step.inputs, step.stride * step.wide * step.inputs,
                memory, step.d_out, step.outputs, step.across * step.outputs,
                gradient, step.weight + k * run * step.outputs, step.outputs,
                run, step.outputs, step.across, step.lines,
            )  # fmt: skip
    if step.dx < 0:
        return
    if step.kernel == 1 and step.stride == 1:
        _mix_back(step, params, memory)
    elif step.stride == 1:
        _turn_back(step, params, memory)
    else:
        _skip_back(step, params, memory)


@viewing
def _mix_back(step: _Step, params: _Floats, memory: _Floats) -> None:
    """Add to dx what flows back through a dense layer at each place."""
    if step.places == 1:
        add_row_product(
            memory, step.d_out, params, step.turned, step.inputs, memory, step.dx, step.inputs,
            step.outputs,
        )  # fmt: skip
        return
    add_product(
        memory, step.d_out, step.outputs, 1, 0, params, step.turned, step.inputs, 0,
        memory, step.dx, step.inputs, step.places, step.inputs, step.outputs, 1,
    )  # fmt: skip


@viewing
def _turn_back(step: _Step, params: _Floats, memory: _Floats) -> None:
    """Add to dx a convolution of the padded derivative with the turned window."""
    before = step.kernel - 1 - step.pad
    wide = step.across + 2 * before
    surround(memory, step.d_out, step.across, step.outputs, before, wide, step.copy)
    run = step.kernel * step.outputs
    for line in range(step.side):
        add_product(
            memory, step.copy + line * wide * step.outputs, step.outputs, 1, wide * step.outputs,
            params, step.turned, step.inputs, run * step.inputs,
            memory, step.dx + line * step.side * step.inputs, step.inputs,
            step.side, step.inputs, run, step.kernel,
        )  # fmt: skip


@viewing
def _skip_back(step: _Step, params: _Floats, memory: _Floats) -> None:
    """Add to dx tap by tap, of a window that skips places."""
    clear(memory[step.copy : step.copy + step.wide * step.wide * step.inputs])
    for line in range(step.lines):
        for k in range(step.kernel * step.kernel):
            y, x = line * step.stride + k // step.kernel, k % step.kernel
            add_product(
                memory, step.d_out + line * step.across * step.outputs, step.outputs, 1, 0,
                params, step.turned + k * step.outputs * step.inputs, step.inputs, 0,
                memory, step.copy + (y * step.wide + x) * step.inputs, step.stride * step.inputs,
                step.across, step.inputs, step.outputs, 1,
            )  # fmt: skip
    take_back(memory, step.copy, step.wide, step.inputs, step.pad, step.side, step.dx)


@viewing
def convolve_each(step: _Step, params: _Floats, memory: _Floats) -> None:
    """Write the output of a convolution of each channel by itself."""
    source = step.x
    if step.pad:
        source = step.padded
        surround(memory, step.x, step.side, step.inputs, step.pad, step.wide, source)
    _begin(step, params, memory)
    for line in range(step.lines):
        at = source + line * step.stride * step.wide * step.inputs
        out = step.out + line * step.across * step.outputs
        _add_taps(
            memory, at, step.stride, step.wide, step.kernel, params, step.weight, memory, out,
            step.across, step.outputs,
        )  # fmt: skip


@inner
def _add_taps(
    x: _Floats, x0: int, stride: int, wide: int, kernel: int, w: _Floats, w0: int, out: _Floats,
    o0: int, across: int, width: int,
) -> None:  # fmt: skip
    """Compute out (across, width) += Σ w·x over the window, four places at a time."""
    last = across - 1
    for j in range(0, width, 8):
        for p in range(0, across, 4):
            p1, p2, p3 = min(p + 1, last), min(p + 2, last), min(p + 3, last)
            a, q = x0 + j, o0 + j
            s0, s1 = load(out, q + p * width, 8), load(out, q + p1 * width, 8)
            s2, s3 = load(out, q + p2 * width, 8), load(out, q + p3 * width, 8)
            for k in range(kernel * kernel):
                v = load(w, w0 + k * width + j, 8)
                b = a + (k // kernel * wide + k % kernel) * width
                s0 = fma(v, load(x, b + p * stride * width, 8), s0)
                s1 = fma(v, load(x, b + p1 * stride * width, 8), s1)
                s2 = fma(v, load(x, b + p2 * stride * width, 8), s2)
                s3 = fma(v, load(x, b + p3 * stride * width, 8), s3)
            store(out, q + p * width, s0)
            store(out, q + p1 * width, s1)
            store(out, q + p2 * width, s2)
            store(out, q + p3 * width, s3)


@viewing
def convolve_each_back(step: _Step, params: _Floats, memory: _Floats, gradient: _Floats) -> None:
    """Write the gradient by weights and bias, and add to dx."""
    if step.bias >= 0:
        add_columns(memory, step.d_out, step.places, step.outputs, gradient, step.bias)
    source = step.padded if step.pad else step.x
    _weigh_taps(step, source, memory, gradient)
    if step.dx < 0:
        return
    if step.stride == 1:
        before = step.kernel - 1 - step.pad
        wide = step.across + 2 * before
        surround(memory, step.d_out, step.across, step.outputs, before, wide, step.copy)
        for line in range(step.side):
            _add_taps(
                memory, step.copy + line * wide * step.outputs, 1, wide, step.kernel,
                params, step.turned, memory, step.dx + line * step.side * step.inputs,
                step.side, step.inputs,
            )  # fmt: skip
        return
    clear(memory[step.copy : step.copy + step.wide * step.wide * step.inputs])
    for line in range(step.lines):
        _spread_taps(step, line, params, memory)
    take_back(memory, step.copy, step.wide, step.inputs, step.pad, step.side, step.dx)


@inner
def _spread_taps(step: _Step, line: int, params: _Floats, memory: _Floats) -> None:
    """Add a line of the derivative to where its windows were, tap by tap."""
    width = step.inputs
    for k in range(step.kernel * step.kernel):
        y, x = line * step.stride + k // step.kernel, k % step.kernel
        for j in range(0, width, 8):
            v = load(params, step.weight + k * width + j, 8)
            d, at = step.d_out + line * step.across * width + j, y * step.wide + x
            to = step.copy + at * width + j
            for _ in range(step.across):
                store(memory, to, fma(v, load(memory, d, 8), load(memory, to, 8)))
                to += step.stride * width
                d += width


@inner
def _weigh_taps(step: _Step, source: int, memory: _Floats, gradient: _Floats) -> None:
    """Compute the gradient (taps, width) by each channel's weights: four taps of a line at once."""
    width, last = step.inputs, step.kernel - 1
    for j in range(0, width, 8):
        for y in range(step.kernel):
            for k in range(0, step.kernel, 4):
                k1, k2, k3 = min(k + 1, last), min(k + 2, last), min(k + 3, last)
                s0 = s1 = s2 = s3 = spread(np.float32(0), 8)
                for line in range(step.lines):
                    a = source + ((line * step.stride + y) * step.wide) * width + j
                    d = step.d_out + line * step.across * width + j
                    for _ in range(step.across):
                        v = load(memory, d, 8)
                        s0 = fma(v, load(memory, a + k * width, 8), s0)
                        s1 = fma(v, load(memory, a + k1 * width, 8), s1)
                        s2 = fma(v, load(memory, a + k2 * width, 8), s2)
                        s3 = fma(v, load(memory, a + k3 * width, 8), s3)
                        a += step.stride * width
                        d += width
                to = step.weight + y * step.kernel * width + j
                store(gradient, to + k * width, s0)
                store(gradient, to + k1 * width, s1)
                store(gradient, to + k2 * width, s2)
                store(gradient, to + k3 * width, s3)
