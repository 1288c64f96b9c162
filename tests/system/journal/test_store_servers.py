"""The stores over real servers and files: killed, restarted, full, hanging, or of somebody else."""

from __future__ import annotations

import itertools
import os
import resource
import shutil
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from tacit_services.journal.store import (
    Appended,
    NewEntry,
    Snapshot,
    Store,
    Verdict,
    open_store,
    redis_large,
)
from tacit_services.journal.store.redis_store import RedisStore
from tacit_services.journal.store.sqlite import SqliteStore

from tacit import errors
from tacit.errors import OF_0_1
from tests.helpers.forked import Forked
from tests.helpers.servers import HOST, RedisServer, free_port, redis_server, wait_for
from tests.helpers.stores import (
    ALL_BYTES_1_MIB,
    ROOMY,
    connector,
    contents,
    entries,
    lists,
    verdicts,
)

# --- Redis: restarts and refusals ---


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RedisServer]:
    """Yield a Redis that the test may kill or fill."""
    with redis_server(tmp_path, "--unixsocket", str(tmp_path / "s")) as running:
        yield running


def test_redis_killed_and_restarted_keeps_every_accepted_entry(own_server: RedisServer) -> None:
    with ExitStack() as stack:
        connect = connector("redis", own_server.url, stack)
        store = connect()
        store.open("f")
        for seq in range(1, 40):
            store.append(entries("a", 2 * seq - 1, 2 * seq, size=5000))
            if seq % 10 == 0:
                store.save(Snapshot(2 * seq - 5, str(seq).encode()))
        before = contents(store)
        own_server.kill()
        with pytest.raises(errors.ServiceError) as refusal:
            store.append(entries("a", 79))
        assert "\n" not in str(refusal.value)
        assert own_server.url in str(refusal.value)
        own_server.restart()
        assert contents(connect()) == before
        assert store.open("f") == 2  # the same handle, after its connection was lost
        assert store.append(entries("a", 78, 79)) == [
            Appended(Verdict.DUPLICATE, 0, 78),
            Appended(Verdict.ACCEPTED, 79, 79),
        ]


