"""One port for MQTT and HTTPS: TLS is passed on unopened, to whom its client asks for.

A TLS client says in its first message, in the clear, which protocols it speaks (ALPN). `mqtt` goes
to the broker, everything else to the HTTPS server; both see the client's own bytes, and so its own
certificate. The door has no key, and reads nothing behind that first message.

What a stranger may hold of it is bounded: bytes and seconds until the first message is there,
connections in all, and those of one address. What is no TLS is closed at once. Between two sides
one block is under way in each direction: who does not read stops the other, and nobody else.
"""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass

from tacit_services.transport.address import split_host_port

log = logging.getLogger("tacit.door")
MQTT = b"mqtt"  # as IANA has it, in the list of ALPN's protocols
_BLOCK = 1 << 18  # bytes that are under way in one direction
_BACKLOG = 512
_RESERVE = 256  # file descriptors that are for others


@dataclass(frozen=True, slots=True)
class FrontLimits:
    """The most that strangers may hold of the door.

    connections: at a time, if the process may have so many files, two for each. each: of one
    address, or of a /64 of IPv6. unread: connections whose first message is awaited, in all and,
    a quarter of it, of one address. seconds: for that message, and for the other side to answer.
    """

    connections: int = 4096
    each: int = 2048
    unread: int = 256
    seconds: float = 5.0


class FrontDoor:
    """The door at `listener`, in a thread of its own.

    Usage::

        door = FrontDoor(bind("0.0.0.0:443"), "127.0.0.1:8883", "127.0.0.1:8443")
        door.start()
        …
        door.close()
    """

    def __init__(
        self,
        listener: socket.socket,
        broker_address: str,
        https_address: str,
        limits: FrontLimits = FrontLimits(),
    ) -> None:
        """listener: bound; it is the door's from now on. The addresses are HOST:PORT."""
        self._listener = listener
        self._broker = split_host_port(broker_address)
        self._https = split_host_port(https_address)
        self._limits = limits
        self._origins: dict[int, str] = {}

    @property
    def address(self) -> str:
        """The address that it listens at, HOST:PORT."""
        raise NotImplementedError

    def origin(self, port: int) -> str | None:
        """Return the address of the client whose connection comes from our loopback port `port`.

        For the HTTPS server behind the door, which sees only the door's own. None: of nobody here.
        May be called in any thread.
        """
        return self._origins.get(port)

    def start(self) -> None:
        """Begin to take connections; returns when a client can connect."""
        raise NotImplementedError

    def close(self) -> None:
        """Take no more connections, end those that are open, wait for the thread. Idempotent."""
        raise NotImplementedError
