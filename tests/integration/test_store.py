"""The store contract (services/runtime/store/base.py): one test class, three backends, real servers."""

from __future__ import annotations

import itertools
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.runtime.store import MAX_SEQ, Appended, Entry, Record, Snapshot, Store, Verdict, open_store
from services.runtime.store.memory import MemoryRun, MemoryStore
from services.runtime.store.redis_store import RedisStore, without_password
from services.runtime.store.rules import Limits
from services.runtime.store.sqlite import SqliteStore
from tacit import errors
from tests.integration.servers import HOST, RedisServer, free_port, redis_server, wait_for

ROOMY = Limits(entries=1000, bytes=1 << 30)
ALL_BYTES_1_MIB = bytes(range(256)) * 4096
Connect = Callable[..., Store]  # (run="run", limits=ROOMY) -> another store handle on the same data


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as running:
        yield running


def connector(backend: str, place: str, stack: ExitStack) -> Connect:
    """Handles on one place: a file path, a Redis URL, or (memory) a dict made here. `stack` closes them."""
    shared: dict[str, MemoryRun] = {}

    def connect(run: str = "run", limits: Limits = ROOMY) -> Store:
        store: Store
        if backend == "memory":
            store = MemoryStore(run, limits, shared)
        elif backend == "sqlite":
            store = SqliteStore(Path(place), run, limits)
        else:
            store = RedisStore(place, run, limits)
        stack.callback(store.close)
        return store

    return connect


