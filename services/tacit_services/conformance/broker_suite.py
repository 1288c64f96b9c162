"""The checks of a broker, each against one thing that tacit needs of MQTT 3.1.1.

Idea. Two clients say what an aggregator and an edge would say, on the topics of one run. So the
rules of a broker that has some are looked at, too, by the certificates of both.

Guarantee. A check that passes was seen once, on this broker, as configured now. What brokers lose
when they are killed is not looked at: tacit loses nothing by it.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tacit.protocol import topics
from tacit_services.conformance.broker_client import BrokerClient, BrokerMessage, BrokerPlace
from tacit_services.conformance.check_result import CheckResult, NonconformanceError, require
from tacit_services.transport.mqtt import MAX_PACKET, OVERHEAD, TOPICS, Will

AGGREGATOR = "aggregator"  # the names of the certificates
EDGE = "edge-0"
_ANOTHER = "edge-1"
_ORDERED = 300  # messages
_WAITING = 900  # messages; docker/mosquitto.conf keeps 1,000 for a client
_LARGE = 32  # messages that a large transfer has under way
_CHUNK = MAX_PACKET - OVERHEAD + topics.NUMBER_HEADER
_REFUSED = 0x80  # of a subscription
_QUIET = 1.0  # seconds in which nothing is to come
_SILENT = 2  # seconds of keepalive; a broker waits half as long again


@dataclass(frozen=True, slots=True)
class BrokerRehearsal:
    """A broker, and the run whose topics are used there: nobody else's, while it is looked at."""

    place: BrokerPlace
    run: str

    @property
    def up(self) -> str:
        """The edge's topic to the aggregator."""
        return topics.up_numbered(self.run, EDGE)

    @property
    def presence(self) -> str:
        """The edge's retained topic."""
        return topics.presence(self.run, EDGE)

    @property
    def will(self) -> Will:
        """What the broker says of an edge whose connection died."""
        return Will(self.presence, b"offline")

    @contextmanager
    def aggregator(self, *filters: str) -> Iterator[BrokerClient]:
        """Yield a client with the aggregator's certificate that hears these."""
        with self.client(AGGREGATOR) as client:
            client.connect()
            if filters:
                client.hear(*filters)
            yield client

    @contextmanager
    def edge(self, *filters: str) -> Iterator[BrokerClient]:
        """Yield a client with the edge's certificate that hears these."""
        with self.client(EDGE) as client:
            client.connect()
            if filters:
                client.hear(*filters)
            yield client

    @contextmanager
    def client(
        self, name: str, *, will: Will | None = None, clean: bool = True, keepalive: int = 30
    ) -> Iterator[BrokerClient]:
        """Yield a client that has not connected yet."""
        new_client = BrokerClient(
            self.place, name, f"{self.run}-{name}", will=will, clean=clean, keepalive=keepalive
        )
        try:
            yield new_client
        finally:
            new_client.close()

    @contextmanager
    def both(self) -> Iterator[tuple[BrokerClient, BrokerClient]]:
        """Yield an aggregator that hears all updates, and an edge."""
        with ExitStack() as stack:
            yield (
                stack.enter_context(self.aggregator(topics.up_all(self.run))),
                stack.enter_context(self.edge()),
            )

    def forget(self) -> None:
        """Take what the broker retains of the edge away."""
        with self.edge() as edge:
            edge.publish(self.presence, b"", retain=True)

    def retained(self, topic: str) -> bytes | None:
        """Return what a new subscriber to `topic` is told of the edge; None: nothing."""
        with self.aggregator(topic) as aggregator:
            with self.edge() as edge:  # what is retained comes before it
                edge.publish(self.presence, b"live")
            message = aggregator.ack(aggregator.receive("a message on the edge's presence"))
            if not message.retain:
                require(message.payload == b"live", "a retained message came without its flag")
                return None
            return bytes(message.payload)


