"""Products of small matrices, at any place of an array, beside numpy's."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from tacit.kernels.loading import library

pytestmark = pytest.mark.skipif(
    library() is None and not os.environ.get("CI"), reason="numba is not installed"
)
Floats = NDArray[np.float32]
SHAPES = [(1, 8, 1), (7, 8, 5), (8, 16, 33), (9, 24, 3), (17, 56, 4), (3, 40, 70), (64, 96, 12)]


@cache
def compiled(name: str) -> Callable[..., None]:
    import numba

    from tacit.kernels import matrices

    function: Callable[..., None] = numba.njit(error_model="numpy")(getattr(matrices, name).py_func)
    return function


def numbers(count: int, seed: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(count).astype(np.float32)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("off", [0, 3])
def test_a_product_is_added_where_it_belongs(shape: tuple[int, int, int], off: int) -> None:
    rows, columns, length = shape
    a, b = numbers(off + rows * length + 64, 1), numbers(off + 2 * length * columns + 64, 2)
    c = numbers(off + rows * (columns + 8) + 64, 3)
    expected = c.copy()
    left = a[off : off + rows * length].reshape(rows, length)
    right = b[off : off + length * columns].reshape(length, columns)
    more = b[off + length * columns :][: length * columns].reshape(length, columns)
    part = expected[off : off + rows * (columns + 8)].reshape(rows, columns + 8)
    part[:, :columns] += left @ right + left @ more
    compiled("add_product")(
        a, off, length, 1, 0, b, off, columns, length * columns, c, off, columns + 8,
        rows, columns, length, 2,
    )  # fmt: skip
    assert np.allclose(c, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("columns", [8, 16, 24, 72])
@pytest.mark.parametrize("length", [0, 1, 4, 9, 128])
def test_a_product_of_one_row(columns: int, length: int) -> None:
    a, b, c = numbers(length + 64, 1), numbers(length * columns + 64, 2), numbers(columns + 64, 3)
    expected = c.copy()
    expected[:columns] += a[:length] @ b[: length * columns].reshape(length, columns)
    compiled("add_row_product")(a, 0, b, 0, columns, c, 0, columns, length)
    assert np.allclose(c, expected, rtol=1e-5, atol=1e-4)
