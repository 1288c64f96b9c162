"""One MQTT connection that reconnects by itself, with the rules that paho and mosquitto need.

- TCP_NODELAY is set: without it a round trip costs 44 to 88 ms.
- Messages have QoS 1 only. Delivery is at least once while connected; that a message counts exactly
  once is the business of receipts (docs/failures.md).
- Subscriptions are made in on_connect, so that they are there again after every reconnection.
- Pauses between attempts are random over their whole length (full jitter).
- The protocol is MQTT 3.1.1, which every broker speaks. MQTT 5 lets a sender put properties into a
  message, which the broker must hand on and paho unpacks in quadratic time, before anything of
  tacit sees the message. For a client of 3.1.1 the broker leaves them out.
- A certificate is read anew for every connection, as it may have been renewed.
- 3.1.1 does not state what a broker takes. A large message that ends every connection is given up
  where smaller ones are taken (flight.py), and a subscription that is refused is named.
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
from paho.mqtt.enums import CallbackAPIVersion, LogLevel, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.reasoncodes import ReasonCode

from tacit.errors import BrokerRefuses, ConfigError, ServiceError
from tacit_services.transport.address import NodeAddresses
from tacit_services.transport.flight import DROPS, WINDOW, Flight
from tacit_services.transport.proxy import DIRECT, Proxies
from tacit_services.transport.tls import Tls

log = logging.getLogger("tacit.mqtt")
KEEPALIVE = 30
OVERHEAD = 512  # bytes of a packet beside its payload, at most: topic and headers
MAX_PACKET = (1 << 18) + OVERHEAD  # what a broker must take, for the TACIT_CHUNK that is usual
TOPICS = 500  # in one SUBSCRIBE or UNSUBSCRIBE packet
RECONNECT_CAP = 8.0  # seconds; each try waits a uniformly random time below min(cap, 0.2·2^tries)
_TRIES = 6  # from which on it is the cap; a day's tries as a power of two are no number of seconds
NO_ANSWER = "no answer"
ALPN = "mqtt"  # by which a front door tells us from HTTPS
_PROXY_SECONDS = 10.0  # in which a proxy has reached the broker
_CALLBACKS = (
    "on_pre_connect",
    "on_socket_open",
    "on_connect",
    "on_connect_fail",
    "on_disconnect",
    "on_message",
    "on_subscribe",
    "on_log",
)


def covers(topic_filter: str, topic: str) -> bool:
    """Return whether a subscription to `topic_filter` is one to `topic`.

    >>> covers("a/+", "a/b"), covers("a/#", "a/b/c"), covers("a/+", "a/b/c")
    (True, True, False)
    """
    return paho.topic_matches_sub(topic_filter, topic)


@dataclass(frozen=True, slots=True)
class Inbound:
    """A received message.

    `done` acknowledges it to the broker: call it once, when the message is safe. `retained` means
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


class _Client(paho.Client):
    """paho's client, which may go by a proxy, and to another of several addresses each time.

    paho has a way of its own, by PySocks. That leaves what a proxy says behind its first line to be
    read as TLS, where it comes in a packet of its own.
    """

    def __init__(
        self, places: NodeAddresses, proxies: Proxies, *arguments: Any, **more: Any
    ) -> None:
        super().__init__(*arguments, **more)
        self._places = places
        self._proxies = proxies

    def _create_socket_connection(self) -> socket.socket:
        # The host is what TLS checks the certificate for.
        self._host, self._port = place = self._places.current
        proxy = self._proxies.between(*place)
        if proxy is None:
            return super()._create_socket_connection()
        return proxy.tunnel(*place, _PROXY_SECONDS)


