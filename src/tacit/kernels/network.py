"""The gradients of single rows of a network of convolutions and dense layers, one after another.

Twin: `tacit.models.vectors.example_gradients`. The plan of a network (`layout`) is made by
`tacit.privacy.private_sum.row_plan`; parameters and gradients stand in the plan's order. One row's
numbers, and only those, lie in `memory`, every one of which is written before it is read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.kernels import convolution, layers
from tacit.kernels.jit import entry, viewing
from tacit.kernels.layout import DENSE, PLANES

_Floats = NDArray[np.float32]
_Places = NDArray[np.int32]
_Layer = Any  # a record of layout.LAYER


@viewing
def _matrix(memory: _Floats, start: int, rows: int, columns: int) -> _Floats:
    return memory[start : start + rows * columns].reshape(rows, columns)


@viewing
def _weights(layer: _Layer, params: _Floats) -> tuple[_Floats, _Floats]:
    w = _matrix(params, layer.weight, layer.width, layer.taps)
    return w, params[layer.bias : layer.bias + layer.width]


@viewing
def _input(layer: _Layer, memory: _Floats, start: int) -> _Floats:
    return _matrix(memory, start, layer.side, layer.side * layer.depth)


@viewing
def _planes(layer: _Layer, params: _Floats, memory: _Floats, taps: _Places) -> _Floats:
    """Return the outputs' planes (outputs, line) of a first layer."""
    w, b = _weights(layer, params)
    flat = _matrix(memory, layer.planes, layer.width, layer.line)
    convolution.convolve_planes(memory[layer.a :], taps, w, b, flat)
    return flat


@viewing
def _convolve(layer: _Layer, params: _Floats, memory: _Floats, taps: _Places) -> _Floats:
    """Return z (places, outputs), normalized if it is."""
    w, b = _weights(layer, params)
    z = _matrix(memory, layer.z, layer.out**2, layer.width)
    if layer.kind == PLANES:
        flat = _planes(layer, params, memory, taps)
        convolution.from_planes(flat, layer.side, layer.out, z)
    else:
        patches = _matrix(memory, layer.patches, layer.out**2, layer.taps)
        convolution.gather(_input(layer, memory, layer.a), layer.side, layer.kernel, patches)
        convolution.convolve(patches, w, b, z)
    if layer.groups:
        inverse = memory[layer.inverse : layer.inverse + layer.groups]
        layers.normalize(z, layer.groups, inverse)
    return z


