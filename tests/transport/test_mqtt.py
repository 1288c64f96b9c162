"""The MQTT connection: what it promises over a real mosquitto, over its death, and over amqtt."""

from __future__ import annotations

import gc
import queue
import socket
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tacit_services.transport import mqtt
from tacit_services.transport.mqtt import Connection, Inbound, Will

from tacit.errors import ConfigError, ServiceError
from tests.helpers.servers import (
    HOST,
    PATIENCE,
    Mosquitto,
    Server,
    free_port,
    mosquitto,
    need,
    wait_for,
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    with mosquitto(tmp_path_factory.mktemp("broker")) as running:
        yield running


def address(server: Server) -> str:
    return f"{server.host}:{server.port}"


class Client:
    """A connection with an inbox that acknowledges what it takes out."""

    def __init__(
        self, broker: str, name: str, *topics: str, will: Will | None = None, chunk: int = 0
    ) -> None:
        self.inbox: queue.SimpleQueue[Inbound] = queue.SimpleQueue()
        self.ups = 0
        self.connection = Connection(
            broker, name, topics, self.inbox.put, on_up=self._up, will=will, chunk=chunk
        )

    def _up(self) -> None:
        self.ups += 1

    def take(self, seconds: float = PATIENCE) -> Inbound:
        inbound = self.inbox.get(timeout=seconds)
        inbound.done()
        return inbound


@contextmanager
def client(
    broker: str,
    name: str,
    *topics: str,
    will: Will | None = None,
    chunk: int = 0,
    seconds: float = PATIENCE,
) -> Iterator[Client]:
    made = Client(broker, name, *topics, will=will, chunk=chunk)
    try:
        made.connection.start(seconds)
        yield made
    finally:
        made.connection.stop()


def echo(made: Client, topic: str, payload: bytes) -> None:
    """Publish to a topic that `made` subscribes to, until it comes back."""
    made.connection.publish(topic, payload)
    while made.take().payload != payload:
        pass


def test_a_stopped_connection_ends_by_itself(broker: Mosquitto) -> None:
    connection = Connection(address(broker), "ends", [], lambda inbound: None)
    connection.start(PATIENCE)
    left = weakref.ref(connection._client)
    connection.stop()
    gc.disable()  # which may find the sockets before their client, and then warns of them
    try:
        del connection
        assert left() is None
    finally:
        gc.enable()


def test_messages_come_in_order_with_their_bytes(broker: Mosquitto) -> None:
    with client(address(broker), "order", "t/order/#") as one:
        payloads = [bytes([n]) * (n * 1000) for n in range(100)]
        for n, payload in enumerate(payloads):
            one.connection.publish(f"t/order/{n}", payload)
        received = [one.take() for _ in payloads]
    assert [inbound.payload for inbound in received] == payloads
    assert [inbound.topic for inbound in received] == [f"t/order/{n}" for n in range(100)]


def test_small_packets_are_not_delayed(broker: Mosquitto) -> None:
    with client(address(broker), "nodelay") as one:
        sock = one.connection._client.socket()
        assert isinstance(sock, socket.socket)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def test_retained_messages_are_marked(broker: Mosquitto) -> None:
    with client(address(broker), "writer") as writer:
        writer.connection.publish("t/retained", b"old", retain=True)
        wait_for(
            lambda: (
                writer.connection._newest is not None and writer.connection._newest.is_published()
            )
        )
        with client(address(broker), "reader", "t/retained") as reader:
            first = reader.take()
            writer.connection.publish("t/retained", b"new", retain=True)
            second = reader.take()
    assert (first.payload, first.retained) == (b"old", True)
    assert (second.payload, second.retained) == (b"new", False)  # news to somebody who was there


def test_the_last_word_is_said_and_the_will_is_not(broker: Mosquitto) -> None:
    with client(address(broker), "heir", "t/will") as heir:
        leaving = Client(address(broker), "leaving", will=Will("t/will", b"offline"))
        leaving.connection.start(PATIENCE)
        leaving.connection.stop(Will("t/will", b"left"))
        assert heir.take().payload == b"left"
        lost = Client(address(broker), "lost", will=Will("t/will", b"offline"))
        lost.connection.start(PATIENCE)
        lost.connection._client._sock_close()  # as if the process had died: no DISCONNECT
        assert heir.take().payload == b"offline"
        lost.connection.stop()
        lost.connection.stop()  # idempotent


def test_wildcards_are_not_published_to(broker: Mosquitto) -> None:
    with client(address(broker), "wild") as one:
        for topic in ("t/+/x", "t/#"):
            with pytest.raises(ValueError, match="wildcards cannot be published to"):
                one.connection.publish(topic, b"")


def test_a_broker_that_is_not_there_is_named(broker: Mosquitto) -> None:
    missing = f"{HOST}:{free_port()}"
    one = Client(missing, "nobody")
    with pytest.raises(ServiceError, match=rf"broker {missing}: .* \(waited 0\.3 s\)"):
        one.connection.start(0.3)


def test_waiting_for_a_broker_ends_when_told_to() -> None:
    stop = threading.Event()
    one = Client(f"{HOST}:{free_port()}", "nobody")
    starting = threading.Thread(target=one.connection.start, args=(1000.0, stop))
    starting.start()
    stop.set()
    starting.join(PATIENCE)
    assert not starting.is_alive()
    assert not one.connection.up
    one.connection.stop()


def test_a_port_where_something_else_answers_is_refused() -> None:
    with socket.create_server((HOST, 0)) as listener:
        one = Client("{}:{}".format(*listener.getsockname()), "silent")
        with pytest.raises(ServiceError, match="no answer"):
            one.connection.start(0.3)


def test_everything_goes_on_after_the_brokers_death(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as mortal, client(address(mortal), "survivor", "t/#") as one:
        echo(one, "t/before", b"before")
        for count in (2, 3):
            mortal.kill()
            wait_for(lambda: not one.connection.up)
            one.connection.publish("t/while-down", b"while down %d" % count)  # queued, not lost
            mortal.start()
            wait_for(lambda count=count: one.connection.connects >= count)  # type: ignore[misc]
            while one.take().payload != b"while down %d" % count:
                pass
            echo(one, "t/after", b"after %d" % count)  # subscribed again
        assert one.ups == one.connection.connects


@contextmanager
def small_broker(folder: Path, limit: int) -> Iterator[Mosquitto]:
    """A mosquitto that takes packets of at most `limit` bytes."""
    port, conf = free_port(), folder / "small.conf"
    conf.write_text(f"listener {port} {HOST}\nallow_anonymous true\nmax_packet_size {limit}\n")
    server = Mosquitto([need("mosquitto"), "-c", str(conf)], port, folder / "small.log")
    try:
        server.start()
        yield server
    finally:
        server.kill()


def test_a_broker_that_takes_less_than_a_chunk_is_refused_at_the_start(tmp_path: Path) -> None:
    with small_broker(tmp_path, 20_000) as small:
        pattern = r"takes packets of at most 20000 bytes; TACIT_CHUNK=262144 must be 19488 or less"
        with (
            pytest.raises(ServiceError, match=pattern),
            client(address(small), "big", chunk=262144),
        ):
            pass
        with client(address(small), "fitting", "t", chunk=19488) as one:
            echo(one, "t", bytes(19488))
            # A larger payload is not even tried: paho would send it again after each disconnection,
            # for ever.
            with pytest.raises(
                ConfigError, match=r"the broker's limit is 20000; lower TACIT_CHUNK"
            ):
                one.connection.publish("t", bytes(20_000))
            echo(one, "t", b"still here")
            assert one.connection.connects == 1


def test_a_broker_that_dies_before_it_answers_is_asked_for_mqtt_5_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mqtt, "UNANSWERED", 0.3)
    with socket.create_server((HOST, 0)) as dying:
        one, stop = Client("{}:{}".format(*dying.getsockname()), "x"), threading.Event()
        levels = list[int]()
        starting = threading.Thread(target=one.connection.start, args=(PATIENCE, stop))
        starting.start()
        first = time.monotonic()
        while len(levels) < 3 or time.monotonic() < first + 4 * mqtt.UNANSWERED:
            taken, _ = dying.accept()
            with taken:  # closed long before that could be called silence
                said = taken.recv(1000)
            levels.append(said[said.index(b"MQTT") + 4])
        stop.set()
        starting.join(PATIENCE)
        one.connection.stop()
    assert set(levels) == {5}


def test_a_3_1_1_broker_is_met_at_its_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt, "UNANSWERED", 0.3)  # it would be the same after 3 s
    port = free_port()
    command = [sys.executable, "-m", "tacit_services.testbed.fallback_broker", f"{HOST}:{port}"]
    amqtt = Server(command, port, tmp_path / "amqtt.log")
    try:
        amqtt.start()
        will = Will("t/presence", b"offline")
        with client(address(amqtt), "old-school", "t/#", will=will, chunk=1 << 18) as one:
            for n in range(20):
                echo(one, f"t/{n}", bytes([n]) * 50_000)
            one.connection.publish("t/kept", b"kept", retain=True)
            assert one.take().payload == b"kept"
            with client(address(amqtt), "newcomer", "t/kept") as other:
                inbound = other.take()
                assert (inbound.payload, inbound.retained) == (b"kept", True)
    finally:
        amqtt.stop()
