"""A server that answers byte by byte, each soon after the one before, for long."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.helpers.servers import HOST

PAUSE = 0.1  # seconds between two bytes: no timeout of a read ends it
BYTES = 300  # of them, and then the answer is whole
_HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
# What each of them sends at once, what byte by byte, and what makes the answer whole.
WAYS: dict[str, tuple[bytes, bytes, bytes]] = {
    "a body": (_HEAD + b"\r\n", b" ", b"[]"),
    "headers": (_HEAD + b"X-Long: ", b"x", b"\r\nContent-Length: 2\r\n\r\n[]"),
    "informational answers": (
        b"",
        b"HTTP/1.1 102 Processing\r\n\r\n",
        _HEAD + b"Content-Length: 2\r\n\r\n[]",
    ),
}


@dataclass
class SlowServer:
    """Where it is; `requested` is set once it has read a request."""

    port: int
    requested: threading.Event = field(default_factory=threading.Event)


@contextmanager
def slow_server(
    way: str, tls: ssl.SSLContext | None = None, *, pieces: int = BYTES
) -> Iterator[SlowServer]:
    """Serve one connection at a time, each answered in one of WAYS, in so many pieces."""
    listener = socket.create_server((HOST, 0))
    server = SlowServer(listener.getsockname()[1])
    over = threading.Event()

    def answer(client: socket.socket) -> None:
        link = client if tls is None else tls.wrap_socket(client, server_side=True)
        with link:
            link.settimeout(10.0)
            _read(link)
            server.requested.set()
            at_once, byte, end = WAYS[way]
            link.sendall(at_once)
            for _ in range(pieces):
                if over.wait(PAUSE):
                    return
                link.sendall(byte)
            link.sendall(end)

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:  # closed: the test is over
                return
            try:
                with client:
                    answer(client)
            except OSError:  # the client has gone
                continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        over.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(20.0)


def _read(link: socket.socket) -> None:
    """Read a request's head."""
    request = b""
    while b"\r\n\r\n" not in request and (more := link.recv(1 << 16)):
        request += more
