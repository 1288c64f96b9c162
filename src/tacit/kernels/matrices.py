"""Products of small matrices, whose sums are all in the order of their terms.

Every number of a result is one sum, added up term by term in an order that the shapes give alone.
Eight rows of the result are in registers at a time, `WIDE` or 8 columns of them.

A matrix lies in an array of one dimension, and begins anywhere in it. Nothing checks an index.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.kernels.jit import inner
from tacit.kernels.lanes import WIDE, fma, load, spread, spread_at, store

_Floats = NDArray[np.float32]
_EIGHT = 8  # rows of a result that are in registers at a time
# Columns that are in registers at a time where there are 32 of these; elsewhere never so many.
_PAIRED = 2 * WIDE if WIDE == 16 else 2**62


def _tiles(count: int) -> Callable[..., None]:
    """Return the product of eight rows, or fewer, and `count` columns."""

    @inner
    def tile(
        a: _Floats, a0: int, a_row: int, a_step: int, a_run: int,
        b: _Floats, b0: int, b_step: int, b_run: int,
        c: _Floats, c0: int, c_row: int,
        last: int, length: int, runs: int,
    ) -> None:  # fmt: skip
        # Behind the last row it is taken again, and has the same result.
        a1, a2, a3 = a0 + min(1, last) * a_row, a0 + min(2, last) * a_row, a0 + min(3, last) * a_row
        a4, a5, a6 = a0 + min(4, last) * a_row, a0 + min(5, last) * a_row, a0 + min(6, last) * a_row
        a7 = a0 + last * a_row
        c1, c2, c3 = c0 + min(1, last) * c_row, c0 + min(2, last) * c_row, c0 + min(3, last) * c_row
        c4, c5, c6 = c0 + min(4, last) * c_row, c0 + min(5, last) * c_row, c0 + min(6, last) * c_row
        c7 = c0 + last * c_row
        s0, s1, s2 = load(c, c0, count), load(c, c1, count), load(c, c2, count)
        s3, s4, s5 = load(c, c3, count), load(c, c4, count), load(c, c5, count)
        s6, s7 = load(c, c6, count), load(c, c7, count)
        for run in range(runs):
            at, by = run * a_run, b0 + run * b_run
            for _ in range(length):
                v = load(b, by, count)
                s0 = fma(spread_at(a, a0 + at, count), v, s0)
                s1 = fma(spread_at(a, a1 + at, count), v, s1)
                s2 = fma(spread_at(a, a2 + at, count), v, s2)
                s3 = fma(spread_at(a, a3 + at, count), v, s3)
                s4 = fma(spread_at(a, a4 + at, count), v, s4)
                s5 = fma(spread_at(a, a5 + at, count), v, s5)
                s6 = fma(spread_at(a, a6 + at, count), v, s6)
                s7 = fma(spread_at(a, a7 + at, count), v, s7)
                at += a_step
                by += b_step
        store(c, c0, s0)
        store(c, c1, s1)
        store(c, c2, s2)
        store(c, c3, s3)
        store(c, c4, s4)
        store(c, c5, s5)
        store(c, c6, s6)
        store(c, c7, s7)

    return tile


_wide_tile = _tiles(WIDE)
_tile = _tiles(8)


@inner
def _pair(
    a: _Floats, a0: int, a_row: int, a_step: int, a_run: int,
    b: _Floats, b0: int, b_step: int, b_run: int,
    c: _Floats, c0: int, c_row: int,
    last: int, length: int, runs: int,
) -> None:  # fmt: skip
    """Compute eight rows, or fewer, and 2·WIDE columns."""
    a1, a2, a3 = a0 + min(1, last) * a_row, a0 + min(2, last) * a_row, a0 + min(3, last) * a_row
    a4, a5, a6 = a0 + min(4, last) * a_row, a0 + min(5, last) * a_row, a0 + min(6, last) * a_row
    a7 = a0 + last * a_row
    c1, c2, c3 = c0 + min(1, last) * c_row, c0 + min(2, last) * c_row, c0 + min(3, last) * c_row
    c4, c5, c6 = c0 + min(4, last) * c_row, c0 + min(5, last) * c_row, c0 + min(6, last) * c_row
    c7 = c0 + last * c_row
    s0, t0 = load(c, c0, WIDE), load(c, c0 + WIDE, WIDE)
    s1, t1 = load(c, c1, WIDE), load(c, c1 + WIDE, WIDE)
    s2, t2 = load(c, c2, WIDE), load(c, c2 + WIDE, WIDE)
    s3, t3 = load(c, c3, WIDE), load(c, c3 + WIDE, WIDE)
    s4, t4 = load(c, c4, WIDE), load(c, c4 + WIDE, WIDE)
    s5, t5 = load(c, c5, WIDE), load(c, c5 + WIDE, WIDE)
    s6, t6 = load(c, c6, WIDE), load(c, c6 + WIDE, WIDE)
    s7, t7 = load(c, c7, WIDE), load(c, c7 + WIDE, WIDE)
    for run in range(runs):
        at, by = run * a_run, b0 + run * b_run
        for _ in range(length):
            v, w = load(b, by, WIDE), load(b, by + WIDE, WIDE)
            x = spread_at(a, a0 + at, WIDE)
            s0, t0 = fma(x, v, s0), fma(x, w, t0)
            x = spread_at(a, a1 + at, WIDE)
            s1, t1 = fma(x, v, s1), fma(x, w, t1)
            x = spread_at(a, a2 + at, WIDE)
            s2, t2 = fma(x, v, s2), fma(x, w, t2)
            x = spread_at(a, a3 + at, WIDE)
            s3, t3 = fma(x, v, s3), fma(x, w, t3)
            x = spread_at(a, a4 + at, WIDE)
            s4, t4 = fma(x, v, s4), fma(x, w, t4)
            x = spread_at(a, a5 + at, WIDE)
            s5, t5 = fma(x, v, s5), fma(x, w, t5)
            x = spread_at(a, a6 + at, WIDE)
            s6, t6 = fma(x, v, s6), fma(x, w, t6)
            x = spread_at(a, a7 + at, WIDE)
            s7, t7 = fma(x, v, s7), fma(x, w, t7)
            at += a_step
            by += b_step
    _store2(c, c0, s0, t0)
    _store2(c, c1, s1, t1)
    _store2(c, c2, s2, t2)
    _store2(c, c3, s3, t3)
    _store2(c, c4, s4, t4)
    _store2(c, c5, s5, t5)
    _store2(c, c6, s6, t6)
    _store2(c, c7, s7, t7)


@inner
def _store2(c: _Floats, at: int, s: _Floats, t: _Floats) -> None:
    store(c, at, s)
    store(c, at + WIDE, t)


def _strips(count: int) -> Callable[..., None]:
    """Return the product of one row and `count` columns: four sums, of every fourth term each."""

    @inner
    def strip(
        a: _Floats, a0: int, a_step: int, b: _Floats, b0: int, b_step: int, c: _Floats, c0: int,
        length: int,
    ) -> None:  # fmt: skip
        s0, one = load(c, c0, count), spread(np.float32(1), count)
        s1 = s2 = s3 = spread(np.float32(0), count)
        at, by, fours = a0, b0, length // 4
        for _ in range(fours):
            s0 = fma(spread_at(a, at, count), load(b, by, count), s0)
            s1 = fma(spread_at(a, at + a_step, count), load(b, by + b_step, count), s1)
            s2 = fma(spread_at(a, at + 2 * a_step, count), load(b, by + 2 * b_step, count), s2)
            s3 = fma(spread_at(a, at + 3 * a_step, count), load(b, by + 3 * b_step, count), s3)
            at += 4 * a_step
            by += 4 * b_step
        for _ in range(length - 4 * fours):
            s0 = fma(spread_at(a, at, count), load(b, by, count), s0)
            at += a_step
            by += b_step
        store(c, c0, fma(one, fma(one, s0, s1), fma(one, s2, s3)))

    return strip


_wide_strip = _strips(WIDE)
_strip = _strips(8)


@inner
def add_product(
    a: _Floats, a0: int, a_row: int, a_step: int, a_run: int,
    b: _Floats, b0: int, b_step: int, b_run: int,
    c: _Floats, c0: int, c_row: int,
    rows: int, columns: int, length: int, runs: int,
) -> None:  # fmt: skip
    """Compute c (rows, columns) += a (rows, runs·length) · b (runs·length, columns).

    a0, b0, c0: where each begins. row, step, run: how far it is to the next row, from a term of a
    sum to the next, and to the next run's first. Numbers of a row of b, and of c, lie side by side.
    columns: a multiple of 8.
    """
    paired, wide = columns // _PAIRED * _PAIRED, columns // WIDE * WIDE
    for j in range(0, paired, _PAIRED):
        for i in range(0, rows, _EIGHT):
            _pair(
                a, a0 + i * a_row, a_row, a_step, a_run, b, b0 + j, b_step, b_run,
                c, c0 + i * c_row + j, c_row, min(_EIGHT, rows - i) - 1, length, runs,
            )  # fmt: skip
    for j in range(paired, wide, WIDE):
        for i in range(0, rows, _EIGHT):
            _wide_tile(
                a, a0 + i * a_row, a_row, a_step, a_run, b, b0 + j, b_step, b_run,
                c, c0 + i * c_row + j, c_row, min(_EIGHT, rows - i) - 1, length, runs,
            )  # fmt: skip
    for j in range(wide, columns, 8):
        for i in range(0, rows, _EIGHT):
            _tile(
                a, a0 + i * a_row, a_row, a_step, a_run, b, b0 + j, b_step, b_run,
                c, c0 + i * c_row + j, c_row, min(_EIGHT, rows - i) - 1, length, runs,
            )  # fmt: skip


@inner
def add_row_product(
    a: _Floats, a0: int, b: _Floats, b0: int, b_step: int, c: _Floats, c0: int,
    columns: int, length: int,
) -> None:  # fmt: skip
    """Compute c (columns,) += a (length,) · b (length, columns): `add_product` of one row."""
    wide = columns // WIDE * WIDE
    for j in range(0, wide, WIDE):
        _wide_strip(a, a0, 1, b, b0 + j, b_step, c, c0 + j, length)
    for j in range(wide, columns, 8):
        _strip(a, a0, 1, b, b0 + j, b_step, c, c0 + j, length)


@inner
def add_columns(d: _Floats, d0: int, places: int, width: int, out: _Floats, o0: int) -> None:
    """Compute out (width,) += the sum of the rows of d (places, width), four sums of them."""
    one = spread(np.float32(1), 8)
    fours = places // 4
    for j in range(0, width, 8):
        s0, s1 = load(out, o0 + j, 8), spread(np.float32(0), 8)
        s2, s3, at = s1, s1, d0 + j
        for _ in range(fours):
            s0, s1 = fma(one, load(d, at, 8), s0), fma(one, load(d, at + width, 8), s1)
            s2 = fma(one, load(d, at + 2 * width, 8), s2)
            s3 = fma(one, load(d, at + 3 * width, 8), s3)
            at += 4 * width
        for _ in range(places - 4 * fours):
            s0 = fma(one, load(d, at, 8), s0)
            at += width
        store(out, o0 + j, fma(one, fma(one, s0, s1), fma(one, s2, s3)))


@inner
def fill_rows(b: _Floats, b0: int, places: int, width: int, out: _Floats, o0: int) -> None:
    """Write the row of `width` numbers that begins at b0, `places` times."""
    for j in range(0, width, 8):
        v, at = load(b, b0 + j, 8), o0 + j
        for _ in range(places):
            store(out, at, v)
            at += width


@inner
def clear(out: Any) -> None:
    """Write zeros."""
    for j in range(len(out)):
        out[j] = np.float32(0)
