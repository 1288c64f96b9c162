"""A member that does harm below its messages, against a broker with the rules and limits of
compose.yaml: each field, flag and state by itself, with the honest edges' rate and the broker's
memory. Together with all else: test_attack.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tacit_client import Client
from tacit_services.enrollment.authority import CertificateAuthority
from tacit_services.transport import rest_client
from tacit_services.transport.mqtt import MAX_PACKET

from tests.helpers.hostile_packets import PACKET_BEHAVIOURS
from tests.helpers.nightly import nightly
from tests.helpers.processes import Deployment, deployment
from tests.helpers.servers import HOST, PATIENCE, Mosquitto, free_port, secure_mosquitto, wait_for
from tests.system.test_attack import (
    HONEST,
    HOSTILE,
    MEGABYTE,
    answers,
    besieged_by_packets,
    honest,
    rate,
    rss,
    run_text,
    settings,
)

RUN_ID = "below"
# What may wait for the aggregator: 1,000 packets. Beside it its retained messages, its will, what
# its connection is sending, and the receipts that it does not read.
BROKER_BOUND = (1000 + 60) * MAX_PACKET
AGGREGATOR_BOUND = 60 * MEGABYTE
IN_CI = ("never_released",)  # the others take a minute each
LATER = [name for name in PACKET_BEHAVIOURS if name not in IN_CI]
ROUNDS, SECONDS = 2, 3.0  # of calm and attack in turns, and of each


class Live:
    """A run that trains, its broker, and whoever is to attack it."""

    def __init__(self, run: Deployment, broker: Mosquitto, client: Client, bundle: Path) -> None:
        self.run, self.broker, self.client, self.bundle = run, broker, client, bundle
        (self.aggregator, *_) = run.services

    def pids(self) -> tuple[int, int]:
        """Of broker and aggregator."""
        assert self.aggregator.process is not None
        return self.broker.pid, self.aggregator.process.pid


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with running(tmp_path_factory.mktemp("below")) as made:
        yield made


@contextmanager
def running(folder: Path) -> Iterator[Live]:
    authority = CertificateAuthority.create(folder / "pki")
    edges = (*HONEST, HOSTILE)
    with secure_mosquitto(folder, authority.issue("broker", [HOST]), RUN_ID, edges) as broker:
        address, http = f"{HOST}:{broker.port}", f"{HOST}:{free_port()}"
        store = f"sqlite:///{folder}/store.db"
        with deployment(folder, run_text(), address, store, RUN_ID) as run:
            run.aggregator(TACIT_HTTP=http, **settings(authority.issue("aggregator")))
            for number, name in enumerate(HONEST):
                run.edge(number, TACIT_ROWS_ALONE="false", **settings(authority.issue(name)))
            with rest_client.client(f"http://{http}") as client:
                wait_for(lambda: answers(client) and honest(client) > 20, PATIENCE)
                yield Live(run, broker, client, authority.issue(HOSTILE))


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", [*IN_CI, *nightly(*LATER)])
def test_nothing_below_a_message_stops_the_others_or_fills_the_broker(
    live: Live, behaviour: str
) -> None:
    pids, said = live.pids(), live.run.folder / "hostile_packets.log"
    before, most, usual, attacked = [rss(pid) for pid in pids], [0, 0], 0.0, 0.0

    def look() -> None:
        most[:] = [max(m, rss(pid)) for m, pid in zip(most, pids, strict=True)]

    for _ in range(ROUNDS):  # in turns, as other work on the machine comes and goes
        usual += rate(live.client, SECONDS) / ROUNDS
        with besieged_by_packets(live.run, live.bundle, HOSTILE, (behaviour,)):
            attacked += rate(live.client, SECONDS, look) / ROUNDS
            wait_for(lambda: said.read_text().count("did ") > 0)
    grown = [m - b for m, b in zip(most, before, strict=True)]
    did = said.read_text().count("did ")
    print(f"{behaviour}: {usual:.1f} → {attacked:.1f}/s; grown", grown, did)  # noqa: T201
    assert attacked > usual / 6  # six seconds of a busy machine; before, there was nothing left
    assert grown[0] < BROKER_BOUND
    assert grown[1] < AGGREGATOR_BOUND
    after = honest(live.client)
    wait_for(lambda: honest(live.client) > after + 20, PATIENCE)
