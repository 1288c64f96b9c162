"""One port for MQTT and HTTPS: who is passed on to whom, and what strangers may hold of it."""

from __future__ import annotations

import contextlib
import functools
import secrets
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tacit_services.transport import client_hello
from tacit_services.transport.address import bind
from tacit_services.transport.front_door import LIMITS, FrontDoor, FrontLimits
from tacit_services.transport.tls_records import TlsRecords

from tests.helpers.servers import HOST, PATIENCE, wait_for
from tests.helpers.web import dial, ending

FEW = FrontLimits(connections=64, each=32, silent=4, seconds=PATIENCE)
SHORT = FrontLimits(seconds=0.3)


@functools.cache
def hello(*protocols: str, host: str = "localhost") -> bytes:
    """Return the first bytes of Python's own TLS client."""
    context = ssl.create_default_context()
    if protocols:
        context.set_alpn_protocols(list(protocols))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=host).do_handshake()
    return outgoing.read()


def in_records(data: bytes, size: int) -> bytes:
    """Return the same message in records of `size` bytes."""
    message = data[5:]
    pieces = [message[at : at + size] for at in range(0, len(message), size)]
    return b"".join(data[:3] + len(piece).to_bytes(2, "big") + piece for piece in pieces)


class TestClientHello:
    @pytest.mark.parametrize("offered", [(), ("mqtt",), ("http/1.1",), ("h2", "http/1.1", "mqtt")])
    def test_it_says_what_a_client_offers_however_it_comes(self, offered: tuple[str, ...]) -> None:
        whole = hello(*offered)
        expected = tuple(name.encode() for name in offered)
        for data in (whole, whole + b"more", in_records(whole, 7), in_records(whole, 1)):
            if len(data) <= client_hello.MOST:
                assert client_hello.protocols(data) == expected
        for end in range(len(whole)):
            assert client_hello.protocols(whole[:end]) is None

    @pytest.mark.parametrize(
        "data",
        [
            b"GET / HTTP/1.1\r\n",
            b"\x10\x0e\x00\x04MQTT",
            b"\x16\x02",
            b"\x16\x03\x01\x00\x00",
            b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
            b"\x16\x03\x01\x00\x04\x01\xff\xff\xff",
            b"\x16\x03\x01\x00\x04\x01\x00\x00\x00",
            b"\x16\x03\x01\x40\x01\x01",
        ],
    )
    def test_what_is_none_is_refused_at_once(self, data: bytes) -> None:
        with pytest.raises(client_hello.NotTlsError):
            client_hello.protocols(data)

    def test_an_endless_one_is_refused_at_its_bound(self) -> None:
        data = b"\x16\x03\x01\x00\x01\x01" + b"\x16\x03\x01\x00\x01\x00" * 9_999
        with pytest.raises(client_hello.NotTlsError):
            client_hello.protocols(data)

    @given(st.binary(max_size=400), st.booleans())
    def test_no_bytes_make_it_fail_in_another_way(self, data: bytes, framed: bool) -> None:
        if framed:
            message = b"\x01" + len(data).to_bytes(3, "big") + data
            data = b"\x16\x03\x01" + len(message).to_bytes(2, "big") + message
        with contextlib.suppress(client_hello.NotTlsError):
            client_hello.protocols(data)

    @given(st.data())
    def test_a_changed_byte_makes_it_another_list_or_refused(self, data: st.DataObject) -> None:
        whole = bytearray(hello("mqtt"))
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.integers(0, 255))
        with contextlib.suppress(client_hello.NotTlsError):
            names = client_hello.protocols(whole)
            assert names is None or all(isinstance(name, bytes) for name in names)


class Backend:
    """A server on a loopback port that holds what it is sent, and says what it is told to."""

    def __init__(self, name: bytes, *, reads: bool = True) -> None:
        self.name = name
        self.received: list[bytes] = []
        self._reads = reads
        self._listener = bind(f"{HOST}:0")
        self._listener.listen(64)
        self.address = "{}:{}".format(*self._listener.getsockname())
        self.connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE)
        self._listener.close()
        for connection in self.connections:
            connection.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            if self._reads:
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        """Say who it is; at the client's end, send back all that came, and end."""
        with contextlib.suppress(OSError):
            connection.sendall(self.name)
            everything = ending(connection)
            self.received.append(everything)
            connection.sendall(everything)
            connection.shutdown(socket.SHUT_WR)


@contextmanager
def door(broker: Backend, https: Backend, limits: FrontLimits = LIMITS) -> Iterator[FrontDoor]:
    opened = FrontDoor(bind(f"{HOST}:0"), broker.address, https.address, limits)
    opened.start()
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def broker() -> Iterator[Backend]:
    with closing(Backend(b"broker")) as backend:
        yield backend


@pytest.fixture
def https() -> Iterator[Backend]:
    with closing(Backend(b"https!")) as backend:
        yield backend


