"""An operator empties the store of one run: nothing of that is left, and nothing else is touched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import redis
from tacit_services.journal.store import Anchor, Snapshot

from tacit import errors
from tests.helpers.servers import redis_server
from tests.helpers.stores import Connect, connector, contents, entries, verdicts


@pytest.fixture(params=["memory", "sqlite", "redis"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connect]:
    """Yield `connect` of each backend in turn."""
    with ExitStack() as stack:
        place = str(tmp_path / "store.db")
        if request.param == "redis":
            place = stack.enter_context(redis_server(tmp_path)).url
        yield connector(request.param, place, stack)


def filled(connect: Connect, run: str, size: int = 10) -> None:
    store = connect(run)
    store.open("f")
    (first, *later) = entries("a", 1, 2, 3, size=size)
    store.append([replace(first, anchor=Anchor("digits/a", 7, b"head")), *later])
    store.append(entries("a", 1))  # a duplicate
    store.save(Snapshot(1, b"state"))


@pytest.mark.parametrize("size", [10, 300_000])  # within an entry, and beside it
def test_of_that_run_nothing_is_left_and_of_others_all(connect: Connect, size: int) -> None:
    for run in ("run", "other"):
        filled(connect, run, size)
    other, anchors = contents(connect("other")), connect().anchors()
    connect().empty("f")
    assert contents(connect()) == ([], None, (0, 0), {}, anchors)
    assert contents(connect("other")) == other
    assert connect().duplicates() == 1  # what was counted is never less
    after = connect()
    after.open("f")
    assert verdicts(after.append(entries("a", 1, 2))) == ["accepted", "accepted"]
    assert [entry.position for entry in after.read(0, 10)] == [1, 2]


def test_who_wrote_before_is_fenced(connect: Connect) -> None:
    before = connect()
    before.open("f")
    before.append(entries("a", 1))
    connect().empty("f")
    with pytest.raises(errors.Fenced):
        before.append(entries("a", 2))
    assert connect().open("f") == 3  # not the number that `before` has


def test_a_run_of_other_parameters_is_not_emptied(connect: Connect) -> None:
    filled(connect, "run")
    before = contents(connect())
    with pytest.raises(errors.ConfigError, match="is in the store with parameters"):
        connect().empty("g")
    assert contents(connect()) == before


def test_a_run_that_is_not_there_is_empty(connect: Connect) -> None:
    connect().empty("f")
    assert connect().open("f") >= 1


@pytest.mark.parametrize("part", ["journal", "meta", "seq", "snapshot", "large"])
def test_what_an_eviction_has_left_is_emptied_too(tmp_path: Path, part: str) -> None:
    with redis_server(tmp_path) as server, ExitStack() as stack:
        connect = connector("redis", server.url, stack)
        filled(connect, "run", 300_000)
        client = redis.Redis.from_url(server.url)
        client.delete(f"tacit:{{run}}:{part}")
        connect().empty("f")
        after = connect()
        after.open("f")
        assert verdicts(after.append(entries("a", 1))) == ["accepted"]
        client.close()
