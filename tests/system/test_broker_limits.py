"""The broker of compose.yaml keeps nothing without a bound, whatever a member's packets say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
from tacit_services.enrollment.authority import CertificateAuthority
from tacit_services.transport.mqtt import Connection, Inbound
from tacit_services.transport.tls import Tls

from tacit.protocol import topics
from tests.helpers import packets
from tests.helpers.hostile_packets import KEPT, WHOLE, large, tiny
from tests.helpers.packets import Packets
from tests.helpers.servers import (
    HOST,
    MEGABYTE,
    PATIENCE,
    Mosquitto,
    rss,
    secure_mosquitto,
    wait_for,
)

RUN, EDGE = "kept", "edge-0"
QUEUED = 1000  # messages that may wait for a client: docker/mosquitto.conf
UP = topics.up_numbered(RUN, EDGE)


class Site:
    """The broker, and who may be its client."""

    def __init__(self, broker: Mosquitto, authority: CertificateAuthority) -> None:
        self.broker, self._bundles = broker, {}
        for name in ("aggregator", EDGE):
            bundle = authority.issue(name)
            self._bundles[name] = Tls(bundle / "ca.crt", bundle / "tls.crt", bundle / "tls.key")

    def tls(self, name: str) -> Tls:
        return self._bundles[name]

    def member(self, level: int = 5, **more: bytes) -> Packets:
        """Open a connection of the edge's."""
        return Packets(self.broker.port, EDGE, tls=self.tls(EDGE), level=level, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("kept")
    authority = CertificateAuthority.create(folder / "pki")
    bundle = authority.issue("broker", [HOST])
    with secure_mosquitto(folder, bundle, RUN, [EDGE]) as broker:
        yield Site(broker, authority)


@pytest.mark.parametrize("level", [5, 4])
def test_qos_2_is_not_taken_and_nothing_of_it_is_kept(site: Site, level: int) -> None:
    before = rss(site.broker.pid)
    for payload in (bytes(WHOLE), b"x"):
        for _ in range(10):
            with site.member(level, session=KEPT if level == 5 else b"") as member:
                with suppress(OSError):
                    for _ in range(20):
                        member.publish(UP, payload, qos=2)
                assert member.closed()
    assert rss(site.broker.pid) < before + 8 * MEGABYTE


@pytest.mark.parametrize("alias", [1, 10])
def test_a_topic_alias_is_not_taken(site: Site, alias: int) -> None:
    with site.member() as member:
        alias_property = packets.TOPIC_ALIAS + alias.to_bytes(2, "big")
        member.publish(UP, b"x", properties=alias_property)
        assert member.closed()


def test_a_packet_larger_than_a_chunk_is_not_taken(site: Site) -> None:
    with site.member() as member:
        with suppress(OSError):
            member.publish(UP, b"x", properties=tiny(300_000))
        assert member.closed()


def test_what_waits_for_an_aggregator_that_stands_still_is_bounded(site: Site) -> None:
    # Given an aggregator that acknowledges nothing,
    heard = list[Inbound]()
    aggregator = Connection(
        f"{HOST}:{site.broker.port}",
        "x",
        [topics.up_all(RUN)],
        heard.append,
        tls=site.tls("aggregator"),
    )
    aggregator.start(PATIENCE)
    wait_for(lambda: aggregator.hears)
    before = rss(site.broker.pid)
    # when a member sends three times as many as may wait, of payloads that are next to nothing,
    with site.member() as member:
        for _ in range(3 * QUEUED):
            member.publish(UP, b"x", properties=large(60_000), qos=1)
        member.ping()
        received = b""
        while b"\xd0\x00" not in received:
            received = received[-1:] + member.read()
    # then the broker is there, and has kept what it may.
    wait_for(lambda: len(heard) > 0)
    assert rss(site.broker.pid) < before + 1.5 * QUEUED * 60_000
    aggregator.stop()
