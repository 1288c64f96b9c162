"""What is on its way to the broker, by which one that drops us is told from a network that does.

MQTT 3.1.1 has no words for a message that is too large: the broker closes the connection. The
message would then be sent again at every reconnection, for ever. A broker or a proxy that restarts
again and again closes it, too, for every message in flight.
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
PLAUSIBLE = 4096  # bytes that every broker takes: a smaller message is not what it drops


@dataclass(frozen=True, slots=True)
class Suspect:
    """A message that was in flight as many connections in a row ended: its bytes, and the verdict.

    `refused`: it is larger than PLAUSIBLE, and the broker has acknowledged smaller packets and no
    message as large. Otherwise the reason may be another, and pass.
    """

    size: int
    refused: bool


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
        self._acknowledged_size: int | None = None  # the size of the largest that was acknowledged
        self.drops = 0  # connections in a row that ended soon, with the same message in flight

    def add(self, info: paho.MQTTMessageInfo, size: int) -> None:
        """Note a message of `size` bytes that is on its way, or waits for a connection."""
        with self._lock:
            self._landed()
            self._sent.append(_Sent(info, size))

    def answered(self) -> None:
        """Note that the broker has acknowledged a small packet that is no message."""
        with self._lock:
            self._acknowledged_size = self._acknowledged_size or 0

    def dropped(self, seconds: float) -> Suspect | None:
        """Note a connection that has ended by itself, after `seconds`.

        Return the message that seems to end every connection; None: none does. It is the largest in
        flight, since the largest is above every limit of a broker.
        """
        with self._lock:
            self._landed()
            waiting = (sent for sent in self._sent if not self._acknowledged(sent))
            flying = list(islice(waiting, WINDOW))
        largest = max(flying, key=lambda sent: sent.size, default=None)
        if largest is None or seconds > AT_ONCE:
            self.unreachable()
            return None
        if largest is self._largest:
            self.drops += 1
        else:
            self.drops = 1
        self._largest = largest
        if self.drops < DROPS:
            return None
        smaller_taken = (
            self._acknowledged_size is not None and self._acknowledged_size < largest.size
        )
        return Suspect(largest.size, smaller_taken and largest.size > PLAUSIBLE)

    def unreachable(self) -> None:
        """Note a connection that was refused, or one that lasted: no message is suspect."""
        self._largest = None
        self.drops = 0

    def _landed(self) -> None:
        while self._sent and self._acknowledged(self._sent[0]):
            self._sent.popleft()

    def _acknowledged(self, sent: _Sent) -> bool:
        acknowledged = sent.info.is_published()
        if acknowledged:
            self._acknowledged_size = max(self._acknowledged_size or 0, sent.size)
        return acknowledged
