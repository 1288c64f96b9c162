"""What else fails.

Full disks, edges that were away for long, services that come up in any order.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tacit_services.journal import journal_file
from tacit_services.journal.store import Store, open_store
from tacit_services.journal.store.memory import MemoryStore
from tacit_services.journal.store_with_file import StoreWithJournalFile

from tacit.config import RunFile
from tests.golden.harness import sha256
from tests.helpers.processes import PATIENCE, Watcher, deployment, environment, refold
from tests.helpers.rig import ROOMY, STATUS, Hostile, Rig, run_file, run_text
from tests.helpers.servers import HOST, Mosquitto, RedisServer, redis_server, wait_for
from tests.system.journal.test_store_servers import file_size_limit


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as running:
        yield running


def test_an_edge_ten_thousand_versions_behind_is_told_and_goes_on_from_the_newest(
    broker: Mosquitto, tmp_path: Path
) -> None:
    # Given a run in which an edge works, and another that was away while 10,000 updates were
    # applied,
    rig = Rig(run_file(updates=10_060), f"{broker.host}:{broker.port}", "behind")
    rig.serve()
    away = Hostile(rig, "edge-1")
    assert away.hello() == STATUS.ACCEPTED
    rig.edge(0, tmp_path)
    wait_for(lambda: rig.live.role.version >= 20)
    with rig.live.lock:
        rig.live.role.version += 10_000
    # when it sends what it has made from its old model, then it is told so, and gets the newest
    # one,
    before = rig.store.depth()[0]
    assert away.said(away.update(base=0)) == STATUS.STALE
    while away.receive("model").meta.model.version < 10_000:
        pass
    assert rig.store.depth()[0] >= before
    assert not rig.live.role.edges["edge-1"].updates
    # and the working edge, whose model is as old by now, loses one update and ends the run.
    role = rig.finished()
    assert (role.version, role.stale) == (10_060, 2)
    assert role.edges["edge-0"].updates == 60
    away.connection.stop()


def sqlite(folder: Path, run: RunFile) -> Store:
    return open_store(f"sqlite:///{folder / 'store.db'}", "full")


def kept(folder: Path, run: RunFile) -> Store:
    return StoreWithJournalFile(
        MemoryStore("full", ROOMY), journal_file.Writer(folder / "run.journal"), "full", run
    )


@pytest.mark.parametrize("make", [sqlite, kept])
def test_on_a_full_disk_the_aggregator_tells_edges_to_wait_and_loses_nothing(
    broker: Mosquitto, tmp_path: Path, make: Callable[[Path, RunFile], Store]
) -> None:
    run = run_file()
    rig = Rig(run, f"{broker.host}:{broker.port}", "full", make(tmp_path, run))
    rig.serve()
    edge = Hostile(rig, "edge-0")
    assert edge.hello() == STATUS.ACCEPTED
    assert edge.said(edge.update()) == STATUS.ACCEPTED
    message = edge.update(0.5)
    (payload,) = edge.parts(message)
    # When nothing more can be written, then an update is not accepted,
    with file_size_limit(1024):
        edge.publish(message.seq, payload)
        assert edge.receipt(message.seq).status == STATUS.BUSY
        wait_for(lambda: not rig.live.store_up)
        assert rig.live.role.version == 1
    # and when there is room again, the same bytes are, once.
    wait_for(lambda: rig.live.store_up)

    def taken() -> bool:
        edge.publish(message.seq, payload)
        return int(edge.receipt(message.seq).status) in (STATUS.ACCEPTED, STATUS.DUPLICATE)

    wait_for(taken)
    assert edge.said(edge.update()) == STATUS.ACCEPTED
    wait_for(lambda: rig.live.role.version == 3)
    accepted = [
        record.payload for record in rig.store.read(0, 100)
    ]  # before the last snapshot trims it
    edge.connection.stop()
    rig.close()
    assert not rig.failures
    rig.store.close()
    assert len(accepted) == 4
    assert sha256(refold(rig.run, accepted)[0]) == sha256(rig.live.role)
    if make is kept:
        with journal_file.open_journal(tmp_path / "run.journal") as file:
            assert [
                record.payload for record in journal_file.JournalReader(file, "file")
            ] == accepted


def test_on_a_full_disk_an_edge_leaves_and_has_sent_nothing_that_is_not_on_it(
    broker: Mosquitto, tmp_path: Path
) -> None:
    # Given an edge at work,
    address = f"{broker.host}:{broker.port}"
    watcher = Watcher(address, "small")
    watcher.connection.start(PATIENCE)
    rig = Rig(run_file(updates=10**6), address, "small")
    rig.serve()
    (tmp_path / "run.toml").write_text(run_text(10**6))
    settings = {
        "TACIT_RUN_FILE": str(tmp_path / "run.toml"),
        "TACIT_RUN_ID": "small",
        "TACIT_BROKER": address,
        "TACIT_IDENTITIES": str(tmp_path / "identities"),
        "TACIT_IDENTITY": "0",
    }
    command = [sys.executable, "-m", "tacit_services.cli.main", "edge"]
    with subprocess.Popen(
        command, env=environment(**settings), stderr=subprocess.PIPE, text=True
    ) as edge:
        wait_for(lambda: watcher.sent("edge-0", 5) > 0, PATIENCE)
        # when nothing more can be written,
        resource.prlimit(edge.pid, resource.RLIMIT_FSIZE, (0, 0))
        _, errors = edge.communicate(timeout=PATIENCE)
    # then it leaves with one line and exit code 5,
    assert edge.returncode == 5, errors
    (line,) = [line for line in errors.splitlines() if line.startswith("tacit: ")]
    assert line.startswith(("tacit: outbox ", "tacit: ledger ", "tacit: disk: "))
    # and everything that was seen of it had been charged, and was durable before it was sent.
    with deployment(tmp_path, "", address, "memory://", "small") as files:
        updates = [seq for _, seq, part in watcher.copies if part == 0 and seq > 1]
        assert 0 < len(set(updates)) <= files.pushes(0)
        assert max(updates) <= max(files.pending(0))
    assert not watcher.differing()
    watcher.connection.stop()
    rig.close()


@pytest.mark.slow
def test_services_may_come_up_in_any_order(
    broker: Mosquitto, redis: RedisServer, tmp_path: Path
) -> None:
    # Given an edge and an aggregator, and neither broker nor store,
    broker.kill()
    redis.kill()
    text = run_text(30, snapshot_every=10, more="edges.min = 1")
    with deployment(tmp_path, text, f"{HOST}:{broker.port}", redis.url, "order") as run:
        run.edge(0)
        aggregator = run.aggregator()
        wait_for(lambda: "trying again" in aggregator.log, PATIENCE)
        # when the store comes, and then the broker, then the run goes through.
        redis.start()
        broker.start()
        assert run.ended()["applied"] == 30
