"""The gradients of single rows along a tape, one row after another.

Twin: `tacit.models.vectors.example_gradients`. The tape (`tape_layout`) is laid by
`tacit.privacy.private_sum.tape_plan`; parameters and gradients stand in its order. One row's
numbers, and only those, lie in `memory` and `totals`, every one of which is written before it is
read. A row goes through the same operations in the same order in any company. No branch, and no
address but that of a word's embedding, depends on a number in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.kernels.functions import add_gelu_slope, exponential, gelu, tanh
from tacit.kernels.jit import dot, entry, inner, viewing
from tacit.kernels.lanes import fma, larger, load, rising, spread, store
from tacit.kernels.layers import add, copy
from tacit.kernels.lstm_cells import run_cells, run_cells_back
from tacit.kernels.matrices import add_columns, clear
from tacit.kernels.norms import normalize_back, normalize_groups, stop_falling
from tacit.kernels.tape_layout import (
    ACTIVATE,
    ADD,
    BENT,
    CONVOLVE,
    DEPTHWISE,
    EMBED,
    LSTM,
    MEAN,
    NORMALIZE,
    RISING,
    ROUNDED,
    TAKE,
)
from tacit.kernels.windows import convolve, convolve_back, convolve_each, convolve_each_back

_Floats = NDArray[np.float32]
_Words = NDArray[np.int64]
_Wide = NDArray[np.float64]
_Step = Any  # a record of tape_layout.OPERATION


@viewing
def _add(step: _Step, memory: _Floats) -> None:
    """Write x + every stride-th place of `other`, with a ReLU or not."""
    count = step.places * step.outputs
    copy(memory[step.out : step.out + count], memory[step.x : step.x + count])
    for y in range(step.lines):
        for x in range(step.across):
            at = step.out + (y * step.across + x) * step.outputs
            other = step.other + (y * step.side + x) * step.stride * step.inputs
            _add_run(memory, other, memory, at, step.inputs)
    if step.follows == RISING:
        for j in range(0, count, 8):
            v = load(memory, step.out + j, 8)
            store(memory, step.out + j, rising(v, v))


@inner
def _add_run(x: _Floats, x0: int, out: _Floats, o0: int, count: int) -> None:
    """Compute out += x, of `count` numbers each."""
    one = spread(np.float32(1), 8)
    for j in range(0, count, 8):
        store(out, o0 + j, fma(one, load(x, x0 + j, 8), load(out, o0 + j, 8)))


@viewing
def _add_back(step: _Step, memory: _Floats) -> None:
    if step.follows == RISING:
        stop_falling(step, memory)
    if step.dx >= 0:
        _add_run(memory, step.d_out, memory, step.dx, step.places * step.outputs)
    if step.d_other < 0:
        return
    for y in range(step.lines):
        for x in range(step.across):
            at = step.d_out + (y * step.across + x) * step.outputs
            other = step.d_other + (y * step.side + x) * step.stride * step.inputs
            _add_run(memory, at, memory, other, step.inputs)


@viewing
def _activate(step: _Step, memory: _Floats) -> None:
    count = step.places * step.outputs
    x, out = memory[step.x : step.x + count], memory[step.out : step.out + count]
    if step.follows == ROUNDED:
        gelu(x, out)
    elif step.follows == BENT:
        copy(out, x)
        tanh(out)
    else:
        for j in range(0, count, 8):
            v = load(x, j, 8)
            store(out, j, rising(v, v))


@viewing
def _activate_back(step: _Step, memory: _Floats) -> None:
    count = step.places * step.outputs
    x, out = memory[step.x : step.x + count], memory[step.out : step.out + count]
    d, dx = memory[step.d_out : step.d_out + count], memory[step.dx : step.dx + count]
    if step.follows == ROUNDED:
        add_gelu_slope(x, d, dx)
    elif step.follows == BENT:
        for j in range(count):
            dx[j] += d[j] * (np.float32(1) - out[j] * out[j])
    else:
        stop_falling(step, memory)
        _add_run(memory, step.d_out, memory, step.dx, count)


@viewing
def _average(step: _Step, memory: _Floats) -> None:
    """Write the mean of x over its places."""
    clear(memory[step.out : step.out + step.outputs])
    add_columns(memory, step.x, step.side, step.outputs, memory, step.out)
    for j in range(step.outputs):
        memory[step.out + j] *= np.float32(1.0 / step.side)


@viewing
def _average_back(step: _Step, memory: _Floats) -> None:
    for j in range(step.outputs):
        memory[step.d_out + j] *= np.float32(1.0 / step.side)
    for p in range(step.side):
        _add_run(memory, step.d_out, memory, step.dx + p * step.outputs, step.outputs)


@inner
def _word(words: _Words, place: int, most: int) -> int:
    """Return a row of the embedding: a word outside of it is its first or last."""
    word: int = min(max(words[place], 0), most - 1)
    return word


@viewing
def _embed(step: _Step, params: _Floats, words: _Words, memory: _Floats) -> None:
    for t in range(step.places):
        at = step.weight + _word(words, t, step.channels) * step.outputs
        out = step.out + t * step.outputs
        copy(memory[out : out + step.outputs], params[at : at + step.outputs])


@viewing
def _embed_back(step: _Step, words: _Words, memory: _Floats, gradient: _Floats) -> None:
    for t in range(step.places):
        at = step.weight + _word(words, t, step.channels) * step.outputs
        _add_run(memory, step.d_out + t * step.outputs, gradient, at, step.outputs)


@viewing
def _forward(tape: Any, params: _Floats, words: _Words, memory: _Floats, totals: _Wide) -> None:
    for number in range(len(tape)):
        step = tape[number]
        if step.kind == CONVOLVE:
            convolve(step, params, memory)
        elif step.kind == DEPTHWISE:
            convolve_each(step, params, memory)
        elif step.kind == NORMALIZE:
            normalize_groups(step, params, memory, totals)
        elif step.kind == ADD:
            _add(step, memory)
        elif step.kind == ACTIVATE:
            _activate(step, memory)
        elif step.kind == MEAN:
            _average(step, memory)
        elif step.kind == EMBED:
            _embed(step, params, words, memory)
        elif step.kind == LSTM:
            run_cells(step, params, memory)


@viewing
def _clear_first(step: _Step, memory: _Floats) -> None:
    """Write zeros where this operation is the first on the way back to add something."""
    if step.fresh:
        clear(memory[step.dx : step.dx + step.fresh])
    if step.fresh_other:
        clear(memory[step.d_other : step.d_other + step.fresh_other])


@viewing
def _backward(
    tape: Any, params: _Floats, words: _Words, memory: _Floats, totals: _Wide, gradient: _Floats
) -> None:
    for number in range(len(tape) - 1, -1, -1):
        step = tape[number]
        _clear_first(step, memory)
        if step.kind == CONVOLVE:
            convolve_back(step, params, memory, gradient)
        elif step.kind == DEPTHWISE:
            convolve_each_back(step, params, memory, gradient)
        elif step.kind == NORMALIZE:
            normalize_back(step, params, memory, totals, gradient)
        elif step.kind == ADD:
            _add_back(step, memory)
        elif step.kind == ACTIVATE:
            _activate_back(step, memory)
        elif step.kind == MEAN:
            _average_back(step, memory)
        elif step.kind == EMBED:
            _embed_back(step, words, memory, gradient)
        elif step.kind == LSTM:
            run_cells_back(step, params, memory, gradient)


@dot
def _total(x: _Floats) -> float:
    total = 0.0
    for j in range(len(x)):
        total += np.float64(x[j])
    return total


@inner
def _largest(z: _Floats, eight: _Floats) -> np.float32:
    """Return the largest of z (n,); any of them where one is not a number.

    eight: memory for as many numbers.
    """
    blocked, largest = len(z) // 8 * 8, np.float32(z[0])
    if blocked:
        most = load(z, 0, 8)
        for j in range(8, blocked, 8):
            most = larger(most, load(z, j, 8))
        store(eight, 0, most)
        for k in range(8):
            largest = eight[k] if eight[k] > largest else largest
    for j in range(blocked, len(z)):
        largest = z[j] if z[j] > largest else largest
    return largest


@viewing
def soft_labels(z: _Floats, label: int, share: float, dz: _Floats) -> None:
    """Compute dz = share·(softmax(z) - the label's unit vector)."""
    largest = np.float64(_largest(z, dz))
    for c in range(len(z)):
        dz[c] = np.float32(exponential(np.float64(z[c]) - largest))
    scale = share / _total(dz)
    for c in range(len(z)):
        dz[c] = np.float32(dz[c] * scale - (share if c == label else 0.0))


@viewing
def _take(first: _Step, row: _Floats, memory: _Floats) -> None:
    """Write a row, channel after channel at each place.

    A place's numbers are `lines` apart in it, and a channel's `across`.
    """
    clear(memory[first.out : first.out + first.places * first.outputs])
    for c in range(first.channels):
        for p in range(first.places):
            memory[first.out + p * first.outputs + c] = row[p * first.lines + c * first.across]


@entry
def tape_gradients(
    tape: Any,
    params: _Floats,
    x: _Floats,
    words: _Words,
    y: _Words,
    index: NDArray[np.int64],
    memory: _Floats,
    totals: _Wide,
    classes: int,
    penalty: np.float32,
    out: _Floats,
) -> None:
    """Write out[i], the gradient of row index[i], with penalty·params.

    x (n, inputs) or words (n, places): the rows; the other has one row of one number. y: (n, places
    of the output), a label for each. The loss is their mean cross-entropy over `classes`.
    """
    last = tape[len(tape) - 1]
    for i in range(len(index)):
        row, gradient = index[i], out[i]
        if tape[0].kind == TAKE:
            text = words[0]
            _take(tape[0], x[row], memory)
        else:
            text = words[row]
        clear(gradient)
        _forward(tape, params, text, memory, totals)
        clear(memory[last.d_out : last.d_out + last.places * last.outputs])
        for p in range(last.places):
            z, dz = last.out + p * last.outputs, last.d_out + p * last.outputs
            soft_labels(
                memory[z : z + classes], y[row, p], 1.0 / last.places, memory[dz : dz + classes]
            )
        _backward(tape, params, text, memory, totals, gradient)
        if penalty:
            add(gradient, penalty, params)
