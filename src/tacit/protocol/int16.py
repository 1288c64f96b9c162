"""An update's integers as int16, and apart from them those that do not fit.

So an update takes half the bytes. The discrete Gaussian's integers have a standard deviation of at
most 2^14 (privacy/noise/mechanisms.py). Of these one number in twenty does not fit, and up to a
noise multiplier of 1.3 none. Which numbers do not fit is seen in the released values, and reveals
nothing else.

    numel int16 | k uint32, the places of those that do not fit, rising | their k int32

All little endian; the int16 of one that does not fit is 0.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.errors import WireError

_LEAST = -(1 << 15)
_LARGEST = (1 << 15) - 1
_BLOCK = 1 << 16  # numbers looked at together: they stay in a processor's cache
_APART = 8  # bytes of a number that does not fit, beside its int16


def packed(integers: Tensor) -> tuple[memoryview, int] | None:
    """Return the bytes of int32 numbers, and how many do not fit; None if not shorter."""
    numbers = integers.reshape(-1).numpy()
    body = np.empty(4 * len(numbers), "u1")  # of which memory is taken for what is written
    small = body[: 2 * len(numbers)].view("<i2")
    blocks = range(0, max(1, len(numbers)), _BLOCK)
    places = np.concatenate([_put(small, numbers, at) for at in blocks])
    if not shorter(len(numbers), len(places)):
        return None
    end = size(len(numbers), len(places))
    small[places] = 0
    body[2 * len(numbers) : end].view("<u4").reshape(2, -1)[:] = places, numbers[places]
    return body[:end].data, len(places)


def size(numel: int, apart: int) -> int:
    """Return the number of bytes of `numel` numbers, of which `apart` do not fit."""
    return 2 * numel + _APART * apart


def shorter(numel: int, apart: int) -> bool:
    """Check whether that is fewer bytes than int32 takes: else it is not written so."""
    return size(numel, apart) < 4 * numel


def unpacked(body: memoryview, numel: int, apart: int) -> Tensor:
    """Return the numbers, int32 (numel,), in memory of their own; body: `size` bytes.

    Raises WireError ("apart") where those that do not fit are not as `packed` writes them: so the
    same numbers have the same bytes.
    """
    small = np.frombuffer(body, "<i2", numel)
    numbers = small.astype(np.int32)
    if apart:
        places = np.frombuffer(body, "<u4", apart, 2 * numel).astype(np.int64)
        _put_apart(numbers, places, np.frombuffer(body, "<i4", apart, 2 * numel + 4 * apart))
    return torch.from_numpy(numbers)


def _put(small: NDArray[np.int16], integers: NDArray[np.int32], at: int) -> NDArray[np.int64]:
    """Write the block of numbers from place `at` on; return the places of those that do not fit."""
    block = slice(at, at + _BLOCK)
    small[block] = integers[block]  # as C does it: what does not fit becomes another number
    above = integers[block].view(np.uint32) + np.uint32(-_LEAST)  # as far as that goes around
    return at + np.flatnonzero(above > np.uint32(_LARGEST - _LEAST))


def _put_apart(
    numbers: NDArray[np.int32], places: NDArray[np.int64], values: NDArray[np.int32]
) -> None:
    if places[-1] >= len(numbers) or not bool((places[1:] > places[:-1]).all()):
        raise WireError("apart", "the places of large numbers do not rise, or are none")
    if numbers[places].any() or bool(((values >= _LEAST) & (values <= _LARGEST)).any()):
        raise WireError("apart", "a number is there twice, or would fit")
    numbers[places] = values
