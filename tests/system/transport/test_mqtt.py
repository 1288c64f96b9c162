"""The MQTT connection: what it promises over a real mosquitto, over its death, and over amqtt."""

from __future__ import annotations

import gc
import queue
import re
import socket
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from tacit_services.transport.flight import AT_ONCE, DROPS, PLAUSIBLE, Flight, Suspect
from tacit_services.transport.mqtt import MAX_PACKET, Connection, Inbound, Will

from tacit.errors import BrokerRefuses, ServiceError
from tacit.protocol import topics
from tests.helpers.packets import Packets
from tests.helpers.servers import (
    HOST,
    PATIENCE,
    Mosquitto,
    Server,
    free_port,
    mosquitto,
    need,
    ruled_mosquitto,
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

    def __init__(self, broker: str, name: str, *topics: str, will: Will | None = None) -> None:
        self.inbox: queue.SimpleQueue[Inbound] = queue.SimpleQueue()
        self.ups = 0
        self.connection = Connection(
            broker, name, topics, self.inbox.put, on_up=self._up, will=will
        )

    def _up(self) -> None:
        self.ups += 1

    def take(self, seconds: float = PATIENCE) -> Inbound:
        inbound = self.inbox.get(timeout=seconds)
        inbound.done()
        return inbound


@contextmanager
def client(
    broker: str, name: str, *topics: str, will: Will | None = None, seconds: float = PATIENCE
) -> Iterator[Client]:
    made = Client(broker, name, *topics, will=will)
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


def test_a_whole_chunk_passes_on_the_longest_topic_and_no_more(broker: Mosquitto) -> None:
    longest = topics.peer_numbered("r" * 64, "e" * 64, "f" * 64)
    with client(address(broker), "whole", longest) as one:
        echo(one, longest, bytes(1 << 18))
        with Packets(broker.port, "larger") as other:
            other.publish(longest, bytes((1 << 18) + 512))
            assert other.closed()


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
def small_broker(folder: Path, limit: int, port: int | None = None) -> Iterator[Mosquitto]:
    """A mosquitto that takes packets of at most `limit` bytes."""
    port, conf = free_port() if port is None else port, folder / "small.conf"
    conf.write_text(f"listener {port} {HOST}\nallow_anonymous true\nmax_packet_size {limit}\n")
    server = Mosquitto([need("mosquitto"), "-c", str(conf)], port, folder / "small.log")
    try:
        server.start()
        yield server
    finally:
        server.kill()


def test_a_message_that_ends_every_connection_is_given_up_with_its_size(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_broker(tmp_path, 20_000) as small, client(address(small), "big", "t") as one:
        echo(one, "t", bytes(19_000))
        one.connection.check()
        # Given small messages around one that is too large,
        for payload in (b"before", bytes(30_000), b"after"):
            one.connection.publish("t", payload)
        # when it has been tried a few times, it is named, with what there is to set.
        said = r"drops the connection at a message of 30000 bytes; .*262656.*smaller TACIT_CHUNK"

        def refused() -> bool:
            try:
                one.connection.check()
            except BrokerRefuses as error:
                return re.search(said, str(error)) is not None
            return False

        wait_for(refused)
        assert one.connection.connects <= DROPS + 1
        with pytest.raises(BrokerRefuses):
            one.connection.listen(["t"])
    assert caplog.text.count("connection lost") == DROPS


def gone_on(one: Client) -> bool:
    """Whether more connections ended than it takes to give up."""
    one.connection.check()
    return one.connection.connects > DROPS + 1


@pytest.mark.parametrize(("limit", "size", "smaller"), [(300, 600, True), (20_000, 30_000, False)])
def test_what_may_end_connections_for_another_reason_is_told_once_and_sent_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, limit: int, size: int, smaller: bool
) -> None:
    # Given a broker that ends every connection, at a message that every broker takes, or which has
    # acknowledged none that is smaller,
    with small_broker(tmp_path, limit) as first, client(address(first), "again") as one:
        if smaller:
            one.connection.publish("t", bytes(10))
            info = one.connection._newest
            assert info is not None
            wait_for(info.is_published)
        one.connection.publish("t", bytes(size))
        newest = one.connection._newest
        assert newest is not None
        # when it does so for longer than it takes to give up, then nothing is given up.
        wait_for(lambda: gone_on(one), 2 * PATIENCE)
        assert caplog.text.count(f"in a row ended at once, with a message of {size} bytes") == 1
        first.kill()
        with small_broker(tmp_path, MAX_PACKET, first.port):
            wait_for(newest.is_published)
        one.connection.check()


def test_a_day_of_tries_has_the_pause_of_some() -> None:
    one = Client(f"{HOST}:{free_port()}", "nobody")
    one.connection._tries = 20_000
    one.connection._not_connected()
    assert one.connection._tries == 20_001
    one.connection.stop()


def test_a_broker_that_dies_again_and_again_refuses_nothing(tmp_path: Path) -> None:
    # Given a message that is in flight at each of many deaths,
    with mosquitto(tmp_path) as mortal, client(address(mortal), "survivor", "t/#") as one:
        for number in range(DROPS + 2):
            mortal.kill()
            wait_for(lambda: not one.connection.up)
            one.connection.publish("t", b"%d" % number)
            mortal.start()
            wait_for(lambda: one.connection.up)
        echo(one, "t/last", b"still here")
        one.connection.check()


def test_a_network_that_drops_us_now_and_then_is_no_refusal() -> None:
    flight = Flight()

    def sent(size: int) -> paho.MQTTMessageInfo:
        info = paho.MQTTMessageInfo(size)
        flight.add(info, size)
        return info

    # Given two messages in flight, of which now one and now the other arrives,
    large = PLAUSIBLE + 1
    pair = sent(large), sent(100)
    for _ in range(DROPS):
        assert flight.dropped(0.1) is None
        pair[0]._set_as_published()
        pair = pair[1], sent(large)
        pair[0]._set_as_published()
        pair = pair[1], sent(100)
    # and connections that last a while, or are not made at all,
    for _ in range(DROPS):
        assert flight.dropped(AT_ONCE + 1.0) is None
    for _ in range(DROPS):
        assert flight.dropped(0.1) is None
        flight.unreachable()
    # then none seems to be refused; only one that ends many connections in a row, at once, does,
    found = [flight.dropped(0.1) for _ in range(DROPS)]
    # and it is not for its size, where as many bytes were acknowledged before.
    assert found == [None] * (DROPS - 1) + [Suspect(large, refused=False)]
    sent(large + 1)
    found = [flight.dropped(0.1) for _ in range(DROPS)]
    assert found == [None] * (DROPS - 1) + [Suspect(large + 1, refused=True)]


def test_what_is_acknowledged_behind_a_large_message_says_that_its_size_is_the_reason() -> None:
    flight = Flight()
    infos = [paho.MQTTMessageInfo(number) for number in range(2)]
    flight.add(infos[0], PLAUSIBLE + 1)
    for _ in range(DROPS):
        found = flight.dropped(0.1)
    assert found == Suspect(PLAUSIBLE + 1, refused=False)
    flight.add(infos[1], 100)
    infos[1]._set_as_published()
    assert flight.dropped(0.1) == Suspect(PLAUSIBLE + 1, refused=True)


def first_packet(listener: socket.socket) -> bytes:
    taken, _ = listener.accept()
    with taken:
        return taken.recv(1000)


def test_the_level_is_that_of_mqtt_3_1_1_also_after_a_death() -> None:
    with socket.create_server((HOST, 0)) as dying:
        one, stop = Client("{}:{}".format(*dying.getsockname()), "x"), threading.Event()
        starting = threading.Thread(target=one.connection.start, args=(PATIENCE, stop))
        starting.start()
        said = [first_packet(dying) for _ in range(3)]
        stop.set()
        starting.join(PATIENCE)
        one.connection.stop()
    # A CONNECT: protocol name, level, flags (a clean session).
    assert {packet[packet.index(b"MQTT") + 4] for packet in said} == {4}
    assert {packet[packet.index(b"MQTT") + 5] for packet in said} == {2}


def test_nothing_else_of_the_product_speaks_mqtt() -> None:
    root = Path(__file__).parent.parent.parent.parent
    speaking = [
        path.relative_to(root).as_posix()
        for folder in ("src", "services", "clients")
        for path in (root / folder).rglob("*.py")
        if re.search(r"^\s*(import|from) paho", path.read_text(), re.MULTILINE)
    ]
    room = "services/tacit_services/transport/"
    assert sorted(speaking) == [f"{room}flight.py", f"{room}mqtt.py"]
    source = (root / room / "mqtt.py").read_text()
    assert "MQTTv5" not in source
    assert source.count("paho.Client(") == 1


def test_user_properties_cost_no_more_than_as_many_bytes_of_payload(broker: Mosquitto) -> None:
    # Given a message of as many properties as a broker takes, and one as long without,
    pairs = b"&\x00\x01a\x00\x01b" * 37_000
    assert len(pairs) < MAX_PACKET - 100
    costs = list[float]()
    with client(address(broker), "hears", "t/hostile") as one, Packets(broker.port, "v5") as member:
        echo(one, "t/hostile", b"first")
        for properties, payload in ((b"", bytes(len(pairs))), (pairs, b"x")):
            before = time.process_time()
            for _ in range(3):
                member.publish("t/hostile", payload, properties=properties)
                assert one.take().payload == payload
            costs.append(time.process_time() - before)
    # then it is received at about the same cost: to unpack them took two thousand times as long.
    assert costs[1] < 20 * costs[0] + 0.5


@pytest.mark.parametrize("named", [["t/mine"], ["t/mine", "t/other", "t/third"]])
def test_a_refused_subscription_is_said_once_and_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, named: list[str]
) -> None:
    # Given a broker whose rules grant nothing but one topic,
    with ruled_mosquitto(tmp_path, "t/granted") as ruled:
        with client(address(ruled), "ruled", "t/granted") as fine:
            wait_for(lambda: fine.connection.hears)
            assert fine.connection.refused == frozenset()
        with client(address(ruled), "ruled", "t/granted", *named) as one:
            wait_for(lambda: one.connection.refused == frozenset(named))
            assert one.connection.up
            assert not one.connection.hears
            more = f" and {len(named) - 1} more" if named[1:] else ""
            assert f"refuses the subscription to t/mine{more}: its rules" in caplog.text
            # when it asks for it no more, then nothing is refused to it.
            one.connection.listen(["t/granted"])
            assert one.connection.hears
    assert caplog.text.count("refuses the subscription") == 1


def test_the_fallback_broker_serves_as_well(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "tacit_services.testbed.fallback_broker", f"{HOST}:{port}"]
    amqtt = Server(command, port, tmp_path / "amqtt.log")
    try:
        amqtt.start()
        will = Will("t/presence", b"offline")
        with client(address(amqtt), "old-school", "t/#", will=will) as one:
            for n in range(20):
                echo(one, f"t/{n}", bytes([n]) * 50_000)
            one.connection.publish("t/kept", b"kept", retain=True)
            assert one.take().payload == b"kept"
            with client(address(amqtt), "newcomer", "t/kept") as other:
                inbound = other.take()
                assert (inbound.payload, inbound.retained) == (b"kept", True)
    finally:
        amqtt.stop()
