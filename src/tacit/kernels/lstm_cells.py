"""A layer of LSTM cells on one row: forward through its places, and back.

`step` is a record of `tape_layout.OPERATION`. d… is the loss's derivative by … Gates lie input,
forget, cell, output at each place, each of the output's width. Memory begins at `step.cells` with
the gates (places, 4·outputs), activated. Their derivatives follow, then the states of the cells and
their tanh (places, outputs). The last numbers flow to the place before (2, outputs).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.kernels.functions import sigmoid, tanh
from tacit.kernels.jit import inner, viewing
from tacit.kernels.layers import copy
from tacit.kernels.matrices import add_columns, add_product, add_row_product, clear, fill_rows

_Floats = NDArray[np.float32]
_Step = Any  # a record of tape_layout.OPERATION


@viewing
def run_cells(step: _Step, params: _Floats, memory: _Floats) -> None:
    """Write the cells' outputs (places, outputs)."""
    width, gates = step.outputs, step.cells
    four = 4 * width
    states = gates + 2 * step.places * four
    bent = states + step.places * width
    fill_rows(params, step.bias, step.places, four, memory, gates)
    add_product(
        memory, step.x, step.inputs, 1, 0, params, step.weight, four, 0,
        memory, gates, four, step.places, four, step.inputs, 1,
    )  # fmt: skip
    for t in range(step.places):
        at = t * width
        gate = memory[gates + t * four : gates + (t + 1) * four]
        if t:
            before = step.out + at - width
            add_row_product(
                memory, before, params, step.recurrent, four, memory, gates + t * four, four, width
            )
        sigmoid(gate[: 2 * width])
        tanh(gate[2 * width : 3 * width])
        sigmoid(gate[3 * width :])
        state = memory[states + at : states + at + width]
        if t:
            _go_on(gate, memory[states + at - width : states + at], state)
        else:
            _begin(gate, state)
        turned = memory[bent + at : bent + at + width]
        copy(turned, state)
        tanh(turned)
        _give(gate[3 * width :], turned, memory[step.out + at : step.out + at + width])


@inner
def _begin(gate: _Floats, state: _Floats) -> None:
    width = len(state)
    i, g = gate[:width], gate[2 * width : 3 * width]
    for k in range(width):
        state[k] = i[k] * g[k]


@inner
def _go_on(gate: _Floats, before: _Floats, state: _Floats) -> None:
    width = len(state)
    i, f, g = gate[:width], gate[width : 2 * width], gate[2 * width : 3 * width]
    for k in range(width):
        state[k] = f[k] * before[k] + i[k] * g[k]


@inner
def _give(gate: _Floats, bent: _Floats, out: _Floats) -> None:
    for k in range(len(out)):
        out[k] = gate[k] * bent[k]


@viewing
def run_cells_back(step: _Step, params: _Floats, memory: _Floats, gradient: _Floats) -> None:
    """Write the gradient by the weights and the bias, and add to dx."""
    width, gates = step.outputs, step.cells
    four = 4 * width
    d_gates = gates + step.places * four
    states = gates + 2 * step.places * four
    bent = states + step.places * width
    flows = bent + step.places * width
    d_h, d_c = memory[flows : flows + width], memory[flows + width : flows + 2 * width]
    clear(d_h)
    clear(d_c)
    for t in range(step.places - 1, -1, -1):
        at = t * width
        _cell_back(
            memory[gates + t * four : gates + (t + 1) * four],
            memory[bent + at : bent + at + width],
            memory[step.d_out + at : step.d_out + at + width],
            d_h, d_c,
            memory[d_gates + t * four : d_gates + (t + 1) * four],
        )  # fmt: skip
        d_gate = memory[d_gates + t * four : d_gates + (t + 1) * four]
        if t:
            gate = memory[gates + t * four : gates + (t + 1) * four]
            before = memory[states + at - width : states + at]
            _forget_back(gate[width : 2 * width], before, d_c, d_gate[width : 2 * width])
            clear(d_h)
            add_row_product(
                memory, d_gates + t * four, params, step.back, width, memory, flows, width, four
            )
        else:
            clear(d_gate[width : 2 * width])
    _weigh_cells(step, params, memory, d_gates, gradient)


@inner
def _cell_back(
    gate: _Floats, bent: _Floats, d_out: _Floats, d_h: _Floats, d_c: _Floats, d_gate: _Floats
) -> None:
    """Compute the derivatives by all gates but the forget gate; d_c becomes that by the state."""
    one, width = np.float32(1), len(bent)
    i, g, o = gate[:width], gate[2 * width : 3 * width], gate[3 * width :]
    d_i, d_g, d_o = d_gate[:width], d_gate[2 * width : 3 * width], d_gate[3 * width :]
    for k in range(width):
        d = d_out[k] + d_h[k]
        d_o[k] = d * bent[k] * o[k] * (one - o[k])
        d_state = d_c[k] + d * o[k] * (one - bent[k] * bent[k])
        d_i[k] = d_state * g[k] * i[k] * (one - i[k])
        d_g[k] = d_state * i[k] * (one - g[k] * g[k])
        d_c[k] = d_state


@inner
def _forget_back(f: _Floats, before: _Floats, d_c: _Floats, d_f: _Floats) -> None:
    """Compute the derivative by the forget gate; d_c becomes that by the state before."""
    for k in range(len(f)):
        d_f[k] = d_c[k] * before[k] * f[k] * (np.float32(1) - f[k])
        d_c[k] = d_c[k] * f[k]


@viewing
def _weigh_cells(
    step: _Step, params: _Floats, memory: _Floats, d_gates: int, gradient: _Floats
) -> None:
    width, four = step.outputs, 4 * step.outputs
    add_columns(memory, d_gates, step.places, four, gradient, step.bias)
    add_product(
        memory, step.x, 1, step.inputs, 0, memory, d_gates, four, 0,
        gradient, step.weight, four, step.inputs, four, step.places, 1,
    )  # fmt: skip
    add_product(
        memory, step.out, 1, width, 0, memory, d_gates + four, four, 0,
        gradient, step.recurrent, four, width, four, step.places - 1, 1,
    )  # fmt: skip
    if step.dx >= 0:
        add_product(
            memory, d_gates, four, 1, 0, params, step.turned, step.inputs, 0,
            memory, step.dx, step.inputs, step.places, step.inputs, four, 1,
        )  # fmt: skip
