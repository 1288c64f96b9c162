"""Where the tensor of an envelope lies, and an envelope that grows from its front."""

from __future__ import annotations

import hashlib
import struct

MAGIC = b"TCT1"
HEAD = struct.Struct("<4sI")  # magic, length of the Meta


def tensor_at(head: bytes | bytearray | memoryview) -> int:
    """The offset of the tensor, by the first eight bytes: behind the Meta, at a multiple of 64."""
    end: int = HEAD.size + HEAD.unpack_from(head)[1]
    return end + -end % 64


class Growing(bytearray):
    """An envelope to which bytes are only added, with the SHA-256 of its tensor so far.

    So the tensor's digest is there with its last byte, and nobody has to wait for it. Only `grow`
    may change it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._hash = hashlib.sha256()

    def grow(self, more: bytes | memoryview) -> None:
        """Add bytes at the end."""
        before = len(self)
        self.extend(more)
        if len(self) > HEAD.size:
            self._hash.update(more[max(0, tensor_at(self) - before) :])

    def digest(self) -> bytes:
        """The SHA-256 of the tensor."""
        return self._hash.digest()
