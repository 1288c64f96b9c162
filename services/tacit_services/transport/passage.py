"""Bytes between two sockets, in both directions, as they come.

What cannot be sent on at once waits here, at most one block in a direction. Meanwhile nothing more
is read of that side: who does not read stops the other, and nobody else. Where a side has said all,
the other is told so, and may go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

BLOCK = 1 << 17  # bytes that are read at once


class Passage:
    """The passage between a client and a server, both non-blocking, in one event loop.

    It closes neither.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        client: socket.socket,
        server: socket.socket,
        scratch: memoryview,
        heard: Callable[[memoryview], None] | None = None,
    ) -> None:
        """scratch: what is read first goes here; of the loop, for all of its passages.

        heard: is shown all that comes of the client, before it is passed on.
        """
        self._loop = loop
        self._sockets = client, server
        self._up = _Way(loop, client, server, scratch, heard)
        self._down = _Way(loop, server, client, scratch)

    async def open(self, first: bytes, seconds: float) -> None:
        """Pass on `first`, of the client, and then all that comes, until both sides have ended.

        seconds: which a client has to leave when its server has. Nothing is passed on when this
        returns, or is cancelled.
        """
        try:
            self._down.start()
            self._up.start(first)
            await self._down.ended
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._up.ended, seconds)
        finally:
            for sock in self._sockets:
                self._loop.remove_reader(sock)
                self._loop.remove_writer(sock)


class _Way:
    """One direction. `ended`: the source has said all, and it was passed on; or a side is gone."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        source: socket.socket,
        sink: socket.socket,
        scratch: memoryview,
        heard: Callable[[memoryview], None] | None = None,
    ) -> None:
        self._loop = loop
        self._heard = heard
        self._source = source
        self._sink = sink
        self._scratch = scratch
        self._waiting = b""
        self.ended: asyncio.Future[None] = loop.create_future()

    def start(self, first: bytes = b"") -> None:
        self._loop.add_reader(self._source, self._read)
        if first:
            self._send(memoryview(first))

    def _read(self) -> None:
        try:
            size = self._source.recv_into(self._scratch)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            size = 0
        if size:
            self._send(self._scratch[:size])
        else:
            self._end()

    def _send(self, data: memoryview) -> None:
        if self._heard is not None:
            self._heard(data)
        try:
            size = self._sink.send(data)
        except (BlockingIOError, InterruptedError):
            size = 0
        except OSError:  # nobody is there to read the rest
            self._end()
            return
        if size < len(data):
            self._waiting = bytes(data[size:])
            self._loop.remove_reader(self._source)
            self._loop.add_writer(self._sink, self._write)

    def _write(self) -> None:
        try:
            size = self._sink.send(self._waiting)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._loop.remove_writer(self._sink)
            self._end()
            return
        self._waiting = self._waiting[size:]
        if not self._waiting:
            self._loop.remove_writer(self._sink)
            self._loop.add_reader(self._source, self._read)

    def _end(self) -> None:
        self._loop.remove_reader(self._source)
        with contextlib.suppress(OSError):
            self._sink.shutdown(socket.SHUT_WR)
        if not self.ended.done():
            self.ended.set_result(None)