def conform(rehearsal: BrokerRehearsal, checks: Iterable[str] = ()) -> Iterator[CheckResult]:
    """Look at the broker and yield the result of each check.

    checks: their names, by default all that the place allows: without certificates there are no
    permissions. Raises ConfigError for certificates that cannot be used, NonconformanceError where
    nobody answers.
    """
    with rehearsal.aggregator():
        pass
    for name in checks or applicable(rehearsal.place):
        needed = name not in ADVISED
        try:
            CHECKS[name](rehearsal)
        except NonconformanceError as error:
            yield CheckResult(name, str(error), needed)
        else:
            yield CheckResult(name, None, needed)


def applicable(place: BrokerPlace) -> list[str]:
    """Return the names of the checks for this broker."""
    return [name for name in CHECKS if place.pki is not None or name not in WITH_CERTIFICATES]


# -- sessions --------------------------------------------------------------------------------------


def _clean_sessions(at: BrokerRehearsal) -> None:
    """Check that nothing of a connection is there for the next one of the same id."""
    down = topics.down(at.run, EDGE, "model")
    with at.edge(topics.down_all(at.run, EDGE)) as edge:
        edge.close()
    with at.aggregator() as aggregator:
        aggregator.publish(down, b"before")
        with at.client(EDGE) as edge:
            require(not edge.connect(), "a clean session was there before")
            aggregator.publish(down, b"now")
            edge.quiet(_QUIET)


def _take_over(at: BrokerRehearsal) -> None:
    """Check that who comes back gets in while the broker has its dead connection still."""
    with at.client(EDGE, will=at.will) as dead:
        dead.connect()
        dead.publish(at.presence, b"online", retain=True)
        with at.client(EDGE, will=at.will) as edge:
            edge.connect()
            edge.publish(at.presence, b"back", retain=True)
            ended = dead.ended.wait(at.place.patience)
            require(ended, "two connections of one id stay side by side")
            edge.quiet(_QUIET)  # time for a will that comes too late
            with at.aggregator(at.presence) as aggregator:
                last = aggregator.ack(aggregator.receive("the presence of who came back"))
                require(
                    last.payload == b"back",
                    f"the dead connection's will came last: {bytes(last.payload)!r}",
                )
    at.forget()


def _silence(at: BrokerRehearsal) -> None:
    """Check that a client that is silent for its keepalive and a half is given up."""
    with (
        at.aggregator(topics.presence_all(at.run)) as aggregator,
        at.client(EDGE, will=at.will, keepalive=_SILENT) as edge,
    ):
        edge.connect()
        edge.fall_silent()
        aggregator.ack(aggregator.receive(f"the will of a client silent at {_SILENT} s"))
    at.forget()


# -- messages --------------------------------------------------------------------------------------


def _order(at: BrokerRehearsal) -> None:
    """Check that what one client publishes comes in its order, each once, at QoS 1."""
    with at.both() as (aggregator, edge):
        sent = [edge.send(at.up, str(number).encode()) for number in range(_ORDERED)]
        messages = aggregator.received(_ORDERED, "message")
        edge.await_sent(sent)
        aggregator.quiet(_QUIET)
    require({message.qos for message in messages} == {1}, "delivered at another QoS than 1")
    numbers = [int(message.payload) for message in messages]
    first = next((n for n, number in enumerate(numbers) if n != number), None)
    require(first is None, f"out of order, or twice, from message {first} of {_ORDERED} on")


def _size(at: BrokerRehearsal) -> None:
    """Check that parts of the usual size come whole, with a transfer of them under way."""
    with at.both() as (aggregator, edge):
        parts = [bytes([number]) * _CHUNK for number in range(_LARGE)]
        sent = [edge.send(at.up, part) for part in parts]
        messages = aggregator.received(_LARGE, f"part of {_CHUNK} bytes number")
        edge.await_sent(sent)
    require([bytes(message.payload) for message in messages] == parts, "parts came changed")


