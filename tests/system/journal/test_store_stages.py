"""Payloads that are in the store before their last byte has come: over a real Redis, and none."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import redis
from tacit_services.journal.store import NewEntry, Snapshot, Stage, Store, redis_large
from tacit_services.journal.store.redis_large import PIECE
from tacit_services.journal.store.redis_store import RedisStore

from tacit import errors
from tests.helpers.servers import RedisServer, redis_server
from tests.helpers.stores import (
    ALL_BYTES_1_MIB,
    ROOMY,
    Connect,
    connector,
    contents,
    lists,
    verdicts,
)

PAYLOAD = ALL_BYTES_1_MIB * 9 + b"the rest"
PARTS = [0, 1000, PIECE, PIECE + 1, 2 * PIECE + 7, 4 * PIECE, len(PAYLOAD) - 1]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as running:
        yield running


@pytest.fixture
def client(server: RedisServer) -> Iterator[Any]:
    with redis.Redis.from_url(server.url) as connection:
        yield connection


@pytest.fixture
def connect(server: RedisServer) -> Iterator[Connect]:
    with ExitStack() as stack:
        yield connector("redis", server.url, stack)


def settled(store: Store) -> None:
    """Wait until the server has taken in all that was sent: an append is behind it."""
    seq = store.last_seqs().get("other", 0) + 1
    assert verdicts(store.append([NewEntry("other", seq, b"x")])) == ["accepted"]


def grown(store: Store, parts: list[int] = PARTS, payload: bytes = PAYLOAD) -> Stage:
    """Return a stage that was given the payload up to each of `parts`, one after the other."""
    stage = store.stage()
    assert stage is not None
    for count in parts:
        stage.grow(memoryview(payload)[:count])
    return stage


def test_what_has_come_is_there_before_the_end_and_nobody_reads_it(
    connect: Connect, client: Any
) -> None:
    store, reader = connect(), connect()
    store.open("f")
    # Given a payload of which all but the last byte has come, and other entries meanwhile,
    stage = grown(store)
    settled(store)
    (key,) = lists(client)
    assert client.llen(key) == 1 + (len(PAYLOAD) - 1) // PIECE
    assert [entry.payload for entry in reader.read(0, 9)] == [b"x"]
    assert reader.depth() == (1, 1)
    # when its entry is appended, then it is there, once, with all its bytes,
    answers = store.append([NewEntry("a", 1, PAYLOAD, stage=stage), NewEntry("b", 1, b"y")])
    assert verdicts(answers) == ["accepted", "accepted"]
    assert lists(client) == [key]
    assert [entry.payload for entry in reader.read(1, 9)] == [PAYLOAD, b"y"]
    assert store.depth() == (3, len(PAYLOAD) + 2)
    # and goes with its snapshot.
    store.save(Snapshot(2, b"state"))
    assert lists(client) == []


def test_two_payloads_grow_side_by_side(connect: Connect) -> None:
    store = connect()
    store.open("f")
    other = PAYLOAD[::-1]
    stages = [grown(store, [PIECE]), grown(store, [PIECE], other)]
    finish = store.begin([NewEntry("a", 1, PAYLOAD, stage=stages[0])])
    stages[1].grow(memoryview(other)[: 2 * PIECE])  # between an append and its answer
    assert verdicts(finish()) == ["accepted"]
    stages[1].grow(memoryview(other)[: 3 * PIECE])
    assert verdicts(store.append([NewEntry("b", 1, other, stage=stages[1])])) == ["accepted"]
    assert [entry.payload for entry in store.read(0, 9)] == [PAYLOAD, other]


def test_an_answer_that_nobody_asks_for_is_not_taken_for_the_next(connect: Connect) -> None:
    store = connect()
    store.open("f")
    stage = grown(store)
    store.begin([NewEntry("a", 1, PAYLOAD, stage=stage)])
    assert verdicts(store.append([NewEntry("a", 1, PAYLOAD)])) == ["duplicate"]
    assert [entry.payload for entry in store.read(0, 9)] == [PAYLOAD]


@pytest.mark.parametrize("end", ["dropped", "duplicate", "busy"])
def test_what_becomes_no_entry_is_gone(connect: Connect, client: Any, end: str) -> None:
    store = connect()
    store.open("f")
    assert verdicts(store.append([NewEntry("a", 3, b"x")])) == ["accepted"]
    stage = grown(store)
    if end == "dropped":
        stage.drop()
        stage.drop()
        stage.grow(memoryview(PAYLOAD))  # too late
        settled(store)
    elif end == "duplicate":
        answers = store.append([NewEntry("a", 3, PAYLOAD, stage=stage)])
        assert verdicts(answers) == ["duplicate"]
    else:
        client.config_set("maxmemory", 1)
        with pytest.raises(errors.ServiceError, match="out of memory"):
            store.append([NewEntry("a", 4, PAYLOAD, stage=stage)])
        client.config_set("maxmemory", 0)
        store.open("f")
    assert lists(client) == []


def test_one_that_was_dropped_goes_with_the_append_all_the_same(connect: Connect) -> None:
    store = connect()
    store.open("f")
    stage = grown(store)
    stage.drop()
    assert verdicts(store.append([NewEntry("a", 1, PAYLOAD, stage=stage)])) == ["accepted"]
    assert store.read(0, 1)[0].payload == PAYLOAD


def test_the_next_writer_deletes_what_was_begun(connect: Connect, client: Any) -> None:
    old, new = connect(), connect()
    old.open("f")
    stage = grown(old)
    settled(old)
    assert len(lists(client)) == 1
    new.open("f")
    assert lists(client) == []
    # What the one before sends then leaves nothing.
    stage.grow(memoryview(PAYLOAD))
    with pytest.raises(errors.Fenced):
        old.append([NewEntry("a", 1, PAYLOAD, stage=stage)])
    assert lists(client) == []


def test_the_same_writer_opens_again_and_the_payload_goes_whole(
    connect: Connect, client: Any
) -> None:
    store = connect()
    store.open("f")
    stage = grown(store)
    store.open("f")
    stage.grow(memoryview(PAYLOAD))
    assert verdicts(store.append([NewEntry("a", 1, PAYLOAD, stage=stage)])) == ["accepted"]
    assert store.read(0, 1)[0].payload == PAYLOAD
    assert len(lists(client)) == 1


def test_a_server_that_dies_meanwhile_takes_the_payload_whole_when_it_is_back(
    server: RedisServer, connect: Connect, client: Any
) -> None:
    store = connect()
    store.open("f")
    stage = grown(store, PARTS[:4])
    server.kill()
    for count in PARTS[4:]:
        stage.grow(memoryview(PAYLOAD)[:count])  # nothing is raised, and nobody waits
    with pytest.raises(errors.ServiceError):
        store.append([NewEntry("a", 1, PAYLOAD, stage=stage)])
    server.restart()
    assert store.open("f") == 2
    assert verdicts(store.append([NewEntry("a", 1, PAYLOAD, stage=stage)])) == ["accepted"]
    assert store.read(0, 1)[0].payload == PAYLOAD
    assert len(lists(client)) == 1


def test_a_connection_that_is_cut_meanwhile_is_told_and_leaves_nothing(
    connect: Connect, client: Any
) -> None:
    store = connect()
    store.open("f")
    stage = grown(store, PARTS[:4])
    settled(store)
    client.client_kill_filter(_type="normal", skipme=True)
    for count in PARTS[4:]:
        stage.grow(memoryview(PAYLOAD)[:count])
    before = contents(store)
    with pytest.raises(errors.ServiceError, match="connection lost"):
        store.append([NewEntry("a", 1, PAYLOAD, stage=stage)])
    assert contents(store) == before
    store.open("f")
    assert verdicts(store.append([NewEntry("a", 1, PAYLOAD, stage=stage)])) == ["accepted"]
    assert store.read(1, 1)[0].payload == PAYLOAD
    assert len(lists(client)) == 1


def test_a_server_that_hangs_is_waited_for_once(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed, send = list[Exception](), redis_large.send

    def counted(*arguments: Any) -> None:
        try:
            send(*arguments)
        except (redis.RedisError, OSError) as error:
            failed.append(error)
            raise

    monkeypatch.setattr(redis_large, "send", counted)
    with closing(RedisStore(server.url, "run", ROOMY, reply_s=0.5)) as store:
        store.open("f")
        stages = [grown(store, [PIECE]) for _ in range(4)]
        settled(store)
        # Given a server that takes nothing in, and more than the sockets between them hold,
        os.kill(server.pid, signal.SIGSTOP)
        try:
            for stage in stages:
                stage.grow(memoryview(PAYLOAD * 4)[: 16 * PIECE])
        finally:
            os.kill(server.pid, signal.SIGCONT)
        # then it is waited for by the first alone, and the next append says so.
        assert len(failed) == 1
        with pytest.raises(errors.ServiceError, match="connection lost"):
            store.append([NewEntry("a", 1, PAYLOAD)])
        store.open("f")
        assert verdicts(store.append([NewEntry("a", 1, PAYLOAD)])) == ["accepted"]


def test_the_connection_goes_back_when_nothing_is_on_its_way(connect: Connect) -> None:
    store = connect()
    assert isinstance(store, RedisStore)
    store.open("f")
    for _ in range(3):
        stage = grown(store)
        assert store._line._connection is not None
        stage.drop()
        settled(store)
        assert store._line._connection is None


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
def test_other_stores_take_payloads_in_whole(backend: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        store = connector(backend, str(tmp_path / "store.db"), stack)()
        store.open("f")
        assert store.stage() is None
