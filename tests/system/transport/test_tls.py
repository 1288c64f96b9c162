"""Who gets in at the broker of compose.yaml, what they may say and hear there, and a run whose
edges enrol.
"""

from __future__ import annotations

import queue
import re
import socket
import ssl
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from tacit_services.enrollment import rest
from tacit_services.enrollment.authority import CertificateAuthority
from tacit_services.enrollment.tokens import TokenRegister
from tacit_services.transport.mqtt import Connection, Inbound
from tacit_services.transport.tls import Tls

from tacit.errors import ConfigError, ServiceError
from tests.helpers.processes import Service, deployment
from tests.helpers.run_files import Layer, toml
from tests.helpers.servers import HOST, PATIENCE, Mosquitto, free_port, secure_mosquitto, wait_for

NOT_AUTHORIZED = 0x87
RUN: Layer = {
    "run": {"updates": 12},
    "algorithm": {"name": "mapa"},
    "privacy": {"batch": 32, "noise_multiplier": 1.0, "epsilon": 100.0},
    "edges": {"count": 2},
}
R = "tacit/v1/r"
NAMES = ("edge-0", "edge-1", "edge-2")


@dataclass(frozen=True)
class Site:
    """A broker, its authority, and the certificates that were issued before it started."""

    broker: Mosquitto
    authority: CertificateAuthority

    @property
    def address(self) -> str:
        return f"{HOST}:{self.broker.port}"

    def tls(self, name: str) -> Tls:
        """Return the certificate of `name`; it is issued now if it has none."""
        bundle = self.authority.folder / name
        return bundled(bundle if bundle.exists() else self.authority.issue(name))


def bundled(bundle: Path) -> Tls:
    return Tls(bundle / "ca.crt", bundle / "tls.crt", bundle / "tls.key")


@pytest.fixture(scope="module", params=["plugin", "acl_file"])
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    with started(tmp_path_factory.mktemp("site"), plugin=request.param == "plugin") as site:
        yield site


@contextmanager
def started(
    folder: Path, run: str = "r", *, peers: bool = True, plugin: bool = True
) -> Iterator[Site]:
    authority = CertificateAuthority.create(folder / "pki")
    bundle = authority.issue("broker", [HOST])
    with secure_mosquitto(folder, bundle, run, NAMES, peers=peers, plugin=plugin) as broker:
        yield Site(broker, authority)


class Newer(Connection):
    """One of MQTT 5: there the broker says of each message and subscription what it thinks of it."""

    def _plain(self) -> paho.Client:
        return paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=self._id,
            protocol=MQTTProtocolVersion.MQTTv5,
            manual_ack=True,
        )


class Client:
    """A connection with an inbox, and the broker's verdict on each publication."""

    def __init__(self, site: Site, name: str, *topics: str) -> None:
        self.inbox: queue.SimpleQueue[Inbound] = queue.SimpleQueue()
        self.verdicts: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.connection = Newer(
            site.address, f"x-{name}", topics, self.inbox.put, tls=site.tls(name)
        )
        self.connection._client.on_publish = lambda _c, _u, _m, reason, _p: self.verdicts.put(
            reason.value
        )

    def says(self, topic: str, payload: bytes = b"x", *, retain: bool = False) -> int:
        """Publish; the broker's reason code."""
        self.connection.publish(topic, payload, retain=retain)
        return self.verdicts.get(timeout=PATIENCE)

    def heard_until(self, last: str) -> list[str]:
        """Return the topics of all that comes, up to and with `last`."""
        topics: list[str] = []
        while last not in topics:
            inbound = self.inbox.get(timeout=PATIENCE)
            inbound.done()
            topics.append(inbound.topic)
        return topics


@contextmanager
def client(site: Site, name: str, *topics: str) -> Iterator[Client]:
    tls_client = Client(site, name, *topics)
    try:
        tls_client.connection.start(PATIENCE)
        yield tls_client
    finally:
        tls_client.connection.stop()


