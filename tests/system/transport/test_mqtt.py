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
from tacit_services.transport import mqtt
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
    mqtt_client = Client(broker, name, *topics, will=will)
    try:
        mqtt_client.connection.start(seconds)
        yield mqtt_client
    finally:
        mqtt_client.connection.stop()


def echo(mqtt_client: Client, topic: str, payload: bytes) -> None:
    """Publish to a topic that `mqtt_client` subscribes to, until it comes back."""
    mqtt_client.connection.publish(topic, payload)
    while mqtt_client.take().payload != payload:
        pass


def test_a_stopped_connection_ends_by_itself(broker: Mosquitto) -> None:
    connection = Connection(address(broker), "ends", [], lambda inbound: None)
    connection.start(PATIENCE)
    reference = weakref.ref(connection._client)
    connection.stop()
    gc.disable()  # which may find the sockets before their client, and then warns of them
    try:
        del connection
        assert reference() is None
    finally:
        gc.enable()


def test_messages_come_in_order_with_their_bytes(broker: Mosquitto) -> None:
    with client(address(broker), "order", "t/order/#") as mqtt_client:
        payloads = [bytes([n]) * (n * 1000) for n in range(100)]
        for n, payload in enumerate(payloads):
            mqtt_client.connection.publish(f"t/order/{n}", payload)
        received = [mqtt_client.take() for _ in payloads]
    assert [inbound.payload for inbound in received] == payloads
    assert [inbound.topic for inbound in received] == [f"t/order/{n}" for n in range(100)]


def test_a_whole_chunk_passes_on_the_longest_topic_and_no_more(broker: Mosquitto) -> None:
    longest = topics.peer_numbered("r" * 64, "e" * 64, "f" * 64)
    with client(address(broker), "whole", longest) as mqtt_client:
        echo(mqtt_client, longest, bytes(1 << 18))
        with Packets(broker.port, "larger") as other:
            other.publish(longest, bytes((1 << 18) + 512))
            assert other.closed()


def test_small_packets_are_not_delayed(broker: Mosquitto) -> None:
    with client(address(broker), "nodelay") as mqtt_client:
        sock = mqtt_client.connection._client.socket()
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
    with client(address(broker), "wild") as mqtt_client:
        for topic in ("t/+/x", "t/#"):
            with pytest.raises(ValueError, match="wildcards cannot be published to"):
                mqtt_client.connection.publish(topic, b"")


def test_a_broker_that_is_not_there_is_named(broker: Mosquitto) -> None:
    missing = f"{HOST}:{free_port()}"
    mqtt_client = Client(missing, "nobody")
    with pytest.raises(ServiceError, match=rf"broker {missing}: .* \(waited 0\.3 s\)"):
        mqtt_client.connection.start(0.3)


def test_waiting_for_a_broker_ends_when_told_to() -> None:
    stop = threading.Event()
    mqtt_client = Client(f"{HOST}:{free_port()}", "nobody")
    starting = threading.Thread(target=mqtt_client.connection.start, args=(1000.0, stop))
    starting.start()
    stop.set()
    starting.join(PATIENCE)
    assert not starting.is_alive()
    assert not mqtt_client.connection.up
    mqtt_client.connection.stop()


def test_a_port_where_something_else_answers_is_refused() -> None:
    with socket.create_server((HOST, 0)) as listener:
        mqtt_client = Client("{}:{}".format(*listener.getsockname()), "silent")
        with pytest.raises(ServiceError, match="no answer"):
            mqtt_client.connection.start(0.3)


