"""One MQTT connection that reconnects by itself, with the rules that paho and mosquitto need.

- TCP_NODELAY is set: without it a round trip costs 44 to 88 ms.
- Messages have QoS 1 only. Delivery is at least once while connected; that a message counts exactly
  once is the business of receipts (docs/failures.md).
- Subscriptions are made in on_connect, so that they are there again after every reconnection.
- Pauses between attempts are random over their whole length (full jitter).
- A payload is never larger than the broker allows.
- The protocol is MQTT 5, or 3.1.1 with a broker that knows nothing newer.
"""

from __future__ import annotations

import logging
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, LogLevel, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from tacit.errors import ConfigError, ServiceError
from tacit_services.transport.address import split_host_port
from tacit_services.transport.tls import Tls

log = logging.getLogger("tacit.mqtt")
KEEPALIVE = 30
OVERHEAD = 512  # bytes of a packet beside its payload, at most: topic and headers
TOPICS = 500  # in one SUBSCRIBE or UNSUBSCRIBE packet
WINDOW = 16  # QoS 1 messages in flight
RECONNECT_CAP = 8.0  # seconds; each try waits a uniformly random time below min(cap, 0.2·2^tries)
# Seconds until a broker that does not answer a CONNECT of MQTT 5 is tried with 3.1.1.
UNANSWERED = 3.0
UNSUPPORTED_PROTOCOL = 132
NO_ANSWER = "no answer"
V5 = MQTTProtocolVersion.MQTTv5
_CALLBACKS = (
    "on_socket_open",
    "on_socket_close",
    "on_connect",
    "on_connect_fail",
    "on_disconnect",
    "on_message",
    "on_log",
)


@dataclass(frozen=True, slots=True)
class Inbound:
    """A received message.

    `done` acknowledges it to the broker: call it once, when the message is safe. `retained` says
    that the broker had it in store when we subscribed, so it is not new.
    """

    topic: str
    payload: bytes
    done: Callable[[], Any]
    retained: bool = False


@dataclass(frozen=True, slots=True)
class Will:
    """A retained message that the broker publishes for us when the connection dies."""

    topic: str
    payload: bytes


