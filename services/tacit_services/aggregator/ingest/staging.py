"""Large updates on their way into the store while their last parts are still to come."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

from tacit.protocol import wire
from tacit_services.journal.store import Stage, Store

TOTAL_BYTES = 1 << 28  # of all messages that are here; what is beyond goes with its append


@dataclass(slots=True)
class _Staged:
    """The beginning of one message in the store.

    memory: where that message is put together. Its number proves less: an edge can send other bytes
    under the same one. size: bytes that the store was given.
    """

    memory: weakref.ref[object]
    stage: Stage
    size: int = 0


class Staging:
    """The hand-over of parts of a large message, whose end then need not wait for its beginning.

    It is only for edges whose latest update was accepted, and that have not given up a message here
    since. So the store takes in for nothing at most one update for each that it keeps. One message
    of an edge is here at a time.
    """

    def __init__(self, store: Store, *, allowed: bool) -> None:
        """allowed: False where the aggregator adds the noise.

        The store must not see what came without it.
        """
        self._store = store
        self._allowed = allowed
        self._trusted: set[str] = set()
        self._begun: dict[str, _Staged] = {}
        self._bytes = 0

    def accepted(self, edge: str, *, update: bool) -> None:
        """Note that a message of `edge` is in the journal. update: it was one."""
        if update and self._allowed:
            self._trusted.add(edge)

    def refused(self, edge: str) -> None:
        """Note that a message of `edge` was refused, and forget what is here of it."""
        self._trusted.discard(edge)
        self.forget(edge)

    def begin_anew(self) -> None:
        """Forget what was begun before the store was taken over, which has deleted it."""
        self._begun.clear()
        self._bytes = 0

    def more(self, edge: str, begun: memoryview) -> None:
        """Hand on what has come of the edge's present message, from its first byte on."""
        staged = self._begun.get(edge)
        if staged is not None and staged.memory() is not begun.obj:
            self.forget(edge)
            return
        if edge not in self._trusted or not begun:
            return
        if staged is None:
            stage = self._store.stage()
            if stage is None:
                return
            staged = self._begun[edge] = _Staged(weakref.ref(begun.obj), stage)
        new = len(begun) - staged.size
        if self._bytes + new <= TOTAL_BYTES:
            staged.size = len(begun)
            self._bytes = self._bytes + new
            staged.stage.grow(begun)

    def take(self, edge: str, envelope: wire.Whole) -> Stage | None:
        """Return where the beginning of `envelope` is, which goes into the journal now."""
        staged = self._begun.get(edge)
        if staged is None or staged.memory() is not envelope:
            return None
        self._bytes -= staged.size
        return self._begun.pop(edge).stage

    def forget(self, edge: str) -> None:
        """Delete what is here of `edge`, as that message will not become an entry soon."""
        staged = self._begun.pop(edge, None)
        if staged is not None:
            self._trusted.discard(edge)
            self._bytes -= staged.size
            staged.stage.drop()

    def close(self) -> None:
        """Delete all that is here, as no entries follow. Idempotent."""
        for edge in list(self._begun):
            self.forget(edge)
        self._trusted.clear()
