"""A client of MQTT 3.1.1 that a suite drives step by step, and that never comes back by itself."""

from __future__ import annotations

import queue
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.reasoncodes import ReasonCode

from tacit.errors import ConfigError
from tacit_services.conformance.check_result import NonconformanceError, require
from tacit_services.transport.flight import WINDOW
from tacit_services.transport.mqtt import ALPN, KEEPALIVE, Will
from tacit_services.transport.tls import Tls

T = TypeVar("T")
BrokerMessage = paho.MQTTMessage
_LOOK = 0.1  # seconds between two looks whether the connection has ended


@dataclass(frozen=True, slots=True)
class BrokerPlace:
    """The broker that is looked at, and by which certificates.

    pki: a folder as `tacit pki init` makes it; None: a plain connection. patience: seconds for each
    answer.
    """

    host: str
    port: int
    pki: Path | None
    patience: float

    @classmethod
    def parsed(cls, url: str, pki: Path | None, patience: float) -> BrokerPlace:
        """Return the place of mqtt://HOST:PORT, mqtts://HOST:PORT or HOST:PORT.

        Raises ConfigError, also where mqtts:// comes without certificates, or they without it.
        """
        full_url = url if "://" in url else f"{'mqtt' if pki is None else 'mqtts'}://{url}"
        wrong = ConfigError(f"URL={url!r}: expected mqtt://HOST:PORT or mqtts://HOST:PORT")
        try:
            parts = urlsplit(full_url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise wrong from None
        if parts.scheme not in ("mqtt", "mqtts") or not host or parts.path or parts.username:
            raise wrong
        if (parts.scheme == "mqtts") != (pki is not None):
            raise ConfigError(f"URL={url!r}: mqtts:// needs --pki, and --pki needs mqtts://")
        default = 1883 if pki is None else 8883
        return cls(host, default if port is None else port, pki, patience)

    def tls(self, name: str) -> ssl.SSLContext | None:
        """Return the context with the certificate of `name`; None: a plain connection.

        Raises ConfigError.
        """
        if self.pki is None:
            return None
        bundle = self.pki / name
        files = Tls(self.pki / "ca.crt", bundle / "tls.crt", bundle / "tls.key")
        return files.context(ALPN)


class BrokerClient:
    """One connection to a broker; what comes is acknowledged by `ack` alone."""

    def __init__(
        self,
        place: BrokerPlace,
        name: str,
        client_id: str,
        *,
        will: Will | None = None,
        clean: bool = True,
        keepalive: int = KEEPALIVE,
    ) -> None:
        """name: whose certificate it shows. Raises ConfigError."""
        self._place = place
        self._keepalive = keepalive
        self.inbox: queue.SimpleQueue[BrokerMessage] = queue.SimpleQueue()
        self._accepted: queue.SimpleQueue[tuple[str, bool]] = queue.SimpleQueue()
        self._granted: queue.SimpleQueue[list[int]] = queue.SimpleQueue()
        self._unsubscribed: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.ended = threading.Event()  # the connection
        self._client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            protocol=MQTTProtocolVersion.MQTTv311,
            clean_session=clean,
            manual_ack=True,
            reconnect_on_failure=False,
        )
        self._client.max_inflight_messages_set(WINDOW)
        self._client.on_connect = self._connected
        self._client.on_disconnect = lambda *_: self.ended.set()
        self._client.on_message = lambda _client, _user, message: self.inbox.put(message)
        self._client.on_subscribe = lambda _client, _user, _packet, reasons, _properties: (
            self._granted.put([reason.value for reason in reasons])
        )
        self._client.on_unsubscribe = lambda _client, _user, packet, *_: self._unsubscribed.put(
            packet
        )
        if will is not None:
            self._client.will_set(will.topic, will.payload, qos=1, retain=True)
        if (context := place.tls(name)) is not None:
            self._client.tls_set_context(context)

    def connect(self) -> bool:
        """Connect; return whether the broker had a session of this id.

        Raises NonconformanceError where it refuses, or does not answer.
        """
        try:
            self._client.connect(self._place.host, self._place.port, self._keepalive)
        except (OSError, ValueError) as error:
            raise NonconformanceError(f"no connection: {error}") from error
        self._client.loop_start()
        answer = self._within(self._accepted, "no answer to CONNECT")
        require(not answer[0], f"CONNECT is refused: {answer[0]}")
        return answer[1]

    def subscribe(self, filters: Sequence[str]) -> list[int]:
        """Subscribe at QoS 1; return what the broker grants of each, 128 where it refuses."""
        self._client.subscribe([(topic, 1) for topic in filters])
        return self._within(self._granted, f"no answer to a SUBSCRIBE of {len(filters)} topics")

    def hear(self, *filters: str) -> None:
        """Subscribe at QoS 1. Raises NonconformanceError where one is not granted as such."""
        granted = self.subscribe(filters)
        require(granted == [1] * len(filters), f"subscription to {filters[0]} at QoS 1: {granted}")

    def unsubscribe(self, filters: Sequence[str]) -> None:
        """Give subscriptions up, and wait for the answer."""
        self._client.unsubscribe(list(filters))
        self._within(self._unsubscribed, f"no answer to an UNSUBSCRIBE of {len(filters)} topics")

    def publish(self, topic: str, payload: bytes, *, retain: bool = False, qos: int = 1) -> None:
        """Publish, and wait for the broker's acknowledgement."""
        sent = self.send(topic, payload, retain=retain, qos=qos)
        self.await_sent([sent])

    def send(
        self, topic: str, payload: bytes, *, retain: bool = False, qos: int = 1
    ) -> paho.MQTTMessageInfo:
        """Publish without waiting."""
        return self._client.publish(topic, payload, qos=qos, retain=retain)

    def await_sent(self, sent: Sequence[paho.MQTTMessageInfo]) -> None:
        """Wait for the acknowledgement of each. Raises NonconformanceError."""
        for number, info in enumerate(sent):
            try:
                info.wait_for_publish(self._place.patience)
            except (RuntimeError, ValueError) as error:
                raise NonconformanceError(f"a publication ended: {error}") from error
            require(info.is_published(), f"no PUBACK for message {number} of {len(sent)}")

    def settle(self, sent: paho.MQTTMessageInfo) -> None:
        """Wait until the broker has acknowledged a publication, or ended the connection."""
        deadline = time.monotonic() + self._place.patience
        while time.monotonic() < deadline and not self.ended.wait(_LOOK):
            try:
                if sent.is_published():
                    return
            except (RuntimeError, ValueError):  # it came after the end
                return

    def receive(self, what: str) -> BrokerMessage:
        """Return the next message. Raises NonconformanceError, which names `what` is missing."""
        return self._within(self.inbox, f"{what} did not come")

    def received(self, count: int, what: str) -> list[BrokerMessage]:
        """Return so many messages, each acknowledged when it came."""
        return [self.ack(self.receive(f"{what} {number}")) for number in range(count)]

    def ack(self, message: BrokerMessage) -> BrokerMessage:
        """Acknowledge a message, and return it."""
        self._client.ack(message.mid, message.qos)
        return message

    def quiet(self, seconds: float) -> None:
        """Raise NonconformanceError where a message comes within so many seconds."""
        try:
            message = self.inbox.get(timeout=seconds)
        except queue.Empty:
            return
        raise NonconformanceError(f"{message.topic}: {bytes(message.payload)[:40]!r} came")

    def fall_silent(self) -> None:
        """Stop answering and asking, with the connection open, as behind a dead network."""
        self._client.loop_stop()

    def cut(self) -> None:
        """Drop the connection without a word."""
        sock = self._client.socket()
        if isinstance(sock, socket.socket):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                self.ended.set()  # the broker was quicker
        self.close()

    def close(self) -> None:
        """End the connection in order where it stands; idempotent."""
        self._client.disconnect()
        self._client.loop_stop()

    def _connected(
        self,
        _client: object,
        _user: object,
        flags: paho.ConnectFlags,
        reason: ReasonCode,
        _: object,
    ) -> None:
        self._accepted.put((str(reason) if reason.is_failure else "", flags.session_present))

    def _within(self, answers: queue.SimpleQueue[T], why: str) -> T:
        deadline = time.monotonic() + self._place.patience
        while time.monotonic() < deadline:
            ended = self.ended.is_set()  # before the last look
            try:
                return answers.get(timeout=_LOOK)
            except queue.Empty:
                if ended:
                    raise NonconformanceError(
                        f"{why}: the broker has ended the connection"
                    ) from None
        raise NonconformanceError(f"{why} within {self._place.patience:g} s")
