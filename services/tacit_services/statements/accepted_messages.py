"""Messages that were accepted, as one number and one hash that stand for them all.

    head_0 = SHA-256("tacit messages")
    head_n = SHA-256(head_{n-1} ‖ number, 8 bytes big endian ‖ SHA-256 of the envelope, 32 bytes)

An edge chains the messages whose receipt says that its run has them. The run's journal gives the
same hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

FIRST = hashlib.sha256(b"tacit messages").digest()


@dataclass(frozen=True, slots=True)
class AcceptedMessages:
    """How many messages were accepted, the number of the last, and the head of their chain."""

    count: int = 0
    last: int = 0
    head: bytes = FIRST

    def then(self, number: int, digest: bytes) -> AcceptedMessages:
        """Return these and one more. One whose number does not rise was counted before."""
        if number <= self.last:
            return self
        head = hashlib.sha256(self.head + number.to_bytes(8) + digest).digest()
        return AcceptedMessages(self.count + 1, number, head)


def accepted(entries: Iterable[tuple[int, bytes]]) -> AcceptedMessages:
    """Return what messages with these numbers and digests come to, in their order."""
    messages = AcceptedMessages()
    for number, digest in entries:
        messages = messages.then(number, digest)
    return messages
