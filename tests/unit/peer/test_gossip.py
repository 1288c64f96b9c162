"""Peers over a real broker, in processes.

Killed, cut off, and told everything twice, they conserve the mean.
"""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import pytest
from tacit_services.transport import rest_client
from tacit_services.transport.mqtt import Connection, Inbound

from tacit import config
from tacit.protocol import topics
from tests.helpers.gossip import COUNT, PATIENCE, STILL, Disks, peer, run, settled
from tests.helpers.hostile import Member
from tests.helpers.hostile_packets import PacketMember
from tests.helpers.network import network
from tests.helpers.nightly import nightly
from tests.helpers.servers import HOST, free_port, rss, wait_for
from tests.helpers.siege import PACKETS_BOUND


class Echo:
    """Says everything that peers say a second time, later and in another order."""

    def __init__(self, broker: str) -> None:
        self.said = 0
        self._held: list[Inbound] = []
        self._seen: set[tuple[str, bytes]] = set()
        self._lock = threading.Lock()
        self.connection = Connection(broker, "echo", ["tacit/v1/gossip/peer/#"], self._repeat)
        self.connection.start(PATIENCE)

    def _repeat(self, inbound: Inbound) -> None:
        inbound.done()
        with self._lock:
            if (inbound.topic, inbound.payload) not in self._seen:
                self._seen.add((inbound.topic, inbound.payload))
                self._held.append(inbound)
            if len(self._held) >= 6:
                for earlier in reversed(self._held):
                    self.connection.publish(earlier.topic, earlier.payload)
                self.said += len(self._held)
                self._held.clear()


@pytest.mark.slow
def test_the_mean_survives_kills_a_partition_and_everything_said_twice(tmp_path: Path) -> None:
    with run(tmp_path, **STILL) as (deployed, _), network(deployed.broker) as cable:
        disks = Disks(deployed)
        disks.prepare()
        first, spread = disks.total(), disks.spread()
        echo = Echo(deployed.broker)
        peers = [
            peer(deployed, n, **({"TACIT_BROKER": cable.address} if n == 2 else {}))
            for n in range(COUNT)
        ]
        wait_for(lambda: min(disks.answered(n) for n in range(COUNT)) > 5, PATIENCE)
        for number in (1, 0, 1):
            peers[number].kill()
            before = disks.answered(3)
            wait_for(lambda: disks.answered(3) > before + 3, PATIENCE)  # noqa: B023  (used at once)
            peers[number].start()
            wait_for(lambda: "is here" in peers[number].log, PATIENCE)  # noqa: B023
        cable.blackout(4.0, cut=True)
        apart = [disks.steps(n) for n in range(COUNT)]
        wait_for(
            lambda: all(disks.steps(n) > apart[n] + 5 for n in (0, 1, 3)), PATIENCE
        )  # nobody waits for edge-2
        met = disks.answered(2)
        wait_for(lambda: disks.answered(2) > met + 10, PATIENCE)  # it is back
        echo.connection.stop()
        assert echo.said > 50
        for service in peers:
            assert service.signal(signal.SIGTERM) == 0, service.log
        assert float((disks.total() - first).abs().max()) < 1e-9
        assert disks.spread() < 0.5 * spread
        assert cable.cuts


@pytest.mark.parametrize("name", ["adp2sgd", *nightly("sync")])
def test_a_run_ends_by_itself_and_its_epsilon_is_the_ledgers(tmp_path: Path, name: str) -> None:
    settings = {
        "updates": 400,
        "name": name,
        "rate": 0.5,
        "topology": "ring",
        "mechanism": "gaussian",
        "count": COUNT,
    }
    with run(tmp_path, **settings) as (deployed, _):
        disks = Disks(deployed)
        deployed.aggregator()
        for number in range(COUNT):
            peer(deployed, number)
        # Before, one may be alone.
        wait_for(lambda: all(disks.begun(number) for number in range(COUNT)), PATIENCE)
        steps, answered = disks.all_steps(), disks.all_answered()
        wait_for((deployed.out / "summary.json").exists, PATIENCE)
        settled(deployed, disks, 400)
        steps, answered = disks.all_steps() - steps, disks.all_answered() - answered
        if (
            name == "adp2sgd"
        ):  # Algorithm 1 has an exchange in every step; a step here is far shorter than a message
            assert answered > 0.8 * steps > 0