def test_a_redis_that_may_forget_is_named(
    own_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as stack, redis.Redis.from_url(own_server.url) as operator:
        store = connector("redis", own_server.url, stack)()
        store.open("f")
        assert caplog.messages == []
        operator.config_set("appendfsync", "everysec")
        store.open("f")
        assert "appendfsync everysec: a receipted update may be lost" in caplog.messages[-1]
        operator.config_set("appendonly", "no")
        store.open("f")
        assert "appendonly no, appendfsync everysec" in caplog.messages[-1]
        operator.acl_setuser("default", commands=["-config"])
        logged = len(caplog.messages)
        assert store.open("f") == 4  # nothing can be asked, nothing is said
        assert len(caplog.messages) == logged


ALTERED: list[dict[bytes, bytes]] = [  # what an entry's fields become; empty: they go
    {b"payload": b"\x01" * 9 + b"\x00"},
    {b"payload": b""},
    {b"check": b"short"},
    {b"edge": b"\xff"},
    {b"edge": b""},
    {b"seq": b"abc"},
]


def test_an_entry_that_was_altered_in_redis_is_refused(own_server: RedisServer) -> None:
    with (
        ExitStack() as stack,
        redis.Redis.from_url(own_server.url, decode_responses=False) as operator,
    ):
        store = connector("redis", own_server.url, stack)("run")
        store.open("f")
        store.append(entries("a", 1, 2))
        key = "tacit:{run}:journal"
        (_, row), _ = operator.xrange(key)
        assert [record.checked for record in store.read(0, 2)] == [True, True]
        for number, change in enumerate(({b"check": b""}, *ALTERED), 3):
            altered = {name: value for name, value in (row | change).items() if value}
            operator.xadd(key, altered, id=f"{number}-0")
            with pytest.raises(errors.WireError, match=f"entry {number} of run 'run' was altered"):
                store.read(number - 1, 1)
            with pytest.raises(errors.WireError, match=f"entry {number} of run 'run' was altered"):
                list(store.replay(number - 1, 1))


@pytest.mark.exhaustive
def test_a_server_that_dies_under_a_replay(own_server: RedisServer) -> None:
    with ExitStack() as stack:
        store = connector("redis", own_server.url, stack)("run")
        store.open("f")
        store.append([NewEntry("a", seq, bytes(1 << 20)) for seq in range(1, 60)])
        replay = store.replay(0, 10)
        assert next(replay).position == 1
        own_server.kill()
        with pytest.raises(errors.ServiceError):
            list(replay)
        own_server.start()
        assert [record.position for record in store.replay(0, 10)] == [*range(1, 60)]


@pytest.mark.parametrize("lost", [("1",), ("2",), ("4",), ("1", "2", "3", "4")])
def test_a_journal_without_all_of_its_entries_is_not_opened(
    own_server: RedisServer, lost: tuple[str, ...]
) -> None:
    with ExitStack() as stack, redis.Redis.from_url(own_server.url) as operator:
        store = connector("redis", own_server.url, stack)("run")
        store.open("f")
        store.append(entries("a", 1, 2, 3, 4, 5))
        store.save(Snapshot(1, b"one"))
        key = "tacit:{run}:journal"
        assert operator.xdel(key, *[f"{1 + int(number)}-0" for number in lost]) == len(lost)
        before = contents(store)
        complaint = f"run 'run' has {4 - len(lost)} entries behind its snapshot, 4 were accepted"
        with pytest.raises(errors.WireError, match=complaint):
            store.open("f")
        assert contents(store) == before
        assert verdicts(store.append(entries("a", 6))) == ["accepted"]  # the epoch is what it was


def test_values_that_redis_was_given_by_hand_are_one_line(own_server: RedisServer) -> None:
    with ExitStack() as stack, redis.Redis.from_url(own_server.url) as operator:
        store = connector("redis", own_server.url, stack)("run")
        store.open("f")
        operator.hset("tacit:{run}:snapshot", mapping={"cursor": "abc", "state": "x"})
        operator.hset("tacit:{run}:seq", "edge", "x")
        operator.hset("tacit:anchors", "lineage", "x y")
        operations: list[tuple[str, Callable[[], object]]] = [
            ("snapshot", store.snapshot),
            ("seq", store.last_seqs),
            ("anchors", store.anchors),
        ]
        for what, ask in operations:
            with pytest.raises(errors.WireError, match=f"{what} of run 'run' was altered"):
                ask()


def test_an_sqlite_file_without_all_of_its_entries_is_not_opened(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/s.db", "run")
    store.open("f")
    store.append(entries("a", 1, 2, 3))
    with sqlite3.connect(tmp_path / "s.db") as db:
        db.execute("DELETE FROM journal WHERE position = 2")
    with pytest.raises(
        errors.WireError, match="run 'run' has 2 entries behind its snapshot, 3 were accepted"
    ):
        store.open("f")
    store.close()


@pytest.mark.parametrize(
    ("number", "reason"), [("3", "a newer one has written it"), ("1", OF_0_1), (None, OF_0_1)]
)
def test_a_run_in_redis_of_another_format_is_refused_and_left_as_it_is(
    own_server: RedisServer, number: str | None, reason: str
) -> None:
    with (
        closing(RedisStore(own_server.url, "run", ROOMY)) as store,
        redis.Redis.from_url(own_server.url) as client,
    ):
        store.open("f")
        meta = "tacit:{run}:meta"
        assert client.hget(meta, "format") == b"2"
        client.hdel(meta, "format")  # 0.1 wrote none
        if number is not None:
            client.hset(meta, "format", number)
        before = client.hgetall(meta)
        with pytest.raises(errors.ConfigError) as refused:
            store.open("f")
        assert str(refused.value).endswith(
            f": run 'run' has format {number or 1}, this tacit reads 2: {reason}"
        )
        assert client.hgetall(meta) == before


LARGE = ALL_BYTES_1_MIB * 4 + b"the rest"


@contextmanager
def own_connection(store: RedisStore) -> Iterator[Any]:
    """Yield a connection of the store's, to send a part of what an append sends."""
    connection = store._client.connection_pool.get_connection()
    try:
        yield connection
    finally:
        connection.disconnect()
        store._client.connection_pool.release(connection)


def test_a_large_payload_in_redis_is_there_as_long_as_its_entry(own_server: RedisServer) -> None:
    with ExitStack() as stack, redis.Redis.from_url(own_server.url) as client:
        store = connector("redis", own_server.url, stack)("run")
        store.open("f")
        # Given a batch of a large payload, a small one, and a large one that comes again,
        batch = [NewEntry("a", 1, LARGE), NewEntry("b", 1, b"x"), NewEntry("a", 1, LARGE)]
        assert verdicts(store.append(batch)) == ["accepted", "accepted", "duplicate"]
        # then the first is kept, once, and counted with all its bytes,
        assert len(lists(client)) == 1
        assert store.depth() == (2, len(LARGE) + 1)
        reads = [store.read(0, 9), list(store.replay(0, 1))]
        assert [[entry.payload for entry in each] for each in reads] == [[LARGE, b"x"]] * 2
        # a changed piece is noticed,
        (key,) = lists(client)
        client.lset(key, 2, "other")  # the third element: the first is empty
        with pytest.raises(errors.WireError, match="entry 1 of run 'run' was altered"):
            store.read(0, 1)
        # and the snapshot behind it lets it go.
        store.append([NewEntry("a", 2, LARGE)])
        store.save(Snapshot(2, b"state"))
        (new_key,) = lists(client)
        assert new_key != key
        assert store.read(2, 1)[0].payload == LARGE


def test_pieces_of_any_size_in_redis_are_read(
    own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        store = connector("redis", own_server.url, stack)("run")
        store.open("f")
        for seq, size in enumerate((1 << 20, 1 << 18, 1 << 22), 1):
            monkeypatch.setattr(redis_large, "PIECE", size)
            assert verdicts(store.append([NewEntry("a", seq, LARGE)])) == ["accepted"]
        monkeypatch.undo()
        assert [entry.payload for entry in store.read(0, 9)] == [LARGE] * 3


def test_what_a_writer_before_has_staged_in_redis_is_dropped(own_server: RedisServer) -> None:
    with ExitStack() as stack, redis.Redis.from_url(own_server.url) as client:
        connect = connector("redis", own_server.url, stack)
        old, new = connect("run"), connect("run")
        assert isinstance(old, RedisStore)
        old.open("f")
        # Given a writer that dies while its payload is under way,
        commands = old._commands([NewEntry("a", 1, LARGE)])
        with own_connection(old) as connection:
            redis_large.send(connection, commands[:2])
            redis_large.read(connection, 2)
            assert len(lists(client)) == 1
            # when the next takes over, then it is gone; what comes late leaves nothing,
            new.open("f")
            assert not lists(client)
            redis_large.send(connection, commands[2:])
            assert redis_large.read(connection, len(commands) - 2) == []
        # and so does a whole append under the old epoch.
        with pytest.raises(errors.Fenced):
            old.append([NewEntry("a", 1, LARGE)])
        assert not lists(client)
        assert verdicts(new.append([NewEntry("a", 1, LARGE)])) == ["accepted"]


def test_a_large_payload_that_lacks_a_piece_is_refused(own_server: RedisServer) -> None:
    with ExitStack() as stack:
        store = connector("redis", own_server.url, stack)("run")
        assert isinstance(store, RedisStore)
        store.open("f")
        commands = store._commands([NewEntry("b", 1, b"x"), NewEntry("a", 1, LARGE)])
        del commands[2]
        with own_connection(store) as connection:
            redis_large.send(connection, commands)
            with pytest.raises(redis.ResponseError, match="not come in whole"):
                redis_large.read(connection, len(commands))
        # Nothing of the batch was written.
        assert store.depth() == (0, 0)
        assert store.last_seqs() == {}


def test_redis_killed_in_the_middle_keeps_whole_batches(own_server: RedisServer) -> None:
    accepted: list[int] = []

    def append_until_lost(store: Store) -> None:
        for first in itertools.count(1, 5):
            try:
                store.append(entries("a", *range(first, first + 5), size=20_000))
            except errors.ServiceError:
                return
            accepted.append(first + 4)

    with ExitStack() as stack:
        store = connector("redis", own_server.url, stack)()
        store.open("f")
        writer = threading.Thread(target=append_until_lost, args=[store])
        writer.start()
        wait_for(lambda: len(accepted) >= 20)
        own_server.kill()
        writer.join()
        own_server.restart()
        store.open("f")
        seqs = [record.seq for record in store.read(0, 10_000)]
        # The batch in flight may be there, but then all of it.
        assert seqs in [list(range(1, accepted[-1] + 1 + extra)) for extra in (0, 5)]
        assert store.depth() == (len(seqs), 20_000 * len(seqs))
        assert store.last_seqs() == {"a": seqs[-1]}


def test_redis_that_hangs_is_lost_and_a_late_append_is_there_once_or_not_at_all(
    own_server: RedisServer,
) -> None:
    with ExitStack() as stack:
        store = RedisStore(own_server.url, "run", ROOMY, reply_s=3.0)
        stack.callback(store.close)
        store.open("f")
        os.kill(own_server.pid, signal.SIGSTOP)
        try:
            with pytest.raises(errors.ServiceError, match=r"(?i)timeout"):
                store.append(entries("a", 1))
        finally:
            os.kill(own_server.pid, signal.SIGCONT)
        assert store.open("f") == 2
        stored = store.read(0, 10)
        assert verdicts(store.append(entries("a", 1))) == ["duplicate" if stored else "accepted"]
        assert [record.seq for record in store.read(0, 10)] == [1]


def test_redis_append_survives_a_script_flush(own_server: RedisServer) -> None:
    with ExitStack() as stack:
        store = connector("redis", own_server.url, stack)("flushed")
        client = stack.enter_context(redis.Redis.from_url(own_server.url))
        store.open("f")
        for seq in range(1, 4):
            client.script_flush()
            assert verdicts(store.append(entries("a", seq))) == ["accepted"]


def test_redis_full_refuses_the_whole_batch_in_one_line(own_server: RedisServer) -> None:
    with ExitStack() as stack:
        store = connector("redis", own_server.url, stack)()
        client = stack.enter_context(redis.Redis.from_url(own_server.url))
        store.open("f")
        store.append(entries("a", 1))
        before = contents(store)
        client.config_set("maxmemory", "1mb")
        with pytest.raises(errors.ServiceError, match="out of memory: raise maxmemory") as refusal:
            store.append([NewEntry("a", 2, ALL_BYTES_1_MIB), NewEntry("a", 3, b"")])
        assert "\n" not in str(refusal.value)
        with pytest.raises(errors.ServiceError, match="out of memory"):
            store.save(Snapshot(1, b"state"))
        assert contents(store) == before
        client.config_set("maxmemory", "0")
        assert verdicts(store.append(entries("a", 2, 3))) == ["accepted"] * 2


def test_redis_back_without_its_last_entries_takes_no_more(
    own_server: RedisServer, tmp_path: Path
) -> None:
    # Between two appends, the client connects again without a word.
    with ExitStack() as stack:
        store = connector("redis", own_server.url, stack)()
        store.open("f")
        for seq in range(1, 6):
            store.append(entries("a", seq, size=5000))
        own_server.kill()
        (newest,) = tmp_path.glob("appendonlydir/*.incr.aof")
        os.truncate(newest, newest.stat().st_size - 6000)
        own_server.restart()
        with pytest.raises(errors.StoreLost, match="has lost a part"):
            store.append(entries("a", 6, size=5000))
        assert store.last_seqs()["a"] < 5  # nothing was written


def test_redis_replica_and_wrong_type_are_told_in_one_line(own_server: RedisServer) -> None:
    with ExitStack() as stack:
        store = connector("redis", own_server.url, stack)()
        client = stack.enter_context(redis.Redis.from_url(own_server.url))
        store.open("f")
        client.set("tacit:{run}:journal", "not a stream")
        with pytest.raises(errors.ServiceError, match=r"^store: redis://.*WRONGTYPE.*$"):
            store.append(entries("a", 1))
        with pytest.raises(errors.ServiceError, match=r"^store: redis://.*WRONGTYPE.*$"):
            store.depth()
        client.delete("tacit:{run}:journal")
        client.replicaof(HOST, str(free_port()))
        with pytest.raises(errors.ServiceError, match=r"^store: redis://.*read-only replica.*$"):
            store.open("f")


def test_redis_over_a_unix_socket(own_server: RedisServer, tmp_path: Path) -> None:
    store = open_store(f"unix://{tmp_path}/s?db=0", "run")
    try:
        assert store.open("f") == 1
    finally:
        store.close()


def test_redis_unreachable_is_a_service_error_without_the_password() -> None:
    store = open_store(f"redis://me:secret@{HOST}:{free_port()}/0", "run")
    calls: list[Callable[[], object]] = [
        lambda: store.open("f"),
        lambda: store.read(0, 1),
        store.depth,
    ]
    calls.append(lambda: list(store.replay(0, 1)))
    for call in calls:
        with pytest.raises(errors.ServiceError) as refusal:
            call()
        assert "refused" in str(refusal.value)
        assert "\n" not in str(refusal.value)
        assert "secret" not in str(refusal.value)
    store.close()


# --- SQLite: files that cannot serve ---


def refused_open(path: Path) -> str:
    store = SqliteStore(path, "run", ROOMY, busy_s=0.05)
    with pytest.raises((errors.ServiceError, errors.ConfigError)) as refusal:
        store.open("f")
    store.close()
    return str(refusal.value)


def test_sqlite_on_unusable_paths_is_told_in_one_line(tmp_path: Path) -> None:
    text, foreign, folder = tmp_path / "text", tmp_path / "foreign.db", tmp_path / "folder"
    text.write_text("hello, this is not a database\n" * 200)
    folder.mkdir()
    with sqlite3.connect(foreign) as db:
        db.execute("CREATE TABLE run (x)")
    db.close()
    before = foreign.read_bytes()
    for path, why in [
        (text, "file is not a database"),
        (foreign, f"has no format, this tacit reads 3: {OF_0_1}"),
        (folder, "unable to open database file"),
        (tmp_path / "missing" / "store.db", "there is no such directory"),
        (text / "store.db", "there is no such directory"),
        (Path("/proc/store.db"), "unable to open database file"),
    ]:
        line = refused_open(path)
        assert line == f"store: sqlite file {path}: {why}" or line.endswith(why)
        assert str(path) in line
        assert "\n" not in line
    assert foreign.read_bytes() == before
    assert text.read_text().startswith("hello")


@pytest.mark.parametrize("number", [1, 2, 4])
@pytest.mark.parametrize("killed", [True, False])
def test_a_sqlite_file_of_another_format_is_refused_and_left_as_it_is(
    tmp_path: Path, number: int, killed: bool
) -> None:
    # Given a file that its last writer closed, or whose newest commits are in its log,
    path, template = tmp_path / "store.db", tmp_path / "made.db"
    with closing(sqlite3.connect(template)) as db:
        db.executescript("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;")
        db.executescript(f"CREATE TABLE run (run TEXT); PRAGMA user_version = {number};")
        for suffix in ("", "-wal", "-shm") if killed else ():
            shutil.copy(f"{template}{suffix}", f"{path}{suffix}")
    if not killed:
        shutil.copy(template, path)
    before = {file.name: file.read_bytes() for file in tmp_path.glob("store.db*")}
    # when a store is opened on it, then one line says so, and it is as it was.
    why = "a newer one has written it" if number > 3 else OF_0_1
    assert refused_open(path).endswith(f": has format {number}, this tacit reads 3: {why}")
    after = {file.name: file.read_bytes() for file in tmp_path.glob("store.db*")}
    assert after.keys() == before.keys()
    assert all(after[name] == before[name] for name in after if not name.endswith("-shm"))


WRITER = """
import sys
from tacit_services.journal.store import NewEntry, open_store
store = open_store(sys.argv[1], "run")
store.open("f")
for first in range(1, 100_000, 3):
    store.append([NewEntry("a", first + k, bytes(20_000)) for k in range(3)])
    print(first + 2, flush=True)
"""


def test_sqlite_writer_killed_in_the_middle_keeps_whole_batches(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with Forked(WRITER, url) as writer:
        for _ in range(10):
            assert writer.stdout.readline()
        writer.kill()
        acknowledged = [30, *map(int, writer.stdout.read().splitlines())][-1]
    store = open_store(url, "run")
    assert store.open("f") == 2
    seqs = [record.seq for record in store.read(0, 100_000)]
    assert seqs == list(range(1, len(seqs) + 1))
    assert len(seqs) % 3 == 0
    assert len(seqs) >= acknowledged
    assert store.depth() == (len(seqs), 20_000 * len(seqs))
    store.close()


def test_sqlite_held_by_another_process_is_told_and_then_works(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path, "run", ROOMY, busy_s=0.05)
    store.open("f")
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(errors.ServiceError, match="database is locked"):
        store.append(entries("a", 1))
    holder.execute("ROLLBACK")
    holder.close()
    assert verdicts(store.append(entries("a", 1))) == ["accepted"]
    store.close()


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Let no file of this process grow past `size` bytes, as SQLite sees it on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_sqlite_that_cannot_write_keeps_what_it_had(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", "run", ROOMY)
    store.open("f")
    store.append(entries("a", 1))
    before = contents(store)
    with (
        file_size_limit(256 * 1024),
        pytest.raises(errors.ServiceError, match=r"^store: sqlite file .*$"),
    ):
        store.append([*entries("a", 2), NewEntry("a", 3, ALL_BYTES_1_MIB)])
    assert contents(store) == before
    assert (
        verdicts(store.append([*entries("a", 2), NewEntry("a", 3, ALL_BYTES_1_MIB)]))
        == ["accepted"] * 2
    )
    store.close()