# paho leaves the socket of a failed handshake to the garbage collector.
LEAK = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class TestDoor:
    def test_the_right_certificate_gets_in(self, site: Site) -> None:
        with client(site, "edge-0") as edge:
            assert edge.connection.up
            sock = edge.connection._client.socket()
            assert isinstance(sock, ssl.SSLSocket)
            assert sock.version() in ("TLSv1.2", "TLSv1.3")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    def test_without_tls_nobody_gets_in(self, site: Site) -> None:
        plain = Connection(site.address, "plain", [], lambda inbound: None)
        with pytest.raises(ServiceError, match="broker"):
            plain.start(0.5)

    def test_without_a_certificate_nobody_gets_in(self, site: Site) -> None:
        context = ssl.create_default_context(cafile=str(site.authority.folder / "ca.crt"))
        bare = paho.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
        connected, out = threading.Event(), threading.Event()
        bare.on_connect = lambda *_: connected.set()
        bare.on_disconnect = lambda *_: out.set()
        bare.on_connect_fail = lambda *_: out.set()
        bare.tls_set_context(context)
        bare.connect_async(HOST, site.broker.port)
        bare.loop_start()
        assert out.wait(PATIENCE)
        assert not connected.is_set()
        bare.disconnect()
        bare.loop_stop()
        with socket.create_connection((HOST, site.broker.port)) as raw:
            wrapped = context.wrap_socket(raw, server_hostname=HOST)
            with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
                wrapped.recv(1)
            wrapped.close()

    def test_another_authoritys_certificate_is_refused(self, site: Site, tmp_path: Path) -> None:
        stranger = CertificateAuthority.create(tmp_path / "other").issue("edge-0")
        tls = Tls(site.authority.folder / "ca.crt", stranger / "tls.crt", stranger / "tls.key")
        refused(site.address, tls, "(?i)unknown ca|alert")

    @LEAK
    def test_we_do_not_believe_another_authoritys_broker(self, site: Site, tmp_path: Path) -> None:
        other = CertificateAuthority.create(tmp_path / "other")
        tls = Tls(other.folder / "ca.crt", site.tls("edge-0").cert, site.tls("edge-0").key)
        refused(site.address, tls, "certificate verify failed")

    @LEAK
    def test_the_brokers_name_is_checked(self, site: Site) -> None:
        refused(
            f"localhost:{site.broker.port}", site.tls("edge-0"), "Hostname mismatch"
        )  # HOST alone is named

    def test_old_tls_is_refused(self, site: Site) -> None:
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.load_verify_locations(site.authority.folder / "ca.crt")
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with socket.create_connection((HOST, site.broker.port)) as raw, pytest.raises(ssl.SSLError):
            old.wrap_socket(raw, server_hostname=HOST)

    def test_a_revoked_certificate_gets_in_no_more(self, tmp_path: Path) -> None:
        with started(tmp_path) as site:
            with client(site, "edge-0"), client(site, "edge-1"):
                pass
            site.authority.revoke("edge-0")
            site.broker.restart()
            refused(site.address, site.tls("edge-0"), "(?i)revoked")
            with client(site, "edge-1") as other:
                assert other.connection.up

    def test_a_client_that_is_in_is_out_when_revoked(self, tmp_path: Path) -> None:
        with started(tmp_path) as site, client(site, "edge-0") as edge:
            site.authority.revoke("edge-0")
            site.broker.restart()
            wait_for(lambda: "revoked" in edge.connection._failure.lower())
            assert not edge.connection.up


def refused(address: str, tls: Tls, why: str) -> None:
    """Check that nobody gets in, however often it is tried, and that the error states `why`."""

    def said() -> bool:
        connection = Connection(address, "refused", [], lambda inbound: None, tls=tls)
        with pytest.raises(ServiceError) as failure:
            connection.start(0.3)
        return re.search(why, str(failure.value)) is not None

    wait_for(said)


