"""Stores of a run behind one contract: in memory, SQLite, Redis or PostgreSQL."""

from __future__ import annotations

from pathlib import Path

from tacit import errors
from tacit_services.journal.store.append_rules import MAX_SEQ, JournalLimits
from tacit_services.journal.store.base import (
    Anchor,
    Appended,
    NewEntry,
    Pieces,
    Saver,
    Snapshot,
    Stage,
    Store,
    StoredEntry,
    Verdict,
)
from tacit_services.journal.store.memory import MemoryStore
from tacit_services.journal.store.sqlite import SqliteStore

__all__ = [
    "MAX_SEQ",
    "Anchor",
    "Appended",
    "NewEntry",
    "Pieces",
    "Saver",
    "Snapshot",
    "Stage",
    "Store",
    "StoredEntry",
    "Verdict",
    "open_store",
]


def open_store(url: str, run: str, *, max_entries: int = 4096, max_bytes: int = 1 << 30) -> Store:
    """Return the store of `run` at `url`.

    It connects at the first use; `open` takes the run over for writing.

    `url` is `memory://` (private to the returned object), `sqlite:///relative.db`,
    `sqlite:////absolute.db`, `redis://host:port/db`, `rediss://...`, `unix:///path/to/socket?db=0`,
    `redis+sentinel://host:port,host:port/name` or `postgresql://user@host:port/database`.
    `max_entries` and `max_bytes` (of payload) limit the journal: while it holds either or more, an
    append is BUSY. Raises ConfigError, naming the field, for a bad url, run name or limit.

    >>> store = open_store("memory://", "demo")
    >>> store.open(fingerprint="a run file's SHA-256")  # the first epoch
    1
    >>> [answer] = store.append([NewEntry("edge-0", seq=1, payload=b"a message")])
    >>> answer.verdict.value, answer.position
    ('accepted', 1)
    >>> [again] = store.append([NewEntry("edge-0", seq=1, payload=b"a message")])
    >>> again.verdict.value
    'duplicate'
    >>> [entry.payload for entry in store.read(after=0, limit=10)]
    [b'a message']
    >>> store.save(Snapshot(cursor=1, state=b"the model after entry 1"))  # trims the journal
    >>> store.depth()  # entries, bytes
    (0, 0)
    """
    # Braces would break the Redis hash tag `{run}` that keeps a run's keys on one cluster node.
    if not run or "{" in run or "}" in run:
        raise errors.ConfigError(f"run: {run!r} must be a name without braces")
    limits = JournalLimits(max_entries, max_bytes)
    scheme, _, address = url.partition("://")
    if scheme == "memory" and not address:
        return MemoryStore(run, limits)
    if scheme == "sqlite" and address.startswith("/") and address != "/":
        return SqliteStore(Path(address[1:]), run, limits)
    if scheme in ("redis", "rediss", "unix", "redis+sentinel"):
        # Imported here: it is slow to import, and a run on SQLite does without.
        from tacit_services.journal.store.redis_store import RedisStore

        return RedisStore(url, run, limits)
    if scheme == "postgresql":
        return _postgres(url, run, limits)
    raise errors.ConfigError(
        f"store: {url!r} is not memory://, sqlite:///path.db, redis://host:port/db, unix:///path, "
        "redis+sentinel://host:port,host:port/name or postgresql://user@host:port/database"
    )


def _postgres(url: str, run: str, limits: JournalLimits) -> Store:
    """Return the store in PostgreSQL, whose library is an extra of its own."""
    try:
        from tacit_services.journal.store.postgres_store import PostgresStore
    except ImportError as error:
        raise errors.ConfigError(
            "store: postgresql:// needs psycopg and libpq: pip install 'tacit[postgres]'"
        ) from error
    return PostgresStore(url, run, limits)
