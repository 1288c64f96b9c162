"""kill -9 of every process of a real deployment: each receipted update is in the model exactly
once.

The journal is read back from redis's append-only file, which no snapshot trims, and folded again by
the test.
"""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch
from tacit_client import Client
from tacit_services.journal.store import open_store

from tacit import config
from tacit.protocol import topics, wire
from tacit.protocol._pb import wire_pb2 as pb
from tests.helpers.processes import (
    PATIENCE,
    Caller,
    Deployment,
    Service,
    Watcher,
    appended,
    check,
    deployment,
)
from tests.helpers.rig import hello_meta
from tests.helpers.run_files import MAPA, toml
from tests.helpers.servers import HOST, Mosquitto, RedisServer, free_port, wait_for


def run_text(updates: int, edges: int) -> str:
    """Return a run file of so many updates by so many edges."""
    return toml(MAPA, run={"updates": updates, "snapshot_every": 40}, edges={"count": edges})


def two_edges(
    folder: Path, broker: Mosquitto, store: str, updates: int, run_id: str
) -> Iterator[Deployment]:
    run_file = run_text(updates, edges=2)
    with deployment(folder, run_file, f"{broker.host}:{broker.port}", store, run_id) as run:
        yield run


@pytest.fixture
def run(tmp_path: Path, broker: Mosquitto, redis: RedisServer) -> Iterator[Deployment]:
    """Yield two edges, 300 updates, on mosquitto and redis; nothing is started yet."""
    yield from two_edges(tmp_path, broker, redis.url, 300, "crash")


@pytest.fixture
def short(tmp_path: Path, broker: Mosquitto, redis: RedisServer) -> Iterator[Deployment]:
    """Yield the same with 150 updates, which are enough for the tests that do one thing, early."""
    yield from two_edges(tmp_path, broker, redis.url, 150, "crash")


def test_the_successor_of_a_killed_edge_sends_the_same_bytes_and_goes_on_from_its_spend(
    short: Deployment,
) -> None:
    run = short
    # Given a run in the middle, whose aggregator is killed: the edges are left with a message
    # without a receipt.
    watcher = Watcher(run.broker, run.run_id)
    watcher.connection.start(PATIENCE)
    aggregator, edges = run.aggregator(), [run.edge(0), run.edge(1)]
    run.wait_accepted(20)
    wait_for(lambda: watcher.sent("edge-0", 3) > 0, PATIENCE)
    aggregator.kill()
    wait_for(
        lambda: bool(run.pending(0)) and watcher.sent("edge-0", max(run.pending(0))) > 0, PATIENCE
    )
    # When edge-0 is killed, too, and another process takes its identity.
    edges[0].kill()
    wait_for(lambda: watcher.presence.get("edge-0") == "offline", PATIENCE)
    (seq, envelope), spent, copies = max(run.pending(0).items()), run.pushes(0), 0
    copies = watcher.sent("edge-0", seq)
    edges[0].start()
    # Then it sends the very same bytes, which cost nothing.
    wait_for(lambda: watcher.sent("edge-0", seq) > copies, PATIENCE)
    assert watcher.copies["edge-0", seq, 0][-1] == next(wire.split(envelope, 256 * 1024))
    assert run.pushes(0) == spent > 0
    # And with a new aggregator, the run ends as if nothing had happened.
    aggregator.start()
    summary = run.ended()
    check(run, summary, appended(run.folder), range(2))
    assert not watcher.differing()
    assert run.pushes(0) > spent
    assert "resumed at version" in aggregator.log
    watcher.connection.stop()


@pytest.mark.exhaustive
def test_who_leaves_after_the_end_is_seen_to_leave(short: Deployment) -> None:
    run = short
    # Given a run that ends while one of its edges stands still, and whose results are served on,
    address = f"{HOST}:{free_port()}"
    aggregator, edges = (
        run.aggregator(TACIT_LINGER="true", TACIT_HTTP=address),
        [run.edge(0), run.edge(1)],
    )
    run.wait_accepted(20)
    assert edges[1].process is not None
    edges[1].process.send_signal(signal.SIGSTOP)
    wait_for(lambda: "still serving" in aggregator.log, PATIENCE)
    with Client(f"http://{address}") as client:
        wait_for(lambda: client.status().edges_online == 1, PATIENCE)
        # when that one hears of the end,
        edges[1].process.send_signal(signal.SIGCONT)
        assert edges[1].wait() == 0
        # then nobody is online any more.
        wait_for(lambda: client.status().edges_online == 0, PATIENCE)
    assert aggregator.signal(signal.SIGTERM) == 0


def test_aggregators_take_over_in_order_and_only_with_the_same_parameters(run: Deployment) -> None:
    # Given an aggregator that has accepted messages,
    first = run.aggregator()
    caller = Caller(run.broker, run.run_id, "edge-0")
    assert first.process is not None
    say_hello(run, caller, 1)
    accept(caller, run, 2)
    # when another one starts on the same run, and one with another run file,
    other_file = run.folder / "other.toml"
    other_file.write_text(run_text(301, edges=2))
    second = run.aggregator(TACIT_OUT=str(run.folder / "out-2"))
    stranger = run.aggregator(TACIT_RUN_FILE=str(other_file), TACIT_RUN_ID=run.run_id)
    # then the stranger changes nothing, and the first leaves at its next write.
    assert stranger.wait() == 2
    assert stranger.log.count("tacit: ") == 1
    assert "is in the store with parameters" in last_line(stranger.log)
    wait_for(
        lambda: bool(caller.receive("announcement").meta.announcement.epoch >> 20 == 2), PATIENCE
    )

    def left() -> bool:
        accept(caller, run, 3)  # to whichever of them the broker has connected now
        return first.process is not None and first.process.poll() is not None

    wait_for(left, PATIENCE)
    assert first.wait() == 4
    assert "newer aggregator has taken over" in last_line(first.log)
    # And SIGTERM is an orderly end: everything is in the snapshot, nothing in the journal.
    accept(caller, run, 4)
    assert second.signal(signal.SIGTERM) == 0
    store = open_store(run.url, run.run_id)
    snapshot = store.snapshot()
    assert snapshot is not None
    assert (snapshot.cursor, store.depth()[0], store.last_seqs()) == (4, 0, {"edge-0": 4})
    store.close()
    caller.connection.stop()


