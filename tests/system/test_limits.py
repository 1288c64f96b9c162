"""Where a limit of the broker is reached: a run stands still or slows down, and loses nothing."""

from __future__ import annotations

import secrets
import signal
from pathlib import Path

import psutil
from tacit_services.transport.mqtt import Connection

from tests.helpers.hostile import LARGEST
from tests.helpers.processes import PATIENCE, Deployment, Watcher, check, deployment, journalled
from tests.helpers.run_files import MAPA, toml
from tests.helpers.servers import MEGABYTE, mosquitto, rss, wait_for

UPDATES, EDGES = 60, 2
RUN = toml(
    MAPA,
    run={"updates": UPDATES, "snapshot_every": 10},
    algorithm={"max_staleness": 1000},
    privacy={"batch": 16},
    edges={"count": EDGES, "slowdown": [5.0, 5.0]},
)


def started(run: Deployment) -> None:
    run.aggregator(TACIT_CHUNK="1024", TACIT_JOURNAL_FILE=str(run.folder / "journal"))
    for number in range(EDGES):
        run.edge(number, TACIT_CHUNK="1024", TACIT_PATIENCE="0.5")
    run.wait_accepted(10)


def test_a_broker_at_its_memory_limit_is_killed_and_nothing_is_lost(tmp_path: Path) -> None:
    # Given a run whose broker may take 40 MB, and somebody who fills it with what it is to keep,
    with mosquitto(tmp_path, "memory_limit 41943040") as broker:
        address = f"{broker.host}:{broker.port}"
        with deployment(tmp_path, RUN, address, f"sqlite:///{tmp_path}/s.db", "full") as run:
            started(run)
            filler = Connection(address, "filler", [], lambda inbound: None)
            filler.start(PATIENCE)
            for _ in range(480):
                filler.publish(f"full/{secrets.token_hex(8)}", bytes(LARGEST), retain=True)
            wait_for(lambda: rss(broker.pid) > 36 * MEGABYTE, PATIENCE)
            # when it is full, it has kept its limit,
            assert rss(broker.pid) < 60 * MEGABYTE
            filler.stop()
            # and it is killed,
            broker.kill()
            broker.start()
            # then the run goes on to its end, and has all that was receipted, once.
            summary = run.ended()
            check(run, summary, journalled(run), range(EDGES))


def test_what_a_brokers_full_queue_drops_comes_again(tmp_path: Path) -> None:
    # Given a broker that queues three messages for a client, and an aggregator that stands still,
    with mosquitto(tmp_path, "max_queued_messages 3", "max_inflight_messages 1") as broker:
        address = f"{broker.host}:{broker.port}"
        with deployment(tmp_path, RUN, address, f"sqlite:///{tmp_path}/s.db", "queue") as run:
            started(run)
            (aggregator, *_) = run.services
            assert aggregator.process is not None
            watcher = Watcher(address, "queue")
            watcher.connection.start(PATIENCE)
            aggregator.process.send_signal(signal.SIGSTOP)
            standing = psutil.Process(aggregator.process.pid)
            wait_for(lambda: standing.status() == psutil.STATUS_STOPPED)
            before = run.accepted()
            # while its edges say everything several times over,
            wait_for(lambda: sum(map(len, list(watcher.copies.values()))) > 16, PATIENCE)
            watcher.connection.stop()
            assert run.accepted() == before
            aggregator.process.send_signal(signal.SIGCONT)
            # then it goes on, and nothing was lost or counted twice.
            wait_for(lambda: run.accepted() > before + 5, PATIENCE)
            summary = run.ended()
            check(run, summary, journalled(run), range(EDGES))