class Connection:
    """A connection to one broker, which it restores for ever; every message goes to `on_message`.

    `on_message` and `on_up` are called on the network thread. While disconnected, what is published
    is queued.

    Usage::

        def on_message(inbound: Inbound) -> None:
            print(inbound.topic, len(inbound.payload))
            inbound.done()

        connection = Connection("127.0.0.1:1883", "my-client", ["tacit/v1/run/#"], on_message)
        connection.start(timeout=30.0)
        connection.publish("tacit/v1/run/hello", b"payload")
        connection.stop()
    """

    def __init__(
        self,
        broker: str,
        client_id: str,
        subscriptions: Sequence[str],
        on_message: Callable[[Inbound], None],
        *,
        on_up: Callable[[], None] = lambda: None,
        will: Will | None = None,
        chunk: int = 0,
        tls: Tls | None = None,
    ) -> None:
        """Prepare a connection to `broker` (HOST:PORT); `start` makes it.

        `chunk` is the largest payload that will be published, in bytes: `start` refuses a broker
        that takes less. With `tls` the broker must prove to be the host that `broker` names, and is
        shown our certificate; None is a plain connection. Raises ConfigError for files of `tls`
        that cannot be used.
        """
        self._host, self._port = split_host_port(broker)
        self._chunk = chunk
        self._tls = None if tls is None else tls.context()
        self._id, self.listening, self._will = client_id, frozenset(subscriptions), will
        self._on_message, self._on_up = on_message, on_up
        self._up = threading.Event()
        self._failure = NO_ANSWER
        self._tries = 0
        self._opened = 0.0  # since when there is a TCP connection
        self.max_packet: int | None = None
        self.connects = 0
        self._newest: paho.MQTTMessageInfo | None = None
        self._client = self._make(V5)

    def start(self, timeout: float, stop: threading.Event | None = None) -> None:
        """Connect, and wait until the broker has accepted or `stop` is set.

        Raises ServiceError after `timeout` seconds, or when the broker takes smaller packets than
        we send.
        """
        self._begin()
        deadline = time.monotonic() + timeout
        while not self._up.wait(0.1) and not (stop is not None and stop.is_set()):
            now, opened = time.monotonic(), self._opened
            if (
                self._tls is None
                and opened
                and now > opened + UNANSWERED
                and self._client.protocol == V5
            ):
                # amqtt takes our CONNECT for a longer one, and waits for the rest of it.
                self._step_down()
            if now > deadline:
                self.stop()
                raise ServiceError(
                    f"broker {self._host}:{self._port}: {self._failure} (waited {timeout:g} s)"
                )
        if self.max_packet is not None and self._chunk + OVERHEAD > self.max_packet:
            self.stop()
            raise ServiceError(
                f"broker {self._host}:{self._port}: "
                f"takes packets of at most {self.max_packet} bytes; "
                f"TACIT_CHUNK={self._chunk} must be {self.max_packet - OVERHEAD} or less"
            )

    @property
    def up(self) -> bool:
        """Whether there is a connection now."""
        return self._up.is_set()

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Hand one message of QoS 1 to the network thread; while disconnected it is queued.

        Raises ValueError for a topic with a wildcard, ConfigError for more bytes than the broker
        takes.
        """
        if "+" in topic or "#" in topic:
            raise ValueError(f"topic {topic!r}: wildcards cannot be published to")
        # Not sent: paho would send it again after every disconnection that it causes, for ever.
        if self.max_packet is not None and len(payload) + len(topic) + 64 > self.max_packet:
            limit = self.max_packet
            raise ConfigError(
                f"payload of {len(payload)} bytes: the broker's limit is {limit}; lower TACIT_CHUNK"
            )
        # The return code is not looked at: it is NO_CONN while disconnected, although the message
        # is queued. Receipts tell whether it came.
        self._newest = self._client.publish(topic, payload, qos=1, retain=retain)

    def listen(self, subscriptions: Sequence[str]) -> None:
        """Replace the subscriptions by these; does nothing where they are the same.

        New topics are subscribed before old ones are given up, so nothing is missed in between.
        """
        fresh = [topic for topic in subscriptions if topic not in self.listening]
        gone = list(self.listening.difference(subscriptions))
        self.listening = frozenset(subscriptions)
        if self._up.is_set():
            self._subscribe(fresh)
            for first in range(0, len(gone), TOPICS):
                self._client.unsubscribe(gone[first : first + TOPICS])

    def stop(self, last: Will | None = None) -> None:
        """Publish `last` (retained), wait shortly until all published is out, and disconnect.

        Idempotent.
        """
        if self._up.is_set() and last is not None:
            self.publish(last.topic, last.payload, retain=True)
        if self._up.is_set() and self._newest is not None:
            try:  # paho's disconnect() drops what is still in its queue
                self._newest.wait_for_publish(2.0)
            except (RuntimeError, ValueError):
                log.debug("the farewell was not sent: connection lost")
        self._client.disconnect()
        self._client.loop_stop()
        # It holds nothing of us any more: so it ends with us, and closes its sockets itself, before
        # a garbage collector finds them in a circle.
        for callback in _CALLBACKS:
            setattr(self._client, callback, None)

    def _make(self, protocol: MQTTProtocolVersion) -> paho.Client:
        clean = None if protocol == V5 else True
        client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=self._id,
            protocol=protocol,
            clean_session=clean,
            manual_ack=True,
        )
        client.on_socket_open = self._socket_open
        client.on_socket_close = self._socket_closed
        client.on_connect = self._connected
        client.on_connect_fail = self._not_connected
        client.on_disconnect = self._disconnected
        client.on_message = self._received
        client.max_inflight_messages_set(WINDOW)
        if self._tls is not None:
            client.tls_set_context(self._tls)
            client.on_log = self._paho_says  # costs a formatted line per packet, which TLS hides
        if self._will is not None:
            client.will_set(self._will.topic, self._will.payload, qos=1, retain=True)
        return client

    def _socket_open(self, _client: Any, _user: Any, sock: Any) -> None:
        self._opened = time.monotonic()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "SO_SNDBUF"):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)

    def _socket_closed(self, *_: Any) -> None:
        # A broker that dies has not been silent: the next connection is tried with MQTT 5 again.
        self._opened = 0.0

    def _begin(self) -> None:
        arguments: dict[str, Any] = {"clean_start": True} if self._client.protocol == V5 else {}
        if arguments:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.ReceiveMaximum = WINDOW
            arguments["properties"] = properties
        self._client.connect_async(self._host, self._port, keepalive=KEEPALIVE, **arguments)
        self._backoff()
        self._client.loop_start()

    def _connected(
        self,
        client: paho.Client,
        _user: Any,
        _flags: Any,
        reason: ReasonCode,
        properties: Properties | None,
    ) -> None:
        if reason.is_failure:
            self._failure = f"refused: {reason}"
            if reason.value == UNSUPPORTED_PROTOCOL and client.protocol == V5:
                # In a thread: a client's loop cannot be stopped from inside.
                threading.Thread(target=self._step_down, daemon=True).start()
            return
        self.max_packet = getattr(properties, "MaximumPacketSize", None)
        self._tries, self.connects, self._failure = 0, self.connects + 1, NO_ANSWER
        self._subscribe(sorted(self.listening))
        self._up.set()
        self._on_up()

    def _subscribe(self, wanted: list[str]) -> None:
        for first in range(0, len(wanted), TOPICS):
            self._client.subscribe([(topic, 1) for topic in wanted[first : first + TOPICS]])

    def _step_down(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()
        log.info("the broker knows MQTT 3.1.1 only")
        self._client = self._make(MQTTProtocolVersion.MQTTv311)
        self._begin()

    def _not_connected(self, *_: Any) -> None:
        # paho calls this where it handles the exception.
        self._complain(str(sys.exc_info()[1] or "no connection"))
        self._backoff()

    def _paho_says(self, _client: Any, _user: Any, level: int, text: str) -> None:
        if level == LogLevel.MQTT_LOG_ERR and "on socket" in text:
            # With TLS 1.3 a broker refuses our certificate only after the handshake.
            self._complain(text)

    def _complain(self, failure: str) -> None:
        if failure != self._failure:
            log.warning("broker %s:%d: %s", self._host, self._port, failure)
        self._failure = failure

    def _disconnected(
        self, _client: Any, _user: Any, _flags: Any, reason: ReasonCode, _properties: Any
    ) -> None:
        self._up.clear()
        if reason.is_failure:
            log.warning("broker connection lost (%s); reconnecting", reason)
        self._backoff()

    def _backoff(self) -> None:
        # Full jitter: after an outage a fleet must not come back in step.
        self._tries += 1
        delay = random.uniform(0.05, min(RECONNECT_CAP, 0.2 * 2**self._tries))
        # It is typed for whole seconds, and waits for fractions as well.
        self._client.reconnect_delay_set(delay, delay)  # type: ignore[arg-type]

    def _received(self, client: paho.Client, _user: Any, message: paho.MQTTMessage) -> None:
        mid, qos = message.mid, message.qos
        self._on_message(
            Inbound(
                message.topic, bytes(message.payload), lambda: client.ack(mid, qos), message.retain
            )
        )
