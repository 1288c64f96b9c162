"""What strangers may hold of an HTTP server: how many connections, for how long, how much memory."""

from __future__ import annotations

import json
import logging
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI, Request, Response
from tacit_services.enrollment.authority import CertificateAuthority
from tacit_services.transport.connection_slots import ConnectionSlots
from tacit_services.transport.http_door import ClientLimits
from tacit_services.transport.problems import BLOCK, install, partial
from tacit_services.transport.tls import context_trusting

from tests.helpers.servers import HOST, PATIENCE, wait_for
from tests.helpers.web import dial, ending, listening, raw

SIZE = 32 << 20
SOON = ClientLimits(connections=8, handshake=0.5, client=1.0)
ROOMY = ClientLimits(connections=8, handshake=PATIENCE, client=PATIENCE)
ASK = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def application(places: ConnectionSlots) -> FastAPI:
    app = FastAPI()
    install(app)
    blob = bytes(SIZE)

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "alive"}

    @app.get("/blob")
    def download(request: Request) -> Response:
        return partial(request, blob, "0" * 64, places)

    @app.post("/post")
    async def post(request: Request) -> dict[str, int]:
        return {"bytes": len(await request.body())}

    return app


@pytest.fixture
def app() -> FastAPI:
    return application(ConnectionSlots(3, 2))


def well(address: str) -> bool:
    return raw(address, ASK).startswith(b"HTTP/1.1 200")


def goes_on(slow: socket.socket) -> bool:
    """Send one byte more; whether the connection is open still."""
    slow.settimeout(0.05)
    try:
        slow.sendall(b"x")
        return slow.recv(1) != b""
    except TimeoutError:
        return True
    except OSError:
        return False


