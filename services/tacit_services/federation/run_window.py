"""A second port of the host, for this machine: page and REST of the newest run, over plain HTTP.

A connection is passed on as it is to the aggregator of the run that is the newest then. So its own
rules hold: reading is open, a write needs the run's token.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from pathlib import Path

from tacit_services.transport.loop_thread import LoopThread
from tacit_services.transport.passage import BLOCK, Passage

_MOST = 256  # connections at a time
_SECONDS = 5.0  # for a client to leave when the aggregator has
_NOTHING = (
    b'{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"no run yet"}'
)
_ANSWER = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\n"
    b"Retry-After: 1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
) % (len(_NOTHING), _NOTHING)


class RunWindow(LoopThread):
    """The port at `listener`, in a thread of its own between `start` and `close`."""

    def __init__(self, listener: socket.socket, newest: Callable[[], Path | None]) -> None:
        """listener: bound. It is the window's from now on.

        newest: returns the Unix socket of the newest run's aggregator, or None.
        """
        super().__init__("port for the newest run", listener, _MOST)
        self._newest = newest
        self._scratch = memoryview(bytearray(BLOCK))

    async def _accept(self) -> None:
        tasks: set[asyncio.Task[None]] = set()
        while True:
            client, _ = await self._loop.sock_accept(self._listener)
            if len(tasks) >= _MOST:
                client.close()
                continue
            task = asyncio.create_task(self._serve_one(client))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def _serve_one(self, client: socket.socket) -> None:
        client.setblocking(False)
        with client, contextlib.suppress(OSError, TimeoutError):
            server = await self._connected()
            if server is None:
                await self._refuse(client)
                return
            with server:
                passage = Passage(self._loop, client, server, self._scratch)
                await passage.open(b"", _SECONDS)

    async def _connected(self) -> socket.socket | None:
        """Return a connection to the newest run's aggregator; None: there is none."""
        place = self._newest()
        if place is None:
            return None
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.setblocking(False)
        with contextlib.ExitStack() as unless_connected:
            unless_connected.callback(server.close)
            try:
                await self._loop.sock_connect(server, str(place))
            except OSError:  # it starts, or is gone
                return None
            unless_connected.pop_all()
        return server

    async def _refuse(self, client: socket.socket) -> None:
        """Answer that there is no run, once something was asked: else the answer may be lost."""
        async with asyncio.timeout(_SECONDS):
            await self._loop.sock_recv(client, BLOCK)
            await self._loop.sock_sendall(client, _ANSWER)
