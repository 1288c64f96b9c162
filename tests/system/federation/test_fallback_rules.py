"""The broker of a federation without mosquitto: the same rules, by amqtt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tacit_services.children import processes
from tacit_services.enrollment.acl import aggregator_name
from tacit_services.enrollment.authority import CertificateAuthority
from tacit_services.federation.broker import FederationBroker
from tacit_services.transport.mqtt import Connection
from tacit_services.transport.tls import Tls

from tacit.errors import ServiceError
from tacit.protocol import topics
from tests.helpers.federation_broker import UP, Federation, arrives, connected, meet
from tests.helpers.servers import HOST


@pytest.fixture
def federation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Federation]:
    monkeypatch.setattr(processes, "_which", lambda name: None)
    opened = Federation(tmp_path)
    yield opened
    opened.end()


def test_a_member_talks_in_a_run_while_its_owner_consents(federation: Federation) -> None:
    federation.rules.open("r", "edge-0")
    federation.rules.open("r", "edge-1")
    federation.rules.open_run("s")
    own, other = topics.up_numbered("r", "edge-0"), topics.up_numbered("r", "edge-1")
    down = topics.down("r", "edge-0", "model")
    with ExitStack() as stack:
        enter = stack.enter_context
        aggregator, at_r = enter(connected(federation, aggregator_name("r"), *UP))
        foreign, at_s = enter(connected(federation, aggregator_name("s"), *UP, topics.up_all("s")))
        edge, heard = enter(
            connected(federation, "edge-0", topics.down_all("r", "edge-0"), topics.up_all("r"))
        )
        second, _ = enter(connected(federation, "edge-1"))
        meet(edge, own, at_r)
        meet(second, other, at_r)
        meet(aggregator, down, heard)
        for topic in (other, topics.model("r"), topics.up_numbered("s", "edge-0")):
            assert not arrives(edge, topic, at_r, own), topic
        foreign.publish(down, b"tried")
        foreign.publish(topics.up_numbered("r", "edge-0"), b"tried")
        # When the owner withdraws, nothing passes any more.
        federation.rules.close("r", "edge-0")
        edge.publish(own, b"tried")
        aggregator.publish(down, b"tried")
        second.publish(other, b"allowed")
        assert at_r.next() == b"allowed"
        federation.kill()
        meet(second, other, at_r)
        edge.publish(own, b"tried")
        assert arrives(second, other, at_r, other)
        assert b"tried" not in heard.seen
        assert at_s.seen == []


def test_who_has_no_certificate_or_a_revoked_one_does_not_get_in(
    federation: Federation, tmp_path: Path
) -> None:
    tls = federation.tls("edge-0")
    federation.authority.revoke("edge-0")
    stranger = CertificateAuthority.create(tmp_path / "other").issue("edge-1")
    foreign = Tls(tls.ca, stranger / "tls.crt", stranger / "tls.key")
    for access in (tls, foreign, None):
        connection = Connection(federation.address, "x", [], lambda _: None, tls=access)
        with pytest.raises(ServiceError):
            connection.start(1.0)


def test_without_any_broker_it_is_said_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_which", lambda name: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    authority = CertificateAuthority.create(tmp_path / "ca")
    with pytest.raises(ServiceError, match=r"neither mosquitto .* nor amqtt"):
        FederationBroker(tmp_path / "broker", authority, [HOST]).start([])
