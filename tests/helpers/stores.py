"""The store contract's backends for tests.

Handles on one place, and what a reader sees there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tacit_services.journal.store import Appended, NewEntry, Store
from tacit_services.journal.store.append_rules import JournalLimits
from tacit_services.journal.store.memory import MemoryRun, MemoryStore
from tacit_services.journal.store.postgres_store import PostgresStore
from tacit_services.journal.store.redis_store import RedisStore
from tacit_services.journal.store.sqlite import SqliteStore

ROOMY = JournalLimits(entries=1000, bytes=1 << 30)
ALL_BYTES_1_MIB = bytes(range(256)) * 4096
Connect = Callable[..., Store]  # (run="run", limits=ROOMY) -> another store handle on the same data


def connector(backend: str, location: str, stack: ExitStack) -> Connect:
    """Return a function that opens a store: at a file path, a server's URL, or (memory) in a dict.

    `stack` closes what it opens.
    """
    shared: dict[str, MemoryRun] = {}

    def connect(run: str = "run", limits: JournalLimits = ROOMY) -> Store:
        store: Store
        if backend == "memory":
            store = MemoryStore(run, limits, shared)
        elif backend == "sqlite":
            store = SqliteStore(Path(location), run, limits)
        elif backend == "postgresql":
            store = PostgresStore(location, run, limits)
        else:
            store = RedisStore(location, run, limits)
        stack.callback(store.close)
        return store

    return connect


def entries(edge: str, *seqs: int, size: int = 10) -> list[NewEntry]:
    return [NewEntry(edge, seq, bytes([seq % 256]) * size) for seq in seqs]


def verdicts(answers: list[Appended]) -> list[str]:
    return [answer.verdict.value for answer in answers]


def contents(store: Store, lineages: str = "") -> tuple[object, ...]:
    """Return everything that a reader can see; of the anchors only `lineages`, a prefix."""
    anchors = {
        name: anchor for name, anchor in store.anchors().items() if name.startswith(lineages)
    }
    return store.read(0, 10_000), store.snapshot(), store.depth(), store.last_seqs(), anchors


def lists(client: Any) -> list[str]:
    """Return the lists of pieces of run "run" in a Redis; the run must know all of them."""
    keys = sorted(key.decode() for key in client.scan_iter("tacit:{run}:large:*"))
    assert keys == sorted(key.decode() for key in client.zrange("tacit:{run}:large", 0, -1))
    return keys
