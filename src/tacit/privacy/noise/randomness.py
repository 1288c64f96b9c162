"""Randomness that an adversary cannot predict.

The generators of torch (mt19937 on CPU, Philox on CUDA) and numpy are not cryptographic: from their
state, once recovered, the noise follows. So all private code draws from `Random`, a ChaCha20
keystream keyed by the operating system. torch's and numpy's generators never touch private data.
"""

from __future__ import annotations

import hashlib
import os
import secrets

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms
from numpy.typing import NDArray

_ZEROS = memoryview(bytes(2**18))  # what a keystream is laid over, made once: it stays in a cache


class Random:
    """A stream of cryptographically secure bytes, different in every process and in every release.

    `Random()` takes a 256-bit key from the operating system; a fork takes another, and so does each
    release (`renew`). So a machine that is copied while it runs repeats no noise and no batch,
    unless its operating system repeats its own random numbers. `Random(seed)` is deterministic, for
    tests and simulation: `secret` is False, and every ledger that it charges says "not private".
    """

    def __init__(self, seed: int | None = None) -> None:
        self.secret = seed is None
        self._seed = seed
        self._rekey()

    def _rekey(self) -> None:
        if self._seed is None:
            key = secrets.token_bytes(32)
        else:
            key = hashlib.sha256(b"%d" % self._seed).digest()
        self._pid = os.getpid()
        self._stream: CipherContext = Cipher(
            algorithms.ChaCha20(key, bytes(16)), mode=None
        ).encryptor()

    def renew(self) -> None:
        """Take a fresh key, at the beginning of a release.

        A stream from a seed goes on as it is.
        """
        if self.secret:
            self._rekey()

    def bytes(self, count: int) -> bytes | bytearray:
        """Return the next `count` bytes of the keystream; many are written where they stay."""
        if self.secret and os.getpid() != self._pid:
            self._rekey()
        if count <= len(_ZEROS):
            return self._stream.update(_ZEROS[:count])
        stream = bytearray(count)
        out = memoryview(stream)
        for start in range(0, count, len(_ZEROS)):
            part = out[start : start + len(_ZEROS)]
            self._stream.update_into(_ZEROS[: len(part)], part)
        return stream

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return the next `count` uniform 64-bit words, which nobody can write into.

        So kernels are compiled for one kind of words, however many there are.
        """
        return np.frombuffer(memoryview(self.bytes(8 * count)).toreadonly(), dtype="<u8")

    def permutation(self, count: int) -> NDArray[np.int64]:
        """Return 0 … count-1 in an exactly uniform order.

        It is the order of `count` distinct random words.
        """
        while True:
            words = self.words(count)
            order = np.argsort(words)
            # Words of which two are equal (probability count²/2^65) are drawn again.
            if count < 2 or np.diff(words[order]).all():
                return order
