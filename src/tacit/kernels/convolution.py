"""A convolution on one row: its output, its pool, and the gradients that flow back.

As in `layers`, every function treats a row by the same operations in the same order. There are two
forms. A first layer of few channels goes *plane* by plane: an output's plane has lines as wide as
the input's, so their last numbers are not used. One of many channels gathers *patches*, what each
place sees. Elsewhere numbers lie channel after channel at each place, (places, channels).

Only the places that a pool chose have a gradient: `v` (chosen, outputs) are its numbers, and
`places` (chosen, outputs) where they stood.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.kernels.jit import inner
from tacit.kernels.lanes import WIDE, first, fma, load, spread, store, summed
from tacit.kernels.layers import add, add4, back, copy
from tacit.kernels.layout import FIVE

_Floats = NDArray[np.float32]
_Places = NDArray[np.int32]
_Five = tuple[np.float32, np.float32, np.float32, np.float32, np.float32]


@inner
def convolve_planes(x: _Floats, taps: _Places, w: _Floats, b: _Floats, flat: _Floats) -> None:
    """Compute flat (outputs, n) = Σ w·x[tap …] + b: of few channels, plane by plane.

    x: the planes one after the other. taps: where each tap's first number is. n is a multiple of
    32. Numbers where no place is are not used.
    """
    n, blocked, out = flat.shape[1], len(flat) // FIVE * FIVE, flat.reshape(-1)
    for j in range(0, n, 2 * WIDE):
        for o in range(0, blocked, FIVE):
            _plane5(x, taps, w[o:], b[o:], j, out[o * n + j :], n)
        for o in range(blocked, len(flat)):
            _plane(x, taps, w[o], b[o], j, out[o * n + j :])


@inner
def _plane5(
    x: _Floats, taps: _Places, w: _Floats, b: _Floats, j: int, out: _Floats, n: int
) -> None:
    """Write 2·WIDE numbers, from the j-th on, of each of five outputs."""
    a0, a1, a2 = spread(b[0], WIDE), spread(b[1], WIDE), spread(b[2], WIDE)
    a3, a4 = spread(b[3], WIDE), spread(b[4], WIDE)
    c0, c1, c2, c3, c4 = a0, a1, a2, a3, a4
    for t in range(len(taps)):
        p, q = load(x, taps[t] + j, WIDE), load(x, taps[t] + j + WIDE, WIDE)
        w0, w1, w2 = spread(w[0, t], WIDE), spread(w[1, t], WIDE), spread(w[2, t], WIDE)
        w3, w4 = spread(w[3, t], WIDE), spread(w[4, t], WIDE)
        a0, a1, a2 = fma(w0, p, a0), fma(w1, p, a1), fma(w2, p, a2)
        a3, a4 = fma(w3, p, a3), fma(w4, p, a4)
        c0, c1, c2 = fma(w0, q, c0), fma(w1, q, c1), fma(w2, q, c2)
        c3, c4 = fma(w3, q, c3), fma(w4, q, c4)
    _store2(out, 0, a0, c0)
    _store2(out, n, a1, c1)
    _store2(out, 2 * n, a2, c2)
    _store2(out, 3 * n, a3, c3)
    _store2(out, 4 * n, a4, c4)


@inner
def _store2(out: _Floats, at: int, a: _Floats, c: _Floats) -> None:
    store(out, at, a)
    store(out, at + WIDE, c)


@inner
def _plane(x: _Floats, taps: _Places, w: _Floats, b: np.float32, j: int, out: _Floats) -> None:
    a = c = spread(b, WIDE)
    for t in range(len(taps)):
        v = spread(w[t], WIDE)
        a, c = fma(v, load(x, taps[t] + j, WIDE), a), fma(v, load(x, taps[t] + j + WIDE, WIDE), c)
    _store2(out, 0, a, c)


@inner
def weigh_planes(
    v: _Floats, places: _Places, x: _Floats, taps: _Places, kernel: int, sums: _Floats, dw: _Floats
) -> None:
    """Compute dw (outputs, taps) = Σ v·x[tap + place]; places in a plane of the input.

    sums: memory for `layout.SUMS` numbers.
    """
    lines = len(taps) // kernel
    for o in range(len(dw)):
        for k in range(0, kernel, 8):  # eight columns of the window, or what is left
            wide = min(8, kernel - k)
            for line in range(0, lines, FIVE):
                _lines5(v, places, o, x[k:], taps[::kernel], line, sums)
                for i in range(min(FIVE, lines - line)):
                    start = (line + i) * kernel + k
                    copy(dw[o, start : start + wide], sums[8 * i :])


@inner
def _lines5(
    v: _Floats, places: _Places, o: int, x: _Floats, starts: _Places, line: int, sums: _Floats
) -> None:
    """Write five lines, eight columns each, of output o's window; behind the last it again."""
    last = len(starts) - 1
    t0, t1, t2 = starts[line], starts[min(line + 1, last)], starts[min(line + 2, last)]
    t3, t4 = starts[min(line + 3, last)], starts[min(line + 4, last)]
    a0 = a1 = a2 = a3 = a4 = spread(np.float32(0), 8)
    for q in range(len(v)):
        p, u = places[q, o], spread(v[q, o], 8)
        a0, a1 = fma(u, load(x, p + t0, 8), a0), fma(u, load(x, p + t1, 8), a1)
        a2, a3 = fma(u, load(x, p + t2, 8), a2), fma(u, load(x, p + t3, 8), a3)
        a4 = fma(u, load(x, p + t4, 8), a4)
    store(sums, 0, a0)
    store(sums, 8, a1)
    store(sums, 16, a2)
    store(sums, 24, a3)
    store(sums, 32, a4)


