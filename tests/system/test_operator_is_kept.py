"""What an operator was answered is kept: the aggregator is killed with the answer, and its
successor knows it.
"""

from __future__ import annotations

import inspect
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from tacit_client import ApiError, Client, Unreachable
from tacit_services.aggregator.api import operator
from tacit_services.transport import rest_client

from tacit import config
from tests.helpers.processes import PATIENCE, Deployment, Service, deployment
from tests.helpers.rig import STATUS, Hostile, run_text
from tests.helpers.servers import (
    HOST,
    Mosquitto,
    RedisServer,
    free_port,
    mosquitto,
    redis_server,
    wait_for,
)

TOKEN = "a-token-of-this-operator-only"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    with mosquitto(tmp_path_factory.mktemp("broker")) as running:
        yield running


class Operated:
    """An aggregator process, and its operator."""

    def __init__(self, run: Deployment) -> None:
        self._address, self._token = f"{HOST}:{free_port()}", run.folder / "token"
        self._token.write_text(TOKEN)
        self.service: Service = run.aggregator(
            TACIT_HTTP=self._address, TACIT_TOKEN_FILE=str(self._token), TACIT_LINGER="true"
        )
        wait_for(self._answers, PATIENCE)

    def client(self) -> Client:
        return rest_client.client(f"http://{self._address}", rest_client.token(self._token))

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.status().state)
        except (ApiError, Unreachable):
            return False

    def killed_with_the_answer(self, ask: Callable[[Client], Any]) -> None:
        """Kill the service with `kill -9` as soon as the answer is there; then start it again."""
        with self.client() as client:
            ask(client)
            self.service.kill()
        self.service.start()
        wait_for(self._answers, PATIENCE)

    def state(self) -> str:
        with self.client() as client:
            return client.status().state

    def accusation(self, edge: str) -> str:
        """Return why this edge is in quarantine."""
        row = httpx.get(f"http://{self._address}/v1/edges/{edge}", trust_env=False).json()
        return str(row["quarantine"])

    def refused(self, ask: Callable[[Client], Any]) -> ApiError:
        with self.client() as client, pytest.raises(ApiError) as error:
            ask(client)
        return error.value


@pytest.fixture(params=["redis", "sqlite"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[str, RedisServer | Path]]:
    """Yield the address of a store, and its server or its file."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/store.db", tmp_path / "store.db"
    else:
        with redis_server(tmp_path) as redis:
            yield redis.url, redis


@pytest.fixture
def run(
    tmp_path: Path, broker: Mosquitto, store: tuple[str, RedisServer | Path]
) -> Iterator[Deployment]:
    text = run_text(more="[guard]\nsums = true\n[edges]\ncount = 3\n")
    name = f"operated-{free_port()}"
    with deployment(tmp_path, text, f"{broker.host}:{broker.port}", store[0], name) as deployed:
        yield deployed


@contextmanager
def stuck(store: RedisServer | Path) -> Iterator[None]:
    """Let the store take nothing in the block."""
    if isinstance(store, RedisServer):
        os.kill(store.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(store.pid, signal.SIGCONT)
    else:
        with closing(sqlite3.connect(store, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield


def test_a_halt_that_was_answered_is_known_after_a_kill(run: Deployment) -> None:
    operated = Operated(run)
    assert operated.state() == "waiting"
    operated.killed_with_the_answer(lambda client: client.halt("enough"))
    assert operated.state() == "halted"
    # Asked again, it says why the run is over.
    with operated.client() as client:
        assert client.halt("another").reason == "enough"


def test_a_release_that_was_answered_is_known_after_a_kill(run: Deployment) -> None:
    operated = Operated(run)
    # Given three edges, of which one sends a direction as long as honest noise, until it is out,
    rig_facts = SimpleNamespace(broker=run.broker, run_id=run.run_id, **_stated(run.file))
    edges = [Hostile(rig_facts, f"edge-{number}") for number in range(3)]  # type: ignore[arg-type]
    assert [edge.hello() for edge in edges] == [STATUS.ACCEPTED] * 3
    statuses = [edges[0].said(edges[0].update(1 / 32, base=0))]
    while statuses[-1] == STATUS.ACCEPTED and len(statuses) < 20:
        statuses.append(edges[0].said(edges[0].update(1 / 32, base=0)))
    assert statuses[-1] == STATUS.STALE
    assert "noise that they owe" in operated.accusation("edge-0")
    # when it is released and the aggregator is killed with the answer, then it is released.
    operated.killed_with_the_answer(lambda client: client.release("edge-0"))
    assert operated.accusation("edge-0") == ""
    for edge in edges:
        edge.connection.stop()


def _stated(file: Path) -> dict[str, Any]:
    """Return what an edge states of a run, by its file."""
    run = config.load(file)
    model = run.build_model()
    return {"run": run, "model": model, "schema": model.schema_hash()}


def test_while_the_store_takes_nothing_the_answer_is_that_it_is_not_stored(
    run: Deployment, store: tuple[str, RedisServer | Path]
) -> None:
    operated = Operated(run)
    with stuck(store[1]):
        refused = operated.refused(lambda client: client.halt("enough"))
        assert refused.status == 503
        assert "not stored yet" in refused.detail
    # It is entered once the store is back, without being asked again.
    wait_for(lambda: operated.state() == "halted", PATIENCE)
    with operated.client() as client:
        assert client.halt().reason == "enough"


def test_a_client_waits_longer_than_the_aggregator_does() -> None:
    patience = inspect.signature(Client).parameters["timeout"].default
    assert patience >= 2 * operator.STORE_SECONDS
