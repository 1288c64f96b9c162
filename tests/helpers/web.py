"""A real HTTP server of an application, and clients that do not behave."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from tacit_services.transport.address import bind
from tacit_services.transport.http_server import HttpServer

from tests.helpers.servers import HOST, PATIENCE


@contextmanager
def listening(app: Any, **more: Any) -> Iterator[str]:
    """Serve `app` on a free loopback port; yields HOST:PORT. more: of http_server.Server."""
    with bind(f"{HOST}:0") as listener:
        listener.listen()  # already: the first request waits for the server
        server = HttpServer(app, **{"timeout_graceful_shutdown": 30} | more)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield "{}:{}".format(*listener.getsockname())
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
            assert not thread.is_alive(), "an open connection delays the shutdown"


@contextmanager
def strange_server(body: bytes, kind: str, status: int = 200) -> Iterator[str]:
    """Serve something that is not tacit, on a loopback port; its Retry-After is no number."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("ETag", '"0000"')
            self.send_header("Retry-After", "²")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with HTTPServer((HOST, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield "http://{}:{}".format(*server.server_address)
        finally:
            server.shutdown()
            thread.join()


def dial(address: str, source: str = HOST) -> socket.socket:
    """Connect to HOST:PORT from the loopback address `source`."""
    host, _, port = address.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), PATIENCE, (source, 0))


def ending(connection: socket.socket) -> bytes:
    """Return what a connection that is closed against its will still receives."""
    received = b""
    try:
        while got := connection.recv(1 << 16):
            received += got
    except (ConnectionResetError, BrokenPipeError):
        pass
    return received


def raw(address: str, request: bytes, source: str = HOST) -> bytes:
    """Return all that is answered to these bytes."""
    with dial(address, source) as connection:
        connection.sendall(request)
        return ending(connection)