class TestTopics:
    @pytest.mark.parametrize(
        "topic", [f"{R}/up/edge-0/0/0", f"{R}/presence/edge-0", f"{R}/peer/edge-1/from/edge-0/0/0"]
    )
    def test_an_edge_speaks_for_itself(self, site: Site, topic: str) -> None:
        with client(site, "edge-0") as edge:
            assert edge.says(topic) != NOT_AUTHORIZED

    @pytest.mark.parametrize(
        "topic",
        [
            f"{R}/up/edge-1/0/0",
            f"{R}/presence/edge-1",
            f"{R}/peer/edge-0/from/edge-1/0/0",
            # Not even for itself: another run, another number, another level, anybody else to hear it.
            "tacit/v1/other/up/edge-0/0/0",
            f"{R}/up/edge-0/1/0",
            f"{R}/up/edge-0/0/1",
            f"{R}/up/edge-0/0/0/x",
            f"{R}/peer/edge-1/from/edge-0/0/1",
            f"{R}/peer/edge-9/from/edge-0/0/0",
            f"{R}/down/edge-0/model/0",
            f"{R}/model",
            f"{R}/down/edge-0/receipt/0",
            f"{R}/down/edge-1/model/0",
            f"{R}/up",
            "tacit/v1/up/edge-0/1/0",
            f"{R}/up/edge-0x/1/0",
            f"{R}/x/up/edge-0/1/0",
            "anything",
            "$SYS/broker/x",
            f"{R}/presence/edge-0/x",
        ],
    )
    def test_and_for_nobody_else(self, site: Site, topic: str) -> None:
        with client(site, "edge-0") as edge:
            assert edge.says(topic, retain=True) == NOT_AUTHORIZED

    def test_an_edge_hears_the_model_and_what_is_for_it_and_nothing_else(self, site: Site) -> None:
        with (
            client(
                site,
                "edge-0",
                *("#", "$SYS/#", f"{R}/up/#", f"{R}/down/+/#", f"{R}/down/edge-1/#"),
                *(f"{R}/model", f"{R}/down/edge-0/#", f"{R}/presence/+"),
            ) as edge,
            client(site, "edge-1") as other,
            client(site, "aggregator") as aggregator,
        ):
            other.says(f"{R}/up/edge-1/0/0")
            other.says(f"{R}/presence/edge-1", b"online", retain=True)
            aggregator.says(f"{R}/down/edge-1/receipt/0")
            aggregator.says(f"{R}/model", b"m", retain=True)
            aggregator.says(f"{R}/down/edge-0/receipt/0")  # the last: all before it would have come
            heard = edge.heard_until(f"{R}/down/edge-0/receipt/0")
        assert (
            f"{R}/presence/edge-1" in heard
        )  # who is there is for everybody: peers have no server to tell them
        assert {t for t in heard if "/presence/" not in t} == {
            f"{R}/model",
            f"{R}/down/edge-0/receipt/0",
        }

    def test_the_aggregator_hears_everybody_and_sends_to_everybody(self, site: Site) -> None:
        with (
            client(site, "aggregator", f"{R}/up/+/+/+", f"{R}/presence/+") as aggregator,
            client(site, "edge-2") as edge,
        ):
            edge.says(f"{R}/up/edge-2/0/0")
            aggregator.heard_until(f"{R}/up/edge-2/0/0")
            for topic in (f"{R}/up/edge-2/0/0", f"{R}/presence/edge-2", "anything"):
                assert aggregator.says(topic) == NOT_AUTHORIZED

    def test_nobody_takes_over_anothers_session(self, site: Site) -> None:
        with client(site, "edge-0") as edge:
            thief = Connection(
                site.address, "x-edge-0", [], lambda inbound: None, tls=site.tls("edge-1")
            )
            thief.start(PATIENCE)
            assert edge.says(f"{R}/up/edge-0/0/0") != NOT_AUTHORIZED
            assert (edge.connection.connects, edge.connection.up) == (1, True)
            thief.stop()


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with started(tmp_path_factory.mktemp("ruled")) as site:
        yield site


class TestSubscriptions:
    """With the plugin, without which all of them are granted."""

    @pytest.mark.parametrize(
        ("name", "granted"),
        [
            ("edge-0", [f"{R}/down/edge-0/#", f"{R}/model", f"{R}/peer/edge-0/from/#"]),
            ("edge-0", [f"{R}/presence/+", f"{R}/steps/+"]),
            (  # who floods is left out
                "edge-0",
                [f"{R}/presence/edge-1", f"{R}/steps/edge-1", f"{R}/peer/edge-0/from/edge-1/0/0"],
            ),
            ("aggregator", [f"{R}/up/+/+/+", f"{R}/presence/+"]),
            (
                "aggregator",
                [f"{R}/up/edge-1/+/+", f"{R}/presence/edge-1"],
            ),  # who floods is left out
            ("broker", ["tacit/v1/health"]),
        ],
    )
    def test_what_is_asked_for_is_granted(self, ruled: Site, name: str, granted: list[str]) -> None:
        assert set(answers(ruled, name, granted)) == {1}

    @pytest.mark.parametrize("name", ["edge-0", "stranger"])
    def test_and_no_other_however_narrow_long_or_shared(self, ruled: Site, name: str) -> None:
        own_topic, long = f"{R}/down/edge-0", "x" * 30_000
        topic_filters = ["#", "$SYS/#", "anything", f"{R}/+", f"{R}/down/+/#", f"{R}/down/edge-1/#"]
        topic_filters += [
            f"{R}/up/edge-0/0/0",
            f"{own_topic}/{long}",
            f"{own_topic}/receipt/0",
            f"{own_topic}/+",
            long,
        ]
        topic_filters += [f"$share/{group}/{R}/model" for group in ("g", long)]
        assert set(answers(ruled, name, topic_filters)) == {NOT_AUTHORIZED}

    @pytest.mark.parametrize("name", ["edge-0", "aggregator", "broker", "stranger"])
    def test_nobody_changes_the_rules(self, ruled: Site, name: str) -> None:
        with client(ruled, name) as member:
            assert member.says("$CONTROL/dynamic-security/v1", b"{}") == NOT_AUTHORIZED