def _waiting(at: BrokerRehearsal) -> None:
    """Check that what a busy client has not acknowledged yet makes the rest wait, and not go."""
    with at.both() as (aggregator, edge):
        edge.await_sent([edge.send(at.up, str(number).encode()) for number in range(_WAITING)])
        messages = aggregator.received(_WAITING, f"of {_WAITING} that waited, message")
    numbers = [int(message.payload) for message in messages]
    require(numbers == list(range(_WAITING)), "what waited came in another order")


def _redelivery(at: BrokerRehearsal) -> None:
    """Check that a kept session gets again what it did not acknowledge."""
    heard = topics.down_all(at.run, EDGE)
    try:
        with at.client(EDGE, clean=False) as edge:
            edge.connect()
            edge.hear(heard)
            with at.aggregator() as aggregator:
                aggregator.publish(topics.down(at.run, EDGE, "receipt"), b"unheard")
            edge.receive("a message of QoS 1")
            edge.cut()
        with at.client(EDGE, clean=False) as edge:
            require(edge.connect(), "the session was not kept")
            again = edge.ack(edge.receive("what was not acknowledged"))
            require(again.payload == b"unheard", "another message came")
            require(again.dup, "it came again without its flag")
    finally:
        with at.client(EDGE) as edge:
            edge.connect()  # ends the session that was kept


# -- what is retained ------------------------------------------------------------------------------


def _retained(at: BrokerRehearsal) -> None:
    """Check that a new subscriber is told the newest, that it is flagged, and that it can go."""
    with at.edge() as edge, at.aggregator(topics.presence_all(at.run)) as aggregator:
        for state in (b"online", b"retired"):
            edge.publish(at.presence, state, retain=True)
            live = aggregator.ack(aggregator.receive("a retained message, live"))
            require(live.payload == state and not live.retain, "what is new came as retained")
    answer = at.retained(at.presence)
    require(answer == b"retired", f"a new subscriber is told {answer!r}, not the newest")
    at.forget()
    require(at.retained(at.presence) is None, "an empty message does not take a retained one away")


def _retained_of_many(at: BrokerRehearsal) -> None:
    """Check that a new subscriber by a wildcard is told what is retained, as by the topic."""
    with at.edge() as edge:
        edge.publish(at.presence, b"online", retain=True)
    answer = at.retained(topics.presence_all(at.run))
    at.forget()
    require(answer == b"online", f"a new subscriber by + is told {answer!r}")


def _wills(at: BrokerRehearsal) -> None:
    """Check that a connection that breaks has its will said and retained, and no other."""
    with at.aggregator(topics.presence_all(at.run)) as aggregator:
        with at.client(EDGE, will=at.will) as edge:
            edge.connect()
            edge.close()
        aggregator.quiet(_QUIET)  # it left in order
        with at.client(EDGE, will=at.will) as edge:
            edge.connect()
            edge.cut()
        farewell = aggregator.ack(aggregator.receive("the will of a connection that broke"))
        require(farewell.payload == b"offline", "another message than the will came")
    answer = at.retained(at.presence)
    require(answer == b"offline", f"the will is not retained: a new subscriber is told {answer!r}")
    at.forget()


# -- subscriptions ---------------------------------------------------------------------------------


def _wildcards(at: BrokerRehearsal) -> None:
    """Check that + stands for one level, and # for all below."""
    model, control = (topics.down(at.run, EDGE, kind) for kind in ("model", "control"))
    with at.edge(topics.down_all(at.run, EDGE), topics.model(at.run)) as edge:
        with at.aggregator() as aggregator:
            for topic in (model, topics.down(at.run, _ANOTHER, "model"), control):
                aggregator.publish(topic, b"x")
        messages = [message.topic for message in edge.received(2, "message below #")]
        require(messages == [model, control], f"# heard {messages}")
        edge.quiet(_QUIET)