@pytest.fixture(params=["memory", "sqlite", "redis"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connect]:
    """`connect` of each backend in turn, on empty data."""
    place = str(tmp_path / "store.db")
    if request.param == "redis":
        place = request.getfixturevalue("server").url
        with redis.Redis.from_url(place) as client:
            client.flushall()
    with ExitStack() as stack:
        yield connector(request.param, place, stack)


def entries(edge: str, *seqs: int, size: int = 10) -> list[Entry]:
    return [Entry(edge, seq, bytes([seq % 256]) * size) for seq in seqs]


def verdicts(answers: list[Appended]) -> list[str]:
    return [answer.verdict.value for answer in answers]


def contents(store: Store) -> tuple[object, ...]:
    """Everything that a reader can see."""
    return store.read(0, 10_000), store.snapshot(), store.depth(), store.last_seqs()


class TestContract:
    def test_a_fresh_run_is_empty(self, connect: Connect) -> None:
        store = connect()
        assert contents(store) == ([], None, (0, 0), {})
        assert store.open("f") == 1
        assert contents(store) == ([], None, (0, 0), {})

    def test_each_open_gives_the_next_epoch(self, connect: Connect) -> None:
        first, second = connect(), connect()
        assert [first.open("f"), second.open("f"), first.open("f")] == [1, 2, 3]

    def test_an_older_epoch_writes_nothing(self, connect: Connect) -> None:
        old, new = connect(), connect()
        old.open("f")
        old.append(entries("a", 1, 2))
        new.open("f")
        before = contents(new)
        with pytest.raises(errors.Fenced, match="newer aggregator"):
            old.append(entries("a", 3, 4))
        with pytest.raises(errors.Fenced):
            old.save(Snapshot(1, b"state"))
        assert contents(new) == before
        assert new.append(entries("a", 3)) == [Appended(Verdict.ACCEPTED, 3, 3)]

    def test_the_fence_comes_before_any_other_answer(self, connect: Connect) -> None:
        old, new = connect(), connect()
        old.open("f")
        old.append(entries("a", 1, 2))
        old.save(Snapshot(2, b""))
        new.open("f")
        with pytest.raises(errors.Fenced):
            old.append(entries("a", 1))  # else a duplicate
        with pytest.raises(errors.Fenced):
            old.save(Snapshot(1, b""))  # else a ValueError

    def test_an_older_epoch_may_read_and_take_over_again(self, connect: Connect) -> None:
        old, new = connect(), connect()
        old.open("f")
        new.open("f")
        new.append(entries("a", 1))
        assert contents(old) == contents(new)
        old.open("f")
        assert verdicts(old.append(entries("a", 2))) == ["accepted"]
        with pytest.raises(errors.Fenced):
            new.append(entries("a", 3))

    def test_a_handle_that_was_never_opened_cannot_write(self, connect: Connect) -> None:
        store = connect()
        for _ in range(2):  # the second time, the run exists
            with pytest.raises(errors.Fenced, match="not been opened"):
                store.append(entries("a", 1))
            with pytest.raises(errors.Fenced, match="not been opened"):
                store.save(Snapshot(0, b""))
            connect().open("f")
        assert contents(store) == ([], None, (0, 0), {})

    def test_another_fingerprint_is_refused_and_changes_nothing(self, connect: Connect) -> None:
        owner, other = connect(), connect()
        owner.open("f" * 64)
        owner.append(entries("a", 1))
        before = contents(owner)
        with pytest.raises(errors.ConfigError, match=r"run: 'run' is in the store with parameters f{12},"):
            other.open("0" * 64)
        assert contents(owner) == before
        assert verdicts(owner.append(entries("a", 2))) == ["accepted"]
        assert other.open("f" * 64) == 2

    def test_positions_count_accepted_messages_of_all_edges(self, connect: Connect) -> None:
        store = connect()
        store.open("f")
        assert store.append([*entries("a", 1), *entries("b", 1), *entries("a", 2)]) == [
            Appended(Verdict.ACCEPTED, 1, 1),
            Appended(Verdict.ACCEPTED, 2, 1),
            Appended(Verdict.ACCEPTED, 3, 2),
        ]
        assert store.append(entries("b", 2)) == [Appended(Verdict.ACCEPTED, 4, 2)]
        assert [(r.position, r.edge, r.seq) for r in store.read(0, 10)] == [
            (1, "a", 1),
            (2, "b", 1),
            (3, "a", 2),
            (4, "b", 2),
        ]

    def test_duplicates_write_nothing(self, connect: Connect) -> None:
        store = connect()
        store.open("f")
        store.append(entries("a", 1, 2))
        before = contents(store)
        assert store.append(entries("a", 1, 2)) == [Appended(Verdict.DUPLICATE, 0, 2)] * 2
        assert contents(store) == before

    def test_numbers_may_skip_but_never_fall(self, connect: Connect) -> None:
        store = connect()
        store.open("f")
        assert verdicts(store.append(entries("a", 1, 4, 3, 5))) == ["accepted", "accepted", "duplicate", "accepted"]

    @pytest.mark.parametrize("seq", [1, 7, MAX_SEQ])
    def test_a_new_edge_may_start_anywhere(self, connect: Connect, seq: int) -> None:
        store = connect()
        store.open("f")
        assert store.append(entries("a", seq)) == [Appended(Verdict.ACCEPTED, 1, seq)]
        assert store.append(entries("a", seq - 1, seq)) == [Appended(Verdict.DUPLICATE, 0, seq)] * 2
        assert store.read(0, 1)[0].seq == seq
        assert store.last_seqs() == {"a": seq}

    def test_sequence_number_zero_is_below_every_start(self, connect: Connect) -> None:
        store = connect()
        store.open("f")
        assert store.append(entries("a", 0)) == [Appended(Verdict.DUPLICATE, 0, 0)]
        assert store.last_seqs() == {}

    @pytest.mark.parametrize("seq", [-1, MAX_SEQ + 1, 2**64 - 1])
    def test_an_impossible_sequence_number_refuses_the_whole_call(self, connect: Connect, seq: int) -> None:
        store = connect()
        store.open("f")
        with pytest.raises(ValueError, match="outside"):
            store.append([Entry("a", 1, b""), Entry("b", seq, b"")])
        assert contents(store) == ([], None, (0, 0), {})

    def test_a_batch_sees_its_own_earlier_entries(self, connect: Connect) -> None:
        store = connect(limits=Limits(entries=3, bytes=1000))
        store.open("f")
        answers = store.append([*entries("a", 5, 5, 6), *entries("b", 1, 2), *entries("a", 6)])
        assert answers == [
            Appended(Verdict.ACCEPTED, 1, 5),
            Appended(Verdict.DUPLICATE, 0, 5),
            Appended(Verdict.ACCEPTED, 2, 6),
            Appended(Verdict.ACCEPTED, 3, 1),
            Appended(Verdict.BUSY, 0, 1),
            Appended(Verdict.DUPLICATE, 0, 6),
        ]
        assert store.depth() == (3, 30)
        assert store.append([]) == []

    def test_busy_by_count_until_a_save_makes_room(self, connect: Connect) -> None:
        store = connect(limits=Limits(entries=2, bytes=1000))
        store.open("f")
        assert verdicts(store.append(entries("a", 1, 2))) == ["accepted"] * 2
        before = contents(store)
        assert store.append(entries("a", 3)) == [Appended(Verdict.BUSY, 0, 2)]
        assert store.append(entries("b", 1)) == [Appended(Verdict.BUSY, 0, 0)]
        assert contents(store) == before
        store.save(Snapshot(1, b""))
        assert verdicts(store.append(entries("a", 3, 4))) == ["accepted", "busy"]
        assert store.read(0, 10)[-1].position == 3

    def test_busy_by_bytes_until_a_save_makes_room(self, connect: Connect) -> None:
        store = connect(limits=Limits(entries=1000, bytes=25))
        store.open("f")
        # At 20 bytes the journal is under its limit and takes 10 more; at 30 it takes not even 0.
        assert verdicts(store.append([*entries("a", 1, 2, 3), Entry("a", 4, b"")])) == [
            "accepted",
            "accepted",
            "accepted",
            "busy",
        ]
        assert store.depth() == (3, 30)
        store.save(Snapshot(1, b""))
        assert store.depth() == (2, 20)
        assert verdicts(store.append(entries("a", 4, 5))) == ["accepted", "busy"]

    def test_busy_at_exactly_the_limit_of_bytes(self, connect: Connect) -> None:
        store = connect(limits=Limits(entries=1000, bytes=20))
        store.open("f")
        assert verdicts(store.append(entries("a", 1, 2, 3))) == ["accepted", "accepted", "busy"]

    def test_a_duplicate_is_told_even_when_busy(self, connect: Connect) -> None:
        store = connect(limits=Limits(entries=1, bytes=1000))
        store.open("f")
        assert verdicts(store.append(entries("a", 1, 1, 2))) == ["accepted", "duplicate", "busy"]

    def test_reading_in_pages(self, connect: Connect) -> None:
        store = connect()
        store.open("f")
        store.append(entries("a", *range(1, 8)))
        everything = store.read(0, 100)
        assert [record.position for record in everything] == [1, 2, 3, 4, 5, 6, 7]
        assert everything[0] == Record(1, "a", 1, bytes([1]) * 10)
        assert store.read(0, 3) + store.read(3, 3) + store.read(6, 3) == everything
        assert store.read(7, 3) == store.read(99, 3) == []
        assert store.read(0, 0) == store.read(0, -1) == []
        assert store.read(-5, 2) == everything[:2]

    def test_save_trims_up_to_its_cursor(self, connect: Connect) -> None:
        store = connect()
        store.open("f")
        for seq in range(1, 6):
            store.append(entries("a", seq, size=seq))
        store.save(Snapshot(3, b"three"))
        assert store.snapshot() == Snapshot(3, b"three")
        assert [record.position for record in store.read(0, 10)] == [4, 5]
        assert [record.position for record in store.read(4, 10)] == [5]
        assert store.depth() == (2, 4 + 5)
        assert store.last_seqs() == {"a": 5}
        store.save(Snapshot(5, b"five"))
        assert contents(store) == ([], Snapshot(5, b"five"), (0, 0), {"a": 5})
        assert store.append(entries("a", 5, 6)) == [
            Appended(Verdict.DUPLICATE, 0, 5),
            Appended(Verdict.ACCEPTED, 6, 6),
        ]
        assert store.depth() == (1, 10)

    def test_an_equal_cursor_replaces_the_state(self, connect: Connect) -> None:
        store = connect()
        store.open("f")
        store.save(Snapshot(0, b"initial"))
        store.append(entries("a", 1, 2))
        store.save(Snapshot(0, b"again"))
        assert store.depth() == (2, 20)
        store.save(Snapshot(1, b"one"))
        store.save(Snapshot(1, b""))
        assert store.snapshot() == Snapshot(1, b"")
        assert store.depth() == (1, 10)

    @pytest.mark.parametrize(("cursor", "why"), [(1, "older"), (-1, "older"), (4, "past")])
    def test_an_impossible_cursor_is_refused_and_changes_nothing(self, connect: Connect, cursor: int, why: str) -> None:
        store = connect()
        store.open("f")
        store.append(entries("a", 1, 2, 3))
        store.save(Snapshot(2, b"two"))
        before = contents(store)
        with pytest.raises(ValueError, match=why):
            store.save(Snapshot(cursor, b"bad"))
        assert contents(store) == before

    def test_one_mebibyte_of_every_byte_value(self, connect: Connect) -> None:
        store = connect()
        store.open("f")
        store.append([Entry("édge\n", 1, ALL_BYTES_1_MIB), Entry("empty", 1, b"")])
        store.save(Snapshot(0, ALL_BYTES_1_MIB))
        reader = connect()
        assert reader.read(0, 2) == [Record(1, "édge\n", 1, ALL_BYTES_1_MIB), Record(2, "empty", 1, b"")]
        assert reader.snapshot() == Snapshot(0, ALL_BYTES_1_MIB)
        assert reader.depth() == (2, 1 << 20)
        assert reader.last_seqs() == {"édge\n": 1, "empty": 1}

    def test_runs_side_by_side_do_not_meet(self, connect: Connect) -> None:
        one, two = connect("one", Limits(1, 1000)), connect("two")
        assert (one.open("f1"), two.open("f2")) == (1, 1)
        one.append(entries("a", 1))
        before = contents(one)
        assert two.append(entries("a", 9, 10)) == [
            Appended(Verdict.ACCEPTED, 1, 9),
            Appended(Verdict.ACCEPTED, 2, 10),
        ]
        two.save(Snapshot(2, b"two"))
        two.open("f2")
        assert contents(one) == before
        assert contents(two) == ([], Snapshot(2, b"two"), (0, 0), {"a": 10})
        assert verdicts(one.append(entries("a", 2))) == ["busy"]  # a count, not Fenced

    def test_close_is_idempotent_and_loses_nothing(self, connect: Connect) -> None:
        store = connect()
        store.open("f")
        store.append(entries("a", 1, 2, 3))
        store.save(Snapshot(1, b"one"))
        before = contents(store)
        store.close()
        store.close()
        assert contents(connect()) == before
        again = connect()
        assert again.open("f") == 2
        assert verdicts(again.append(entries("a", 3, 4))) == ["duplicate", "accepted"]

    def test_another_thread_may_use_the_store(self, connect: Connect) -> None:
        store = connect()
        store.open("f")
        answers: list[Appended] = []
        worker = threading.Thread(target=lambda: answers.extend(store.append(entries("a", 1))))
        worker.start()
        worker.join()
        assert verdicts(answers) == ["accepted"]


# --- the same random history gives the same answers everywhere ---

EDGES = st.sampled_from(["a", "b", "c"])
MESSAGE = st.builds(Entry, EDGES, st.integers(0, 6), st.binary(max_size=30))
HANDLE = st.integers(0, 1)
OPERATION = st.one_of(
    st.tuples(st.just("open"), HANDLE, st.sampled_from(["f", "f", "g"])),
    st.tuples(st.just("append"), HANDLE, st.lists(MESSAGE, max_size=5)),
    st.tuples(st.just("append"), HANDLE, st.lists(MESSAGE, max_size=5)),
    st.tuples(st.just("save"), HANDLE, st.builds(Snapshot, st.integers(-1, 8), st.binary(max_size=9))),
    st.tuples(st.just("read"), HANDLE, st.tuples(st.integers(-1, 8), st.integers(-1, 4))),
)
TIGHT = Limits(entries=5, bytes=60)
fresh_run = itertools.count()


def play(connect: Connect, run: str, history: list[tuple[str, int, object]]) -> list[object]:
    """What two handles on one run answer to `history`, and the contents after every step."""
    handles = [connect(run, TIGHT), connect(run, TIGHT)]
    handles[0].open("f")
    answers: list[object] = []
    for name, who, argument in history:
        arguments = argument if isinstance(argument, tuple) else (argument,)
        try:
            answers.append(getattr(handles[who], name)(*arguments))
        except (errors.Fenced, errors.ConfigError, ValueError) as refusal:
            answers.append((type(refusal), str(refusal)))
        answers.append(contents(handles[0]))
    return answers


@settings(max_examples=120, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(history=st.lists(OPERATION, min_size=4, max_size=14))
def test_all_backends_answer_a_random_history_alike(
    history: list[tuple[str, int, object]], server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = f"random{next(fresh_run)}"
    file = str(tmp_path_factory.getbasetemp() / "random.db")
    with ExitStack() as stack:
        expected = play(connector("memory", "", stack), run, history)
        assert play(connector("sqlite", file, stack), run, history) == expected
        assert play(connector("redis", server.url, stack), run, history) == expected


# --- Redis: restarts and refusals ---


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis that the test may kill or fill."""
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
        kept = [record.seq for record in store.read(0, 10_000)]
        # The batch in flight may be there, but then all of it.
        assert kept in [list(range(1, accepted[-1] + 1 + extra)) for extra in (0, 5)]
        assert store.depth() == (len(kept), 20_000 * len(kept))
        assert store.last_seqs() == {"a": kept[-1]}


def test_redis_that_hangs_is_lost_and_a_late_append_is_there_once_or_not_at_all(
    own_server: RedisServer,
) -> None:
    with ExitStack() as stack:
        store = RedisStore(own_server.url, "run", ROOMY, reply_s=0.1)
        stack.callback(store.close)
        store.open("f")
        os.kill(own_server.pid, signal.SIGSTOP)
        try:
            with pytest.raises(errors.ServiceError, match=r"(?i)timeout"):
                store.append(entries("a", 1))
        finally:
            os.kill(own_server.pid, signal.SIGCONT)
        assert store.open("f") == 2
        found = store.read(0, 10)
        assert verdicts(store.append(entries("a", 1))) == ["duplicate" if found else "accepted"]
        assert [record.seq for record in store.read(0, 10)] == [1]


def test_redis_append_survives_a_script_flush(server: RedisServer) -> None:
    with ExitStack() as stack:
        store = connector("redis", server.url, stack)("flushed")
        client = stack.enter_context(redis.Redis.from_url(server.url))
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
            store.append([Entry("a", 2, ALL_BYTES_1_MIB), Entry("a", 3, b"")])
        assert "\n" not in str(refusal.value)
        with pytest.raises(errors.ServiceError, match="out of memory"):
            store.save(Snapshot(1, b"state"))
        assert contents(store) == before
        client.config_set("maxmemory", "0")
        assert verdicts(store.append(entries("a", 2, 3))) == ["accepted"] * 2


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
    calls: list[Callable[[], object]] = [lambda: store.open("f"), lambda: store.read(0, 1), store.depth]
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
    with pytest.raises(errors.ServiceError) as refusal:
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
        (foreign, "not written by this version of tacit"),
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


WRITER = """
import sys
from services.runtime.store import Entry, open_store
store = open_store(sys.argv[1], "run")
store.open("f")
for first in range(1, 100_000, 3):
    store.append([Entry("a", first + k, bytes(20_000)) for k in range(3)])
    print(first + 2, flush=True)
"""


def test_sqlite_writer_killed_in_the_middle_keeps_whole_batches(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    path = os.pathsep.join(part for part in sys.path if part)
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
    ) as writer:
        assert writer.stdout is not None
        for _ in range(10):
            assert writer.stdout.readline()
        writer.kill()
        told = [30, *map(int, writer.stdout.read().splitlines())][-1]
    store = open_store(url, "run")
    assert store.open("f") == 2
    kept = [record.seq for record in store.read(0, 100_000)]
    assert kept == list(range(1, len(kept) + 1))
    assert len(kept) % 3 == 0
    assert len(kept) >= told
    assert store.depth() == (len(kept), 20_000 * len(kept))
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
    """No file of this process may grow past `size` bytes: how a full disk looks to SQLite."""
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
    with file_size_limit(256 * 1024), pytest.raises(errors.ServiceError, match=r"^store: sqlite file .*$"):
        store.append([*entries("a", 2), Entry("a", 3, ALL_BYTES_1_MIB)])
    assert contents(store) == before
    assert verdicts(store.append([*entries("a", 2), Entry("a", 3, ALL_BYTES_1_MIB)])) == ["accepted"] * 2
    store.close()


# --- addresses ---


def test_open_store_by_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("memory://", "sqlite:///relative.db", f"sqlite:///{tmp_path}/absolute.db"):
        store = open_store(url, "run", max_entries=1)
        assert store.open("f") == 1
        assert verdicts(store.append(entries("a", 1, 2))) == ["accepted", "busy"]
        store.close()
    assert {path.name for path in tmp_path.glob("*.db")} == {"relative.db", "absolute.db"}


@pytest.mark.parametrize(
    "url",
    [
        "",
        "store.db",
        "memory://x",
        "sqlite://",
        "sqlite:///",
        "sqlite://store.db",
        "redis://",
        "redis://h:port/0",
        "redis://h:99999/0",
        "redis://h/database",
        "redis://h/0?no_such_option=1",
        "redis://[::1/0",
        "unix://",
        "postgres://h/db",
    ],
)
def test_a_bad_url_names_the_field_and_the_value(url: str) -> None:
    with pytest.raises(errors.ConfigError) as refusal:
        open_store(url, "run")
    assert str(refusal.value).startswith(f"store: {url!r}")
    assert "\n" not in str(refusal.value)


def test_bad_run_names_and_limits_are_refused() -> None:
    for run in ("", "a{b", "a}b"):
        with pytest.raises(errors.ConfigError, match=r"^run: "):
            open_store("memory://", run)
    with pytest.raises(errors.ConfigError, match="max_entries is 0"):
        open_store("memory://", "run", max_entries=0)
    with pytest.raises(errors.ConfigError, match="max_bytes is -1"):
        open_store("memory://", "run", max_bytes=-1)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h:1/0", "redis://h:1/0"),
        ("redis://:p@ss@h:1/0", "redis://:***@h:1/0"),
        ("rediss://u:p@h", "rediss://u:***@h"),
        ("redis://u:p@[::1/0", "redis://***@[::1/0"),
    ],
)
def test_passwords_are_not_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown
