"""A store that loses what it had accepted is noticed, and nothing goes on before the operator has
chosen: with what the journal file has, or anew under another name.
"""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis as client
from tacit_services.cli import main
from tacit_services.cli.replay import fold

from tests.helpers.processes import PATIENCE, Deployment, Service, deployment
from tests.helpers.run_files import MAPA, toml
from tests.helpers.servers import Mosquitto, RedisServer, wait_for

UPDATES = 400  # so that a store is lost long before the run ends
LOST = 7  # the exit code


@pytest.fixture
def run(tmp_path: Path, broker: Mosquitto, redis: RedisServer) -> Iterator[Deployment]:
    text = toml(MAPA, run={"updates": UPDATES, "snapshot_every": 30}, edges={"count": 2})
    address = f"{broker.host}:{broker.port}"
    with deployment(tmp_path, text, address, redis.url, "lost") as deployed:
        yield deployed


def journal(run: Deployment) -> Path:
    return run.folder / "run.journal"


def begun(run: Deployment, *, with_journal: bool) -> tuple[Service, list[Service]]:
    """Start aggregator and two edges, and return them in the middle of the run."""
    more = {"TACIT_JOURNAL_FILE": str(journal(run))} if with_journal else {}
    aggregator, edges = run.aggregator(**more), [run.edge(0), run.edge(1)]
    run.wait_accepted(45)
    return aggregator, edges


def told(services: list[Service], number: int) -> None:
    """Send each a signal that does not end it."""
    for service in services:
        assert service.process is not None
        service.process.send_signal(number)


def stopped(service: Service) -> int:
    """Return the exit code of a service, whether it has ended by now or is ended here."""
    assert service.process is not None
    wait_for(lambda: service.process is None or service.process.poll() is not None, PATIENCE)
    return service.wait()


def emptied(redis: RedisServer) -> None:
    client.Redis.from_url(redis.url).flushall()


def cut(redis: RedisServer, folder: Path, size: int) -> None:
    """Kill redis with `kill -9`; the last `size` bytes of the append-only file are lost."""
    redis.kill()
    (newest,) = folder.glob("appendonlydir/*.incr.aof")
    os.truncate(newest, newest.stat().st_size - size)
    redis.start()


def recovered(run: Deployment, *more: str) -> int:
    """Return the exit code of `tacit recover`."""
    with pytest.raises(SystemExit) as ended:
        main.main(["recover", "--from", str(journal(run)), "--store", run.url, *more])
    return int(ended.value.code or 0)


def test_an_emptied_store_is_noticed_by_what_its_edges_hold(
    run: Deployment, redis: RedisServer
) -> None:
    aggregator, edges = begun(run, with_journal=False)
    aggregator.kill()
    emptied(redis)
    aggregator.start()
    assert stopped(aggregator) == LOST, aggregator.log
    assert "holds a receipt for its message" in aggregator.log
    assert "tacit recover --from" in aggregator.log
    assert run.accepted() == 0  # nothing was begun anew
    before = [run.pushes(number) for number in range(2)]  # all that was under way is stored
    aggregator.start()  # and it does not get used to it
    assert stopped(aggregator) == LOST
    assert [run.pushes(number) for number in range(2)] == before
    for edge in edges:
        edge.signal(signal.SIGTERM)


