"""e^y and tanh x of the compiled loops: right to the last bit but seldom, and at the edges."""

from __future__ import annotations

import os

import numpy as np
import pytest
from numpy.typing import NDArray

from tacit.kernels.loading import library

pytestmark = pytest.mark.skipif(
    library() is None and not os.environ.get("CI"), reason="numba is not installed"
)
Floats = NDArray[np.float32]


def tanh(x: Floats) -> Floats:
    import numba

    from tacit.kernels import functions

    values = np.array(x, dtype=np.float32)
    compiled = numba.njit(error_model="numpy")(functions.tanh.py_func)  # type: ignore[attr-defined]
    compiled(values)
    return values


def exponential(y: NDArray[np.float64]) -> NDArray[np.float64]:
    import numba

    from tacit.kernels import functions

    function = functions.exponential

    @numba.njit(error_model="numpy")  # type: ignore[untyped-decorator]
    def each(values: NDArray[np.float64]) -> None:
        for j in range(len(values)):
            values[j] = function(values[j])

    results = y.copy()
    each(results)
    return results


def test_tanh_is_the_nearest_float_or_its_neighbour() -> None:
    """Compare every thousandth float with 64 bits of precision."""
    some = np.arange(0, 2**32, 997, dtype=np.uint64).astype(np.uint32).view(np.float32)
    x = some[np.isfinite(some)]
    assert np.finfo(np.longdouble).nmant >= 63
    expected = np.tanh(x.astype(np.longdouble)).astype(np.float32)
    off = np.abs(tanh(x).view(np.int32).astype(np.int64) - expected.view(np.int32))
    assert len(x) > 4_000_000
    assert off.max() <= 1
    assert np.count_nonzero(off) <= len(x) / 10_000


def test_tanh_at_its_edges() -> None:
    tiny = np.float32(1e-45)
    x = np.array([0.0, -0.0, tiny, -tiny, 1e-38, 9.02, -88.5, 3e38, np.inf, -np.inf, np.nan])
    expected = [0.0, -0.0, tiny, -tiny, np.float32(1e-38), 1.0, -1.0, 1.0, 1.0, -1.0, np.nan]
    computed = tanh(x.astype(np.float32))
    assert np.array_equal(computed, np.array(expected, dtype=np.float32), equal_nan=True)
    assert np.array_equal(np.signbit(computed[:-1]), np.signbit(x[:-1]))


def test_the_exponential_is_right_to_45_bits_and_no_denormal_comes_out() -> None:
    y = -np.linspace(0.0, 87.3, 2_000_003)
    exact = np.exp(y.astype(np.longdouble))
    assert np.max(np.abs(exponential(y) - exact) / exact) < 2.0**-45
    edges = np.array([0.0, -0.0, -1e-300, -87.31, -103.0, -745.2, -1e308, -np.inf, np.nan])
    expected = np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, np.nan])
    assert np.array_equal(exponential(edges), expected, equal_nan=True)


def applied(name: str, *numbers: Floats) -> None:
    import numba

    from tacit.kernels import functions

    numba.njit(error_model="numpy")(getattr(functions, name).py_func)(*numbers)


X = np.concatenate(
    (np.linspace(-12, 12, 20_001), [-200, -20, 20, 200, 1e-30, -1e-30, 0, -0.0])
).astype(np.float32)


def test_sigmoid_is_within_a_last_bit() -> None:
    values = X.copy()
    applied("sigmoid", values)
    expected = 1 / (1 + np.exp(-X.astype(np.float64)))
    assert np.allclose(values, expected, rtol=2.0**-23, atol=2.0**-125)
    edges = np.array([np.inf, -np.inf, np.nan], np.float32)
    applied("sigmoid", edges)
    assert edges[0] == 1
    assert edges[1] == 0
    assert np.isnan(edges[2])


def test_gelu_and_its_slope_are_torchs() -> None:
    import torch

    out, slope, ones = np.empty_like(X), np.zeros_like(X), np.ones_like(X)
    applied("gelu", X, out)
    applied("add_gelu_slope", X, ones, slope)
    x = torch.from_numpy(X.astype(np.float64)).requires_grad_()
    y = torch.nn.functional.gelu(x)
    (expected,) = torch.autograd.grad(y.sum(), x)
    # torch's own is 0 behind -8.3, where 1 + erf is lost
    assert np.allclose(out, y.detach().numpy(), rtol=4e-7, atol=1e-14)
    assert np.allclose(slope, expected.numpy(), rtol=1e-6, atol=2e-7)
    strange = np.array([np.nan], np.float32)
    applied("gelu", strange, out[:1])
    assert np.isnan(out[0])