class TestDeadlines:
    @pytest.mark.parametrize(
        "payload",
        [
            b"",
            b"GET /healthz HTTP/1.1\r\nHost: ",
            b"POST /post HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n",
            b"POST /post HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nhalf",
        ],
    )
    def test_half_a_request_is_not_waited_for(self, app: FastAPI, payload: bytes) -> None:
        with listening(app, limits=SOON) as address, closing(dial(address)) as connection:
            connection.sendall(payload)
            assert ending(connection) == b""
            assert well(address)

    def test_a_request_that_comes_byte_by_byte_has_no_longer(self, app: FastAPI) -> None:
        with listening(app, limits=SOON) as address, closing(dial(address)) as slow:
            wait_for(lambda: not goes_on(slow))

    def test_one_that_asks_again_and_again_is_served(self, app: FastAPI) -> None:
        with (
            listening(app, limits=SOON) as address,
            httpx.Client(base_url=f"http://{address}", trust_env=False) as client,
        ):
            end = time.monotonic() + 2.5 * SOON.client
            with closing(dial(address)) as silent:  # the clock of what must not happen
                while time.monotonic() < end:
                    assert client.get("/healthz").status_code == 200
                assert ending(silent) == b""

    def test_an_answer_that_nobody_reads_is_not_waited_for(self) -> None:
        with (
            listening(application(ConnectionSlots(3, 1)), limits=SOON) as address,
            closing(dial(address)) as unread,
        ):
            unread.sendall(b"GET /blob HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert unread.recv(12) == b"HTTP/1.1 200"
            assert not _places_are_free(address)
            wait_for(lambda: _places_are_free(address))
            assert len(ending(unread)) < SIZE

    def test_an_answer_is_sent_in_blocks_as_they_are_read(self, app: FastAPI) -> None:
        with listening(app) as address:
            answer = httpx.get(f"http://{address}/blob", trust_env=False)
            assert (len(answer.content), answer.headers["content-length"]) == (SIZE, str(SIZE))
            part = httpx.get(
                f"http://{address}/blob", headers={"Range": "bytes=5-70000"}, trust_env=False
            )
            assert (part.status_code, len(part.content)) == (206, 69_996)
        assert BLOCK * 8 <= SIZE


def _places_are_free(address: str) -> bool:
    answer = httpx.get(
        f"http://{address}/blob", headers={"Range": "bytes=0-1"}, trust_env=False, timeout=PATIENCE
    )
    return answer.status_code == 206


class TestPlaces:
    def test_there_is_always_room_for_one_more(self, app: FastAPI) -> None:
        with listening(app, limits=ROOMY) as address, ExitStack() as stack:
            silent = [stack.enter_context(closing(dial(address))) for _ in range(100)]
            assert well(address)
            assert [ending(connection) for connection in silent[:50]] == [b""] * 50

    def test_who_has_most_makes_room(self, app: FastAPI) -> None:
        with listening(app, limits=ROOMY) as address, ExitStack() as stack:
            first = stack.enter_context(closing(dial(address)))
            for _ in range(100):
                stack.enter_context(closing(dial(address, "127.0.0.2")))
            first.sendall(ASK)
            assert ending(first).startswith(b"HTTP/1.1 200")

    def test_downloads_have_places_of_their_own(self, app: FastAPI) -> None:
        ask = b"GET /blob HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        with listening(app, limits=ROOMY) as address, ExitStack() as stack:
            for source in (HOST, HOST, "127.0.0.2"):
                unread = stack.enter_context(closing(dial(address, source)))
                unread.sendall(ask)
                assert unread.recv(12) == b"HTTP/1.1 200"
            refused = [raw(address, ask, source) for source in (HOST, "127.0.0.3")]
            for answer in refused:
                assert answer.startswith(b"HTTP/1.1 503")
                assert b"3 at a time, 2 for one address" in answer
                assert b"retry-after: 5" in answer.lower()
            assert well(address)
        with listening(app, limits=ROOMY) as address:
            assert _places_are_free(address)


def test_what_is_no_http_is_answered_as_every_error_is(app: FastAPI) -> None:
    with listening(app) as address:
        for nonsense in (
            b"garbage\r\n\r\n",
            b"GET / HTTP/1.1\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01",
        ):
            head, _, body = raw(address, nonsense).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 400")
            assert b"content-type: application/problem+json" in head
            assert json.loads(body)["status"] == 400
        assert well(address)


def test_the_servers_own_words_are_in_the_log_as_ours_are(
    app: FastAPI, caplog: pytest.LogCaptureFixture
) -> None:
    with listening(app) as address:
        raw(address, b"garbage\r\n\r\n")
    words = [record for record in caplog.records if record.name == "uvicorn.error"]
    assert [record.levelname for record in words] == ["WARNING"]
    assert not logging.getLogger("uvicorn").handlers


class TestTls:
    @pytest.fixture
    def tls_folder(self, tmp_path: Path) -> Path:
        return CertificateAuthority.create(tmp_path / "pki").issue("enrollment", [HOST])

    @pytest.fixture
    def secured(self, app: FastAPI, tls_folder: Path) -> Iterator[str]:
        files = {"ssl_certfile": tls_folder / "tls.crt", "ssl_keyfile": tls_folder / "tls.key"}
        with listening(app, limits=SOON, **files) as address:
            yield address

    def ask(self, address: str, tls_folder: Path) -> int:
        believed: ssl.SSLContext = context_trusting(tls_folder / "ca.crt")
        answer = httpx.get(
            f"https://{address}/healthz", verify=believed, trust_env=False, timeout=PATIENCE
        )
        return answer.status_code

    def test_silence_before_the_handshake_is_counted_and_soon_ended(
        self, secured: str, tls_folder: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING), ExitStack() as stack:
            silent = [stack.enter_context(closing(dial(secured))) for _ in range(200)]
            assert self.ask(secured, tls_folder) == 200
            assert [ending(connection) for connection in silent] == [b""] * 200
        assert caplog.records == []

    def test_silence_after_the_handshake_is_ended_too(self, secured: str, tls_folder: Path) -> None:
        believed = context_trusting(tls_folder / "ca.crt")
        with believed.wrap_socket(dial(secured), server_hostname=HOST) as silent:
            assert ending(silent) == b""
        assert self.ask(secured, tls_folder) == 200

    @pytest.mark.parametrize(
        "payload", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00"]
    )
    def test_what_is_no_handshake_leaves_no_traceback(
        self, secured: str, tls_folder: Path, payload: bytes, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING), closing(dial(secured)) as odd:
            odd.sendall(payload)
            odd.shutdown(socket.SHUT_WR)
            ending(odd)
            assert self.ask(secured, tls_folder) == 200
        assert caplog.records == []
