"""Enrolment and MQTT through Debian's squid, with a password and without, and where it refuses."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tacit_services.enrollment import certificates, rest
from tacit_services.enrollment.authority import CertificateAuthority
from tacit_services.enrollment.tokens import TokenRegister
from tacit_services.transport.address import bind
from tacit_services.transport.front_door import FrontDoor
from tacit_services.transport.mqtt import Connection, Inbound
from tacit_services.transport.proxy import DIRECT, Proxies
from tacit_services.transport.tls import Tls
from tacit_services.worker.enroll import EnrolmentServer

from tacit.errors import ServiceError
from tests.helpers.servers import HOST, PATIENCE, secure_mosquitto
from tests.helpers.squid import squid

UP = "tacit/v1/r/up/edge-0/0/0"
MODEL = "tacit/v1/r/model"


class Host:
    """One port, and what lies behind it: a broker with certificates, and an enrolment server."""

    def __init__(self, address: str, authority: CertificateAuthority, token: Path) -> None:
        self.address = address
        self._authority = authority
        self._token = token

    def enrolment(self, proxies: Proxies) -> EnrolmentServer:
        ca = self._authority.folder / "ca.crt"
        return EnrolmentServer(f"https://{self.address}", ca, self._token, 1.0, proxies)

    def tls(self, name: str) -> Tls:
        folder = self._authority.folder / name
        if not folder.exists():
            self._authority.issue(name)
        return Tls(folder / "ca.crt", folder / "tls.crt", folder / "tls.key")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("host")
    authority = CertificateAuthority.create(folder / "pki")
    token = folder / "token"
    token.write_text(TokenRegister(authority.folder).add("edge-*", once=False))
    broker_folder = authority.issue("broker", [HOST])
    authority.issue(rest.SERVER, [HOST])
    with (
        secure_mosquitto(folder, broker_folder, "r", ["edge-0", "edge-1"]) as broker,
        served(authority) as https,
    ):
        door = FrontDoor(bind(f"{HOST}:0"), f"{HOST}:{broker.port}", https)
        door.start()
        yield Host(door.address, authority, token)
        door.close()


@contextmanager
def served(authority: CertificateAuthority) -> Iterator[str]:
    app = rest.create_app(rest.RegistrationAuthority(authority))
    with socket.create_server((HOST, 0)) as listener:
        server = rest.web(app, authority.folder / rest.SERVER)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield "{}:{}".format(*listener.getsockname())
        server.should_exit = True
        thread.join(PATIENCE)


def exchanged(host: Host, proxies: Proxies) -> bytes:
    """Return what the aggregator hears of an edge that reaches the broker by `proxies`."""
    heard: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def hear(inbound: Inbound) -> None:
        heard.put(inbound.payload)
        inbound.done()

    aggregator = Connection(
        host.address, "a", ["tacit/v1/r/up/+/+/+"], hear, tls=host.tls("aggregator")
    )
    edge = Connection(
        host.address,
        "e",
        [],
        lambda inbound: inbound.done(),
        tls=host.tls("edge-0"),
        proxies=proxies,
    )
    try:
        aggregator.start(PATIENCE)
        edge.start(PATIENCE)
        edge.publish(UP, b"an update")
        return heard.get(timeout=PATIENCE)
    finally:
        edge.stop()
        aggregator.stop()


def enrolled(host: Host, proxies: Proxies, name: str) -> str | None:
    csr = certificates.request(certificates.new_key(), name)
    return host.enrolment(proxies).signed(csr, threading.Event())


def test_enrolment_and_messages_go_through_a_proxy_and_nowhere_else(host: Host) -> None:
    with squid() as proxy:
        proxies = Proxies.parsed(f"http://{proxy.address}")
        assert "BEGIN CERTIFICATE" in (enrolled(host, proxies, "edge-10") or "")
        assert exchanged(host, proxies) == b"an update"
        assert proxy.tunnels() == [f"TCP_TUNNEL/200 {host.address}"] * 2


def test_a_proxy_gets_the_user_and_the_password_that_it_asks_for(host: Host) -> None:
    with squid({"anna": "p@ss: word"}) as proxy:
        proxies = Proxies.parsed(f"http://anna:p%40ss%3A%20word@{proxy.address}")
        assert enrolled(host, proxies, "edge-11") is not None
        assert exchanged(host, proxies) == b"an update"


def test_what_needs_no_proxy_goes_past_it(host: Host) -> None:
    with squid({"anna": "word"}) as proxy:
        proxies = Proxies.parsed(f"http://{proxy.address}", "example.org,127.0.0.0/8")
        assert exchanged(host, proxies) == exchanged(host, DIRECT) == b"an update"
        assert proxy.tunnels() == []


@pytest.mark.parametrize(
    ("settings", "users", "why"),
    [
        ({"ports": "443"}, None, r"refuses to connect us \(403 Forbidden\)"),
        ({}, {"anna": "word"}, "asks for a user and a password"),
    ],
)
def test_a_proxy_that_refuses_is_named_in_one_line(
    host: Host, settings: dict[str, str], users: dict[str, str] | None, why: str
) -> None:
    with squid(users, **settings) as proxy:
        proxies = Proxies.parsed(f"http://anna:wrong@{proxy.address}")
        edge = Connection(
            host.address, "e", [], lambda inbound: None, tls=host.tls("edge-0"), proxies=proxies
        )
        with pytest.raises(ServiceError, match=f"proxy {proxy.address}: {why}") as refused:
            edge.start(3.0)
        assert "\n" not in str(refused.value)
        with pytest.raises(ServiceError, match=f"proxy {proxy.address}: {why}"):
            enrolled(host, proxies, "edge-12")


def test_a_proxy_that_is_away_is_named_and_found_again(host: Host) -> None:
    with squid() as proxy:
        proxies = Proxies.parsed(f"http://{proxy.address}")
        proxy.stop()
        edge = Connection(
            host.address, "e", [], lambda inbound: None, tls=host.tls("edge-0"), proxies=proxies
        )
        with pytest.raises(ServiceError, match=f"proxy {proxy.address}: .*refused"):
            edge.start(0.5)
        proxy.start()
        assert exchanged(host, proxies) == b"an update"
