"""Parties and peers, their broker, store, server and observer are killed at random: nothing lost,
nothing twice.

The short forms run with `make test-all`, the long ones with `make chaos`.
"""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tacit_client import ApiError, Client, Edge, Unreachable
from tacit_services.transport import rest_client

from tests.helpers import gossip
from tests.helpers.chaos import REST_SECONDS, storm
from tests.helpers.gossip import COUNT, Disks, peer
from tests.helpers.nightly import nightly
from tests.helpers.processes import Service, deployment
from tests.helpers.servers import HOST, Server, free_port, mosquitto, redis_server, wait_for
from tests.helpers.vertical import PARTIES, learned_once, noiseless


class Victims:
    """The services that may be killed, by kind.

    A kind that is named twice has two turns where others have one.
    """

    def __init__(self, seed: int, **kinds: Sequence[Service | Server]) -> None:
        self.random, self.kinds, self.kills = random.Random(seed), kinds, Counter[str]()

    def strike(self, kind: str) -> None:
        """Kill a service of this kind with `kill -9`, and start a successor."""
        victim = self.random.choice(self.kinds[kind])
        victim.kill()
        victim.start()
        self.kills[kind] += 1

    def rage(self, often: str, progress: Callable[[], int], every: int, kills: int) -> None:
        """Kill until `kills` of them have died, of the kind `often` twice as many."""
        storm(
            self.random,
            [*self.kinds, often],
            self.strike,
            progress,
            every,
            lambda: sum(self.kills.values()) >= kills,
        )
        assert all(self.kills[kind] > 0 for kind in self.kinds)
        print("chaos:", dict(self.kills))  # noqa: T201  (shown by make chaos)


FORMS = [pytest.param(20, marks=pytest.mark.slow), pytest.param(100, marks=pytest.mark.exhaustive)]


@pytest.mark.parametrize("kills", nightly(20, 100))
def test_parties_learn_from_every_answer_once_whoever_is_killed(tmp_path: Path, kills: int) -> None:
    with (
        mosquitto(tmp_path) as broker,
        redis_server(tmp_path, "--auto-aof-rewrite-min-size", "1gb") as redis,
    ):
        address, text = f"{broker.host}:{broker.port}", noiseless(15 * kills)
        with deployment(tmp_path, text, address, redis.url, "vertical") as run:
            aggregator = run.aggregator()
            parties = [run.edge(number, "party") for number in range(PARTIES)]
            victims = Victims(
                3, aggregator=[aggregator], broker=[broker], redis=[redis], party=parties
            )
            victims.rage("party", run.accepted, 6, kills)
            wait_for((run.out / "summary.json").exists, REST_SECONDS)
            summary = run.ended()
            learned_once(run, summary)
            assert summary["test_accuracy"] > 0.8


@pytest.mark.parametrize("kills", FORMS)
def test_peers_conserve_the_mean_whoever_is_killed(tmp_path: Path, kills: int) -> None:
    with gossip.run(tmp_path, **gossip.STILL) as (deployed, broker):
        disks = Disks(deployed)
        disks.prepare()
        first, spread = disks.total(), disks.spread()
        observer, peers = deployed.aggregator(), [peer(deployed, number) for number in range(COUNT)]
        victims = Victims(4, observer=[observer], broker=[broker], peer=peers)
        victims.rage("peer", disks.all_answered, 8, kills)
        last = disks.all_answered()
        wait_for(lambda: disks.all_answered() > last + 20, gossip.PATIENCE)
        for service in deployed.services:
            assert service.signal(signal.SIGTERM) == 0, service.log
        assert float((disks.total() - first).abs().max()) < 1e-9
        assert disks.spread() < 0.5 * spread


@pytest.mark.parametrize("kills", nightly(20, 100))
def test_peers_pay_for_every_step_whoever_is_killed(tmp_path: Path, kills: int) -> None:
    settings = gossip.STILL | {"name": "adp2sgd", "rate": 0.5, "mechanism": "gaussian"}
    with gossip.run(tmp_path, **settings) as (deployed, broker):
        disks, http, token = Disks(deployed), f"{HOST}:{free_port()}", tmp_path / "token"
        observer = deployed.aggregator(TACIT_HTTP=http, TACIT_TOKEN_FILE=str(token))
        peers = [peer(deployed, number) for number in range(COUNT)]
        wait_for(lambda: all(disks.begun(number) for number in range(COUNT)), gossip.PATIENCE)
        victims = Victims(5, observer=[observer], broker=[broker], peer=peers)
        victims.rage("peer", disks.all_steps, 40, kills)
        last = disks.all_steps()
        wait_for(lambda: disks.all_steps() > last + 40, gossip.PATIENCE)
        with rest_client.client(f"http://{http}", rest_client.token(token)) as client:
            # One that is still starting, or away, hears of the end too late to be heard of what it
            # has spent.
            before = reported(client)
            wait_for(
                lambda: all(reported(client)[name] > steps for name, steps in before.items()),
                gossip.PATIENCE,
            )
            client.halt("enough")
        gossip.settled(deployed, disks, None)


def reported(client: Client) -> dict[str, int]:
    """Return what each peer has reported as charged, once the observer answers."""
    edges: list[Edge] = []

    def answers() -> bool:
        try:
            edges[:] = client.edges()
        except (Unreachable, ApiError):  # it is still starting
            return False
        return len(edges) == COUNT

    wait_for(answers, gossip.PATIENCE)
    return {edge.id: edge.pushes for edge in edges}
