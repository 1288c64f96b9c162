"""The clients wait for a bounded time in all, and follow nothing that a server says."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import httpx
import pytest
from tacit_client import ApiError, Client, FederationClient, Unreachable, bounded
from tacit_services.enrollment import certificates

from tests.helpers.raw_host import json_answer, raw_host
from tests.helpers.servers import HOST, PATIENCE
from tests.helpers.slow_server import WAYS, slow_server

KEY = certificates.new_key()
AUTHORITY = certificates.authority(KEY, "authority")
TOO_LONG = "timed out|no whole answer within 1 s"
STATUS = b'{"state": "training"}'


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "ask", [lambda client: client.status(), lambda client: client.weights()], ids=("json", "file")
)
def test_who_answers_byte_by_byte_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, way: str, ask: Callable[[Client], object]
) -> None:
    monkeypatch.setattr(bounded, "WHOLE", 0.5)
    with (
        slow_server(way) as server,
        Client(f"http://{HOST}:{server.port}", timeout=0.5) as client,
        pytest.raises(Unreachable, match=TOO_LONG),
    ):
        ask(client)


def test_a_federation_that_answers_byte_by_byte_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "WHOLE", 0.5)
    certificate = certificates.sign(AUTHORITY, KEY, "host", KEY.public_key(), 30, (HOST,))
    path = tmp_path / "host.pem"
    path.write_bytes(certificates.pem(certificate) + certificates.key_pem(KEY))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(path)
    with (
        slow_server("headers", tls) as server,
        FederationClient(f"https://{HOST}:{server.port}", "t", _trusted(), timeout=0.5) as client,
        pytest.raises(Unreachable, match=TOO_LONG),
    ):
        client.runs()


def test_a_proxy_that_answers_byte_by_byte_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounded, "WHOLE", 0.5)
    with slow_server("headers") as proxy:
        with (
            FederationClient(
                "https://host.example", "t", _trusted(), f"http://{HOST}:{proxy.port}", timeout=0.5
            ) as federation,
            pytest.raises(Unreachable, match=TOO_LONG),
        ):
            federation.runs()
        monkeypatch.setenv("http_proxy", f"http://{HOST}:{proxy.port}")
        with (
            Client("http://host.example", timeout=0.5) as client,
            pytest.raises(Unreachable, match=TOO_LONG),
        ):
            client.status()


def test_events_without_end_do_not_end_with_the_time_of_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounded, "WHOLE", -58.0)  # of the 60 s in which an event must come
    with (
        slow_server("a body", pieces=40) as server,
        Client(f"http://{HOST}:{server.port}", timeout=1.0) as client,
    ):
        assert list(client.events()) == []  # the answer takes 4 s


def test_a_redirection_to_what_is_no_address_is_an_error_of_one_line(tmp_path: Path) -> None:
    answer = b"HTTP/1.1 302 Found\r\nLocation: https://xn--a/\r\nContent-Length: 0\r\n\r\n"

    with (
        raw_host(tmp_path, AUTHORITY, KEY, lambda _: [answer]) as host,
        FederationClient(host.url, "t", _trusted()) as client,
        pytest.raises(ApiError, match="302"),
    ):
        client.runs()


@pytest.mark.parametrize(
    "header",
    ["Content-Encoding: gzip", "Content-Encoding: deflate", "Content-Type: text/plain;charset=hex"],
)
def test_an_answer_that_is_packed_strangely_is_an_error_of_one_line(
    tmp_path: Path, header: str
) -> None:
    def answer(_: bytes) -> Iterable[bytes]:
        return json_answer(STATUS, header)

    with (
        raw_host(tmp_path, AUTHORITY, KEY, answer) as host,
        FederationClient(host.url, "t", _trusted()) as federation,
        federation.of_run("run") as client,
        pytest.raises((ApiError, Unreachable)),
    ):
        client.status()


def test_a_submitted_run_is_waited_for_while_the_host_checks_it(tmp_path: Path) -> None:
    run = b'{"name":"r","state":"offered","applied":0,"updates":9,"members":[],"refused":[]}'
    check = threading.Event()  # nobody sets it: the check takes longer than a read may

    def answer(_: bytes) -> Iterable[bytes]:
        check.wait(0.5)
        return json_answer(run)

    with (
        raw_host(tmp_path, AUTHORITY, KEY, answer) as host,
        FederationClient(host.url, "t", _trusted(), timeout=0.2) as federation,
    ):
        assert federation.submit({}).state == "offered"
        with pytest.raises(Unreachable, match="timed out"):
            federation.runs()


class TestProxy:
    @pytest.mark.parametrize(
        ("variables", "url", "proxy"),
        [
            ({}, "http://a.org", None),
            ({"http_proxy": "http://p:1"}, "http://a.org", "http://p:1"),
            ({"http_proxy": "p:1"}, "http://a.org", "http://p:1"),
            ({"http_proxy": "http://p:1"}, "https://a.org", None),
            ({"https_proxy": "http://p:1"}, "https://a.org:8443", "http://p:1"),
            ({"all_proxy": "http://p:1"}, "https://a.org", "http://p:1"),
            ({"all_proxy": "http://p:1", "no_proxy": "*"}, "https://a.org", None),
            ({"all_proxy": "http://p:1", "no_proxy": "b.org, a.org"}, "https://x.a.org", None),
            ({"all_proxy": "http://p:1", "no_proxy": "a.org:8443"}, "https://a.org:8443", None),
            ({"all_proxy": "http://p:1", "no_proxy": "::1"}, "https://[::2]", "http://p:1"),
        ],
    )
    def test_the_environment_says_which_is_used(
        self, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], url: str,
        proxy: str | None,
    ) -> None:  # fmt: skip
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert bounded.proxy_before(httpx.URL(url)) == proxy

    def test_another_kind_is_refused_without_its_password(self) -> None:
        with pytest.raises(ValueError, match="expected http://") as refused:
            bounded.BoundedTransport(_trusted(), "socks5://u:secret@p:1")
        assert "secret" not in str(refused.value)

    def test_a_request_goes_by_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        listener = socket.create_server((HOST, 0))
        requests = list[bytes]()

        def serve() -> None:
            link, _ = listener.accept()
            with link:
                requests.append(link.recv(1 << 16))
                link.sendall(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        monkeypatch.setenv("http_proxy", f"http://u:p@{HOST}:{listener.getsockname()[1]}")
        with Client("http://a.example:8000") as client, pytest.raises(ApiError, match="404"):
            client.status()
        thread.join(PATIENCE)
        listener.close()
        assert requests[0].startswith(b"GET http://a.example:8000/v1/status HTTP/1.1\r\n")
        assert b"\r\nProxy-Authorization: Basic dTpw\r\n" in requests[0]


def _trusted() -> ssl.SSLContext:
    return ssl.create_default_context(cadata=certificates.pem(AUTHORITY).decode())
