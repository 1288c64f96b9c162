"""Randomness that an adversary cannot predict, and Poisson sampling on it.

The generators of torch (mt19937 on CPU, Philox on CUDA) and numpy are not cryptographic: whoever recovers their
state subtracts the noise. Everything private draws from `Random`, a ChaCha20 keystream keyed by the operating
system; torch's and numpy's generators never touch private data.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from dataclasses import dataclass

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms
from numpy.typing import NDArray
from scipy.stats import binom

TAIL = 1e-15  # probability, per push, that a Poisson batch is larger than the padded one (see `Batch`)


class Random:
    """A stream of cryptographically secure bytes, different in every process.

    `Random()` is keyed from `secrets` and re-keyed after a fork, so parent and child never share noise.
    `Random(seed)` is deterministic, for tests and simulation: `secret` is False, and every ledger that it
    charges says "not private".
    """

    def __init__(self, seed: int | None = None) -> None:
        self.secret = seed is None
        self._seed = seed
        self._rekey()

    def _rekey(self) -> None:
        key = secrets.token_bytes(32) if self._seed is None else hashlib.sha256(b"%d" % self._seed).digest()
        self._pid = os.getpid()
        self._stream: CipherContext = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()

    def bytes(self, count: int) -> bytes:
        """The next `count` bytes of the keystream."""
        if self.secret and os.getpid() != self._pid:
            self._rekey()
        return self._stream.update(bytes(count))

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next `count` uniform 64-bit words."""
        return np.frombuffer(self.bytes(8 * count), dtype="<u8")


@dataclass(frozen=True, slots=True)
class Batch:
    """A Poisson batch, padded to a size that does not depend on how many records were drawn.

    index: (B_max,) int64 rows; mask: (B_max,) bool, False for padding. Only the charged sum of the masked rows
    may leave the edge: |batch|, the indices and the time taken are secret.
    """

    index: torch.Tensor
    mask: torch.Tensor


def padded_size(records: int, rate: float) -> int:
    """B_max: the size that a Poisson(rate) batch of `records` rows exceeds with probability at most TAIL.

    Rounded up to a multiple of 16, so that one record more or less hardly ever shows in the shape.
    """
    bound = int(binom.isf(TAIL, records, rate)) if rate < 1 else records
    return min(records, -(-bound // 16) * 16)


def poisson(records: int, rate: float, size: int, random: Random) -> Batch:
    """Draw each of `records` rows independently with probability floor(rate·2^64)/2^64.

    Guarantee: inclusion is fresh and independent for every record and every call (add/remove adjacency, the
    hypothesis of the Poisson-subsampled Gaussian accountant). No epochs, no shuffling, no minimum.
    Edge cases: an empty draw is an all-padding batch (the caller still releases noise); rate 1 takes every row;
    a draw above `size` (probability <= TAIL for `padded_size`) is cut to a random subset, which the accountant
    pays for in delta. Raises ValueError unless 0 < rate <= 1 and size >= 1.
    """
    if not 0 < rate <= 1 or size < 1:
        raise ValueError(f"rate={rate}, size={size}: expected 0 < rate <= 1 and size >= 1")
    threshold = min(int(rate * 2.0**64), 2**64 - 1)
    drawn = np.arange(records) if rate == 1 else np.flatnonzero(random.words(records) < np.uint64(threshold))
    if len(drawn) > size:
        drawn = np.sort(drawn[np.argsort(random.words(len(drawn)))[:size]])
    index = np.zeros(size, dtype=np.int64)
    index[: len(drawn)] = drawn
    return Batch(torch.from_numpy(index), torch.arange(size) < len(drawn))