@inner
def from_planes(flat: _Floats, side: int, out: int, z: _Floats) -> None:
    """Write z (places, outputs) from flat (outputs, n), whose lines are of `side`."""
    for y in range(out):
        for x in range(out):
            for o in range(len(flat)):
                z[y * out + x, o] = flat[o, y * side + x]


@inner
def pool_planes(
    flat: _Floats,
    side: int,
    out: int,
    best: _Floats,
    where: _Places,
    pooled: _Floats,
    places: _Places,
) -> None:
    """Apply `pool` to flat (outputs, n), whose lines are of `side`; places in such a plane.

    best, where: memory for out//2 numbers of either kind.
    """
    half = out // 2
    for o in range(len(flat)):
        for y in range(half):
            start = 2 * y * side
            _pool_lines(flat[o, start : start + out], flat[o, start + side :], side, best, where)
            for x in range(half):
                q = y * half + x
                pooled[q, o], places[q, o] = best[x], start + where[x]


@inner
def _pool_lines(upper: _Floats, lower: _Floats, side: int, best: _Floats, where: _Places) -> None:
    """Write the largest of 2×2 of two lines, and how far from the first number it is."""
    for x in range(len(upper) // 2):
        a, b, c, d = upper[2 * x], upper[2 * x + 1], lower[2 * x], lower[2 * x + 1]
        right, under = (b > a) | (b != b), (d > c) | (d != d)
        top, bottom = b if right else a, d if under else c
        below = (bottom > top) | (bottom != bottom)
        best[x] = bottom if below else top
        far, near = np.int32(side + under), np.int32(right)
        where[x] = np.int32(2 * x) + (far if below else near)


@inner
def pool(z: _Floats, out: int, pooled: _Floats, places: _Places) -> None:
    """Write pooled (out//2 squared, channels): the largest of 2×2, and its place.

    The first of equals; what is not a number is larger than all, as torch has it.
    """
    half = out // 2
    for y in range(half):
        for x in range(half):
            q, first = y * half + x, 2 * y * out + 2 * x
            for c in range(z.shape[1]):
                best, place = z[first, c], first
                for p in (first + 1, first + out, first + out + 1):
                    other = z[p, c]
                    larger = (other > best) | (other != other)
                    best, place = (other, p) if larger else (best, place)
                pooled[q, c], places[q, c] = best, place


@inner
def gather(a: _Floats, side: int, kernel: int, patches: _Floats) -> None:
    """Gather patches (places, ≥ kernel²·depth), line by line, of a (side, side·depth)."""
    run, depth, out = kernel * (a.shape[1] // side), a.shape[1] // side, side - kernel + 1
    for y in range(out):
        for x in range(out):
            patch = patches[y * out + x]
            for k in range(kernel):
                copy(patch[k * run : (k + 1) * run], a[y + k, x * depth : x * depth + run])


@inner
def convolve(patches: _Floats, w: _Floats, b: _Floats, z: _Floats) -> None:
    """Compute z (places, outputs) = patches·wᵀ + b; taps are a multiple of 16."""
    last, blocked = len(patches) - 1, len(w) // FIVE * FIVE
    for p in range(0, len(patches), 2):
        x, y = patches[p], patches[min(p + 1, last)]
        a, c = z[p], z[min(p + 1, last)]
        for o in range(0, blocked, FIVE):
            _dots5(x, y, w[o:], b[o:], a[o:], c[o:])
        for o in range(blocked, len(w)):
            _dots(x, y, w[o], b[o], a[o:], c[o:])


@inner
def _dots5(x: _Floats, y: _Floats, w: _Floats, b: _Floats, a: _Floats, c: _Floats) -> None:
    """Compute a = w·x + b and c = w·y + b, of five outputs."""
    w0, w1, w2, w3, w4 = w[0], w[1], w[2], w[3], w[4]
    a0 = a1 = a2 = a3 = a4 = spread(np.float32(0), WIDE)
    c0, c1, c2, c3, c4 = a0, a1, a2, a3, a4
    for t in range(0, len(x), WIDE):
        p, q = load(x, t, WIDE), load(y, t, WIDE)
        v0, v1, v2 = load(w0, t, WIDE), load(w1, t, WIDE), load(w2, t, WIDE)
        v3, v4 = load(w3, t, WIDE), load(w4, t, WIDE)
        a0, a1, a2 = fma(v0, p, a0), fma(v1, p, a1), fma(v2, p, a2)
        a3, a4 = fma(v3, p, a3), fma(v4, p, a4)
        c0, c1, c2 = fma(v0, q, c0), fma(v1, q, c1), fma(v2, q, c2)
        c3, c4 = fma(v3, q, c3), fma(v4, q, c4)
    a[0], a[1], a[2] = summed(a0) + b[0], summed(a1) + b[1], summed(a2) + b[2]
    a[3], a[4] = summed(a3) + b[3], summed(a4) + b[4]
    c[0], c[1], c[2] = summed(c0) + b[0], summed(c1) + b[1], summed(c2) + b[2]
    c[3], c[4] = summed(c3) + b[3], summed(c4) + b[4]


@inner
def _dots(x: _Floats, y: _Floats, w: _Floats, b: np.float32, a: _Floats, c: _Floats) -> None:
    a0 = c0 = spread(np.float32(0), WIDE)
    for t in range(0, len(x), WIDE):
        v = load(w, t, WIDE)
        a0, c0 = fma(v, load(x, t, WIDE), a0), fma(v, load(y, t, WIDE), c0)
    a[0], c[0] = summed(a0) + b, summed(c0) + b


@inner
def weigh(v: _Floats, places: _Places, patches: _Floats, dw: _Floats) -> None:
    """Compute dw (outputs, taps) = Σ v·patches[place]; v, places (n, outputs)."""
    blocked = len(v) // 4 * 4
    dw[:] = np.float32(0)
    for o in range(len(dw)):
        row = dw[o]
        for q in range(0, blocked, 4):
            add4(
                row,
                (v[q, o], v[q + 1, o], v[q + 2, o], v[q + 3, o]),
                patches[places[q, o]],
                patches[places[q + 1, o]],
                patches[places[q + 2, o]],
                patches[places[q + 3, o]],
            )
        for q in range(blocked, len(v)):
            add(row, v[q, o], patches[places[q, o]])


@inner
def scatter(dz: _Floats, w: _Floats, side: int, kernel: int, patch: _Floats, da: _Floats) -> None:
    """Compute da (side, side·depth) = the patches dz·w, added where they were gathered from."""
    run, depth, out = kernel * (da.shape[1] // side), da.shape[1] // side, side - kernel + 1
    da[:] = np.float32(0)
    for y in range(out):
        for x in range(out):
            back(dz[y * out + x], w, patch)
            for k in range(kernel):
                into = da[y + k, x * depth : x * depth + run]
                add(into, np.float32(1), patch[k * run : (k + 1) * run])


@inner
def scatter_chosen(
    v: _Floats, places: _Places, w: _Floats, side: int, kernel: int, da: _Floats
) -> None:
    """Apply `scatter` to the chosen places alone."""
    wide, depth, out = da.shape[1], da.shape[1] // side, side - kernel + 1
    into, run = da.reshape(-1), kernel * depth
    da[:] = np.float32(0)
    for q in range(len(v)):
        for o in range(len(w)):
            y, x = places[q, o] // out, places[q, o] % out
            for k in range(kernel):
                start = (y + k) * wide + x * depth
                _add_line(into[start:], v[q, o], w[o, k * run :], run)


@inner
def _add_line(out: _Floats, v: np.float32, w: _Floats, count: int) -> None:
    """Compute out += v·w, `count` numbers; what is behind them stays as it is."""
    by, blocked = spread(v, 8), count // 8 * 8
    for j in range(0, blocked, 8):
        store(out, j, fma(by, load(w, j, 8), load(out, j, 8)))
    if blocked < count:
        some = first(load(w, blocked, 8), count - blocked)
        store(out, blocked, fma(by, some, load(out, blocked, 8)))
