"""The compiled loops beside the plain functions that define what they compute."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.kernels.loading import library
from tacit.privacy.noise.mechanisms import _cumulative, discrete_normal, gaussian, standard_normal
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.clipping import (
    Clipped,
    clipped_sum,
    drawn_outer_sum,
    integer_sum,
    outer_sum,
)
from tacit.privacy.private_sum.row_by_row import Adder
from tacit.privacy.private_sum.row_sums import SumTerms
from tacit.privacy.private_sum.sampling import Batch
from tests.unit.privacy.test_mechanisms import Scripted

pytestmark = pytest.mark.skipif(
    library() is None and not os.environ.get("CI"), reason="numba is not installed"
)
Plain = Callable[[Callable[[], Tensor]], Tensor]


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Plain:
    """Return a function that calls another without the compiled loops."""

    def call(function: Callable[[], Tensor]) -> Tensor:
        with monkeypatch.context() as patch:
            for module in ("noise.mechanisms", "private_sum.clipping"):
                patch.setattr(f"tacit.privacy.{module}.library", lambda: None)
            return function()

    return call


@pytest.mark.parametrize("std", [0.5, 2.0, 700.0, 4096.0, 16384.0])
def test_the_discrete_gaussian_is_the_same_bit_for_bit(std: float, plain: Plain) -> None:
    compiled = discrete_normal(300_000, std, Random(7))

    assert torch.equal(compiled, plain(lambda: discrete_normal(300_000, std, Random(7))))


@pytest.mark.parametrize("std", [2.0, 4096.0])
def test_words_on_a_boundary_and_beside_one_give_the_same_bits(std: float, plain: Plain) -> None:
    high, exact = _cumulative(std)
    low = {int(value) >> 64: int(value) % 2**64 for value in exact}
    some = np.random.default_rng(1).integers(0, len(high), 10_000).tolist()
    near = (int(high[k]) + off for k in some for off in (-1, 0, 1))
    words = [word for word in near if 0 <= word < 2**64]
    on = [word for word in words if word in low]
    seconds = [max(0, low[word] - number % 2) for number, word in enumerate(on)]
    all_words = [*words, *seconds]

    compiled = discrete_normal(len(words), std, Scripted([*all_words]))

    assert len(on) >= 9_000
    assert torch.equal(
        compiled, plain(lambda: discrete_normal(len(words), std, Scripted([*all_words])))
    )


@pytest.mark.parametrize("words", [[0] * 40, [2**64 - 1] * 40, [2**63] * 40, [1 << 12] * 40])
def test_extreme_words_give_the_same_normals(words: list[int], plain: Plain) -> None:
    compiled = standard_normal(10, Scripted([*words]))
    expected = plain(lambda: standard_normal(10, Scripted([*words])))

    assert torch.allclose(compiled, expected, rtol=0, atol=2.0**-46)


def test_normals_are_the_same_to_within_their_last_bits(plain: Plain) -> None:
    for count in (1, 2, 3, 511, 512, 513, 200_000):
        compiled = standard_normal(count, Random(3))
        expected = plain(lambda count=count: standard_normal(count, Random(3)))  # type: ignore[misc]

        assert torch.allclose(compiled, expected, rtol=0, atol=2.0**-46)


def test_what_the_gaussian_releases_is_the_same(plain: Plain) -> None:
    """Compare on a grid that is 2^34 times coarser than what the two ways differ by."""
    total = torch.randn(50_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    assert torch.equal(
        gaussian(total, 0.7, Random(5)), plain(lambda: gaussian(total, 0.7, Random(5)))
    )


def rows(strange: str, count: int = 30, size: int = 5_003) -> Tensor:
    gradients = torch.randn(count, size, generator=torch.Generator().manual_seed(2)) * 0.1
    values = {"nan": float("nan"), "inf": -float("inf"), "huge": 3e38, "long": 1e17, "tiny": 1e-44}
    for at in (0, 7, count - 1) if strange in values else ():
        gradients[at] = values[strange]
    if strange == "one":
        gradients[3, 5000], gradients[4, 0] = float("nan"), float("inf")
    return gradients


STRANGE = ("", "nan", "inf", "huge", "long", "tiny", "one")


@pytest.mark.parametrize("strange", STRANGE)
@pytest.mark.parametrize("clip", [1e-3, 1.0, 700.0])
def test_integers_are_the_same_bit_for_bit(strange: str, clip: float, plain: Plain) -> None:
    mask = torch.arange(30) % 4 != 1

    def total() -> Tensor:
        return integer_sum(rows(strange), clip, mask, clip / 4096).total

    assert torch.equal(total(), plain(total))


@pytest.mark.parametrize("strange", STRANGE)
@pytest.mark.parametrize("clip", [1e-3, 1.0, 700.0])
def test_sums_in_float64_are_the_same_but_for_their_rounding(
    strange: str, clip: float, plain: Plain
) -> None:
    mask = torch.arange(30) % 4 != 1

    def total() -> Tensor:
        return clipped_sum(rows(strange), clip, mask).total

    compiled = total()

    assert bool(torch.isfinite(compiled).all())
    assert torch.allclose(compiled, plain(total), rtol=0, atol=clip * 30 * 2.0**-50)


def test_rows_whose_integers_are_too_long_add_nothing() -> None:
    """They cannot be by their factors, so factors are given that are wrong."""
    kernels = library()
    assert kernels is not None
    total: NDArray[np.int32] = np.full(9, 5, np.int32)
    gradients = np.full((3, 9), 4096.0, np.float32)

    kernels.add_integers(
        gradients, np.array([1.0, 2e-4, 1e4], np.float32), np.ones(3, np.bool_), 2**24, total
    )

    assert total.tolist() == [5] * 9  # 4096·2e-4 is cut to nothing
    quarter, used, length = np.full(1, 0.25, np.float32), np.ones(1, np.bool_), 9 * 1024**2
    kernels.add_integers(gradients[:1], quarter, used, length - 1, total)
    assert total.tolist() == [5] * 9
    kernels.add_integers(gradients[:1], quarter, used, length, total)
    assert total.tolist() == [5 + 1024] * 9


def test_rows_that_no_loop_is_for_go_the_plain_way() -> None:
    wide = rows("").to(torch.float64)
    across = rows("").T.contiguous().T
    mask = torch.ones(30, dtype=torch.bool)

    sums: list[Clipped] = [clipped_sum(gradients, 1.0, mask) for gradients in (wide, across)]

    for clipped in sums:
        assert torch.allclose(clipped.total, clipped_sum(rows(""), 1.0, mask).total, atol=1e-9)


@pytest.mark.parametrize("strange", STRANGE)
def test_a_linear_layers_sum_is_the_same_to_within_its_rounding(strange: str, plain: Plain) -> None:
    inputs, mask = rows(strange, size=5_003), torch.arange(30) % 4 != 1
    deltas = torch.randn(30, 7, generator=torch.Generator().manual_seed(3))

    def total() -> Tensor:
        return outer_sum(deltas, inputs, 0.7, mask).total

    assert torch.allclose(total(), plain(total), rtol=0, atol=1e-13)


@pytest.mark.parametrize("strange", STRANGE)
@pytest.mark.parametrize("drawn", [0, 1, 3, 4, 5, 13, 30])
def test_empty_slots_that_are_passed_over_change_no_bit(strange: str, drawn: int) -> None:
    table, generator = rows(strange, 31), torch.Generator().manual_seed(drawn)
    deltas, slots = (
        torch.randn(30, 10, generator=generator),
        torch.randperm(30, generator=generator),
    )
    index = torch.full((30,), 30)
    index[slots[:drawn]] = torch.arange(drawn)
    batch = Batch(index, index < 30)

    drawn_sum = drawn_outer_sum(deltas, table, batch, 0.7)

    assert torch.equal(drawn_sum.total, outer_sum(deltas, table[index], 0.7, batch.mask).total)


@pytest.mark.parametrize("strange", STRANGE)
@pytest.mark.parametrize("step", [None, 0.7 / 4096])
def test_a_row_in_parts_adds_what_it_adds_as_one_vector(strange: str, step: float | None) -> None:
    gradients = rows(strange)
    sizes = [1, 2_500, 17, 2_485]
    adder = Adder(SumTerms(0.7, step, 30), sizes)
    for gradient in gradients:
        adder.add(gradient.split(sizes))

    total = adder.clipped().total

    everyone = torch.ones(30, dtype=torch.bool)
    if step is None:
        expected = clipped_sum(gradients, 0.7, everyone).total
        assert torch.allclose(total, expected, rtol=0, atol=0.7 * 30 * 2.0**-50)
    else:
        # the norm's last bit depends on the order of its sum
        assert int((total - integer_sum(gradients, 0.7, everyone, step).total).abs().max()) <= 1
