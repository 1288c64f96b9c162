"""The store contract in Redis >= 7.0 or Valkey, one server or those of a Sentinel.

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
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import redis
import xxhash

from tacit import errors
from tacit_services.journal.store import (
    append_rules,
    redis_client,
    redis_large,
    redis_scripts,
    redis_sentinel,
)
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
R = TypeVar("R")
_FORMAT = 2  # of a run's keys; 1 (which wrote none) had no large payloads
_ANCHORS = "tacit:anchors"  # one for all runs, so a cluster of several nodes cannot hold them
_REPLY_S = 30.0  # a slow disk under `appendfsync always`, or a snapshot of hundreds of MB


class RedisStore:
    """One run on the server at `url` (redis://, rediss://, unix:// or redis+sentinel://).

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
        self._known = append_rules.Known()
        keys = [
            f"tacit:{{{run}}}:{name}" for name in ("journal", "meta", "seq", "snapshot", "large")
        ]
        self._journal, self._meta, self._seq, self._snapshot, self._large = keys
        self._staged = 0  # lists of pieces that this process has begun
        # Any: redis-py leaves execute_command untyped.
        self._client: Any
        self._copies: redis_sentinel.Copies | None = None
        if url.startswith(f"{redis_sentinel.SCHEME}:"):
            self._client, self._copies = redis_sentinel.connected_later(
                url, self._display_url, reply_s
            )
        else:
            self._client = redis_client.connected_later(url, self._display_url, reply_s)
        self._line = WriteLine(self._client)

    def open(self, fingerprint: str) -> int:
        """See base.Store.open."""
        self._refuse_eviction()
        keys = (self._meta, self._journal, self._snapshot, self._seq, self._large)
        (epoch, stored, present, due), copied = self._call_and_copy(
            "EVAL", redis_scripts.OPEN, len(keys), *keys, _FORMAT, fingerprint, self._epoch_step()
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
        copied()
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
        answer = self._written(self._commands(entries), self._appended)

        def answers() -> list[Appended]:
            appended = answer()
            self._known.heard(appended)
            return appended

        return answers

    def stage(self) -> Stage:
        """See base.Store.stage."""
        key = self._new_list()
        return RedisStage(self._line, key, self._begin(key), redis_large.end(key, self._large))

    def _appended(self, rows: Any) -> list[Appended]:
        if not rows:
            raise append_rules.fenced(self._run, self._epoch)
        if rows[0][0] == b"lost":
            raise append_rules.lost(self._display_url, self._run)
        return [
            Appended(Verdict(verdict.decode()), position, last) for verdict, position, last in rows
        ]

    def _commands(self, entries: Sequence[NewEntry]) -> list[list[Any]]:
        """Return the commands that stage large payloads, and the script that appends all."""
        limits = (self._limits.entries, self._limits.bytes)
        staged = list[list[Any]]()
        lists = list[str]()
        arguments: list[Any] = [self._epoch, *limits, self._known.position]
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
        confirmed = self._known.position

        def check(answer: Any) -> None:
            status, stored, position = answer
            if status == b"fenced":
                raise append_rules.fenced(self._run, self._epoch)
            if position < confirmed:
                raise append_rules.lost(self._display_url, self._run)
            append_rules.check_cursor(snapshot.cursor, stored, position)

        self._written([command], check)()

    def saver(self) -> Saver:
        """See base.Store.saver."""
        store = RedisStore(self._url, self._run, self._limits, self._reply_s)
        store._epoch = self._epoch
        store._known = self._known
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
        stored, copied = self._call_and_copy(
            "EVAL", redis_scripts.EMPTY, len(keys), *keys, fingerprint, self._epoch_step()
        )
        if stored.decode() != fingerprint:
            raise append_rules.other_parameters(self._run, stored.decode(), fingerprint)
        copied()
        self._known.position = 0

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

    def _epoch_step(self) -> int:
        """Return how far an `open` moves the epoch.

        A fail-over may forget one. Two processes that both opened the run, on either side of it,
        have the same epoch only by a chance of one in two thousand million.
        """
        if self._copies is None:
            return 1
        return 1 + secrets.randbelow(1 << 31)

    def _written(
        self, commands: Sequence[Sequence[Any]], check: Callable[[Any], R]
    ) -> Callable[[], R]:
        """Send commands that write.

        Return a call that gives what `check` makes of the last answer, once replicas have all.
        """
        with self._service():
            self._line.send(commands)
            answer = self._line.answer()
            copied = self._copied_on_line()

        def read() -> R:
            with self._service():
                raw = answer()
            result = check(raw)
            copied()
            return result

        return read

    def _copied_on_line(self) -> Callable[[], None]:
        """Return a call that waits until replicas have all that was sent on the line."""
        if self._copies is None:
            return _nothing
        self._line.send([self._copies.command])
        answer = self._line.answer()

        def copied() -> None:
            with self._service():
                count = answer()
            self._check_copies(count)

        return copied

    def _call_and_copy(self, *command: Any) -> tuple[Any, Callable[[], None]]:
        """Call a script that writes.

        Return its answer, and a call that raises ServiceError where replicas do not have it.
        """
        copies = self._copies
        if copies is None:
            return self._call(*command), _nothing
        with self._service(), self._client.pipeline(transaction=False) as both:
            both.execute_command(*command)
            both.execute_command(*copies.command)
            answer, count = both.execute()
        return answer, lambda: self._check_copies(count)

    def _check_copies(self, count: int) -> None:
        """Raise ServiceError where too few replicas have a write: who is primary is asked anew."""
        if self._copies is None:
            return
        try:
            self._copies.check(self._display_url, count)
        except errors.ServiceError:
            self._line.give_up()
            self._client.connection_pool.disconnect()
            raise

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


def _nothing() -> None:
    """Do nothing: a single server has nobody to wait for."""


def _position(entry_id: bytes) -> int:
    return int(entry_id.partition(b"-")[0])
