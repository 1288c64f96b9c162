"""One port for MQTT and HTTPS: TLS is passed on unopened, to whom its client asks for.

A TLS client names in its first message, in the clear, the protocols it speaks (ALPN). `mqtt` goes
to the broker, everything else to the HTTPS server. Both see the client's own bytes, and so its own
certificate. The door has no key, and reads nothing behind that first message.

What a stranger may hold of it is bounded: bytes, reads and seconds until the first message is
there, and connections. Where too many are silent, the one that has waited longest leaves, of the
address that has most: so a client that says what it wants at once gets in.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tacit_services.transport import client_hello
from tacit_services.transport.address import NodeAddresses, split_host_port
from tacit_services.transport.http_pace import whose
from tacit_services.transport.loop_thread import LoopThread
from tacit_services.transport.passage import BLOCK, Passage
from tacit_services.transport.tls_records import TlsRecords

log = logging.getLogger("tacit.door")
MQTT = b"mqtt"  # its name among ALPN's protocols
_BACKLOG = 512
_RESERVE = 256  # file descriptors that are for others
_READS = 32  # within which a first message is there; each looks at all of it again
_FEWEST = 16  # connections, however few files the process may have


@dataclass(frozen=True, slots=True)
class FrontLimits:
    """The most that strangers may hold of the door.

    connections: at a time, if the process may have so many files, two for each. each: of one
    address, or of a /64 of IPv6. silent: those whose first message is awaited. seconds: for that
    message, for the server to be reached, and for a client to leave when its server has. greeting:
    seconds from its first message on, in which a client of the broker shows that it has the keys of
    its connection. The broker has a patience of its own with one that has.
    """

    connections: int = 4096
    each: int = 2048
    silent: int = 256
    seconds: float = 5.0
    greeting: float = 10.0


LIMITS = FrontLimits()


class FrontDoor(LoopThread):
    """The door at `listener`, in a thread of its own.

    Usage::

        door = FrontDoor(bind("0.0.0.0:443"), "127.0.0.1:8883", "127.0.0.1:8443")
        door.start()
        door.close()
    """

    def __init__(
        self,
        listener: socket.socket,
        broker_address: str,
        https_address: str,
        limits: FrontLimits = LIMITS,
    ) -> None:
        """listener: bound. It is the door's from now on. The addresses are HOST:PORT.

        The HTTPS server is at an address of the loopback interface; the broker need not be.
        """
        super().__init__("front door", listener, _BACKLOG)
        self._broker = NodeAddresses(broker_address)
        self._https = https_address
        self._limits = limits
        self._open = 0  # connections
        self._by_address: Counter[str] = Counter()
        self._silent: dict[asyncio.Task[None], str] = {}  # who has waited longest is first
        self._origins: dict[int, str] = {}
        self._scratch = memoryview(bytearray(BLOCK))

    @property
    def address(self) -> str:
        """The address that it listens at, HOST:PORT."""
        host, port = self._listener.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def origin(self, port: int) -> str | None:
        """Return the address of the client whose bytes come from our own port `port`.

        For the HTTPS server, which sees nobody but the door. None: the port is not the door's. For
        any thread.
        """
        return self._origins.get(port)

    # -- in the thread --

    async def _accept(self) -> None:
        most = min(self._limits.connections, _affordable())
        while True:
            try:
                client, peer = await self._loop.sock_accept(self._listener)
            except OSError as error:  # no file descriptor is left, or the client has gone
                log.debug("no connection taken: %s", error)
                await asyncio.sleep(0.05)
                continue
            address = whose(str(peer[0]))
            if self._open >= most or self._by_address[address] >= self._limits.each:
                log.debug("%s: no place", address)
                client.close()
                continue
            self._let_in(client, str(peer[0]), address)
            await asyncio.sleep(0)  # where many wait at the door, those that are in go on

    def _let_in(self, client: socket.socket, origin: str, address: str) -> None:
        if len(self._silent) >= self._limits.silent:
            self._show_out()
        self._open += 1
        self._by_address[address] += 1
        task = self._loop.create_task(self._pass_on(client, origin))
        self._silent[task] = address
        # A task that is cancelled before its first step runs none of its own code.
        task.add_done_callback(functools.partial(self._left, client, address))

    def _left(self, client: socket.socket, address: str, task: asyncio.Task[None]) -> None:
        client.close()
        self._silent.pop(task, None)
        self._open -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.debug("%s: %r", address, error)

    def _show_out(self) -> None:
        """End the silent connection that has waited longest, of the address that has most."""
        (most, _), *_ = Counter(self._silent.values()).most_common(1)
        task = next(task for task, address in self._silent.items() if address == most)
        del self._silent[task]
        task.cancel()

    async def _pass_on(self, client: socket.socket, origin: str) -> None:
        task = asyncio.current_task()
        assert task is not None
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with asyncio.timeout(self._limits.seconds):
            first = await self._first_bytes(client)
        self._silent.pop(task, None)
        offered = client_hello.protocols(first) or ()
        if MQTT in offered:
            await self._pass_to_broker(client, first, task)
            return
        server, port = await self._connected_for(origin)
        try:
            with server:
                passage = Passage(self._loop, client, server, self._scratch)
                await passage.open(first, self._limits.seconds)
        finally:
            del self._origins[port]

    async def _pass_to_broker(
        self, client: socket.socket, first: bytes, task: asyncio.Task[None]
    ) -> None:
        """Pass on to the broker. A client that goes on silent is shown out after `greeting`."""
        records = TlsRecords()

        def show_out_if_silent() -> None:
            if not records.protected:
                task.cancel()

        with await self._connected_to_broker() as server:
            passage = Passage(self._loop, client, server, self._scratch, records.feed)
            deadline = self._loop.call_later(self._limits.greeting, show_out_if_silent)
            try:
                await passage.open(first, self._limits.seconds)
            finally:
                deadline.cancel()

    async def _first_bytes(self, client: socket.socket) -> bytes:
        """Return what a client has sent when its ClientHello is whole.

        Raises NotTlsError, and OSError where it has gone.
        """
        first = b""
        for _ in range(_READS):
            piece = await self._loop.sock_recv(client, client_hello.MOST - len(first))
            if not piece:
                raise ConnectionResetError("gone before its first message")
            first += piece
            if client_hello.protocols(first) is not None:
                return first
        raise client_hello.NotTlsError(f"no ClientHello in {_READS} reads")

    async def _connected_to_broker(self) -> socket.socket:
        """Return a connection to the broker: of several nodes, to one that answers.

        Raises OSError, TimeoutError.
        """
        for _ in range(1, len(self._broker)):
            place = self._broker.current
            try:
                return await self._connected(*place)
            except OSError:  # TimeoutError is one
                if self._broker.current == place:  # else another client's task has gone on
                    self._broker.advance()
        return await self._connected(*self._broker.current)

    async def _connected(self, host: str, port: int) -> socket.socket:
        """Return a connection to a server. Raises OSError, TimeoutError."""
        async with asyncio.timeout(self._limits.seconds):
            places = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            family, _, _, _, place = places[0]
            return await self._begun(_new_socket(family), place)

    async def _connected_for(self, origin: str) -> tuple[socket.socket, int]:
        """Return a connection to the HTTPS server, and the port of ours that `origin` is noted for.

        It is noted before the server can ask.
        """
        host, port = split_host_port(self._https)
        connection = _new_socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            connection.bind((host, 0))
        except OSError:
            connection.close()
            raise
        own: int = connection.getsockname()[1]
        self._origins[own] = origin
        try:
            async with asyncio.timeout(self._limits.seconds):
                return await self._begun(connection, (host, port)), own
        except BaseException:
            del self._origins[own]
            raise

    async def _begun(self, connection: socket.socket, place: tuple[Any, ...]) -> socket.socket:
        try:
            await self._loop.sock_connect(connection, place)
        except BaseException:
            connection.close()
            raise
        return connection


def _new_socket(family: int) -> socket.socket:
    connection = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _affordable() -> int:
    """Return for how many connections this process may have files."""
    try:
        import resource
    except ImportError:
        return _FEWEST  # the system does not tell
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return 1 << 20
    return max(_FEWEST, (files - _RESERVE) // 2)
