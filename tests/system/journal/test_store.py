"""The store contract (services/tacit_services/journal/store/base.py).

One test class, four backends, real servers.
"""

from __future__ import annotations

import itertools
import sqlite3
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tacit_services.journal.store import (
    MAX_SEQ,
    Anchor,
    Appended,
    NewEntry,
    Snapshot,
    StoredEntry,
    Verdict,
    open_store,
)
from tacit_services.journal.store.append_rules import JournalLimits
from tacit_services.journal.store.redis_client import without_password

from tacit import errors
from tests.helpers.postgres import PostgresServer, forget_all, postgres_server
from tests.helpers.servers import RedisServer, redis_server
from tests.helpers.stores import ALL_BYTES_1_MIB, Connect, connector, contents, entries, verdicts

EMPTY: tuple[object, ...] = ([], None, (0, 0), {}, {})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


@pytest.fixture(params=["memory", "sqlite", "redis", "postgresql"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connect]:
    """Yield `connect` of each backend in turn, on empty data."""
    place = str(tmp_path / "store.db")
    if request.param == "redis":
        place = request.getfixturevalue("server").url
        with redis.Redis.from_url(place) as client:
            client.flushall()
    if request.param == "postgresql":
        place = request.getfixturevalue("postgres").url
        forget_all(place)
    with ExitStack() as stack:
        yield connector(request.param, place, stack)


class TestContract:
    def test_a_fresh_run_is_empty(self, connect: Connect) -> None:
        store = connect()
        assert contents(store) == EMPTY
        assert store.open("f") == 1
        assert contents(store) == EMPTY

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
        assert contents(store) == EMPTY

    def test_another_fingerprint_is_refused_and_changes_nothing(self, connect: Connect) -> None:
        owner, other = connect(), connect()
        owner.open("f" * 64)
        owner.append(entries("a", 1))
        before = contents(owner)
        with pytest.raises(
            errors.ConfigError, match=r"run: 'run' is in the store with parameters f{12},"
        ):
            other.open("0" * 64)
        assert contents(owner) == before
        assert verdicts(owner.append(entries("a", 2))) == ["accepted"]
        assert other.open("f" * 64) == 2

    def test_what_was_begun_is_answered_later_and_may_be_read_around(
        self, connect: Connect
    ) -> None:
        store = connect()
        store.open("f")
        store.append(entries("a", 1))
        answers = store.begin([*entries("a", 1, 2), *entries("b", 1)])
        assert store.last_seqs()["a"] in (1, 2)
        assert verdicts(answers()) == ["duplicate", "accepted", "accepted"]
        assert verdicts(store.begin(entries("a", 3))()) == ["accepted"]
        assert store.begin([])() == []
        assert [record.position for record in store.read(0, 10)] == [1, 2, 3, 4]

    def test_what_was_begun_under_an_older_epoch_is_not_written(self, connect: Connect) -> None:
        old, new = connect(), connect()
        old.open("f")
        new.open("f")
        with pytest.raises(errors.Fenced):
            old.begin(entries("a", 1))()
        assert contents(new) == EMPTY
        # What nobody asked after stays as it is, and is in nobody's way.
        new.begin(entries("a", 1))
        assert new.open("f") == 3
        assert verdicts(new.append(entries("a", 1, 2))) in (
            ["duplicate", "accepted"],
            ["accepted", "accepted"],
        )
        assert [record.seq for record in new.read(0, 10)] == [1, 2]

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

    def test_duplicates_are_counted_with_their_answer_and_for_good(self, connect: Connect) -> None:
        store = connect()
        store.open("f")
        store.append(entries("a", 1, 2, 1))
        with pytest.raises(ValueError, match="outside"):
            store.append([*entries("a", 2), NewEntry("a", -1, b"")])
        store.append([*entries("b", 5), *entries("a", 2, 2, 3)])
        assert store.duplicates() == 3
        store.save(Snapshot(2, b""))
        other = connect("other")
        other.open("f")
        successor = connect()
        assert (successor.open("f"), successor.duplicates(), other.duplicates()) == (2, 3, 0)

    def test_numbers_may_skip_but_never_fall(self, connect: Connect) -> None:
        store = connect()
        store.open("f")
        assert verdicts(store.append(entries("a", 1, 4, 3, 5))) == [
            "accepted",
            "accepted",
            "duplicate",
            "accepted",
        ]

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
    def test_an_impossible_sequence_number_refuses_the_whole_call(
        self, connect: Connect, seq: int
    ) -> None:
        store = connect()
        store.open("f")
        with pytest.raises(ValueError, match="outside"):
            store.append([NewEntry("a", 1, b""), NewEntry("b", seq, b"")])
        assert contents(store) == EMPTY

    def test_a_batch_sees_its_own_earlier_entries(self, connect: Connect) -> None:
        store = connect(limits=JournalLimits(entries=3, bytes=1000))
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
        store = connect(limits=JournalLimits(entries=2, bytes=1000))
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
        store = connect(limits=JournalLimits(entries=1000, bytes=25))
        store.open("f")
        # At 20 bytes the journal is under its limit and takes 10 more; at 30 it takes not even 0.
        assert verdicts(store.append([*entries("a", 1, 2, 3), NewEntry("a", 4, b"")])) == [
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
        store = connect(limits=JournalLimits(entries=1000, bytes=20))
        store.open("f")
        assert verdicts(store.append(entries("a", 1, 2, 3))) == ["accepted", "accepted", "busy"]

    def test_a_duplicate_is_told_even_when_busy(self, connect: Connect) -> None:
        store = connect(limits=JournalLimits(entries=1, bytes=1000))
        store.open("f")
        assert verdicts(store.append(entries("a", 1, 1, 2))) == ["accepted", "duplicate", "busy"]

    def test_reading_in_pages(self, connect: Connect) -> None:
        store = connect()
        store.open("f")
        store.append(entries("a", *range(1, 8)))
        everything = store.read(0, 100)
        assert [record.position for record in everything] == [1, 2, 3, 4, 5, 6, 7]
        assert everything[0] == StoredEntry(1, "a", 1, bytes([1]) * 10)
        assert store.read(0, 3) + store.read(3, 3) + store.read(6, 3) == everything
        assert store.read(7, 3) == store.read(99, 3) == []
        assert store.read(0, 0) == store.read(0, -1) == []
        assert store.read(-5, 2) == everything[:2]
        for page in (1, 3, 7, 100):
            assert list(store.replay(0, page)) == everything
            assert list(store.replay(4, page)) == everything[4:]
            assert list(store.replay(7, page)) == []

    def test_a_replay_that_is_left_in_its_middle(self, connect: Connect) -> None:
        store = connect()
        store.open("f")
        store.append(entries("a", *range(1, 8)))
        replay = store.replay(0, 2)
        assert next(replay).position == 1
        assert store.depth() == (7, 70)  # asked between two records
        assert next(replay).position == 2
        assert isinstance(replay, Generator)
        replay.close()
        assert verdicts(store.append(entries("a", 8))) == ["accepted"]
        assert [record.position for record in store.replay(5, 2)] == [6, 7, 8]

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
        assert contents(store) == ([], Snapshot(5, b"five"), (0, 0), {"a": 5}, {})
        assert store.append(entries("a", 5, 6)) == [
            Appended(Verdict.DUPLICATE, 0, 5),
            Appended(Verdict.ACCEPTED, 6, 6),
        ]
        assert store.depth() == (1, 10)

    def test_a_saver_stores_snapshots_in_another_thread_while_entries_come(
        self, connect: Connect
    ) -> None:
        store = connect()
        store.open("f")
        saver = store.saver()
        store.append(entries("a", *range(1, 21)))

        def save() -> None:
            for cursor in range(1, 21):
                saver.save(Snapshot(cursor, bytes([cursor])))

        thread = threading.Thread(target=save)
        thread.start()
        for seq in range(21, 121):
            store.append(entries("a", seq))
        thread.join()
        saver.close()
        assert store.snapshot() == Snapshot(20, bytes([20]))
        assert [entry.position for entry in store.read(0, 1000)] == list(range(21, 121))
        assert store.depth() == (100, 1000)

    def test_a_saver_of_an_older_epoch_writes_nothing(self, connect: Connect) -> None:
        store = connect()
        store.open("f")
        store.append(entries("a", 1))
        saver = store.saver()
        connect().open("f")
        with pytest.raises(errors.Fenced):
            saver.save(Snapshot(1, b"late"))
        assert (store.snapshot(), store.depth()[0]) == (None, 1)
        saver.close()

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
    def test_an_impossible_cursor_is_refused_and_changes_nothing(
        self, connect: Connect, cursor: int, why: str
    ) -> None:
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
        store.append([NewEntry("édge\n", 1, ALL_BYTES_1_MIB), NewEntry("empty", 1, b"")])
        store.save(Snapshot(0, ALL_BYTES_1_MIB))
        reader = connect()
        assert reader.read(0, 2) == [
            StoredEntry(1, "édge\n", 1, ALL_BYTES_1_MIB),
            StoredEntry(2, "empty", 1, b""),
        ]
        assert reader.snapshot() == Snapshot(0, ALL_BYTES_1_MIB)
        assert reader.depth() == (2, 1 << 20)
        assert reader.last_seqs() == {"édge\n": 1, "empty": 1}

    def test_runs_side_by_side_do_not_meet(self, connect: Connect) -> None:
        first, second = connect("one", JournalLimits(1, 1000)), connect("two")
        assert (first.open("f1"), second.open("f2")) == (1, 1)
        first.append(entries("a", 1))
        before = contents(first)
        assert second.append(entries("a", 9, 10)) == [
            Appended(Verdict.ACCEPTED, 1, 9),
            Appended(Verdict.ACCEPTED, 2, 10),
        ]
        second.save(Snapshot(2, b"two"))
        second.open("f2")
        assert contents(first) == before
        assert contents(second) == ([], Snapshot(2, b"two"), (0, 0), {"a": 10}, {})
        assert verdicts(first.append(entries("a", 2))) == ["busy"]  # a count, not Fenced

    def test_the_furthest_anchor_of_a_lineage_is_kept_with_the_message(
        self, connect: Connect
    ) -> None:
        store = connect()
        store.open("f")
        heads = {3: b"\x00\xff three \n" + bytes(20), 2: b"two", 7: b"7 seven"}
        marks = [Anchor("digits/a", count, heads[count]) for count in (3, 2, 7)]
        store.append([NewEntry("a", seq, b"", mark) for seq, mark in enumerate(marks[:2], 1)])
        assert store.anchors() == {"digits/a": marks[0]}
        store.append(
            [
                NewEntry("a", 3, b"", marks[2]),
                NewEntry("b", 1, b"", Anchor("digits/é", 0, b"")),
                NewEntry("c", 1, b""),
            ]
        )
        assert store.anchors() == {"digits/a": marks[2], "digits/é": Anchor("digits/é", 0, b"")}
        # An equal count does not replace the head.
        store.append([NewEntry("a", 4, b"", Anchor("digits/a", 7, b"another"))])
        assert connect().anchors()["digits/a"] == marks[2]

    def test_anchors_outlive_a_save_a_restart_and_a_new_run(self, connect: Connect) -> None:
        mark = Anchor("digits/a", 5, bytes(32))
        store = connect("one")
        store.open("f")
        store.append([NewEntry("a", 1, b"x", mark)])
        store.save(Snapshot(1, b"one"))
        store.close()
        assert connect("one").anchors() == connect("two").anchors() == {"digits/a": mark}
        two = connect("two")
        two.open("g")
        further = Anchor("digits/a", 6, bytes(32))
        two.append([NewEntry("a", 1, b"x", further)])
        assert connect("one").anchors() == {"digits/a": further}

    def test_a_message_that_is_not_accepted_leaves_no_anchor(self, connect: Connect) -> None:
        store, mark = connect(limits=JournalLimits(1, 1000)), Anchor("digits/a", 5, bytes(32))
        store.open("f")
        store.append(entries("a", 1))
        assert verdicts(
            store.append([NewEntry("a", 1, b"", mark), NewEntry("a", 2, b"", mark)])
        ) == ["duplicate", "busy"]
        other = connect()
        other.open("f")
        with pytest.raises(errors.Fenced):
            store.append([NewEntry("a", 2, b"", mark)])
        with pytest.raises(ValueError, match="anchor 9007199254740992 of edge 'a' is outside"):
            other.append([NewEntry("a", 2, b"", Anchor("digits/a", MAX_SEQ + 1, b""))])
        assert store.anchors() == {}

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
ANCHOR = st.none() | st.builds(Anchor, EDGES, st.integers(0, 9), st.binary(max_size=40))
MESSAGE = st.builds(NewEntry, EDGES, st.integers(0, 6), st.binary(max_size=30), ANCHOR)
HANDLE = st.integers(0, 1)
OPERATION = st.one_of(
    st.tuples(st.just("open"), HANDLE, st.sampled_from(["f", "f", "g"])),
    st.tuples(st.just("append"), HANDLE, st.lists(MESSAGE, max_size=5)),
    st.tuples(st.just("append"), HANDLE, st.lists(MESSAGE, max_size=5)),
    st.tuples(
        st.just("save"), HANDLE, st.builds(Snapshot, st.integers(-1, 8), st.binary(max_size=9))
    ),
    st.tuples(st.just("read"), HANDLE, st.tuples(st.integers(-1, 8), st.integers(-1, 4))),
)
TIGHT = JournalLimits(entries=5, bytes=60)
fresh_run = itertools.count()


def of_run(run: str, anchor: Anchor | None) -> Anchor | None:
    return anchor and replace(anchor, lineage=f"{run}/{anchor.lineage}")


def play(connect: Connect, run: str, history: list[tuple[str, int, object]]) -> list[object]:
    """Return what two handles on one run answer to `history`, and the contents after every step."""
    handles = [connect(run, TIGHT), connect(run, TIGHT)]
    handles[0].open("f")
    answers: list[object] = []
    for name, who, argument in history:
        if isinstance(
            argument, list
        ):  # anchors are of all runs: their lineages must be this run's own
            argument = [replace(entry, anchor=of_run(run, entry.anchor)) for entry in argument]
        arguments = argument if isinstance(argument, tuple) else (argument,)
        try:
            answers.append(getattr(handles[who], name)(*arguments))
        except (errors.Fenced, errors.ConfigError, ValueError) as refusal:
            answers.append((type(refusal), str(refusal)))
        answers.append(contents(handles[0], f"{run}/"))
    return answers


OFTEN = settings(
    max_examples=120, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
HISTORIES = given(history=st.lists(OPERATION, min_size=4, max_size=14))


@OFTEN
@HISTORIES
def test_all_backends_answer_a_random_history_alike(
    history: list[tuple[str, int, object]],
    server: RedisServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    run = f"random{next(fresh_run)}"
    file = str(tmp_path_factory.getbasetemp() / "random.db")
    with ExitStack() as stack:
        expected = play(connector("memory", "", stack), run, history)
        assert play(connector("sqlite", file, stack), run, history) == expected
        assert play(connector("redis", server.url, stack), run, history) == expected


@pytest.mark.exhaustive
@OFTEN
@HISTORIES
def test_postgresql_answers_a_random_history_as_the_others_do(
    history: list[tuple[str, int, object]], postgres: PostgresServer
) -> None:
    run = f"random{next(fresh_run)}"
    with ExitStack() as stack:
        expected = play(connector("memory", "", stack), run, history)
        assert play(connector("postgresql", postgres.url, stack), run, history) == expected


def test_a_file_that_another_process_is_making_is_waited_for(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/store.db", "run")
    with (
        closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        other.execute("BEGIN IMMEDIATE")
        future = pool.submit(store.last_seqs)
        with pytest.raises(TimeoutError):
            future.result(0.2)
        other.execute("ROLLBACK")
        assert future.result(30.0) == {}
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
        "postgresql://",
        "postgresql:///db",
        "postgresql://h",
        "postgresql://h/db?no_such_option=1",
    ],
)
def test_a_bad_url_names_the_field_and_the_value(url: str) -> None:
    with pytest.raises(errors.ConfigError) as refusal:
        open_store(url, "run")
    place = "postgresql://…" if url.startswith("postgresql:") else url
    assert str(refusal.value).startswith(f"store: {place!r}")
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
    ("url", "masked"),
    [
        ("redis://h:1/0", "redis://h:1/0"),
        ("redis://:p@ss@h:1/0", "redis://:***@h:1/0"),
        ("rediss://u:p@h", "rediss://u:***@h"),
        ("redis://u:p@[::1/0", "redis://***@[::1/0"),
    ],
)
def test_passwords_are_not_shown(url: str, masked: str) -> None:
    assert without_password(url) == masked