def _many_topics(at: BrokerRehearsal) -> None:
    """Check that subscriptions come and go by the hundred, as when some edges are left out."""
    filters = [topics.up_of(at.run, f"edge-{number}") for number in range(TOPICS)]
    with at.aggregator() as aggregator, at.edge() as edge:
        aggregator.hear(*filters)
        edge.publish(at.up, b"heard")
        aggregator.received(1, "a message on one of many subscriptions")
        aggregator.unsubscribe(filters)
        edge.publish(at.up, b"unheard")
        aggregator.quiet(_QUIET)


# -- what a member must not ------------------------------------------------------------------------


def _speaks_for_itself(at: BrokerRehearsal) -> None:
    """Check that an edge is not heard on another's topic, nor on its server's."""
    forbidden = (
        topics.up_numbered(at.run, _ANOTHER),
        topics.presence(at.run, _ANOTHER),
        topics.up(at.run, EDGE, 1, 0),
    )
    heard = (topics.up_all(at.run), topics.presence_all(at.run))
    with at.aggregator(*heard) as aggregator:
        for topic in forbidden:
            with at.edge() as edge:
                edge.send(topic, b"not mine")
                _follow(edge, at)
            for message in _all(aggregator):
                require(message.topic != topic, f"an edge was heard on {topic}")


def _hears_its_own(at: BrokerRehearsal) -> None:
    """Check that an edge hears neither what is for another, nor what others send."""
    for topic in (topics.down_all(at.run, _ANOTHER), topics.everything()):
        with at.edge() as edge, at.aggregator() as aggregator:
            try:
                refused = edge.subscribe([topic])[0] >= _REFUSED
            except NonconformanceError:
                continue  # the broker has closed the connection, as 3.1.1 lets it
            aggregator.publish(topics.down(at.run, _ANOTHER, "model"), b"not yours")
            require(refused or not _all(edge), f"an edge hears what is for another by {topic}")


def _certificates(at: BrokerRehearsal) -> None:
    """Check that nobody gets in without a certificate."""
    bare = BrokerPlace(at.place.host, at.place.port, None, at.place.patience)
    stranger = BrokerClient(bare, "", f"{at.run}-stranger")
    try:
        stranger.connect()
    except NonconformanceError:
        return
    finally:
        stranger.close()
    raise NonconformanceError("a client without TLS gets in")


# -- bounds ----------------------------------------------------------------------------------------


def _packet_limit(at: BrokerRehearsal) -> None:
    """Check that a packet of four times the usual size is not handed on."""
    with at.aggregator(topics.up_all(at.run)) as aggregator:
        with at.edge() as edge:
            edge.send(at.up, bytes(4 * MAX_PACKET))
            _follow(edge, at)
        require(
            all(len(message.payload) < MAX_PACKET for message in _all(aggregator)),
            f"a packet of {4 * MAX_PACKET} bytes was handed on",
        )


def _follow(edge: BrokerClient, at: BrokerRehearsal) -> None:
    """Send a message that may be heard behind one that may not; the broker may end both."""
    edge.settle(edge.send(at.up, b"mine"))


def _all(client: BrokerClient) -> list[BrokerMessage]:
    """Return what has come until there is a pause."""
    messages = []
    while True:
        try:
            messages.append(client.ack(client.inbox.get(timeout=_QUIET)))
        except queue.Empty:
            return messages


Check = Callable[[BrokerRehearsal], None]
WITH_CERTIFICATES: dict[str, Check] = {
    "certificates": _certificates,
    "speaks for itself": _speaks_for_itself,
    "hears its own": _hears_its_own,
}
# tacit works without these: it keeps no session over connections; and a bound is for what members
# may do to the broker.
ADVISED: dict[str, Check] = {"redelivery": _redelivery, "packet limit": _packet_limit}
CHECKS: dict[str, Check] = {
    "clean sessions": _clean_sessions,
    "take-over": _take_over,
    "silence": _silence,
    "order": _order,
    "size": _size,
    "waiting": _waiting,
    "retained": _retained,
    "retained, by wildcard": _retained_of_many,
    "wills": _wills,
    "wildcards": _wildcards,
    "many topics": _many_topics,
    **WITH_CERTIFICATES,
    **ADVISED,
}