def served_by(address: str, first: bytes) -> bytes:
    """Return who answers, to a client that begins so."""
    with closing(dial(address)) as client:
        client.sendall(first)
        return client.recv(6)


class TestPassingOn:
    @pytest.mark.parametrize(
        ("offered", "who"),
        [
            (("mqtt",), b"broker"),
            (("http/1.1", "mqtt"), b"broker"),
            (("http/1.1",), b"https!"),
            (("h2",), b"https!"),
            ((), b"https!"),
        ],
    )
    def test_the_protocol_decides(
        self, broker: Backend, https: Backend, offered: tuple[str, ...], who: bytes
    ) -> None:
        with door(broker, https) as front:
            assert served_by(front.address, hello(*offered)) == who

    def test_of_a_brokers_nodes_one_that_answers_is_passed_to(
        self, broker: Backend, https: Backend
    ) -> None:
        with bind(f"{HOST}:0") as unheard:  # not listened at: who connects is refused
            dead = "{}:{}".format(*unheard.getsockname())
            nodes = f"{dead},{broker.address}"
            with closing(FrontDoor(bind(f"{HOST}:0"), nodes, https.address, LIMITS)) as front:
                front.start()
                assert [served_by(front.address, hello("mqtt")) for _ in range(2)] == [
                    b"broker"
                ] * 2

    def test_every_byte_passes_in_both_directions_and_so_does_the_end(
        self, broker: Backend, https: Backend
    ) -> None:
        # Given more than any buffer between them holds,
        first, rest = hello("mqtt"), secrets.token_bytes(8 << 20)
        with door(broker, https) as front, closing(dial(front.address)) as client:
            # when a client that has sent it ends its side, and reads only then,
            for piece in (first[:3], first[3:], rest):
                client.sendall(piece)
            client.shutdown(socket.SHUT_WR)
            answer = ending(client)
        # then the server had it, and the client has the server's answer, to the last byte.
        assert broker.received == [first + rest]
        assert answer == b"broker" + first + rest

    def test_what_is_no_tls_is_closed_and_reaches_nobody(
        self, broker: Backend, https: Backend
    ) -> None:
        with door(broker, https) as front:
            for first in (b"GET / HTTP/1.1\r\n\r\n", b"\x10\x0e\x00\x04MQTT\x04\x02", b"\x00"):
                with closing(dial(front.address)) as client:
                    client.sendall(first)
                    assert ending(client) == b""
        assert broker.connections == https.connections == []

    def test_the_server_behind_learns_whose_connection_it_is(
        self, broker: Backend, https: Backend
    ) -> None:
        with door(broker, https) as front, closing(dial(front.address, "127.0.0.9")) as client:
            client.sendall(hello())
            assert client.recv(6) == b"https!"
            _, port = https.connections[0].getpeername()
            assert front.origin(port) == "127.0.0.9"
            client.close()
            wait_for(lambda: front.origin(port) is None)

    def test_a_server_that_is_away_ends_the_connection_and_is_found_again(
        self, https: Backend
    ) -> None:
        with closing(Backend(b"broker")) as broker:
            pass
        with door(broker, https) as front:
            assert served_by(front.address, hello("mqtt")) == b""
            assert served_by(front.address, hello()) == b"https!"

    def test_closing_ends_all_that_are_in(self, broker: Backend, https: Backend) -> None:
        with ExitStack() as stack:
            with door(broker, https) as front:
                clients = [stack.enter_context(closing(dial(front.address))) for _ in range(5)]
                for client in clients[1:]:
                    client.sendall(hello("mqtt"))
                    assert client.recv(6) == b"broker"
            assert [ending(client) for client in clients] == [b""] * 5
            front.close()


