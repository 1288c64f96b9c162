"""The aggregator's way to the broker, which may be closed and opened again.

It has one connection at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from tacit_services.transport.mqtt import Connection, Inbound
from tacit_services.transport.tls import Tls


class HasConnection(Protocol):
    """Whoever has a connection to the broker."""

    @property
    def connection(self) -> Connection:
        """The one that is open."""


class BrokerLink:
    """Says nothing before it is opened; `up` and `reconnects` are for any thread."""

    def __init__(
        self,
        broker: str,
        client_id: str,
        connect_timeout: float,
        *,
        chunk: int = 0,
        tls: Tls | None = None,
    ) -> None:
        """connect_timeout: seconds that `open` may take. chunk, tls: as Connection takes them."""
        self._broker, self._id, self._chunk, self._tls = broker, client_id, chunk, tls
        self._connect_timeout = connect_timeout
        self._connection: Connection | None = None
        self._came_up = threading.Event()
        self._earlier_reconnects = 0

    def open(
        self,
        subscriptions: Sequence[str],
        hear: Callable[[Inbound], None],
        stop: threading.Event | None = None,
    ) -> Connection:
        """Connect, and let `hear` have what comes (network thread).

        Raises ServiceError: not connected within `connect_timeout`.
        """
        self._came_up.clear()
        self._earlier_reconnects = self.reconnects
        self._connection = Connection(
            self._broker,
            self._id,
            subscriptions,
            hear,
            on_up=self._came_up.set,
            chunk=self._chunk,
            tls=self._tls,
        )
        self._connection.start(self._connect_timeout, stop)
        return self._connection

    def close(self) -> None:
        """Disconnect, once what was said is out; idempotent."""
        if self._connection is not None:
            self._connection.stop()

    def came_up(self) -> bool:
        """Whether it has been connected, or reconnected, since this was last asked."""
        if not self._came_up.is_set():
            return False
        self._came_up.clear()
        return True

    @property
    def up(self) -> bool:
        """Connected now."""
        return self._connection is not None and self._connection.up

    @property
    def connection(self) -> Connection:
        """The one that is open; nothing is said before there is one."""
        assert self._connection is not None
        return self._connection

    @property
    def reconnects(self) -> int:
        """How often a connection came up again."""
        mine = 0 if self._connection is None else max(0, self._connection.connects - 1)
        return self._earlier_reconnects + mine