def test_a_peer_that_claims_the_end_ends_no_run(tmp_path: Path) -> None:
    # Given three peers that are far from their run's end, and what they are observed by,
    with run(tmp_path, **STILL | {"updates": 10**6}) as (deployed, _):
        disks, http = Disks(deployed), f"{HOST}:{free_port()}"
        deployed.aggregator(TACIT_HTTP=http)
        for number in range(COUNT - 1):
            peer(deployed, number)
        liar = Member(
            config.load(deployed.file), deployed.broker, deployed.run_id, f"edge-{COUNT - 1}"
        )
        liar.connection.start(PATIENCE)
        wait_for(lambda: all(disks.begun(n) and disks.steps(n) > 5 for n in range(3)), PATIENCE)
        # when a fourth says to each of them, of itself, and to the observer, that all is done,
        liar.publish(topics.presence(deployed.run_id, liar.edge), b"online", retain=True)
        liar.hello()
        for seq in range(1, 6):
            liar.claim_the_end(10**6, [f"edge-{n}" for n in range(COUNT)], seq)
        # then they go on, and the run with them.
        before = [disks.steps(n) for n in range(3)]
        wait_for(lambda: all(disks.steps(n) > before[n] + 60 for n in range(3)), PATIENCE)
        with rest_client.client(f"http://{http}") as client:
            assert client.status().state == "training"
        assert disks.counts(0)[liar.edge] < 10**5
        liar.connection.stop()
        assert not deployed.out.joinpath("summary.json").exists()


@pytest.mark.slow
def test_a_peer_that_floods_another_with_packets_holds_up_nobody(tmp_path: Path) -> None:
    # Given three peers that train, of which each hears a fourth,
    with run(tmp_path, **STILL) as (deployed, broker):
        disks, stop = Disks(deployed), threading.Event()
        for number in range(COUNT - 1):
            peer(deployed, number)
        wait_for(lambda: all(disks.begun(n) and disks.steps(n) > 5 for n in range(3)), PATIENCE)
        hostile = PacketMember(broker.port, deployed.run_id, f"edge-{COUNT - 1}", to="edge-0")
        with hostile.connected() as member:
            member.publish(hostile.presence, b"online", retain=True)

        def steps() -> int:
            return sum(disks.steps(number) for number in range(COUNT - 1))

        def rate() -> float:
            began, before = time.monotonic(), steps()
            wait_for(lambda: steps() > before + 300, PATIENCE)
            return (steps() - before) / (time.monotonic() - began)

        def attack() -> None:
            while not stop.is_set():
                for name in ("many_properties", "large_properties", "empty", "never_released"):
                    hostile.act(name)

        # when it sends one of them properties, empty messages, presence and what it never releases,
        usual, thread = rate(), threading.Thread(target=attack)
        thread.start()
        try:
            attacked = rate()
            # then they train on, and whoever floods is not even delivered.
            wait_for(
                lambda: any(
                    "floods: shut out" in log.read_text()
                    for log in deployed.folder.glob("peer-0-*.log")
                ),
                PATIENCE,
            )
        finally:
            stop.set()
            thread.join(PATIENCE)
        print(f"steps {usual:.1f} → {attacked:.1f}/s")  # noqa: T201
        # The attack takes a core of the machine; a peer that unpacked it would stand still.
        assert attacked > usual / 20
        assert rss(broker.pid) < PACKETS_BOUND
        deployed.check_services()


@pytest.mark.slow
def test_a_peer_that_comes_for_the_first_time_in_mid_run_catches_up_and_takes_part(
    tmp_path: Path,
) -> None:
    settings = STILL | {"name": "adp2sgd", "rate": 0.5, "mechanism": "gaussian"}
    with run(tmp_path, **settings) as (deployed, _):
        disks, http, token = Disks(deployed), f"{HOST}:{free_port()}", tmp_path / "token"
        deployed.aggregator(TACIT_HTTP=http, TACIT_TOKEN_FILE=str(token))
        for number in range(COUNT - 1):
            peer(deployed, number)
        wait_for(
            lambda: all(
                disks.begun(number) and disks.steps(number) > 20 for number in range(COUNT - 1)
            ),
            PATIENCE,
        )
        peer(deployed, COUNT - 1)
        wait_for(lambda: disks.begun(COUNT - 1) and disks.steps(COUNT - 1) > 20, PATIENCE)
        assert disks.answered(COUNT - 1) > 10
        assert disks.counts(COUNT - 1)["edge-0"] > 20  # it knows what the others have done
        with rest_client.client(f"http://{http}", rest_client.token(token)) as client:
            client.halt("enough")
        settled(deployed, disks, None)
