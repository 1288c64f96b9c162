"""One layer of a network on one row: its output, and the gradient that flows back.

Convolutions are in `convolution`.

Every function treats a row by the same operations in the same order, with any rows beside it: none
sees more than one. No branch, and no address but that of a pool's largest number, depends on a
number in the row. What is chosen by one is computed in either case, and no function of libm is
called, as those branch. `tests/unit/kernels/test_no_branches.py` reads that off the machine code.
How long the processor takes for a division or a square root is its own.

Numbers lie channel after channel at each place, (places, channels). Here are letters: z a layer's
output before the activation, a after it, d… the loss's derivative by it, w (outputs, inputs) and b
weights and bias.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tacit.kernels.functions import exponential, tanh
from tacit.kernels.jit import dot, inner
from tacit.kernels.layout import RELU, TANH

_EPSILON = 1e-5  # torch's, of group_norm

_Floats = NDArray[np.float32]
Four = tuple[np.float32, np.float32, np.float32, np.float32]


@inner
def copy(out: _Floats, x: _Floats) -> None:
    """Compute out = x, of the same length."""
    for j in range(len(out)):
        out[j] = x[j]


@dot
def _dot(x: _Floats, w: _Floats) -> np.float32:
    total = np.float32(0)
    for j in range(len(x)):
        total += x[j] * w[j]
    return total


@dot
def _dots4(x: _Floats, w0: _Floats, w1: _Floats, w2: _Floats, w3: _Floats) -> Four:
    s0, s1, s2, s3 = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
    for j in range(len(x)):
        s0 += x[j] * w0[j]
        s1 += x[j] * w1[j]
        s2 += x[j] * w2[j]
        s3 += x[j] * w3[j]
    return s0, s1, s2, s3


@inner
def add(out: _Floats, v: np.float32, w: _Floats) -> None:
    """Compute out += v·w."""
    for j in range(len(out)):
        out[j] += v * w[j]


@inner
def add4(out: _Floats, v: Four, w0: _Floats, w1: _Floats, w2: _Floats, w3: _Floats) -> None:
    """Compute out += v·w, of four rows."""
    v0, v1, v2, v3 = v
    for j in range(len(out)):
        out[j] += v0 * w0[j] + v1 * w1[j] + v2 * w2[j] + v3 * w3[j]


@inner
def _add8(out: _Floats, v: _Floats, w: _Floats) -> None:
    """Compute out += v·w, of eight rows of w."""
    v0, v1, v2, v3, v4, v5, v6, v7 = v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]
    w0, w1, w2, w3, w4, w5, w6, w7 = w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]
    for j in range(len(out)):
        first = v0 * w0[j] + v1 * w1[j] + v2 * w2[j] + v3 * w3[j]
        out[j] += first + (v4 * w4[j] + v5 * w5[j] + v6 * w6[j] + v7 * w7[j])


@inner
def linear(x: _Floats, w: _Floats, b: _Floats, z: _Floats) -> None:
    """Compute z = w·x + b."""
    blocked = len(z) // 4 * 4
    for o in range(0, blocked, 4):
        s0, s1, s2, s3 = _dots4(x, w[o], w[o + 1], w[o + 2], w[o + 3])
        z[o], z[o + 1], z[o + 2], z[o + 3] = s0 + b[o], s1 + b[o + 1], s2 + b[o + 2], s3 + b[o + 3]
    for o in range(blocked, len(z)):
        z[o] = _dot(x, w[o]) + b[o]


@inner
def back(dz: _Floats, w: _Floats, dx: _Floats) -> None:
    """Compute dx = dz·w."""
    blocked, half = len(dz) // 8 * 8, len(dz) // 4 * 4
    dx[:] = np.float32(0)
    for o in range(0, blocked, 8):
        _add8(dx, dz[o:], w[o:])
    for o in range(blocked, half, 4):
        v = dz[o], dz[o + 1], dz[o + 2], dz[o + 3]
        add4(dx, v, w[o], w[o + 1], w[o + 2], w[o + 3])
    for o in range(half, len(dz)):
        add(dx, dz[o], w[o])


@inner
def outer(dz: _Floats, x: _Floats, dw: _Floats) -> None:
    """Compute dw = dz ⊗ x."""
    for o in range(len(dz)):
        v, row = dz[o], dw[o]
        for j in range(len(x)):
            row[j] = v * x[j]


@inner
def total(dz: _Floats, db: _Floats) -> None:
    """Compute db = Σ dz over the places."""
    db[:] = np.float32(0)
    for p in range(len(dz)):
        add(db, np.float32(1), dz[p])


@inner
def activate(kind: int, z: _Floats) -> None:
    """Replace z by a, in place."""
    if kind == RELU:
        for j in range(len(z)):
            z[j] = np.float32(0) if z[j] <= 0 else z[j]
    elif kind == TANH:
        tanh(z)


@inner
def deactivate(kind: int, a: _Floats, da: _Floats) -> None:
    """Replace da by dz, in place, by the activation's derivative at a."""
    if kind == RELU:
        for j in range(len(a)):
            v = da[j]  # read in either case: what is read only in one is a branch
            da[j] = v if a[j] > 0 else np.float32(0)
    elif kind == TANH:
        for j in range(len(a)):
            da[j] *= np.float32(1) - a[j] * a[j]


