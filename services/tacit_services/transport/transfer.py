"""Transfer of a message that is split into many parts: the receiver names the parts that it lacks.

The sender publishes a window of parts, and the next ones as the receiver confirms. The rule is the
same in both directions (docs/protocol.md). At most WINDOW parts of each transfer are in the
broker's memory, and after a loss only what the receiver lacks is sent again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator

from tacit.protocol import wire
from tacit.protocol._pb import wire_pb2 as pb

WINDOW = 32  # parts on their way that the receiver has not confirmed
# New parts after which a receiver says what it still lacks: a quarter of a window, so that its
# sender, busy with something else for a moment, does not run dry.
ANSWER_EVERY = 8
MISSING = 64  # numbers that it names at most: a window under way and a window to send
TRIES = 5  # times that a receiver asks in vain before it gives a model up


class Transfer:
    """The sender's side of the transfer of one envelope.

    Methods return the parts to be published now, as (number, payload) pairs. A payload is made when
    it is asked for, so that the first is on its way before the last exists.
    """

    def __init__(self, envelope: wire.Envelope, chunk: int, front: bytes = b"") -> None:
        """chunk: bytes of a payload at most. front: what each begins with."""
        chunk -= len(front)
        self.envelope = envelope
        self.chunk = chunk
        self._front = front
        self.parts = wire.count_parts(len(envelope), chunk)
        self._flying: set[int] = set()
        self._sent: set[int] = set()  # since the last question
        self._head: bytes | None = None

    def first(self) -> Iterator[tuple[int, bytes]]:
        """Return the first window of parts, of which none was ever sent."""
        return self.more(range(self.parts))

    def inquiry(self) -> list[tuple[int, bytes]]:
        """Return the question which parts are missing; for a message of one part, that part itself.

        From now on no part counts as under way, or as sent.
        """
        self._flying.clear()
        self._sent.clear()
        if self.parts == 1:
            return [(0, self._part(0))]
        return [(0, self._front + wire.question(self.envelope, self.chunk))]

    def more(self, missing: Iterable[int], *, lost: bool = False) -> Iterator[tuple[int, bytes]]:
        """Return the parts of `missing` that were never sent, as far as the window allows.

        lost: nothing that was sent before is under way any more, and this once parts may be sent
        again. Otherwise no part is sent twice, even if a receiver reports it as missing.
        """
        requested = dict.fromkeys(number for number in missing if 0 <= number < self.parts)
        if lost:
            self._flying = set()
        else:
            self._flying = self._flying.intersection(requested)
        if lost:
            excluded = self._flying
        else:
            excluded = self._sent
        fresh = [number for number in requested if number not in excluded][
            : WINDOW - len(self._flying)
        ]
        self._flying.update(fresh)
        self._sent.update(fresh)
        return ((number, self._part(number)) for number in fresh)

    def head(self) -> bytes:
        """Return the name of this envelope: the SHA-256 of the payload of part 0."""
        if self._head is None:
            self._head = hashlib.sha256(self._part(0)).digest()
        return self._head

    def _part(self, number: int) -> bytes:
        return wire.part(self.envelope, self.chunk, number, self._front)


class Download:
    """The receiver's side of the transfer of a model; one model at a time.

    `ask` is called with a request for what is still missing, which the caller publishes.
    """

    def __init__(self, max_bytes: int, ask: Callable[[pb.Want], None]) -> None:
        self._max_bytes = max_bytes
        self._ask = ask
        self._assembler: wire.Assembler | None = None
        self._head = b""
        self._tries = 0  # questions since a part has come

    @property
    def received(self) -> int:
        """The number of different parts of the model under way that have come."""
        if self._assembler is None:
            return 0
        return self._assembler.received

    def add(self, payload: bytes, *, first: bool) -> wire.Whole | None:
        """Take one part, and return the envelope once it is whole, else None.

        `first`: the payload is a part 0. One that differs from part 0 of the model under way begins
        another model, and the earlier is forgotten. Raises WireError for a part that cannot be
        right. Then the model under way is forgotten as well.
        """
        if first:
            head = hashlib.sha256(payload).digest()
        else:
            head = b""
        if first and head != self._head:
            self._assembler = wire.Assembler(self._max_bytes)
            self._head = head
        if self._assembler is None:
            return None  # a part of a model whose first part was lost
        assembler = self._assembler
        before = self._assembler.received
        self._assembler = None
        self._tries = 0
        envelope = assembler.add(payload)
        if envelope is None:
            self._assembler = assembler
            if assembler.received > before and assembler.received % ANSWER_EVERY == 0:
                self._ask(self._want())
        else:
            if assembler.received > WINDOW:
                self._ask(pb.Want(head=self._head))  # all has come: its sender may forget it
            self._head = b""
        return envelope

    def ask_again(self) -> bool:
        """Ask for the missing parts once more, because nothing seems to be under way.

        Returns False if no model is under way, or if it was asked for TRIES times in vain and given
        up.
        """
        if self._assembler is None or self._tries >= TRIES:
            self.forget()
            return False
        self._tries += 1
        want = self._want()
        want.lost = True
        self._ask(want)
        return True

    def forget(self) -> None:
        """Give the model under way up, as its sender does not have it any more."""
        self._assembler = None
        self._head = b""
        self._tries = 0

    def _want(self) -> pb.Want:
        assert self._assembler is not None
        return pb.Want(head=self._head, missing=self._assembler.missing(MISSING))