def test_everything_goes_on_after_the_brokers_death(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as mortal, client(address(mortal), "survivor", "t/#") as mqtt_client:
        echo(mqtt_client, "t/before", b"before")
        for count in (2, 3):
            mortal.kill()
            wait_for(lambda: not mqtt_client.connection.up)
            mqtt_client.connection.publish(
                "t/while-down", b"while down %d" % count
            )  # queued, not lost
            mortal.start()
            wait_for(lambda count=count: mqtt_client.connection.connects >= count)  # type: ignore[misc]
            while mqtt_client.take().payload != b"while down %d" % count:
                pass
            echo(mqtt_client, "t/after", b"after %d" % count)  # subscribed again
        assert mqtt_client.ups == mqtt_client.connection.connects


def test_where_one_node_dies_the_next_is_connected_to(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("first", "second")]
    for place in places:
        place.mkdir()
    with mosquitto(places[0]) as first, mosquitto(places[1]) as second:
        addresses = f"{address(first)},{address(second)}"
        with (
            client(addresses, "either", "t/#") as mqtt_client,
            client(address(second), "at-second", "t/#") as there,
        ):
            for count, (victim, other) in enumerate([(first, second), (second, first)], 2):
                victim.kill()
                wait_for(lambda count=count: mqtt_client.connection.connects >= count)  # type: ignore[misc]
                echo(mqtt_client, "t/after", b"at %d" % other.port)  # subscribed there as well
                if other is second:
                    assert there.take().payload == b"at %d" % other.port
                victim.start()
        # One that is away at the start costs a try.
        first.kill()
        with client(addresses, "late", "t/late") as late:
            echo(late, "t/late", b"here")
        second.kill()
        nodes = re.escape(f"broker {address(first)}, {address(second)}: ")
        with pytest.raises(ServiceError, match=nodes), client(addresses, "none", seconds=0.5):
            pass


@contextmanager
def small_broker(folder: Path, limit: int, port: int | None = None) -> Iterator[Mosquitto]:
    """Yield a mosquitto that takes packets of at most `limit` bytes."""
    port, conf = free_port() if port is None else port, folder / "small.conf"
    conf.write_text(f"listener {port} {HOST}\nallow_anonymous true\nmax_packet_size {limit}\n")
    server = Mosquitto([need("mosquitto"), "-c", str(conf)], port, folder / "small.log")
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait less before each new connection: what is tested counts them."""
    monkeypatch.setattr(mqtt, "RECONNECT_CAP", 0.2)


@pytest.mark.usefixtures("impatient")
def test_a_message_that_ends_every_connection_is_given_up_with_its_size(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_broker(tmp_path, 20_000) as small, client(address(small), "big", "t") as mqtt_client:
        echo(mqtt_client, "t", bytes(19_000))
        mqtt_client.connection.check()
        # Given small messages around one that is too large,
        for payload in (b"before", bytes(30_000), b"after"):
            mqtt_client.connection.publish("t", payload)
        # when it has been tried a few times, it is named, with what there is to set.
        pattern = r"drops the connection at a message of 30000 bytes; .*262656.*smaller TACIT_CHUNK"

        def refused() -> bool:
            try:
                mqtt_client.connection.check()
            except BrokerRefuses as error:
                return re.search(pattern, str(error)) is not None
            return False

        wait_for(refused)
        assert mqtt_client.connection.connects <= DROPS + 1
        with pytest.raises(BrokerRefuses):
            mqtt_client.connection.listen(["t"])
    assert caplog.text.count("connection lost") == DROPS


def gone_on(mqtt_client: Client) -> bool:
    """Check whether more connections ended than it takes to give up."""
    mqtt_client.connection.check()
    return mqtt_client.connection.connects > DROPS + 1


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("limit", "size", "smaller"), [(300, 600, True), (20_000, 30_000, False)])
def test_what_may_end_connections_for_another_reason_is_told_once_and_sent_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, limit: int, size: int, smaller: bool
) -> None:
    # Given a broker that ends every connection, at a message that every broker takes, or which has
    # acknowledged none that is smaller,
    with small_broker(tmp_path, limit) as first, client(address(first), "again") as mqtt_client:
        if smaller:
            mqtt_client.connection.publish("t", bytes(10))
            info = mqtt_client.connection._newest
            assert info is not None
            wait_for(info.is_published)
        mqtt_client.connection.publish("t", bytes(size))
        newest = mqtt_client.connection._newest
        assert newest is not None
        # when it does so for longer than it takes to give up, then nothing is given up.
        wait_for(lambda: gone_on(mqtt_client), 2 * PATIENCE)
        assert caplog.text.count(f"in a row ended at once, with a message of {size} bytes") == 1
        first.kill()
        with small_broker(tmp_path, MAX_PACKET, first.port):
            wait_for(newest.is_published)
        mqtt_client.connection.check()


def test_a_day_of_tries_has_the_pause_of_some() -> None:
    mqtt_client = Client(f"{HOST}:{free_port()}", "nobody")
    mqtt_client.connection._tries = 20_000
    mqtt_client.connection._not_connected()
    assert mqtt_client.connection._tries == 20_001
    mqtt_client.connection.stop()


def test_a_broker_that_dies_again_and_again_refuses_nothing(tmp_path: Path) -> None:
    # Given a message that is in flight at each of many deaths,
    with mosquitto(tmp_path) as mortal, client(address(mortal), "survivor", "t/#") as mqtt_client:
        for number in range(DROPS + 2):
            mortal.kill()
            wait_for(lambda: not mqtt_client.connection.up)
            mqtt_client.connection.publish("t", b"%d" % number)
            mortal.start()
            wait_for(lambda: mqtt_client.connection.up)
        echo(mqtt_client, "t/last", b"still here")
        mqtt_client.connection.check()


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
    suspects = [flight.dropped(0.1) for _ in range(DROPS)]
    # and it is not for its size, where as many bytes were acknowledged before.
    assert suspects == [None] * (DROPS - 1) + [Suspect(large, refused=False)]
    sent(large + 1)
    suspects = [flight.dropped(0.1) for _ in range(DROPS)]
    assert suspects == [None] * (DROPS - 1) + [Suspect(large + 1, refused=True)]


def test_what_is_acknowledged_behind_a_large_message_says_that_its_size_is_the_reason() -> None:
    flight = Flight()
    infos = [paho.MQTTMessageInfo(number) for number in range(2)]
    flight.add(infos[0], PLAUSIBLE + 1)
    for _ in range(DROPS):
        suspect = flight.dropped(0.1)
    assert suspect == Suspect(PLAUSIBLE + 1, refused=False)
    flight.add(infos[1], 100)
    infos[1]._set_as_published()
    assert flight.dropped(0.1) == Suspect(PLAUSIBLE + 1, refused=True)


def first_packet(listener: socket.socket) -> bytes:
    accepted, _ = listener.accept()
    with accepted:
        return accepted.recv(1000)


def test_the_level_is_that_of_mqtt_3_1_1_also_after_a_death() -> None:
    with socket.create_server((HOST, 0)) as dying:
        mqtt_client, stop = Client("{}:{}".format(*dying.getsockname()), "x"), threading.Event()
        starting = threading.Thread(target=mqtt_client.connection.start, args=(PATIENCE, stop))
        starting.start()
        connects = [first_packet(dying) for _ in range(3)]
        stop.set()
        starting.join(PATIENCE)
        mqtt_client.connection.stop()
    # A CONNECT: protocol name, level, flags (a clean session).
    assert {packet[packet.index(b"MQTT") + 4] for packet in connects} == {4}
    assert {packet[packet.index(b"MQTT") + 5] for packet in connects} == {2}


def test_nothing_else_of_the_product_speaks_mqtt() -> None:
    root = Path(__file__).parent.parent.parent.parent
    speaking = [
        path.relative_to(root).as_posix()
        for folder in ("src", "services", "clients")
        for path in (root / folder).rglob("*.py")
        if re.search(r"^\s*(import|from) paho", path.read_text(), re.MULTILINE)
    ]
    room = "services/tacit_services/transport/"
    judge = "services/tacit_services/conformance/broker_client.py"  # of brokers, step by step
    assert sorted(speaking) == [judge, f"{room}flight.py", f"{room}mqtt.py"]
    source = (root / room / "mqtt.py").read_text()
    assert "MQTTv5" not in source
    assert (source.count("return _Client("), source.count("paho.Client(")) == (1, 0)


def test_user_properties_cost_no_more_than_as_many_bytes_of_payload(broker: Mosquitto) -> None:
    # Given a message of as many properties as a broker takes, and one as long without,
    pairs = b"&\x00\x01a\x00\x01b" * 37_000
    assert len(pairs) < MAX_PACKET - 100
    costs = list[float]()
    with (
        client(address(broker), "hears", "t/hostile") as mqtt_client,
        Packets(broker.port, "v5") as member,
    ):
        echo(mqtt_client, "t/hostile", b"first")
        for properties, payload in ((b"", bytes(len(pairs))), (pairs, b"x")):
            before = time.process_time()
            for _ in range(3):
                member.publish("t/hostile", payload, properties=properties)
                assert mqtt_client.take().payload == payload
            costs.append(time.process_time() - before)
    # then it is received at about the same cost: to unpack them took two thousand times as long.
    assert costs[1] < 20 * costs[0] + 0.5


@pytest.mark.parametrize("refused_topics", [["t/mine"], ["t/mine", "t/other", "t/third"]])
def test_a_refused_subscription_is_said_once_and_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, refused_topics: list[str]
) -> None:
    # Given a broker whose rules grant nothing but one topic,
    with ruled_mosquitto(tmp_path, "t/granted") as ruled:
        with client(address(ruled), "ruled", "t/granted") as fine:
            wait_for(lambda: fine.connection.hears)
            assert fine.connection.refused == frozenset()
        with client(address(ruled), "ruled", "t/granted", *refused_topics) as mqtt_client:
            wait_for(lambda: mqtt_client.connection.refused == frozenset(refused_topics))
            assert mqtt_client.connection.up
            assert not mqtt_client.connection.hears
            more = f" and {len(refused_topics) - 1} more" if refused_topics[1:] else ""
            assert f"refuses the subscription to t/mine{more}: its rules" in caplog.text
            # when it asks for it no more, then nothing is refused to it.
            mqtt_client.connection.listen(["t/granted"])
            assert mqtt_client.connection.hears
    assert caplog.text.count("refuses the subscription") == 1


def test_the_fallback_broker_serves_as_well(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "tacit_services.children.fallback_broker", f"{HOST}:{port}"]
    amqtt = Server(command, port, tmp_path / "amqtt.log")
    try:
        amqtt.start()
        will = Will("t/presence", b"offline")
        with client(address(amqtt), "old-school", "t/#", will=will) as mqtt_client:
            for n in range(20):
                echo(mqtt_client, f"t/{n}", bytes([n]) * 50_000)
            mqtt_client.connection.publish("t/kept", b"kept", retain=True)
            assert mqtt_client.take().payload == b"kept"
            with client(address(amqtt), "newcomer", "t/kept") as other:
                inbound = other.take()
                assert (inbound.payload, inbound.retained) == (b"kept", True)
    finally:
        amqtt.stop()
