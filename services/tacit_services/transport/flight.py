"""What is on its way to the broker, by which one that drops us is told from a network that does.

MQTT 3.1.1 has no words for a message that is too large: the broker closes the connection. The
message would then be sent again at every reconnection, for ever.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from itertools import islice

import paho.mqtt.client as paho

WINDOW = 16  # QoS 1 messages in flight
DROPS = 6  # connections in a row that end at one message; then it is not sent again
AT_ONCE = 3.0  # seconds of a connection that ends at a message, at most


@dataclass(frozen=True, slots=True, eq=False)
class _Sent:
    info: paho.MQTTMessageInfo
    size: int


class Flight:
    """The messages that the broker has not acknowledged, in the order in which they are sent."""

    def __init__(self) -> None:
        self._sent: deque[_Sent] = deque()
        self._lock = threading.Lock()
        self._largest: _Sent | None = None
        self.drops = 0  # connections in a row that ended soon, with the same message in flight

    def add(self, info: paho.MQTTMessageInfo, size: int) -> None:
        """Note a message of `size` bytes that is on its way, or waits for a connection."""
        with self._lock:
            self._landed()
            self._sent.append(_Sent(info, size))

    def dropped(self, seconds: float) -> int | None:
        """A connection has ended by itself, after `seconds`.

        Return the size of the message that ends every connection; None: none seems to do so. It is
        the largest in flight: whatever a broker's limit is, the largest is above it.
        """
        with self._lock:
            self._landed()
            flying = list(islice(self._sent, WINDOW))
        largest = max(flying, key=lambda sent: sent.size, default=None)
        if largest is None or seconds > AT_ONCE:
            self.unreachable()
            return None
        self.drops = self.drops + 1 if largest is self._largest else 1
        self._largest = largest
        return largest.size if self.drops >= DROPS else None

    def unreachable(self) -> None:
        """A connection was not accepted, or lasted: the broker is away, or the network is bad."""
        self._largest, self.drops = None, 0

    def _landed(self) -> None:
        while self._sent and self._sent[0].info.is_published():
            self._sent.popleft()
