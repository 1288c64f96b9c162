"""Snapshots, written beside the driver in a thread of its own.

What may change is copied at once; the rest, which takes time, follows in the thread. One is under
way at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

from torch import Tensor

from tacit.algorithms.base.records import Dump
from tacit_services.journal import snapshot_file
from tacit_services.journal.store import Pieces, Saver, Snapshot

_PLACE = "\0edges"  # of the edges, in what is written down at once


def draft(
    tensors: dict[str, Tensor], role: dict[str, Any], more: dict[str, Any]
) -> Callable[[], Pieces]:
    """Return a call that gives what snapshot_file.dumps would give now.

    Any thread may make the call; it copies no tensor.

    tensors, role: a role's state. Nothing may be written into the tensors.
    """
    edges: Dump = role["edges"]
    frame = json.dumps({"role": role | {"edges": _PLACE}, **more})
    return lambda: Pieces(*snapshot_file.pieces(tensors, _filled(frame, edges)))


def _filled(frame: str, edges: Dump) -> str:
    # Only a key can be followed by a colon: what somebody has named has its quotes escaped.
    head, tail = frame.split(f'"edges": {json.dumps(_PLACE)}', 1)
    return f'{head}"edges": {{{edges.text()}}}{tail}'


class Saving:
    """The thread that stores one run's snapshots."""

    def __init__(self, thread: Executor | None = None) -> None:
        """thread: does the storing; None: one that this object starts."""
        self._thread = ThreadPoolExecutor(1, "snapshots") if thread is None else thread
        self._under_way: Future[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether one was begun whose end was not asked for."""
        return self._under_way is not None

    def begin(self, saver: Saver, cursor: int, build: Callable[[], bytes | Pieces]) -> None:
        """Store what `build` gives; not while one is under way."""
        assert self._under_way is None
        self._under_way = self._thread.submit(lambda: saver.save(Snapshot(cursor, build())))

    def ended(self, *, wait: bool = False) -> bool:
        """Return whether one has ended since this was last asked; wait: for the one under way.

        Raises what it raised: Fenced, ServiceError.
        """
        under_way = self._under_way
        if under_way is None or not (wait or under_way.done()):
            return False
        try:
            under_way.result()
        finally:
            self._under_way = None
        return True

    def close(self) -> None:
        """Wait for the one under way, and end the thread. Idempotent."""
        self._thread.shutdown()