class Connection:
    """A connection to one broker, which it restores for ever; every message goes to `on_message`.

    A cluster is one broker with several addresses: when one is lost, the next is tried.

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
        on_publish: Callable[[str, int], None] = lambda topic, size: None,
        will: Will | None = None,
        tls: Tls | None = None,
        proxies: Proxies = DIRECT,
    ) -> None:
        """Prepare a connection to `broker`, which `start` makes.

        broker: HOST:PORT, or those of a cluster's nodes with commas between.

        on_publish: is told topic and bytes of each message before it is handed on.

        With `tls` the broker must prove to be the host that `broker` names, and is shown our
        certificate. None is a plain connection. It goes by the proxy that `proxies` have before the
        broker. Raises ConfigError for files of `tls` that cannot be used.
        """
        self._places = NodeAddresses(broker)
        self._files = tls
        if tls is None:
            self._tls = None
        else:
            self._tls = tls.context(ALPN)
            tls.warn_of_end()
            # Who knows our id can take our session over, again and again.
            client_id = f"{client_id}-{tls.tag(client_id)}"
        self._proxies = proxies
        self._id = client_id
        self.listening = frozenset(subscriptions)
        self._will = will
        self._on_message = on_message
        self._on_up = on_up
        self._on_publish = on_publish
        self._up = threading.Event()
        self._failure = NO_ANSWER
        self._tries = 0
        self._accepted_at = 0.0  # when the broker accepted the connection
        self.connects = 0
        self._newest: paho.MQTTMessageInfo | None = None
        self._flight = Flight()
        self._too_large = ""
        # Subscriptions without an answer, by packet.
        self._subscribing: dict[int | None, list[str]] = {}
        self._asking = threading.Lock()
        self.refused: frozenset[str] = frozenset()  # subscriptions
        self._client = self._new_client()

    def start(self, timeout: float, stop: threading.Event | None = None) -> None:
        """Connect, and wait until the broker has accepted or `stop` is set.

        Raises ServiceError after `timeout` seconds.
        """
        self._client.connect_async(*self._places.current, keepalive=KEEPALIVE)
        self._backoff()
        self._client.loop_start()
        deadline = time.monotonic() + timeout
        while not self._up.wait(0.1) and not (stop is not None and stop.is_set()):
            if time.monotonic() > deadline:
                self.stop()
                raise ServiceError(f"broker {self._places}: {self._failure} (waited {timeout:g} s)")

    def check(self) -> None:
        """Raise BrokerRefuses where the broker drops the connection at one of our messages."""
        if self._too_large:
            raise BrokerRefuses(self._too_large)

    @property
    def up(self) -> bool:
        """Whether there is a connection now."""
        return self._up.is_set()

    @property
    def hears(self) -> bool:
        """Whether there is a connection now, and the broker refuses no subscription of it."""
        return self._up.is_set() and not self.refused

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Hand one message of QoS 1 to the network thread; while disconnected it is queued.

        Raises ValueError for a topic with a wildcard.
        """
        if "+" in topic or "#" in topic:
            raise ValueError(f"topic {topic!r}: wildcards cannot be published to")
        self._on_publish(topic, len(payload))
        self._newest = sent = self._client.publish(topic, payload, qos=1, retain=retain)
        # While disconnected it is NO_CONN, although the message is queued. Receipts tell whether it
        # came.
        sent.rc = MQTTErrorCode.MQTT_ERR_SUCCESS
        self._flight.add(sent, len(payload))

    def listen(self, subscriptions: Sequence[str]) -> None:
        """Replace the subscriptions by these; does nothing where they are the same.

        New topics are subscribed before old ones are given up, so nothing is missed in between.
        Raises BrokerRefuses, as `check` does.
        """
        self.check()
        fresh = [topic for topic in subscriptions if topic not in self.listening]
        dropped = list(self.listening.difference(subscriptions))
        self.listening = frozenset(subscriptions)
        self.refused &= self.listening
        if self._up.is_set():
            self._subscribe(fresh)
            for first in range(0, len(dropped), TOPICS):
                self._client.unsubscribe(dropped[first : first + TOPICS])

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

    def _plain(self) -> paho.Client:
        return _Client(
            self._places,
            self._proxies,
            CallbackAPIVersion.VERSION2,
            client_id=self._id,
            protocol=MQTTProtocolVersion.MQTTv311,
            clean_session=True,
            manual_ack=True,
        )

    def _new_client(self) -> paho.Client:
        client = self._plain()
        client.on_pre_connect = self._before_connecting
        client.on_socket_open = self._socket_open
        client.on_connect = self._connected
        client.on_connect_fail = self._not_connected
        client.on_disconnect = self._disconnected
        client.on_message = self._received
        client.on_subscribe = self._answered
        client.max_inflight_messages_set(WINDOW)
        if self._tls is not None:
            client.tls_set_context(self._tls)
            client.on_log = self._paho_says  # costs a formatted line per packet, which TLS hides
        if self._will is not None:
            client.will_set(self._will.topic, self._will.payload, qos=1, retain=True)
        return client

    def _before_connecting(self, *_: Any) -> None:
        # The certificate may have been renewed since, and the old one may have ended.
        if self._files is None or self._tls is None:
            return
        try:
            self._files.show_newest(self._tls)
        except ConfigError as error:
            log.warning("%s; showing the one of before", error)

    def _socket_open(self, _client: Any, _user: Any, sock: Any) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "SO_SNDBUF"):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)

    def _connected(
        self, _client: Any, _user: Any, _flags: Any, reason: ReasonCode, _properties: Any
    ) -> None:
        if reason.is_failure:
            self._failure = f"refused: {reason}"
            return
        self._accepted_at = time.monotonic()
        self._tries = 0
        self.connects += 1
        self._failure = NO_ANSWER
        with self._asking:
            self._subscribing.clear()
        self.refused = frozenset()
        self._subscribe(sorted(self.listening))
        self._up.set()
        self._on_up()

    def _subscribe(self, topics: list[str]) -> None:
        for first in range(0, len(topics), TOPICS):
            batch = topics[first : first + TOPICS]
            with self._asking:  # the answer may be quicker than the number of the packet
                _, packet = self._client.subscribe([(topic, 1) for topic in batch])
                self._subscribing[packet] = batch

    def _answered(
        self, _client: Any, _user: Any, packet: int, reasons: list[ReasonCode], _properties: Any
    ) -> None:
        self._flight.answered()
        with self._asking:
            batch = self._subscribing.pop(packet, [])
        verdicts = zip(batch, reasons, strict=False)  # a broker that gives fewer grants the rest
        refused = [topic for topic, reason in verdicts if reason.is_failure]
        if not refused:
            return
        self.refused |= frozenset(refused) & self.listening
        log.warning(
            "the broker refuses the subscription to %s: its rules are of another run or name "
            "(tacit pki init --run makes them; then restart it)",
            refused[0] + (f" and {len(refused) - 1} more" if refused[1:] else ""),
        )

    def _not_connected(self, *_: Any) -> None:
        # paho calls this where it handles the exception.
        self._flight.unreachable()
        self._complain(str(sys.exc_info()[1] or "no connection"))
        self._places.advance()
        self._backoff()

    def _paho_says(self, _client: Any, _user: Any, level: int, text: str) -> None:
        if level == LogLevel.MQTT_LOG_ERR and "on socket" in text:
            # With TLS 1.3 a broker refuses our certificate only after the handshake.
            self._complain(text)

    def _complain(self, failure: str) -> None:
        if failure != self._failure:
            log.warning("broker %s:%d: %s", *self._places.current, failure)
        self._failure = failure

    def _disconnected(
        self, _client: Any, _user: Any, _flags: Any, reason: ReasonCode, _properties: Any
    ) -> None:
        was_up = self._up.is_set()
        self._up.clear()
        if reason.is_failure and not self._too_large:
            log.warning("broker connection lost (%s); reconnecting", reason)
            if was_up:
                self._suspect(time.monotonic() - self._accepted_at)
            self._places.advance()
        self._tries = max(self._tries, self._flight.drops)
        self._backoff()

    def _suspect(self, seconds: float) -> None:
        """Ask whether a connection of `seconds` ended at a message, as those before it did."""
        drop = self._flight.dropped(seconds)
        if drop is None:
            return
        if drop.refused:
            self._too_large = (
                f"broker {self._places}: drops the connection at a message of "
                f"{drop.size} bytes; raise its limit to {MAX_PACKET}, or set a smaller TACIT_CHUNK"
            )
        elif self._flight.drops == DROPS:
            log.warning(
                "broker %s: %d connections in a row ended at once, with a message of %d bytes "
                "in flight; going on (does the broker restart, or take less than that?)",
                self._places,
                DROPS,
                drop.size,
            )

    def _backoff(self) -> None:
        # Full jitter: after an outage a fleet must not come back in step.
        self._tries += 1
        delay = random.uniform(0.05, min(RECONNECT_CAP, 0.2 * 2 ** min(self._tries, _TRIES)))
        # It is typed for whole seconds, and waits for fractions as well.
        self._client.reconnect_delay_set(delay, delay)  # type: ignore[arg-type]

    def _received(self, client: paho.Client, _user: Any, message: paho.MQTTMessage) -> None:
        mid = message.mid
        qos = message.qos
        self._on_message(
            Inbound(
                message.topic, bytes(message.payload), lambda: client.ack(mid, qos), message.retain
            )
        )
