"""A client waits for a bounded time in all, stops when it is told to, and is not steered."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest
from tacit_services.transport.patience import Patience
from tacit_services.transport.patient_http import (
    PIECE,
    UnsteeredAsyncTransport,
    UnsteeredTransport,
    content,
    patient_client,
)
from tacit_services.transport.proxy import HttpProxy

from tests.helpers.servers import HOST, PATIENCE
from tests.helpers.slow_server import WAYS, slow_server

TRUSTED = ssl.create_default_context()


class _Steering(HTTPServer):
    """A server that redirects to an address that is none, and gives a cookie."""

    cookies: list[str | None] = []  # noqa: RUF012 (each test sets its own)


class _Redirect(BaseHTTPRequestHandler):
    server: _Steering

    def do_GET(self) -> None:
        self.server.cookies.append(self.headers["Cookie"])
        self.send_response(302)
        self.send_header("Location", "https://xn--a/")
        self.send_header("Set-Cookie", "a=b")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def steering() -> Iterator[_Steering]:
    server = _Steering((HOST, 0), _Redirect)
    server.cookies = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("way", WAYS)
def test_who_answers_byte_by_byte_is_not_waited_for(way: str) -> None:
    with (
        slow_server(way) as server,
        patient_client(f"http://{HOST}:{server.port}", TRUSTED, 1.0) as client,
        pytest.raises(httpx.TimeoutException, match="no whole answer within 1 s"),
        client.stream("GET", "/") as answer,
    ):
        content(answer, 1 << 20)


def test_a_proxy_that_answers_byte_by_byte_is_not_waited_for() -> None:
    with (
        slow_server("headers") as server,
        patient_client(
            "https://host.example", TRUSTED, 1.0, proxy=HttpProxy(HOST, server.port)
        ) as client,
        pytest.raises(httpx.TimeoutException, match="no whole answer within 1 s"),
    ):
        client.get("/")


def test_who_is_told_to_stop_waits_no_more() -> None:
    stop = threading.Event()
    raised = list[Exception]()

    def ask(port: int) -> None:
        with patient_client(f"http://{HOST}:{port}", TRUSTED, 1e6, stop=stop) as client:
            try:
                client.get("/")
            except httpx.TransportError as error:
                raised.append(error)

    with slow_server("headers") as server:
        thread = threading.Thread(target=ask, args=(server.port,))
        thread.start()
        assert server.requested.wait(PATIENCE)
        stop.set()
        thread.join(5.0)  # the answer would be whole after 30 s
        assert not thread.is_alive()
    assert "told to stop" in str(raised[0])


@contextmanager
def full_queue() -> Iterator[int]:
    """Yield a port that answers no more connections: nobody accepts those that wait."""
    with closing(socket.create_server((HOST, 0), backlog=0)) as listener, ExitStack() as waiting:
        for _ in range(4):
            queued = waiting.enter_context(socket.socket())
            queued.setblocking(False)
            queued.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def test_a_port_that_does_not_answer_is_not_waited_for() -> None:
    with (
        full_queue() as port,
        patient_client(f"http://{HOST}:{port}", TRUSTED, 1.0) as client,
        pytest.raises(httpx.ConnectTimeout),
    ):
        client.get("/")


def test_a_redirection_to_what_is_no_address_is_an_answer(steering: _Steering) -> None:
    url = f"http://{HOST}:{steering.server_address[1]}"
    with patient_client(url, TRUSTED, PATIENCE) as client:
        for _ in range(2):
            answer = client.get("/")
            assert (answer.status_code, answer.next_request) == (302, None)
    with httpx.Client(base_url=url, transport=UnsteeredTransport()) as plain:
        for _ in range(2):
            assert plain.get("/").status_code == 302

    async def twice() -> None:
        async with httpx.AsyncClient(base_url=url, transport=UnsteeredAsyncTransport()) as client:
            for _ in range(2):
                assert (await client.get("/")).status_code == 302

    asyncio.run(twice())
    assert steering.cookies == [None] * 6


def test_an_address_that_does_not_answer_leaves_the_others_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
    with closing(socket.create_server((HOST, 0))) as listener, full_queue() as silent:
        entries = [(*kind, (HOST, silent)), (*kind, listener.getsockname())]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: entries)
        patience = Patience()
        patience.begin(2.0)
        with patience.connected("host.example", 443) as link:
            assert link.getpeername() == listener.getsockname()


class TestPatience:
    def test_each_piece_of_a_file_has_the_time_anew(self) -> None:
        now = [0.0]
        patience = Patience(clock=lambda: now[0])
        with closing(socket.socket()) as link:
            patience.begin(10.0, PIECE["piece"])
            for _ in range(5):
                now[0] += 9.0
                assert patience.waited(link, lambda: True)
                patience.passed(PIECE["piece"])
            patience.passed(PIECE["piece"] - 1)
            now[0] += 10.0
            with pytest.raises(TimeoutError):
                patience.waited(link, lambda: True)

    def test_bytes_that_are_no_files_gain_no_time(self) -> None:
        now = [0.0]
        patience = Patience(clock=lambda: now[0])
        with closing(socket.socket()) as link:
            patience.begin(10.0)
            now[0] = 9.0
            patience.passed(1 << 30)
            assert patience.waited(link, lambda: True)
            now[0] = 10.0
            with pytest.raises(TimeoutError, match="no whole answer within 10 s"):
                patience.waited(link, lambda: True)
