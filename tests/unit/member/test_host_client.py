"""What a hostile host answers: a member reads a bounded part of it, and believes no name."""

from __future__ import annotations

import gzip
import hashlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NoReturn

import pytest
from tacit_services.enrollment import certificates
from tacit_services.member import host_client
from tacit_services.member.host_client import MOST_OFFER, HostClient
from tacit_services.member.member_loop import MemberLoop
from tacit_services.member.member_state import MemberState
from tacit_services.transport.tls import Tls
from tacit_services.versions import VERSION_HEADER, own_version

from tacit.errors import ConfigError, ServiceError
from tests.helpers.servers import HOST, PATIENCE
from tests.helpers.slow_server import WAYS, slow_server

PRINT = "a" * 64


class HostileHost(ThreadingHTTPServer):
    """A server that answers everything with `content`; None: with bytes without end."""

    content: bytes | None = b"[]"
    status = 200
    headers: dict[str, str] = {}  # noqa: RUF012 (each test sets its own)
    sent = 0
    asked: dict[str, str] = {}  # noqa: RUF012 (headers of the newest request)


class _Answer(BaseHTTPRequestHandler):
    server: HostileHost

    def do_GET(self) -> None:
        self.server.asked = dict(self.headers.items())
        self.send_response(self.server.status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.server.content is not None:
            self.wfile.write(self.server.content)
            return
        try:
            while True:
                self.server.sent += self.wfile.write(bytes(1 << 16))
        except OSError:
            return

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def host() -> Iterator[HostileHost]:
    server = HostileHost(("127.0.0.1", 0), _Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def _tls(folder: Path) -> Tls:
    key = certificates.new_key()
    (folder / "key").write_bytes(certificates.key_pem(key))
    (folder / "ca").write_bytes(certificates.pem(certificates.authority(key, "authority")))
    return Tls(folder / "ca", folder / "ca", folder / "key")


@pytest.fixture
def client(host: HostileHost, tmp_path: Path) -> Iterator[HostClient]:
    with HostClient(f"http://127.0.0.1:{host.server_address[1]}", _tls(tmp_path)) as client:
        yield client


def test_the_host_is_told_which_tacit_asks(host: HostileHost, client: HostClient) -> None:
    client.offers()
    assert host.asked[VERSION_HEADER] == own_version()


@pytest.mark.parametrize(
    "run", ["../../x", "/tmp/x", "..", "", "a/b", "a\0b", "x" * 65, "a\x1b[2J", "a\n"]
)
def test_a_name_that_leads_elsewhere_is_no_runs(
    host: HostileHost, client: HostClient, run: str
) -> None:
    host.content = json.dumps([{"run": run, "fingerprint": PRINT, "state": "offered"}]).encode()
    with pytest.raises(ServiceError, match="not a federation's answer"):
        client.offers()


def _fetch(client: HostClient, folder: Path) -> None:
    client.fetch("retina", PRINT, folder / "net.json", 1 << 20)


@pytest.mark.parametrize(
    "ask", [lambda client, _: client.offers(), lambda client, _: client.offer("retina"), _fetch]
)
def test_an_answer_without_end_is_not_waited_for(
    host: HostileHost, client: HostClient, tmp_path: Path, ask: Callable[[HostClient, Path], object]
) -> None:
    host.content = None
    with pytest.raises((ServiceError, ConfigError)):
        ask(client, tmp_path)
    assert host.sent < 8 * MOST_OFFER  # what is on its way, and no more


def test_a_small_answer_does_not_become_a_large_one(
    host: HostileHost, client: HostClient, tmp_path: Path
) -> None:
    packed = gzip.compress(bytes(1 << 26))
    host.content = packed
    host.headers = {"Content-Encoding": "gzip"}
    digest = hashlib.sha256(bytes(1 << 26)).hexdigest()
    with pytest.raises(ConfigError, match="is not the file of the offer"):
        client.fetch("retina", digest, tmp_path / "net.json", 1 << 27)
    assert not (tmp_path / "net.json").exists()


def test_a_refusal_writes_no_control_characters(host: HostileHost, client: HostClient) -> None:
    host.status = 404
    host.content = json.dumps({"detail": "gone\x1b[2J"}).encode()
    with pytest.raises(ConfigError) as refused:
        client.offer("retina")
    assert "\x1b" not in str(refused.value)


def test_a_redirection_is_not_followed(host: HostileHost, client: HostClient) -> None:
    host.status = 302
    host.headers = {"Location": "/v1/elsewhere"}
    with pytest.raises(ServiceError, match="302"):
        client.offer("retina")


def test_a_redirection_to_what_is_no_address_is_no_federations_answer(
    host: HostileHost, client: HostClient
) -> None:
    host.status = 302
    host.headers = {"Location": "https://xn--a/"}
    with pytest.raises(ServiceError, match="302"):
        client.offers()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ask", [lambda client, _: client.offers(), _fetch])
def test_who_answers_byte_by_byte_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str,
    ask: Callable[[HostClient, Path], object],
) -> None:  # fmt: skip
    monkeypatch.setattr(host_client, "_SECONDS", 1.0)
    with (
        slow_server(way) as server,
        HostClient(f"http://{HOST}:{server.port}", _tls(tmp_path)) as client,
        pytest.raises(ServiceError, match="no whole answer within 1 s"),
    ):
        ask(client, tmp_path)


def test_a_member_that_is_told_to_end_does_not_wait_for_its_host(tmp_path: Path) -> None:
    stop = threading.Event()
    state = MemberState(tmp_path / "state")
    with (
        slow_server("headers") as server,
        HostClient(f"http://{HOST}:{server.port}", _tls(tmp_path), stop=stop) as client,
    ):
        loop = MemberLoop(client, state, _nothing, _nothing, _NoDiary())
        thread = threading.Thread(target=loop.run, args=(stop,))
        thread.start()
        assert server.requested.wait(PATIENCE)
        stop.set()
        thread.join(5.0)  # the host answers for 20 s, and is then asked again
        assert not thread.is_alive()


def _nothing(*_: object) -> NoReturn:
    raise AssertionError("nothing is offered")


class _NoDiary:
    begins = ends = swept = _nothing


@pytest.mark.parametrize("public_web", [True, False])
def test_a_host_with_a_certificate_of_the_world_is_believed_where_it_is_said(
    host: HostileHost, client: HostClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    public_web: bool,
) -> None:  # fmt: skip
    # Given: an authority that is the system's, and the host's certificate of it
    key = certificates.new_key()
    world = certificates.authority(key, "world")
    (tmp_path / "world").write_bytes(certificates.pem(world))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "world"))
    shown = certificates.sign(world, key, "web", key.public_key(), 10, ["127.0.0.1"])
    (tmp_path / "web").write_bytes(certificates.pem(shown) + certificates.key_pem(key))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "web")
    host.socket = context.wrap_socket(host.socket, server_side=True)
    tls = Tls(tmp_path / "ca", tmp_path / "ca", tmp_path / "key")
    url = f"https://127.0.0.1:{host.server_address[1]}"
    # When
    with HostClient(url, tls, public_web=public_web) as member:
        # Then
        if public_web:
            assert member.offers() == []
        else:
            with pytest.raises(ServiceError, match="certificate is not the federation's"):
                member.offers()


@pytest.mark.parametrize("status", [302, 404, 405, 500, 401, 403])
def test_an_answer_that_is_no_federations_ends_no_member(
    host: HostileHost, client: HostClient, status: int
) -> None:
    host.status = status
    host.content = b"<html>"
    with pytest.raises(ServiceError, match=r"127\.0\.0\.1:\d+: .*not a federation's answer"):
        client.offers()


@pytest.mark.parametrize("status", [302, 404, 405, 409, 429])
def test_a_refusal_that_does_not_end_the_membership_is_asked_about_again(
    host: HostileHost, client: HostClient, status: int
) -> None:
    host.status = status
    host.content = json.dumps({"detail": "Not Found"}).encode()
    with pytest.raises(ServiceError, match="Not Found"):
        client.offers()


def test_a_host_that_knows_this_member_no_more_ends_it(
    host: HostileHost, client: HostClient
) -> None:
    host.status = 403
    host.content = json.dumps({"detail": "'St. Mary' (edge-0) was revoked"}).encode()
    with pytest.raises(ConfigError, match="was revoked"):
        client.offers()
