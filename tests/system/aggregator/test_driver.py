"""The server driver where things go wrong, over a real broker: every run comes to its end."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tacit_services.journal.store import open_store
from tacit_services.journal.store.append_rules import JournalLimits
from tacit_services.journal.store.memory import MemoryStore
from tacit_services.transport.mqtt import Inbound

from tests.golden.harness import sha256
from tests.helpers.processes import Caller, appended, refold
from tests.helpers.rig import STATUS, Rig, hello_meta, inbound, new, run_file, take, update_meta
from tests.helpers.servers import redis_server, wait_for


def test_lost_receipts_cost_duplicates_only(address: str, tmp_path: Path) -> None:
    # Given edges that do not hear a third of what the aggregator says to them,
    rig = Rig(run_file(updates=40), address, "deaf")
    rig.store.save = lambda snapshot: None  # type: ignore[method-assign]  # keep the whole journal
    heard = [0]

    def deaf(inbound: Inbound) -> bool:
        heard[0] += 1
        lost = ("/receipt/" in inbound.topic or "/model/" in inbound.topic) and heard[0] % 3 == 0
        if lost:
            inbound.done()
        return lost

    rig.serve()
    for number in range(2):
        rig.edge(number, tmp_path, patience=0.2, deaf=deaf)
    role = rig.finished()
    # then every message is in the journal once, and the model is its fold.
    journal = rig.store.read(0, 10**6)
    assert rig.live.counts["duplicate"] > 5
    assert role.version == 40
    assert len({(record.edge, record.seq) for record in journal}) == len(journal)
    assert sha256(refold(rig.run, [record.payload for record in journal])[0]) == sha256(role)


def test_updates_in_chunks_of_1024_bytes(address: str, tmp_path: Path) -> None:
    rig = Rig(run_file(updates=20), address, "chunks", chunk=1024)
    rig.serve()
    rig.edge(0, tmp_path)
    assert rig.finished().version == 20
    assert not any(
        name.startswith("rejected") for name in rig.live.counts if name != "rejected:halted"
    )


def test_a_full_journal_makes_room_for_itself(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a journal that holds fewer messages than lie between two snapshots, none of which comes
    # by the clock,
    monkeypatch.setattr("tacit_services.aggregator.run_journal.SNAPSHOT_SECONDS", math.inf)
    rig = Rig(run_file(updates=15), address, "full", MemoryStore("full", JournalLimits(8, 1 << 40)))
    rig.serve()
    rig.edge(0, tmp_path)
    assert rig.finished().version == 15
    assert rig.live.counts["busy"] > 0


@pytest.mark.parametrize("run_id", ["presence", "model", "down", "up", "control"])
def test_a_run_may_have_any_name(address: str, tmp_path: Path, run_id: str) -> None:
    rig = Rig(run_file(updates=5), address, run_id)
    rig.serve()
    rig.edge(0, tmp_path)
    assert rig.finished().version == 5


def test_the_store_dies_while_edges_are_working(address: str, tmp_path: Path) -> None:
    with redis_server(tmp_path, "--auto-aof-rewrite-min-size", "1gb") as redis:
        rig = Rig(
            run_file(updates=60, snapshot_every=7),
            address,
            "store-dies",
            open_store(redis.url, "store-dies"),
        )
        rig.serve()
        caller = new(rig)
        assert caller.hello() == STATUS.ACCEPTED
        redis.kill()
        # No store, no acceptance: the edge is told to wait.
        assert caller.hello() == STATUS.BUSY
        rig.edge(0, tmp_path, patience=1.0)
        redis.start()
        wait_for(lambda: rig.live.role.version > 10)
        redis.kill()
        wait_for(lambda: not rig.live.store_up)
        redis.start()
        assert rig.finished().version == 60
        caller.connection.stop()
        journal = appended(tmp_path)
        rig.store.close()
    assert [entry.position for entry in journal] == list(range(1, len(journal) + 1))
    assert len({(entry.edge, entry.seq) for entry in journal}) == len(journal)


@pytest.mark.parametrize(
    ("updates", "third"), [(1, STATUS.STALE), (2, STATUS.ACCEPTED), (9, STATUS.ACCEPTED)]
)
def test_receipts_say_accepted_only_for_what_is_in_the_model(
    address: str, updates: int, third: int
) -> None:
    # Given a run that allows a staleness of 1, and an edge with three updates of version 0 in one
    # batch,
    rig = Rig(run_file(updates=updates, max_staleness=1), address, f"batch-{updates}")
    rig.driver.recover()
    connection = rig.connect()
    caller = Caller(address, rig.run_id, "edge-0")
    take(rig.pipeline, inbound(rig, [hello_meta(rig.run)]))
    # when they are all screened before the first of them is folded,
    take(rig.pipeline, inbound(rig, [update_meta(0)] * 3, 2))
    # then those that came after the last, or became stale, are told that they are not in the model.
    statuses = [caller.receive("receipt").meta.receipt.status for _ in range(4)]
    assert statuses == [STATUS.ACCEPTED, STATUS.ACCEPTED, third, STATUS.STALE]
    assert rig.live.role.version == statuses.count(STATUS.ACCEPTED) - 1
    again = rig.assembled(rig.store)
    again.driver.recover()
    assert sha256(again.run.role) == sha256(rig.live.role)
    caller.connection.stop()
    connection.stop()
