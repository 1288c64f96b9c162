"""The exchange of messages between peers, in a thread of its own beside the computing.

A peer that computes for seconds still answers at once, so that nobody waits for it. The role is
used under one lock; all that it sends is made durable first.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tacit.algorithms.gossip.worker import GossipWorker
from tacit.errors import BrokerRefuses, PrivacyError, TacitError, WireError
from tacit.protocol import topics, wire, wire_gossip
from tacit.protocol.messages import Answer, Outgoing, PeerMessage, Proposal, Share
from tacit_services.logs import Seldom
from tacit_services.peer.peer_state import PeerState
from tacit_services.transport.flood_limit import SMALLEST_PART, RateLimiter
from tacit_services.transport.inbox import (
    PRESENCE,
    ROOM,
    ROOM_BYTES,
    STEPS,
    TOTAL_BYTES,
    Inbox,
    Room,
)
from tacit_services.transport.mqtt import Inbound
from tacit_services.worker.contract import BrokerConnection

log = logging.getLogger("tacit.peer")
HERE = ("online", "retired")  # a peer whose budget is spent still averages
DIGITS = 15  # the most digits of a number of steps
TICK = 0.1  # seconds between two looks at what has not been answered
AT_ONCE = 16  # messages between two such looks, at most


def sender_of(topic: str) -> tuple[str, str]:
    """Return the kind of a peer's message, and its sender; "" where there is none."""
    levels = topic.split("/", 8)
    kind = levels[3]
    at = 6 if levels[3] == "peer" else 4
    return kind, levels[at] if len(levels) > at else ""