def answers(site: Site, name: str, topic_filters: list[str]) -> list[int]:
    """Return the broker's reason codes for these subscriptions of `name`."""
    with client(site, name) as member:
        suback_codes: queue.SimpleQueue[list[int]] = queue.SimpleQueue()
        paho = member.connection._client
        paho.on_subscribe = lambda _c, _u, _m, reasons, _p: suback_codes.put(
            [r.value for r in reasons]
        )
        paho.subscribe([(topic, 1) for topic in topic_filters])
        return suback_codes.get(timeout=PATIENCE)


class TestFiles:
    @pytest.mark.parametrize("missing", ["ca", "cert", "key"])
    def test_a_missing_file_is_named(self, site: Site, tmp_path: Path, missing: str) -> None:
        good = site.tls("edge-0")
        parts = {"ca": good.ca, "cert": good.cert, "key": good.key} | {missing: tmp_path / "gone"}
        with pytest.raises(ConfigError, match="gone"):
            Tls(**parts).context()

    def test_a_key_of_another_certificate_is_named(self, site: Site) -> None:
        mixed = Tls(site.tls("edge-0").ca, site.tls("edge-0").cert, site.tls("edge-1").key)
        with pytest.raises(ConfigError, match=r"tls\.key: not a certificate and its key"):
            mixed.context()

    def test_an_authority_file_without_a_certificate_is_named(
        self, site: Site, tmp_path: Path
    ) -> None:
        (tmp_path / "ca").write_text("nothing")
        with pytest.raises(ConfigError, match="TACIT_TLS_CA"):
            Tls(tmp_path / "ca", site.tls("edge-0").cert, site.tls("edge-0").key).context()


def test_edges_enrol_train_and_come_back_with_the_same_certificate(tmp_path: Path) -> None:
    with (
        started(tmp_path, "tls", peers=False) as site,
        deployment(tmp_path, toml(RUN), site.address, "memory://", "tls") as deployed,
    ):
        pki = site.authority.folder
        site.authority.issue(rest.SERVER, [HOST])
        (tmp_path / "token").write_text(TokenRegister(pki).add("edge-*", once=False))
        credentials = site.tls("aggregator")
        port = free_port()
        desk = Service("pki", {"TACIT_PKI": str(pki)}, tmp_path / "desk.log")
        desk.start("serve", "--listen", f"{HOST}:{port}")
        try:
            enrolling = {
                "TACIT_TLS_CA": str(credentials.ca),
                "TACIT_ENROLL_URL": f"https://{HOST}:{port}",
                "TACIT_ENROLL_TOKEN_FILE": str(tmp_path / "token"),
            }
            deployed.aggregator(
                TACIT_TLS_CA=str(credentials.ca),
                TACIT_TLS_CERT=str(credentials.cert),
                TACIT_TLS_KEY=str(credentials.key),
            )
            for _ in range(2):
                deployed.edge(None, **enrolling)
            summary = deployed.ended()
        finally:
            desk.kill()
        keys = [deployed.folder / "identities" / str(number) / "tls.key" for number in range(2)]
        modes = {stat.S_IMODE(key.stat().st_mode) for key in keys}
    assert summary["applied"] == 12
    assert modes == {0o600}
    assert set(site.authority.names()) == {"aggregator", "broker", "enrollment", "edge-0", "edge-1"}
    assert b"PRIVATE" not in b"".join(path.read_bytes() for path in (pki / "issued").iterdir())
