"""The door of an HTTP server: a bounded number of connections, and always room for one more.

asyncio's own server counts a connection when its TLS handshake is over, and uvicorn never. Here it
counts from the moment it is accepted. One for which there is no room takes the place of one that
waits for its client: of the address that has most, the one that has waited longest. So a
client that sends a request at once gets in, however many others are silent.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
import ssl
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tacit_services.transport.http_connection import BoundedConnection

log = logging.getLogger("tacit.http")
_TICK = 0.5
_BACKLOG = 512
Origin = Callable[[int], str | None]


def nobody_before(_port: int) -> str | None:
    """Return that no other door is before this one."""
    return None


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """The most that unauthenticated clients may hold of a server.

    connections: at a time; 128 is half of the file descriptors that macOS, the least, allows.
    handshake: seconds for all of a TLS handshake. client: seconds for all of a request, head and
    body, and for reading some of an answer.
    """

    connections: int = 128
    handshake: float = 5.0
    client: float = 10.0


@dataclass(eq=False)
class Guest:
    """A connection that holds a place."""

    address: str
    connection: BoundedConnection
    task: asyncio.Task[None] | None = None

    def leave(self) -> None:
        """End it at once; its place is free when it has gone."""
        if self.connection.transport is not None:
            self.connection.transport.abort()
        elif self.task is not None:
            self.task.cancel()


@dataclass
class Door:
    """The door at `listener`, in the running event loop.

    make: a connection that calls what it is given when it is lost, and of a client at that address,
    where it is known. tls: None for plain HTTP. origin: the address of the client that comes from a
    port of ours, where another door is before this one.
    """

    listener: socket.socket
    make: Callable[[Callable[[], None], str | None], BoundedConnection]
    tls: ssl.SSLContext | None
    limits: ClientLimits
    origin: Origin
    _guests: set[Guest] = field(default_factory=set)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def open(self) -> None:
        """Begin to take connections."""
        self.listener.setblocking(False)
        self.listener.listen(_BACKLOG)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._accept()), loop.create_task(self._watch())]

    def close(self) -> None:
        """Take no more. Those that are in stay, but for those that are not past the handshake."""
        for task in self._tasks:
            task.cancel()
        for guest in list(self._guests):
            if guest.connection.transport is None:
                guest.leave()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, peer = await loop.sock_accept(self.listener)
            except OSError as error:  # the process has no descriptor left, or the peer has gone
                log.debug("no connection taken: %s", error)
                await asyncio.sleep(0.05)
                continue
            if peer:
                self._let_in(client, str(peer[0]), self.origin(peer[1]))
            else:  # a Unix socket's other end has no address
                self._let_in(client, "", None)
            await asyncio.sleep(0)  # where many wait at the door, those that are in go on

    def _let_in(self, client: socket.socket, peer: str, origin: str | None) -> None:
        if len(self._guests) >= self.limits.connections and not self._make_room():
            client.close()
            return
        connection = self.make(lambda: self._guests.discard(guest), origin)
        guest = Guest(origin or peer, connection)
        self._guests.add(guest)
        guest.task = asyncio.get_running_loop().create_task(self._begin(guest, client))
        # A task that is cancelled before its first step closes nothing.
        guest.task.add_done_callback(functools.partial(self._begun, guest, client))

    async def _begin(self, guest: Guest, client: socket.socket) -> None:
        if self.tls:
            seconds = self.limits.handshake
        else:
            seconds = None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: guest.connection,
                client,
                ssl=self.tls,
                ssl_handshake_timeout=seconds,
                ssl_shutdown_timeout=seconds,
            )
        except (OSError, asyncio.CancelledError) as error:
            log.debug("%s: no handshake: %r", guest.address, error)
            # They hold the buffers of the handshake, in a circle with the error.
            traceback.clear_frames(error.__traceback__)

    def _begun(self, guest: Guest, client: socket.socket, _: asyncio.Task[None]) -> None:
        guest.task = None
        if guest.connection.transport is None:
            self._guests.discard(guest)
            client.close()

    def _make_room(self) -> bool:
        """End the connection that is of least use; False: none waits for its client."""
        now = time.monotonic()
        counts = Counter(guest.address for guest in self._guests)
        waiting = [(guest.connection.waited(now), guest) for guest in self._guests]
        idle = [(counts[guest.address], waited, guest) for waited, guest in waiting if waited > 0]
        if not idle:
            return False
        guest = max(idle, key=lambda entry: entry[:2])[2]
        self._guests.discard(guest)
        guest.leave()
        return True

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            now = time.monotonic()
            for guest in list(self._guests):
                if guest.connection.waited(now) > self.limits.client:
                    guest.leave()