class Exchange:
    """One peer's messages to and from the others. `changed` is called when it may have work."""

    def __init__(
        self,
        role: GossipWorker,
        state: PeerState,
        run_id: str,
        schema: bytes,
        chunk: int,
        patience: float,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.role = role
        self.lock = threading.Lock()
        message_bytes = (
            4 * role.model.size + wire.MAX_META
        )  # a message's parts come at once, all of them
        self.limiter = RateLimiter(None, 0, 4 * role.model.size)
        self.inbox = Inbox(
            self.limiter,
            frozenset(role.topology.peers),
            self._word,
            sender_of,
            Room(
                ROOM + 2 * message_bytes // SMALLEST_PART,
                ROOM_BYTES + 2 * message_bytes,
                max(TOTAL_BYTES, 4 * message_bytes),
            ),
        )
        self._always: frozenset[str] = frozenset()  # subscriptions that are not of peers
        self.heard_at = time.monotonic()
        self.failure: TacitError | None = None
        self.counts = {"sent": 0, "heard": 0, "refused": 0}
        self._state = state
        self._run = run_id
        self._schema = schema
        self._chunk = chunk
        self._patience = patience
        self._changed = changed
        self._seldom = Seldom()
        self._connection: BrokerConnection | None = None
        self._number = secrets.randbits(
            60
        )  # it is of the next copy, and parts of two copies must not be mixed
        self._last_asked: dict[str, float] = {}  # when each neighbour was last asked something
        self._partial: dict[str, tuple[int, wire.Assembler]] = {}
        self._announced = -1  # our steps, as everybody was last told
        role.count_first_hand()

    @property
    def subscriptions(self) -> list[str]:
        """The topics of peers' messages, their presence, and their counts of steps."""
        everybody = topics.presence_all(self._run), topics.steps_all(self._run)
        return [topics.peer_all(self._run, self.role.edge), *everybody]

    def _by_name(self, shut: frozenset[str]) -> list[str]:
        """Return the same but for who is shut out, whose messages the broker keeps to itself."""
        run = self._run
        me = self.role.edge
        heard = sorted(frozenset(self.role.topology.peers) - shut - {me})
        messages = [topics.peer_numbered(run, me, name) for name in heard]
        words = [topic(run, name) for name in heard for topic in (topics.presence, topics.steps)]
        return messages + words

    @contextmanager
    def serving(self, connection: BrokerConnection) -> Iterator[None]:
        """Hear and answer until the block is left; then make durable what the role has become."""
        self._connection = connection
        stop = threading.Event()
        self._always = connection.listening.difference(self.subscriptions)
        thread = threading.Thread(target=self._serve, args=(stop,), name="exchange", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            self._tell_steps()
            with self.lock:
                self._state.save(*self.role.state())

    def say(self, work: Callable[[], list[Outgoing]]) -> None:
        """Let the role do something, make it durable, and send its messages.

        Raises PrivacyError.
        """
        with self.lock:
            outgoing = work()
            if outgoing:
                self._state.save(*self.role.state())
            for out in outgoing:
                self._send(out)

    def reconnected(self) -> None:
        """Ask again now, as messages under way may be lost."""
        self._last_asked.clear()
        self._announced = -1

    # -- the thread --------------------------------------------------------------------------------

    def _serve(self, stop: threading.Event) -> None:
        try:
            while not stop.is_set():
                self._listen()
                self._choose_who_is_heard()
                self._ask_again()
                self._tell_steps()
        except (
            PrivacyError,  # the state cannot be made durable
            BrokerRefuses,
        ) as error:  # for the other thread to raise
            self.failure = error
            self._changed()

    def _listen(self) -> None:
        for inbound in self.inbox.gather(TICK, AT_ONCE):
            self._receive(inbound)

    def _choose_who_is_heard(self) -> None:
        """Give up the subscriptions to peers that flood, for a while."""
        connection = self._connection
        shut = self.limiter.shut()
        assert connection is not None
        connection.listen([*self._always, *(self._by_name(shut) if shut else self.subscriptions)])

    def _receive(self, inbound: Inbound) -> None:
        _, name = sender_of(inbound.topic)
        self.limiter.begin(name if name in self.role.topology.peers else "")
        try:
            message = self._message(inbound)
        except WireError as error:
            self.counts["refused"] += 1
            if self._seldom.due(error.reason):
                facts = {"edge": self.role.edge}
                log.warning("refused a message on %s: %s", inbound.topic, error, extra=facts)
            message = None
        if message is not None:
            self.limiter.succeed(name, 4 * self.role.model.size)
            self.heard_at = time.monotonic()
            self.counts["heard"] += 1
            self.say(lambda: self.role.hear(message))
            self._changed()
        inbound.done()

    def _word(self, inbound: Inbound) -> None:
        """Take in another peer's presence, or its number of steps."""
        kind, name = sender_of(inbound.topic)
        if kind == PRESENCE:
            self._presence(name, inbound.payload)
        elif kind == STEPS:
            self._steps(name, inbound.payload)

    def _steps(self, name: str, payload: bytes) -> None:
        """Take in a peer's number of steps; the broker takes it from that peer alone."""
        if len(payload) <= DIGITS and payload.isdigit():
            with self.lock:
                self.role.hear_steps(name, int(payload))
            self._changed()

    def _tell_steps(self) -> None:
        steps = self.role.steps
        connection = self._connection
        if steps != self._announced and connection is not None and connection.up:
            self._announced = steps
            topic = topics.steps(self._run, self.role.edge)
            connection.publish(topic, str(steps).encode(), retain=True)

    def _presence(self, name: str, payload: bytes) -> None:
        if name not in self.role.neighbours:
            return
        online = payload.decode("ascii", "replace") in HERE
        with self.lock:
            before = name in self.role.here
            (self.role.here.add if online else self.role.here.discard)(name)
        if online != before:
            log.info("%s is %s", name, "here" if online else "away", extra={"edge": self.role.edge})
            self._last_asked.pop(name, None)

    def _message(self, inbound: Inbound) -> PeerMessage | None:
        if inbound.retained:
            raise WireError("retained", "peers retain nothing but their presence")
        _, sender, number, _ = topics.parse_peer(inbound.topic)
        number, payload = topics.read_numbered(number, inbound.payload)
        if sender not in self.role.neighbours:
            raise WireError("identity", f"{sender} is no neighbour")
        partial_number, assembler = self._partial.get(sender, (0, None))
        if (
            assembler is None or partial_number != number
        ):  # a new copy: what came of an older one will not be completed
            assembler = wire.Assembler(4 * self.role.model.size + wire.MAX_META)
        self._partial[sender] = number, assembler
        envelope = assembler.add(payload)
        if envelope is None:
            return None
        del self._partial[sender]
        received = wire.decode(envelope)
        if (received.meta.run, received.meta.edge) != (self._run, sender):
            raise WireError(
                "identity",
                "says " + wire.printable(f"{received.meta.run}/{received.meta.edge}", 100),
            )
        return wire_gossip.read_peer_message(received, self._schema, self.role.model.size)

    def _ask_again(self) -> None:
        now = time.monotonic()
        with self.lock:
            due = [
                name
                for name in self.role.here
                if now - self._last_asked.get(name, 0.0) > self._patience
            ]
        if due:
            self.say(lambda: self.role.repeat(due))
            self._last_asked.update(dict.fromkeys(due, now))

    def _send(self, out: Outgoing) -> None:
        # Not while disconnected: paho would keep every copy. What is open is asked for again.
        assert isinstance(out.message, PeerMessage)
        if self._connection is None or not self._connection.up:
            return
        if isinstance(out.message, Proposal | Share):
            self._last_asked[out.to] = time.monotonic()
        self._number += 1
        self.counts["sent"] += 1
        envelope = wire_gossip.encode_peer_message(self._run, out.message, self._schema)
        topic = topics.peer_numbered(self._run, out.to, self.role.edge)
        for payload in wire.split(envelope, self._chunk - topics.NUMBER_HEADER):
            self._connection.publish(topic, topics.numbered(self._number, payload))
        log.debug("%s to %s", type(out.message).__name__, out.to, extra={"edge": self.role.edge})
        if isinstance(out.message, Answer):
            self._changed()
