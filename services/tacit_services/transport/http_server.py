"""The HTTP server of all services: uvicorn, behind a door that limits what clients may hold.

uvicorn by itself waits for ever for a request, and for a client that does not read. Each such
connection holds a file descriptor, and a process without any left could not even write its results.
"""

from __future__ import annotations

import functools
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from tacit_services.logs import SeldomFilter
from tacit_services.transport.http_connection import BoundedConnection
from tacit_services.transport.http_door import ClientLimits, Door
from tacit_services.transport.http_door import Origin as Origin
from tacit_services.transport.http_door import nobody_before as nobody_before

LIMITS = ClientLimits()


class HttpServer(uvicorn.Server):
    """uvicorn for `app`. `more` are further arguments of uvicorn.Config.

    origin: whose connection comes from a port of ours, by a front door (`FrontDoor.origin`). With
    `ssl_ca_certs` and `ssl_cert_reqs=ssl.CERT_OPTIONAL` clients may show a certificate of these
    authorities, which is in the request's scope then (http_connection.py). A certificate of others
    ends the connection.
    """

    def __init__(
        self, app: Any, limits: ClientLimits = LIMITS, origin: Origin = nobody_before, **more: Any
    ) -> None:
        options: dict[str, Any] = {"http": H11Protocol, "ws": "none", "access_log": False}
        # Its lines have the form of ours: without a configuration they go to the root's handlers.
        options |= {"log_config": None, "log_level": "warning"}
        super().__init__(uvicorn.Config(app, **options | more))
        self._limits = limits
        self._origin = origin
        self._seldom = SeldomFilter()  # whoever sends what is no HTTP causes a line each time
        self._doors: list[Door] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve at `sockets`, which are bound already."""
        await super().startup(sockets=[])
        logging.getLogger("uvicorn.error").addFilter(self._seldom)
        make = functools.partial(
            BoundedConnection, self.config, self.server_state, self.lifespan.state
        )
        for listener in sockets or []:
            door = Door(
                listener,
                lambda lost, origin: make(lost=lost, origin=origin),
                self.config.ssl,
                self._limits,
                self._origin,
            )
            door.open()
            self._doors.append(door)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, and end those that are open as uvicorn does."""
        for door in self._doors:
            door.close()
        await super().shutdown(sockets)
        logging.getLogger("uvicorn.error").removeFilter(self._seldom)


@contextmanager
def in_thread(server: HttpServer, listener: socket.socket, name: str) -> Iterator[None]:
    """Let `server` answer at `listener`, which is bound, in a thread until the end of the block."""
    listener.listen()  # who asks before the thread is ready waits, and is not refused
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listener]}, name=name, daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(5.0)