@viewing
def _chosen(layer: _Layer, places: _Places) -> _Places:
    """Return the places that a layer's pool chose, (chosen, outputs)."""
    count = (layer.out // 2) ** 2
    return places[layer.places : layer.places + count * layer.width].reshape(count, layer.width)


@viewing
def _output(
    layer: _Layer, params: _Floats, memory: _Floats, places: _Places, taps: _Places
) -> _Floats:
    """Return a convolution's output before the activation, (places, outputs), pooled if it is."""
    side = layer.out // 2 if layer.pooled else layer.out
    compact = _matrix(memory, layer.flat, side**2, layer.width)
    if layer.kind == PLANES and layer.chosen:
        flat, best = _planes(layer, params, memory, taps), memory[layer.dz : layer.dz + side]
        where = places[layer.where : layer.where + side]
        chosen = _chosen(layer, places)
        convolution.pool_planes(flat, layer.side, layer.out, best, where, compact, chosen)
        return compact
    z = _convolve(layer, params, memory, taps)
    if layer.pooled:
        convolution.pool(z, layer.out, compact, _chosen(layer, places))
    else:
        layers.copy(compact.reshape(-1), z.reshape(-1))
    return compact


@viewing
def _pass_on(layer: _Layer, compact: _Floats, memory: _Floats, start: int) -> None:
    """Write the next layer's input at `start`: the output, activated, inside its padding."""
    side = layer.out // 2 if layer.pooled else layer.out
    layers.activate(layer.activation, compact.reshape(-1))
    line, wide = side * layer.width, (side + 2 * layer.pad) * layer.width
    for y in range(side):
        to = start + (y + layer.pad) * wide + layer.pad * layer.width
        layers.copy(memory[to : to + line], compact.reshape(-1)[y * line : (y + 1) * line])


@viewing
def _forward(plan: Any, params: _Floats, memory: _Floats, places: _Places, taps: _Places) -> None:
    for number in range(len(plan)):
        layer = plan[number]
        if layer.kind != DENSE:
            compact = _output(layer, params, memory, places, taps)
            _pass_on(layer, compact, memory, plan[number + 1].a)
        else:
            w, b = _weights(layer, params)
            z = memory[layer.z : layer.z + layer.width]
            layers.linear(memory[layer.a : layer.a + layer.taps], w, b, z)
            layers.activate(layer.activation, z)


@viewing
def _come_back(layer: _Layer, following: _Layer, memory: _Floats) -> _Floats:
    """Return the loss's derivative by what was pooled or normalized, (places, channels)."""
    side = layer.out // 2 if layer.pooled else layer.out
    line, wide = side * layer.width, (side + 2 * layer.pad) * layer.width
    size = side * line
    a, d = memory[layer.flat : layer.flat + size], memory[layer.flat + size :][:size]
    for y in range(side):
        at = (y + layer.pad) * wide + layer.pad * layer.width
        layers.copy(a[y * line : (y + 1) * line], memory[following.a + at :])
        layers.copy(d[y * line : (y + 1) * line], memory[following.da + at :])
    layers.deactivate(layer.activation, a, d)
    return d.reshape(side**2, layer.width)


@viewing
def _spread(layer: _Layer, v: _Floats, memory: _Floats, places: _Places) -> _Floats:
    """Return dz (places, outputs) of a convolution."""
    dz = _matrix(memory, layer.dz, layer.out**2, layer.width)
    if layer.pooled:
        where = _chosen(layer, places)
        dz[:] = np.float32(0)
        for q in range(len(v)):
            for c in range(layer.width):
                dz[where[q, c], c] = v[q, c]
    else:
        layers.copy(dz.reshape(-1), v.reshape(-1))
    if layer.groups:
        z = _matrix(memory, layer.z, layer.out**2, layer.width)
        inverse = memory[layer.inverse : layer.inverse + layer.groups]
        layers.denormalize(dz, z, inverse)
    return dz


@viewing
def _convolution_back(
    layer: _Layer,
    following: _Layer,
    params: _Floats,
    memory: _Floats,
    places: _Places,
    taps: _Places,
    gradient: _Floats,
) -> None:
    v, where = _come_back(layer, following, memory), _chosen(layer, places)
    if not layer.chosen:
        v = _spread(layer, v, memory, places)
        where = places[layer.all : layer.all + layer.out**2 * layer.width].reshape(v.shape)
    dw, db = _weights(layer, gradient)
    layers.total(v, db)
    if layer.kind == PLANES:
        x, sums = memory[layer.a :], memory[layer.planes :]
        convolution.weigh_planes(v, where, x, taps, layer.kernel, sums, dw)
        return
    convolution.weigh(v, where, _matrix(memory, layer.patches, layer.out**2, layer.taps), dw)
    w, _ = _weights(layer, params)
    da = _input(layer, memory, layer.da)
    if layer.chosen:
        convolution.scatter_chosen(v, where, w, layer.side, layer.kernel, da)
    else:
        patch = memory[layer.flat : layer.flat + layer.taps]
        convolution.scatter(v, w, layer.side, layer.kernel, patch, da)


@viewing
def _dense_back(
    number: int, layer: _Layer, params: _Floats, memory: _Floats, gradient: _Floats
) -> None:
    w, _ = _weights(layer, params)
    dw, db = _weights(layer, gradient)
    a, dz = memory[layer.a : layer.a + layer.taps], memory[layer.dz : layer.dz + layer.width]
    layers.deactivate(layer.activation, memory[layer.z : layer.z + layer.width], dz)
    layers.outer(dz, a, dw)
    layers.copy(db, dz)
    if number:
        layers.back(dz, w, memory[layer.da : layer.da + layer.taps])


@viewing
def _backward(
    plan: Any, params: _Floats, memory: _Floats, places: _Places, taps: _Places, gradient: _Floats
) -> None:
    for number in range(len(plan) - 1, -1, -1):
        layer = plan[number]
        if layer.kind == DENSE:
            _dense_back(number, layer, params, memory, gradient)
        else:
            following = plan[number + 1]
            _convolution_back(layer, following, params, memory, places, taps, gradient)


@viewing
def _take(layer: _Layer, row: _Floats, memory: _Floats) -> None:
    """Write the first layer's input: the row, plane by plane, inside its padding of zeros."""
    if layer.kind == DENSE:
        layers.copy(memory[layer.a : layer.a + len(row)], row)
        return
    inside = layer.side - 2 * layer.own_pad
    for line in range(layer.depth * inside):
        plane, y = line // inside, line % inside + layer.own_pad
        to = layer.a + (plane * layer.side + y) * layer.side + layer.own_pad
        layers.copy(memory[to : to + inside], row[line * inside :])


@entry
def gradients(
    plan: Any,
    params: _Floats,
    x: _Floats,
    y: NDArray[np.int64],
    index: NDArray[np.int64],
    memory: _Floats,
    places: _Places,
    taps: _Places,
    hinge: bool,
    penalty: np.float32,
    out: _Floats,
) -> None:
    """Write out[i], the gradient of row index[i] of x (n, inputs), y (n,), with penalty·params."""
    last = plan[len(plan) - 1]
    for i in range(len(index)):
        _take(plan[0], x[index[i]], memory)
        _forward(plan, params, memory, places, taps)
        z = memory[last.z : last.z + last.width]
        dz = memory[last.dz : last.dz + last.width]
        if hinge:
            layers.hinge(z, y[index[i]], dz)
        else:
            layers.cross_entropy(z, y[index[i]], dz)
        _backward(plan, params, memory, places, taps, out[i])
        if penalty:
            layers.add(out[i], penalty, params)


@entry
def deltas(
    params: _Floats,
    x: _Floats,
    y: NDArray[np.int64],
    index: NDArray[np.int64],
    hinge: bool,
    out: _Floats,
) -> None:
    """Compute out (R, outputs) = the loss's derivative by the scores of one dense layer."""
    inputs, outputs = x.shape[1], out.shape[1]
    w, b = params[: inputs * outputs].reshape(outputs, inputs), params[inputs * outputs :]
    z = np.empty(outputs, dtype=np.float32)
    for i in range(len(index)):
        layers.linear(x[index[i]], w, b, z)
        if hinge:
            layers.hinge(z, y[index[i]], out[i])
        else:
            layers.cross_entropy(z, y[index[i]], out[i])
