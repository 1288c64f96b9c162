"""The numbers that REST shows, under kill -9 of the aggregator: those of one answer belong to one
moment, none falls that counts, and ε is that of what was released.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tacit_client import ApiError, Client, Unreachable
from tacit_client.models import Edge, Status

from tacit import config
from tacit.privacy.accounting import Spend, epsilon_pld
from tacit.protocol import topics, wire
from tests.helpers.processes import PATIENCE, Caller, Deployment, deployment
from tests.helpers.rig import hello_meta
from tests.helpers.run_files import MAPA, toml
from tests.helpers.servers import HOST, Mosquitto, RedisServer, free_port, wait_for

KILLS = 2


@pytest.fixture(params=["sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    redis: RedisServer = request.getfixturevalue("redis")
    return redis.url


class Reader:
    """Asks for the status again and again, and keeps every answer."""

    def __init__(self, address: str) -> None:
        self.seen: list[Status] = []
        self._address, self._stop = address, threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def _read(self) -> None:
        with Client(f"http://{self._address}", timeout=PATIENCE) as client:
            while not self._stop.is_set():
                with suppress(Unreachable, ApiError):  # it was killed, or recovers
                    self.seen.append(client.status())

    @contextmanager
    def reading(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()

    def shows(self, applied: int, duplicates: int) -> bool:
        """Check whether the newest status has as many."""
        last = self.seen[-1:]
        return any(status.applied >= applied and status.duplicates >= duplicates for status in last)


class Repeater(Caller):
    """Says one Hello again and again: every time but the first it is a duplicate."""

    def __init__(self, run: Deployment, edge: str) -> None:
        super().__init__(run.broker, run.run_id, edge)
        file = config.load(run.file)
        meta = hello_meta(file)
        meta.run, meta.edge, meta.seq = run.run_id, edge, 1
        meta.schema_hash = file.build_model().schema_hash()
        self._message = wire.part(wire.encode(meta), 1 << 18, 0)

    def say(self) -> None:
        self.connection.publish(topics.up(self.run_id, self.edge, 1, 0), self._message)

    def until(self, condition: Callable[[], bool]) -> None:
        """Say it until that is so."""

        def so() -> bool:
            self.say()
            return condition()

        wait_for(so, PATIENCE)


def run_file(*, edges: int, epsilon: float, updates: int = 100_000, wait: float = 60.0) -> str:
    return toml(
        MAPA,
        run={"updates": updates, "snapshot_every": 40},
        edges={"count": edges, "wait": wait},
        privacy={"epsilon": epsilon},
    )


def exact(edge: Edge, run: config.RunFile) -> float:
    assert edge.sampling_rate is not None
    assert edge.noise_multiplier is not None
    spent = Spend(edge.sampling_rate, edge.noise_multiplier, edge.pushes, edge.mechanism)
    return epsilon_pld((spent,), run.plan(0).delta)


def test_counts_agree_and_none_falls_when_the_aggregator_is_killed(
    tmp_path: Path, broker: Mosquitto, store: str
) -> None:
    # Given two edges at work, one that repeats itself, and somebody who reads the status,
    address = f"{HOST}:{free_port()}"
    text = run_file(edges=3, epsilon=1e6)
    with deployment(tmp_path, text, f"{broker.host}:{broker.port}", store, "counts") as run:
        aggregator, edges = run.aggregator(TACIT_HTTP=address), [run.edge(0), run.edge(1)]
        repeater, reader = Repeater(run, "edge-2"), Reader(address)
        with reader.reading():
            for kill in range(1, KILLS + 1):
                repeater.until(lambda: reader.shows(40 * kill, 10 * kill))  # noqa: B023
                # when the aggregator is killed in the middle, over and over,
                aggregator.kill()
                aggregator.start()
            repeater.until(lambda: reader.shows(40 * KILLS + 40, 10 * KILLS + 10))
            for edge in edges:
                assert edge.signal(signal.SIGTERM) == 0, edge.log
            # then nobody is online once they have left,
            repeater.connection.stop()
            wait_for(lambda: reader.seen[-1].edges_online == 0, PATIENCE)
        assert aggregator.signal(signal.SIGTERM) == 0, aggregator.log
    models: dict[int, str] = {}
    for before, after in zip(reader.seen, reader.seen[1:], strict=False):
        # no count is lower than one that was shown before,
        assert after.applied >= before.applied
        assert after.duplicates >= before.duplicates
    for status in reader.seen:
        # and the numbers of one answer are of one moment, the same one before a kill and after.
        assert status.applied == status.model_version
        assert models.setdefault(status.applied, status.model_sha256) == status.model_sha256
        assert status.state == ("training" if status.applied else "waiting")
    assert len(models) > KILLS


def test_epsilon_while_training_is_that_of_what_was_released(
    tmp_path: Path, broker: Mosquitto
) -> None:
    address, store = f"{HOST}:{free_port()}", f"sqlite:///{tmp_path}/store.db"
    text = run_file(edges=2, epsilon=1e6)
    with deployment(tmp_path, text, f"{broker.host}:{broker.port}", store, "epsilon") as run:
        aggregator = run.aggregator(TACIT_HTTP=address)
        run.edge(0), run.edge(1)
        readings: list[Edge] = []
        bounds: list[tuple[float, bool]] = []

        def read_exact() -> bool:
            readings.extend(client.edges())
            return not all(edge.bound for edge in readings)

        with Client(f"http://{address}", timeout=PATIENCE) as client:
            for accepted in (30, 120, 200):
                run.wait_accepted(accepted)
                bounds.append(
                    (client.status().privacy.epsilon or 0.0, client.status().privacy.bound)
                )
                wait_for(read_exact, PATIENCE)  # a busy machine takes a while for the first
                aggregator.kill()
                aggregator.start()
                wait_for(lambda: _answers(client), PATIENCE)
    file = config.load(run.file)
    assert {edge.bound for edge in readings} <= {True, False}
    for edge in readings:
        released = exact(edge, file)
        epsilon = edge.epsilon_pld or 0.0
        assert epsilon == released if not edge.bound else epsilon > released
    assert not all(edge.bound for edge in readings)


def _answers(client: Client) -> bool:
    with suppress(Unreachable, ApiError):
        return bool(client.status().state)
    return False


def test_nobody_is_online_when_all_have_retired_and_left(tmp_path: Path, broker: Mosquitto) -> None:
    # Given two edges that have spent their budgets, of a run that has not waited for a third,
    address, store = f"{HOST}:{free_port()}", f"sqlite:///{tmp_path}/store.db"
    text = run_file(edges=3, epsilon=1.0, wait=3.0)
    with (
        deployment(tmp_path, text, f"{broker.host}:{broker.port}", store, "left") as run,
        Client(f"http://{address}", timeout=PATIENCE) as client,
    ):
        aggregator, edges = run.aggregator(TACIT_HTTP=address), [run.edge(0), run.edge(1)]
        wait_for(lambda: _retired(client) == 2, PATIENCE)
        assert client.status().edges_online == 2
        # when they leave,
        for edge in edges:
            assert edge.signal(signal.SIGTERM) == 0, edge.log
        # then nobody is there, for a new aggregator as well, and they are still retired.
        wait_for(lambda: client.status().edges_online == 0, PATIENCE)
        aggregator.kill()
        aggregator.start()
        wait_for(lambda: _answers(client) and client.status().edges_online == 0, PATIENCE)
        assert _retired(client) == 2


def _retired(client: Client) -> int:
    with suppress(Unreachable, ApiError):
        return sum(edge.state == "retired" for edge in client.edges())
    return 0