@dot
def _moments(z: _Floats, first: int, last: int) -> tuple[float, float]:
    total, squares, count = 0.0, 0.0, len(z) * (last - first)
    for p in range(len(z)):
        for c in range(first, last):
            total += z[p, c]
    mean = total / count
    for p in range(len(z)):
        for c in range(first, last):
            squares += (z[p, c] - mean) ** 2
    return mean, squares / count


@inner
def normalize(z: _Floats, groups: int, inverse: _Floats) -> None:
    """Give each group of channels mean 0 and variance 1; inverse (groups,): 1/deviation."""
    width = z.shape[1] // groups
    for g in range(groups):
        mean, variance = _moments(z, g * width, (g + 1) * width)
        inverse[g] = 1.0 / math.sqrt(variance + _EPSILON)
        for p in range(len(z)):
            for c in range(g * width, (g + 1) * width):
                z[p, c] = np.float32((z[p, c] - mean) * inverse[g])


@dot
def _products(dz: _Floats, z: _Floats, first: int, last: int) -> tuple[float, float]:
    total, along, count = 0.0, 0.0, len(z) * (last - first)
    for p in range(len(z)):
        for c in range(first, last):
            total += dz[p, c]
            along += np.float64(dz[p, c]) * z[p, c]
    return total / count, along / count


@inner
def denormalize(dz: _Floats, z: _Floats, inverse: _Floats) -> None:
    """Replace dz, by the normalized z, by that by what was normalized, in place."""
    width = z.shape[1] // len(inverse)
    for g in range(len(inverse)):
        mean, along = _products(dz, z, g * width, (g + 1) * width)
        for p in range(len(z)):
            for c in range(g * width, (g + 1) * width):
                dz[p, c] = np.float32(inverse[g] * (dz[p, c] - mean - z[p, c] * along))


@inner
def cross_entropy(z: _Floats, label: int, dz: _Floats) -> None:
    """Compute dz = softmax(z) - the label's unit vector."""
    largest, total = z[0], 0.0
    for c in range(1, len(z)):
        largest = z[c] if (z[c] > largest) | (z[c] != z[c]) else largest
    for c in range(len(z)):
        dz[c] = np.float32(exponential(np.float64(z[c]) - largest))
        total += dz[c]
    for c in range(len(z)):
        dz[c] = np.float32(dz[c] / total - (1.0 if c == label else 0.0))


@inner
def hinge(z: _Floats, label: int, dz: _Floats) -> None:
    """Write the gradient of max(0, 1 + largest wrong score - right score); ties share it."""
    right, largest, equal = z[label], np.float32(0), 0
    for c in range(len(z)):
        margin = np.float32(0) if c == label else z[c] - right + np.float32(1)
        dz[c] = margin
        largest = margin if (margin > largest) | (margin != margin) else largest
    for c in range(len(z)):
        equal += dz[c] == largest
    share, total = np.float32(1.0 / equal), np.float32(0)
    for c in range(len(z)):
        mine = share if (dz[c] == largest) & (c != label) else np.float32(0)
        dz[c] = mine
        total += mine
    dz[label] = -total
