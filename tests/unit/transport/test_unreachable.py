"""What is said where a host cannot be reached: one line, which names what to look at."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest
from tacit_services.transport import pinned_authority
from tacit_services.transport.proxy import DIRECT, HttpProxy, Proxies

from tacit.errors import ServiceError
from tests.helpers.servers import HOST, free_port

PIN = "sha256:" + "0" * 64


@pytest.fixture
def plain() -> Iterator[str]:
    """Yield the address of a server that speaks no TLS."""
    server = HTTPServer((HOST, 0), BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"https://{HOST}:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def told(url: str) -> str:
    with pytest.raises(ServiceError) as refused:
        pinned_authority.fetched(url, PIN)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_port_at_which_nothing_listens_is_named() -> None:
    assert "nothing listens at that port" in told(f"https://{HOST}:{free_port()}")


def test_a_name_that_nobody_has_is_named() -> None:
    assert "does not find the host's name" in told("https://no-such-host.invalid:8443")


def test_a_server_without_tls_is_named(plain: str) -> None:
    assert "it speaks no TLS at that port" in told(plain)


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (TimeoutError("timed out"), "does a firewall let this port out?"),
        (OSError(101, "Network is unreachable"), "is there a network?"),
        (socket.gaierror(-2, "Name or service not known"), "does not find the host's name"),
    ],
)
def test_what_lies_beneath_an_error_decides(cause: OSError, words: str) -> None:
    error = httpx.ConnectTimeout("") if isinstance(cause, TimeoutError) else httpx.ConnectError("")
    error.__cause__ = cause
    assert words in str(pinned_authority.unreachable("https://host:1", error, DIRECT))


def test_the_proxy_on_the_way_is_named_without_its_password() -> None:
    proxies = Proxies(HttpProxy("proxy.example", 3128, "ada", "secret"))
    line = str(pinned_authority.unreachable("https://host:1", httpx.ConnectError("lost"), proxies))
    assert "lost (by the proxy proxy.example:3128)" in line
    assert "secret" not in line
