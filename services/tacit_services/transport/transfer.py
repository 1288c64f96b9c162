"""A message of many parts on its way: the receiver says what it lacks, the sender sends that, a window at a time.

The same rule in both directions (docs/protocol.md). A broker has at most WINDOW parts of each transfer in its memory,
and whatever is lost on the way, only what the receiver lacks is sent again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

from tacit.protocol import wire
from tacit.protocol._pb import wire_pb2 as pb

WINDOW = 16  # parts on their way that the receiver has not confirmed
ANSWER_EVERY = 8  # new parts after which a receiver says what it still lacks: half a window, so that none runs dry
MISSING = 32  # numbers that it names at most: a window under way and a window to send
TRIES = 5  # times that a receiver asks in vain before it gives a model up


class Transfer:
    """The sender's side of one envelope; every method gives the (number, payload) pairs that are to be published."""

    def __init__(self, envelope: bytes, chunk: int) -> None:
        self.envelope, self.chunk = envelope, chunk
        self.parts = wire.count_parts(envelope, chunk)
        self._flying: set[int] = set()

    def first(self) -> list[tuple[int, bytes]]:
        """The first window."""
        return self.more(range(self.parts))

    def inquiry(self) -> list[tuple[int, bytes]]:
        """A message of one part itself, else the question which parts are missing; nothing counts as under way now."""
        self._flying.clear()
        if self.parts == 1:
            return [(0, wire.part(self.envelope, self.chunk, 0))]
        return [(0, wire.question(self.envelope, self.chunk))]

    def more(self, missing: Iterable[int], *, lost: bool = False) -> list[tuple[int, bytes]]:
        """What of `missing` is not under way, as far as the window allows. `lost`: nothing is under way any more."""
        wanted = [number for number in missing if 0 <= number < self.parts]
        self._flying = set() if lost else self._flying.intersection(wanted)
        fresh = [number for number in wanted if number not in self._flying][
            : WINDOW - len(self._flying)
        ]
        self._flying.update(fresh)
        return [(number, wire.part(self.envelope, self.chunk, number)) for number in fresh]

    def head(self) -> bytes:
        """What names this envelope: SHA-256 of the payload of part 0."""
        return hashlib.sha256(wire.part(self.envelope, self.chunk, 0)).digest()


class Download:
    """The receiver's side of the model: one at a time, and `ask` is called with what is still wanted of it."""

    def __init__(self, max_bytes: int, ask: Callable[[pb.Want], None]) -> None:
        self._max_bytes, self._ask = max_bytes, ask
        self._assembler: wire.Assembler | None = None
        self._head = b""
        self._tries = 0  # questions since a part has come

    @property
    def received(self) -> int:
        """Parts that are here of the model under way."""
        return 0 if self._assembler is None else self._assembler.received

    def add(self, payload: bytes, *, first: bool) -> bytearray | None:
        """The envelope when it is whole, else None. `first`: the payload is a part 0, and so, if it is another one than
        that of the model under way, the beginning of another model. Raises WireError, which forgets the model.
        """
        head = hashlib.sha256(payload).digest() if first else b""
        if first and head != self._head:
            self._assembler, self._head = wire.Assembler(self._max_bytes), head
        if self._assembler is None:
            return None  # of a model whose beginning was lost
        assembler, before = self._assembler, self._assembler.received
        self._assembler, self._tries = None, 0
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
        """Ask for what is missing, as nothing more is on its way; False if no model is under way, or not any more."""
        if self._assembler is None or self._tries >= TRIES:
            self.forget()
            return False
        self._tries += 1
        want = self._want()
        want.lost = True
        self._ask(want)
        return True

    def forget(self) -> None:
        """The sender does not have it any more."""
        self._assembler, self._head, self._tries = None, b"", 0

    def _want(self) -> pb.Want:
        assert self._assembler is not None
        return pb.Want(head=self._head, missing=self._assembler.missing(MISSING))