def test_a_store_that_is_emptied_in_mid_run_is_put_back_and_the_run_ends(
    run: Deployment, redis: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    aggregator, _ = begun(run, with_journal=True)
    emptied(redis)
    assert stopped(aggregator) in (4, LOST), aggregator.log
    aggregator.start()
    assert stopped(aggregator) == LOST
    assert f"tacit recover --from {journal(run)}" in aggregator.log
    assert recovered(run) == 0
    assert "put back" in capsys.readouterr().out
    _ends(run, aggregator)


@pytest.mark.exhaustive
def test_a_cut_append_only_file_is_noticed_and_put_back(
    run: Deployment, redis: RedisServer, tmp_path: Path
) -> None:
    aggregator, edges = begun(run, with_journal=True)
    told(edges, signal.SIGSTOP)  # so that the file, which is written after the store, has all of it
    wait_for(lambda: fold(journal(run)).records == run.accepted(), PATIENCE)
    aggregator.kill()
    had = run.accepted()
    told(edges, signal.SIGCONT)
    cut(redis, tmp_path, 30_000)
    assert 0 < run.accepted() < had
    aggregator.start()
    assert stopped(aggregator) == LOST, aggregator.log
    assert recovered(run) == 0
    assert run.accepted() == had
    assert recovered(run) == 0  # nothing is put back twice
    assert run.accepted() == had
    _ends(run, aggregator)


@pytest.mark.exhaustive
def test_a_cut_append_only_file_is_noticed_without_a_journal_file(
    run: Deployment, redis: RedisServer, tmp_path: Path
) -> None:
    aggregator, edges = begun(run, with_journal=False)
    cut(redis, tmp_path, 30_000)
    assert stopped(aggregator) == LOST, aggregator.log  # by what it has folded itself
    aggregator.start()
    assert stopped(aggregator) == LOST  # by what its edges hold
    assert "holds a receipt for its message" in aggregator.log
    for edge in edges:
        edge.signal(signal.SIGTERM)


def test_a_store_that_has_gone_on_otherwise_is_not_mixed(
    run: Deployment, redis: RedisServer, capsys: pytest.CaptureFixture[str]
) -> None:
    aggregator, edges = begun(run, with_journal=True)
    for service in (aggregator, *edges):
        service.kill()
    aside = journal(run).rename(run.folder / "kept")
    emptied(redis)
    (run.folder / "receipts.key").unlink()  # what an aggregator could know it by
    again = run.aggregator(TACIT_JOURNAL_FILE=str(journal(run)))
    edges[0].start()
    run.wait_accepted(3)
    again.kill()
    aside.rename(journal(run))
    assert recovered(run) == 2
    assert "something has gone on with the run since" in capsys.readouterr().err
    # It is given up by the run's name, and by no other.
    had = fold(journal(run)).records
    assert recovered(run, "--empty", "another") == 2
    assert run.accepted() > 0
    assert recovered(run, "--empty", "lost") == 0
    output = capsys.readouterr().out
    assert "messages of the store were of another history, and are gone" in output
    assert f"{had} messages put back, the store has {had}" in output
    assert fold(journal(run)).records == had  # the file is as it was


@pytest.mark.parametrize("part", ["seq", "meta"])
def test_a_store_with_a_lost_part_is_emptied_and_put_back_and_the_run_goes_on(
    run: Deployment, redis: RedisServer, capsys: pytest.CaptureFixture[str], part: str
) -> None:
    aggregator, _ = begun(run, with_journal=True)
    assert recovered(run, "--empty", "lost") == 4  # while an aggregator writes the file
    assert "another aggregator is writing it" in capsys.readouterr().err
    aggregator.kill()
    client.Redis.from_url(redis.url).delete(f"tacit:{{lost}}:{part}")
    aggregator.start()
    assert stopped(aggregator) in (6, LOST), aggregator.log
    had = fold(journal(run)).records
    if part == "seq":
        assert "--empty lost" in aggregator.log  # what to do stands there
        assert recovered(run) == LOST  # there is no other way
    assert recovered(run, "--empty", "lost") == 0
    assert run.accepted() >= had
    aggregator.start()
    run.wait_accepted(had + 20)


def test_a_sqlite_store_is_emptied_and_put_back(
    tmp_path: Path, broker: Mosquitto, capsys: pytest.CaptureFixture[str]
) -> None:
    text = toml(MAPA, run={"updates": 100, "snapshot_every": 30}, edges={"count": 2})
    address, store = f"{broker.host}:{broker.port}", f"sqlite:///{tmp_path}/store.db"
    with deployment(tmp_path, text, address, store, "lost") as run:
        aggregator, _ = begun(run, with_journal=True)
        aggregator.kill()
        with sqlite3.connect(tmp_path / "store.db") as db:
            db.execute("DELETE FROM journal WHERE position = (SELECT MAX(position) FROM journal)")
        aggregator.start()
        assert stopped(aggregator) == 6, aggregator.log
        assert recovered(run, "--empty", "lost") == 0
        assert "messages put back" in capsys.readouterr().out
        aggregator.start()
        assert run.ended()["applied"] == 100


def test_a_server_that_evicts_is_refused_at_the_start(run: Deployment, redis: RedisServer) -> None:
    server = client.Redis.from_url(redis.url)
    server.config_set("maxmemory", "50mb")
    server.config_set("maxmemory-policy", "allkeys-lru")
    aggregator = run.aggregator()
    assert stopped(aggregator) == 2
    assert "maxmemory-policy=allkeys-lru" in aggregator.log
    server.config_set("maxmemory-policy", "volatile-lru")  # none of our keys has a time to live
    aggregator.start()
    wait_for(lambda: "noeviction is meant" in aggregator.log, PATIENCE)


def test_an_evicted_key_is_noticed_in_mid_run(run: Deployment, redis: RedisServer) -> None:
    aggregator, _ = begun(run, with_journal=False)
    client.Redis.from_url(redis.url).delete("tacit:{lost}:seq")
    assert stopped(aggregator) == LOST, aggregator.log
    assert "has lost a part of what the store had" in aggregator.log


def _ends(run: Deployment, aggregator: Service) -> None:
    """Check that the run goes on to its end, and that the journal file has all of it."""
    aggregator.start()
    summary = run.ended()
    folded = fold(journal(run))
    assert (summary["applied"], folded.version) == (UPDATES, UPDATES)
    assert folded.model_sha256 == summary["model_sha256"]
    for number in range(2):  # of what was released nothing is left out
        reported = summary["privacy"]["edges"][f"edge-{number}"]["pushes"]
        assert 0 < reported <= run.pushes(number) <= reported + 1