def say_hello(run: Deployment, caller: Caller, seq: int) -> None:
    meta = hello_meta(config.load(run.file))
    meta.seq = seq
    wait_for(lambda: send(run, caller, meta, None), PATIENCE)


def accept(caller: Caller, run: Deployment, seq: int) -> None:
    """Send update number `seq` until its receipt comes, as an edge would."""
    size = config.load(run.file).build_model().size
    update = pb.Update(
        base_version=0, clip=1.0, spent=[pb.Spend(sampling_rate=0.1, noise_multiplier=1.0, count=1)]
    )
    wait_for(
        lambda: send(run, caller, pb.Meta(seq=seq, update=update), torch.full((size,), 1e-3)),
        PATIENCE,
    )


def send(run: Deployment, caller: Caller, meta: pb.Meta, tensor: torch.Tensor | None) -> bool:
    """Send once; whether an accepting receipt came within a second."""
    meta.run, meta.edge = run.run_id, caller.edge
    meta.schema_hash = config.load(run.file).build_model().schema_hash()
    (payload,) = wire.split(wire.encode(meta, tensor), 1 << 18)
    caller.connection.publish(topics.up(run.run_id, caller.edge, meta.seq, 0), payload)
    try:
        while (receipt := caller.receive("receipt", 1.0).meta).seq != meta.seq:
            pass
    except TimeoutError:
        return False
    return receipt.receipt.status in (pb.Receipt.ACCEPTED, pb.Receipt.DUPLICATE)


def last_line(log: str) -> str:
    return log.strip().splitlines()[-1]


@pytest.mark.slow
def test_the_broker_dies_twice(run: Deployment, broker: Mosquitto) -> None:
    watcher = Watcher(run.broker, run.run_id)
    watcher.connection.start(PATIENCE)
    run.aggregator(), run.edge(0), run.edge(1)
    for count in (60, 160):
        run.wait_accepted(count)
        broker.kill()
        broker.start()
    check(run, run.ended(), appended(run.folder), range(2))
    assert not watcher.differing()
    watcher.connection.stop()


@pytest.mark.slow
def test_the_store_dies_twice(run: Deployment, redis: RedisServer) -> None:
    aggregator = run.aggregator()
    run.edge(0), run.edge(1)
    for count in (60, 160):
        run.wait_accepted(count)
        redis.kill()
        wait_for(
            lambda: aggregator.log.count("store lost") > aggregator.log.count("store back"),
            PATIENCE,
        )
        redis.start()
    check(run, run.ended(), appended(run.folder), range(2))
    assert aggregator.log.count("store back") == 2


@pytest.mark.slow
def test_a_standby_takes_over_while_everybody_dies_or_is_stopped_on_sqlite(
    tmp_path: Path, broker: Mosquitto
) -> None:
    store = f"sqlite:///{tmp_path / 'store.db'}"
    watcher = Watcher(f"{broker.host}:{broker.port}", "sqlite")
    watcher.connection.start(PATIENCE)
    for run in two_edges(tmp_path, broker, store, 600, "sqlite"):
        play(run, watcher)
        with closing(sqlite3.connect(tmp_path / "store.db")) as db:
            ((position, entries),) = db.execute("SELECT position, entries FROM run").fetchall()
    assert 600 < position <= run.accepted()  # no number twice
    assert entries == 0
    assert not watcher.differing()
    watcher.connection.stop()


def play(run: Deployment, watcher: Watcher) -> None:
    # Given two identities and three edges that take whatever is free,
    edges = [run.edge() for _ in range(3)]
    (standby,) = wait_until_one_stands_by(edges)
    holders = {"edge-0: " in edge.log: edge for edge in edges if edge is not standby}
    aggregator = run.aggregator()
    run.wait_accepted(40)
    # when one dies and another is stopped, then a standby goes on with what the dead one has spent.
    holders[True].kill()
    spent = run.pushes(0)
    wait_for(lambda: "edge-0: " in standby.log, PATIENCE)
    assert holders[False].signal(signal.SIGTERM) == 0
    wait_for(lambda: watcher.presence.get("edge-1") == "left", PATIENCE)
    # When the aggregator dies, then is stopped, then the run ends by itself, and nothing is counted
    # twice.
    aggregator.kill()
    aggregator.start()
    run.wait_accepted(run.accepted() + 20)
    assert aggregator.signal(signal.SIGTERM) == 0
    aggregator.start()
    holders[False].start()
    run.services.remove(holders[True])
    summary = run.ended()
    assert summary["applied"] == 600
    assert run.pushes(0) > spent > 0
    for number in (0, 1):
        assert summary["privacy"]["edges"][f"edge-{number}"]["pushes"] <= run.pushes(number)


def wait_until_one_stands_by(edges: list[Service]) -> list[Service]:
    def standing() -> list[Service]:
        return [edge for edge in edges if "standing by" in edge.log]

    wait_for(
        lambda: len(standing()) == 1 and sum("pushes left" in edge.log for edge in edges) == 2,
        PATIENCE,
    )
    return standing()