class TestStrangers:
    def test_the_silent_make_room_for_who_says_what_it_wants(
        self, broker: Backend, https: Backend
    ) -> None:
        with door(broker, https, FEW) as front, ExitStack() as stack:
            # Given more silent clients than may be, some of them in the middle of a first message,
            silent = [stack.enter_context(closing(dial(front.address))) for _ in range(20)]
            for number, client in enumerate(silent):
                with contextlib.suppress(OSError):
                    client.sendall(hello("mqtt")[: 20 * (number % 3)])
            # when another address's client comes, then it is served,
            quick = stack.enter_context(closing(dial(front.address, "127.0.0.2")))
            quick.sendall(hello("mqtt"))
            assert quick.recv(6) == b"broker"
            # and those that waited longest have left.
            assert ending(silent[0]) == b""

    def test_who_has_most_silent_ones_makes_room(self, broker: Backend, https: Backend) -> None:
        with door(broker, https, FEW) as front, ExitStack() as stack:
            patient = stack.enter_context(closing(dial(front.address, "127.0.0.2")))
            patient.sendall(hello("mqtt")[:50])
            flood = [stack.enter_context(closing(dial(front.address))) for _ in range(20)]
            assert ending(flood[0]) == b""
            patient.sendall(hello("mqtt")[50:])
            assert patient.recv(6) in (b"broker", b"https!")

    @pytest.mark.parametrize("first", [b"", b"\x16", hello("mqtt")[:-1]])
    def test_a_first_message_is_not_waited_for(
        self, broker: Backend, https: Backend, first: bytes
    ) -> None:
        with door(broker, https, SHORT) as front, closing(dial(front.address)) as client:
            client.sendall(first)
            assert ending(client) == b""

    def test_one_that_comes_byte_by_byte_is_not_waited_for(
        self, broker: Backend, https: Backend
    ) -> None:
        with door(broker, https) as front, closing(dial(front.address)) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with contextlib.suppress(OSError):
                for _ in range(1 << 16):
                    client.sendall(b"\x16\x03\x01\x00\x01\x01"[:1])
            assert ending(client) == b""

    def test_an_address_has_its_part_of_the_places(self, broker: Backend, https: Backend) -> None:
        limits = FrontLimits(connections=8, each=4)
        with door(broker, https, limits) as front, ExitStack() as stack:
            for _ in range(4):
                client = stack.enter_context(closing(dial(front.address)))
                client.sendall(hello("mqtt"))
                assert client.recv(6) == b"broker"
            assert served_by(front.address, b"") == b""
            other = stack.enter_context(closing(dial(front.address, "127.0.0.2")))
            other.sendall(hello("mqtt"))
            assert other.recv(6) == b"broker"

    def test_who_does_not_read_stops_nobody_else(self, https: Backend) -> None:
        with (
            closing(Backend(b"", reads=False)) as deaf,
            door(deaf, https) as front,
            closing(dial(front.address)) as sender,
        ):
            sender.settimeout(0.5)
            sender.sendall(hello("mqtt"))
            sent = 0
            with contextlib.suppress(TimeoutError):
                while True:
                    sent += sender.send(bytes(1 << 20))
            # The kernel's buffers hold some of it, and the door one block.
            assert sent < 64 << 20
            assert served_by(front.address, hello()) == b"https!"

    def test_a_client_that_stays_when_its_server_has_left_is_shown_out(
        self, https: Backend
    ) -> None:
        with (
            closing(Backend(b"", reads=False)) as broker,
            door(broker, https, SHORT) as front,
            closing(dial(front.address)) as client,
        ):
            client.sendall(hello("mqtt"))
            wait_for(lambda: len(broker.connections) == 1)
            broker.connections[0].close()
            assert ending(client) == b""
            wait_for(lambda: front._open == 0)


KEYED = b"\x17\x03\x03\x00\x05keyed"  # a record as a client makes it that has the keys


class TestSilentMqtt:
    EAGER = FrontLimits(greeting=0.3)

    @pytest.mark.parametrize("more", [b"", b"\x14\x03\x03\x00\x01\x01", KEYED[:-1]])
    def test_a_client_of_the_broker_that_goes_on_silent_leaves(
        self, broker: Backend, https: Backend, more: bytes
    ) -> None:
        with door(broker, https, self.EAGER) as front, closing(dial(front.address)) as client:
            client.sendall(hello("mqtt") + more)
            assert ending(client) == b"broker"

    def test_a_client_that_has_the_keys_stays(self, broker: Backend, https: Backend) -> None:
        # Given a client that stays, and one that goes on silent, which came later,
        with door(broker, https, self.EAGER) as front, ExitStack() as stack:
            stays, leaves = (stack.enter_context(closing(dial(front.address))) for _ in range(2))
            for piece in (hello("mqtt"), KEYED[:3], KEYED[3:]):
                stays.sendall(piece)
            leaves.sendall(hello("mqtt"))
            # when the second has been shown out,
            assert ending(leaves) == b"broker"
            # then the first is still served.
            stays.sendall(b"more")
            stays.shutdown(socket.SHUT_WR)
            assert ending(stays) == b"broker" + hello("mqtt") + KEYED + b"more"

    def test_https_has_its_own_patience(self, broker: Backend, https: Backend) -> None:
        with door(broker, https, self.EAGER) as front, ExitStack() as stack:
            quiet, leaves = (stack.enter_context(closing(dial(front.address))) for _ in range(2))
            quiet.sendall(hello())
            assert quiet.recv(6) == b"https!"
            leaves.sendall(hello("mqtt"))
            assert ending(leaves) == b"broker"
            quiet.shutdown(socket.SHUT_WR)
            assert ending(quiet) == hello()

    @given(st.lists(st.integers(1, 9), max_size=40))
    def test_records_are_counted_however_they_come(self, sizes: list[int]) -> None:
        data = hello("mqtt") + b"\x14\x03\x03\x00\x01\x01" + KEYED
        records = TlsRecords()
        at = 0
        for size in (*sizes, len(data)):
            records.feed(data[at : at + size])
            at += size
            assert records.protected == (at >= len(data))
