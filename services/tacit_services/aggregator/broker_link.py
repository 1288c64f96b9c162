"""The aggregator's link to the broker: one connection at a time, closed and opened again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from tacit_services.transport.mqtt import Connection, Inbound
from tacit_services.transport.tls import Tls


class ServerConnection(Protocol):
    """The part of a connection to a broker that a run uses."""

    @property
    def connects(self) -> int:
        """How often the connection has come up."""

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Send one message, or queue it while disconnected."""

    def listen(self, subscriptions: Sequence[str]) -> None:
        """Replace the subscriptions by these. Raises BrokerRefuses."""


class Link(Protocol):
    """The part of a link to the broker that a run uses."""

    @property
    def connection(self) -> ServerConnection:
        """The open connection."""

    @property
    def up(self) -> bool:
        """Connected now."""

    @property
    def refused(self) -> frozenset[str]:
        """The subscriptions that the broker has refused."""

    @property
    def reconnects(self) -> int:
        """How often the connection has come up again."""


class BrokerLink:
    """The link; it must be opened before use. Any thread may read `up` and `reconnects`."""

    def __init__(
        self, broker: str, client_id: str, connect_timeout: float, *, tls: Tls | None = None
    ) -> None:
        """connect_timeout: seconds that `open` may take. tls: as Connection takes it."""
        self._broker = broker
        self._id = client_id
        self._tls = tls
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
        """Connect, and pass each incoming message to `hear`, on the network thread.

        Raises ServiceError: not connected within `connect_timeout`.
        """
        self._came_up.clear()
        self._earlier_reconnects = self.reconnects
        self._connection = Connection(
            self._broker, self._id, subscriptions, hear, on_up=self._came_up.set, tls=self._tls
        )
        self._connection.start(self._connect_timeout, stop)
        return self._connection

    def close(self) -> None:
        """Disconnect, once all published messages are out; idempotent."""
        if self._connection is not None:
            self._connection.stop()

    def came_up(self) -> bool:
        """Return whether it has been connected, or reconnected, since this was last asked."""
        if not self._came_up.is_set():
            return False
        self._came_up.clear()
        return True

    @property
    def up(self) -> bool:
        """Connected now."""
        return self._connection is not None and self._connection.up

    @property
    def refused(self) -> frozenset[str]:
        """The subscriptions that the broker has refused."""
        if self._connection is None:
            return frozenset()
        return self._connection.refused

    @property
    def connection(self) -> Connection:
        """The open connection; there must be one."""
        assert self._connection is not None
        return self._connection

    @property
    def reconnects(self) -> int:
        """How often a connection has come up again."""
        if self._connection is None:
            mine = 0
        else:
            mine = max(0, self._connection.connects - 1)
        return self._earlier_reconnects + mine
