"""The store contract in Redis >= 7.0 or Valkey.

The journal is a stream; entry ids are `{position}-0`. Large payloads lie beside it
(redis_large.py).

Every write is one atomic unit on the server. Nothing is ever retried here: a retried append that
had been applied the first time would answer DUPLICATE, which its caller could not tell from a real
one. So a lost connection raises ServiceError, and the caller opens the run again and reads back
what was accepted. The new epoch also fences the lost command, should it still sit in the server's
socket.

How much an accepted message survives is the server's setting: `appendonly yes` and `appendfsync
always`, or `open` warns. `everysec` is less than its name promises. While the fsync of the second
before is under way, the server delays even the write, for up to two seconds. It answers all the
same (flushAppendOnlyFile). Then a slow disk and kill -9, and not only a power cut, lose accepted
messages. `max_bytes` of all runs, and 256 MiB of updates on their way for each, must fit well below
`maxmemory`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis
import xxhash

from tacit import errors
from tacit_services.journal.store import append_rules, redis_client, redis_large, redis_scripts
from tacit_services.journal.store.base import (
    Anchor,
    Appended,
    NewEntry,
    Saver,
    Snapshot,
    Stage,
    StoredEntry,
    Verdict,
)
from tacit_services.journal.store.redis_line import RedisStage, WriteLine

log = logging.getLogger("tacit.store")
_FORMAT = 2  # of a run's keys; 1 (which wrote none) had no large payloads
_ANCHORS = "tacit:anchors"  # one for all runs, so a cluster of several nodes cannot hold them
_REPLY_S = 30.0  # a slow disk under `appendfsync always`, or a snapshot of hundreds of MB


class RedisStore:
    """One run on the server at `url` (redis://, rediss:// or unix://).

    It connects at the first use. A server that is silent for `reply_s` seconds counts as lost.
    """

    def __init__(
        self, url: str, run: str, limits: append_rules.JournalLimits, reply_s: float = _REPLY_S
    ) -> None:
        self._url = url
        self._display_url = redis_client.without_password(url)
        self._reply_s = reply_s
        self._run = run
        self._limits = limits
        self._epoch = 0
        self._last_position = 0  # the last position that an append of this process was given
        keys = [
            f"tacit:{{{run}}}:{name}" for name in ("journal", "meta", "seq", "snapshot", "large")
        ]
        self._journal, self._meta, self._seq, self._snapshot, self._large = keys
        self._staged = 0  # lists of pieces that this process has begun
        # Any: redis-py leaves execute_command untyped.
        self._client: Any = redis_client.connected_later(url, self._display_url, reply_s)
        self._line = WriteLine(self._client)

    def open(self, fingerprint: str) -> int:
        """See base.Store.open."""
        self._refuse_eviction()
        keys = (self._meta, self._journal, self._snapshot, self._seq, self._large)
        epoch, stored, present, due = self._call(
            "EVAL", redis_scripts.OPEN, len(keys), *keys, _FORMAT, fingerprint
        )
        if epoch == -2:
            reason = errors.other_format(int(stored), _FORMAT)
            raise errors.ConfigError(f"store: {self._display_url}: run {self._run!r} {reason}")
        if epoch == -3:
            raise append_rules.lost(self._display_url, self._run)
        if epoch == -1:
            raise append_rules.incomplete(self._display_url, self._run, present, due)
        if epoch == 0:
            raise append_rules.other_parameters(self._run, stored.decode(), fingerprint)
        self._epoch = int(epoch)
        self._line.begin_anew()
        if weak := self._forgetful():
            log.warning(
                "store: %s: %s: a receipted update may be lost if the server is killed",
                self._display_url,
                weak,
            )
        return self._epoch

    def _forgetful(self) -> str:
        """Return the settings by which the server answers before all is on disk; "": none.

        It is "", too, where the server does not let us read its settings.
        """
        safe = {"appendonly": "yes", "appendfsync": "always"}
        settings = self._settings("append*")
        return ", ".join(
            f"{name} {settings[name]}"
            for name, good in safe.items()
            if settings.get(name, good) != good
        )

    def _refuse_eviction(self) -> None:
        """Raise ConfigError where the server may throw our keys away to make room for others."""
        policy = self._settings("maxmemory-policy").get("maxmemory-policy", "noeviction")
        if policy.startswith("allkeys"):
            raise errors.ConfigError(
                f"store: {self._display_url}: maxmemory-policy={policy} throws accepted messages "
                "away when memory is full; set it to noeviction"
            )
        if policy != "noeviction":
            log.warning(
                "store: %s: maxmemory-policy=%s; noeviction is meant", self._display_url, policy
            )

    def _settings(self, pattern: str) -> dict[str, str]:
        """Return the server's settings of these names, as far as it lets us read them."""
        try:
            values: dict[str, str] = self._client.config_get(pattern)
        # A hosted server keeps CONFIG to itself; a server that is lost shows at once.
        except (redis.RedisError, OSError):
            return {}
        return values

    def append(self, entries: Sequence[NewEntry]) -> list[Appended]:
        """See base.Store.append."""
        return self.begin(entries)()

    def begin(self, entries: Sequence[NewEntry]) -> Callable[[], list[Appended]]:
        """See base.Store.begin.

        One script appends all entries: they are written together or not at all.
        """
        for entry in entries:
            append_rules.check_numbers(entry.edge, entry.seq, entry.anchor)
        if not entries:
            return list
        answer = self._written(self._commands(entries))
        return lambda: self._appended(answer())

    def stage(self) -> Stage:
        """See base.Store.stage."""
        key = self._new_list()
        return RedisStage(self._line, key, self._begin(key), redis_large.end(key, self._large))

    def _appended(self, rows: Any) -> list[Appended]:
        if not rows:
            raise append_rules.fenced(self._run, self._epoch)
        if rows[0][0] == b"lost":
            raise append_rules.lost(self._display_url, self._run)
        self._last_position = max(self._last_position, *(position for _, position, _ in rows))
        return [
            Appended(Verdict(verdict.decode()), position, last) for verdict, position, last in rows
        ]

    def _commands(self, entries: Sequence[NewEntry]) -> list[list[Any]]:
        """Return the commands that stage large payloads, and the script that appends all."""
        limits = (self._limits.entries, self._limits.bytes)
        staged = list[list[Any]]()
        lists = list[str]()
        arguments: list[Any] = [self._epoch, *limits, self._last_position]
        for entry in entries:
            payload = entry.payload
            key = ""
            elements = 0
            if len(payload) > redis_large.LARGE:
                key = self._listed(entry, staged)
                elements = redis_large.elements(payload)
                lists.append(key)
            anchor = entry.anchor or Anchor("", 0, b"")
            check = xxhash.xxh3_64_digest(payload)
            arguments += [entry.edge, entry.seq, b"" if key else payload]
            arguments += [
                anchor.lineage,
                anchor.count,
                anchor.head,
                check,
                key,
                elements,
                len(payload),
            ]
        keys = (self._journal, self._meta, self._seq, _ANCHORS, self._large, *lists)
        return [*staged, ["EVAL", redis_scripts.APPEND, len(keys), *keys, *arguments]]

    def _listed(self, entry: NewEntry, commands: list[list[Any]]) -> str:
        """Return the list for an entry's payload; `commands` are given what it still lacks."""
        stage = entry.stage
        if isinstance(stage, RedisStage) and (remaining := stage.rest(entry.payload)) is not None:
            commands += remaining
            return stage.key
        key = self._new_list()
        commands += [self._begin(key), *redis_large.pieces(key, entry.payload)]
        return key

    def _new_list(self) -> str:
        self._staged += 1
        return f"{self._large}:{self._epoch}-{self._staged}"

    def _begin(self, key: str) -> list[Any]:
        return redis_large.begin(key, self._meta, self._large, self._epoch)

    def read(self, after: int, limit: int) -> list[StoredEntry]:
        """See base.Store.read."""
        rows = self._call(*self._range(after, limit))
        # The server answers a COUNT of 0 with None.
        return [self._record(entry_id, fields) for entry_id, fields in rows or ()]

    def _range(self, after: int, limit: int) -> tuple[Any, ...]:
        return "XRANGE", self._journal, max(after, 0) + 1, "+", "COUNT", max(limit, 0)

    def replay(self, after: int, page: int) -> Iterator[StoredEntry]:
        """See base.Store.replay.

        The server prepares the next page while the caller works on this one.

        So neither waits, and there is no second thread with which the caller would share the
        interpreter.
        """
        pool = self._client.connection_pool
        with self._service():
            connection = pool.get_connection()
            try:
                connection.send_command(*self._range(after, page))
                while rows := connection.read_response():
                    connection.send_command(*self._range(_position(rows[-1][0]), page))
                    for entry_id, fields in rows:
                        yield self._record(
                            entry_id, dict(zip(fields[::2], fields[1::2], strict=True))
                        )
            finally:
                connection.disconnect()  # a further answer may be on its way
                pool.release(connection)

    def _record(self, entry_id: bytes, fields: dict[bytes, bytes]) -> StoredEntry:
        """Return the entry with this id, checked with XXH3.

        XXH3 takes a fifth of the time of the SHA-256 inside the envelope, and covers the whole
        payload, not only its tensor.
        """
        position = _position(entry_id)
        with self._unaltered(f"entry {position}"):
            payload = self._payload(fields)
            if fields[b"check"] != xxhash.xxh3_64_digest(payload):
                raise ValueError("checksum")
            return StoredEntry(
                position, fields[b"edge"].decode(), int(fields[b"seq"]), payload, checked=True
            )

    def _payload(self, fields: dict[bytes, bytes]) -> bytes:
        if (key := fields.get(b"large")) is None:
            return fields[b"payload"]
        return b"".join(self._call("LRANGE", key, 0, -1))

    def save(self, snapshot: Snapshot) -> None:
        """See base.Store.save."""
        keys = (self._journal, self._meta, self._snapshot, self._large)
        arguments = (self._epoch, snapshot.cursor, snapshot.state)
        command = ("EVAL", redis_scripts.SAVE, len(keys), *keys, *arguments)
        status, stored, position = self._written([command])()
        if status == b"fenced":
            raise append_rules.fenced(self._run, self._epoch)
        append_rules.check_cursor(snapshot.cursor, stored, position)

    def saver(self) -> Saver:
        """See base.Store.saver."""
        store = RedisStore(self._url, self._run, self._limits, self._reply_s)
        store._epoch = self._epoch
        return store

    def snapshot(self) -> Snapshot | None:
        """See base.Store.snapshot."""
        cursor, state = self._call("HMGET", self._snapshot, "cursor", "state")
        with self._unaltered("snapshot"):
            if cursor is None:
                return None
            return Snapshot(int(cursor), state)

    def depth(self) -> tuple[int, int]:
        """See base.Store.depth."""
        entries, size = self._call("EVAL", redis_scripts.DEPTH, 2, self._journal, self._meta)
        return entries, size

    def duplicates(self) -> int:
        """See base.Store.duplicates."""
        with self._unaltered("duplicates"):
            return int(self._call("HGET", self._meta, "duplicates") or 0)

    def last_seqs(self) -> dict[str, int]:
        """See base.Store.last_seqs."""
        stored = self._call("HGETALL", self._seq)
        with self._unaltered("seq"):
            return {edge.decode(): int(seq) for edge, seq in stored.items()}

    def empty(self, fingerprint: str) -> None:
        """See base.Store.empty."""
        keys = (self._meta, self._journal, self._snapshot, self._seq, self._large)
        stored = self._call("EVAL", redis_scripts.EMPTY, len(keys), *keys, fingerprint).decode()
        if stored != fingerprint:
            raise append_rules.other_parameters(self._run, stored, fingerprint)
        self._last_position = 0

    def anchors(self) -> dict[str, Anchor]:
        """See base.Store.anchors."""
        anchors = {}
        stored = self._call("HGETALL", _ANCHORS)
        with self._unaltered("anchors"):
            for name, value in stored.items():
                count, _, head = value.partition(b" ")
                anchors[name.decode()] = Anchor(name.decode(), int(count), head)
        return anchors

    def close(self) -> None:
        """See base.Store.close."""
        self._line.close()
        self._client.close()

    def _written(self, commands: Sequence[Sequence[Any]]) -> Callable[[], Any]:
        """Send commands that write; return a call that gives the answer to the last."""
        with self._service():
            self._line.send(commands)
        answer = self._line.answer()

        def read() -> Any:
            with self._service():
                return answer()

        return read

    def _call(self, *command: Any) -> Any:
        with self._service():
            return self._client.execute_command(*command)

    @contextmanager
    def _unaltered(self, what: str) -> Iterator[None]:
        """Raise WireError for values that this class never writes: they are damaged, or forged."""
        try:
            yield
        except (KeyError, ValueError) as error:
            raise append_rules.altered(self._display_url, self._run, what) from error

    @contextmanager
    def _service(self) -> Iterator[None]:
        try:
            yield
        except (redis.RedisError, OSError) as error:
            raise errors.ServiceError(
                f"store: {self._display_url}: {redis_client.reason(error)}"
            ) from error


def _position(entry_id: bytes) -> int:
    return int(entry_id.partition(b"-")[0])
