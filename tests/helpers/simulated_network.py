"""A simulated network under a simulated clock: one broker and its clients, in one thread.

It loses, doubles, delays and cuts when a test tells it to, the same every time. It stands beside
the real brokers of tests/system, never in their place: what a broker really does is measured there.

    timeline = Timeline()
    network = SimulatedNetwork(timeline)
    connection = network.client("edge-0", ["to/edge-0"], on_message)
    network.lose(lambda parcel: parcel.topic == "to/edge-0", times=2)
    timeline.run(10.0)
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from paho.mqtt.client import topic_matches_sub
from tacit_services.transport.mqtt import Inbound, Will

PROMPT = 0.01  # seconds that a message takes
Fate = Sequence[float]  # the seconds after which each copy of a message arrives; (): it is lost


class Timeline:
    """A simulated clock, and the events that happen as it advances.

    Nothing waits in real time. It fails where it comes to `limit`: what it drives does not end.
    """

    def __init__(self, limit: float = 10_000.0) -> None:
        self.now = 100.0
        self.limit = self.now + limit
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._watches: list[tuple[Callable[[], bool], Callable[[], None]]] = []

    def __call__(self) -> float:
        """Return the time: a timeline is a clock."""
        return self.now

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do `action` in so many seconds; of two at the same time the earlier call comes first."""
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), action))

    def when(self, condition: Callable[[], bool], action: Callable[[], None]) -> None:
        """Do `action` once, as soon as the condition holds at a `look`."""
        self._watches.append((condition, action))

    def look(self) -> None:
        """Do what waits for a condition that holds now, or holds after such an action."""
        while due := next((watch for watch in self._watches if watch[0]()), None):
            self._watches.remove(due)
            due[1]()

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Let `seconds` pass, or fewer where `until` becomes true, with all that happens then."""
        end = self.now + seconds
        while not until() and self._events and self._events[0][0] <= end:
            self.now, _, action = heapq.heappop(self._events)
            action()
            self.look()
        if not until():
            self.now = max(self.now, end)
            self.look()
        assert self.now < self.limit, f"no end by {self.limit:g} s of simulated time"


@dataclass(frozen=True, slots=True)
class Parcel:
    """One message on its way from a client, by the broker, to a client."""

    sent_at: float
    sender: str
    receiver: str
    topic: str
    payload: bytes
    retained: bool = False


@dataclass(slots=True)
class Rule:
    """The fate of the next `times` parcels that match."""

    matches: Callable[[Parcel], bool]
    fate: Fate
    times: int


class SimulatedConnection:
    """A client's connection: what `worker.contract.BrokerConnection` promises, and faults.

    As over MQTT, what is published while disconnected is queued, what is on its way to a client
    that is disconnected is lost, and a retained message comes with every subscription.
    """

    def __init__(
        self,
        network: SimulatedNetwork,
        name: str,
        on_message: Callable[[Inbound], None],
        on_up: Callable[[], None],
        will: Will | None,
        point: Callable[[str], None],
    ) -> None:
        self.name, self.up, self.closed, self.life = name, False, False, 0
        self.connects = 0
        self.cut_until = 0.0
        self.listening: frozenset[str] = frozenset()
        self.refusal: Exception | None = None  # what `check` raises
        self._network, self._on_message, self._on_up = network, on_message, on_up
        self._will, self._point = will, point
        self._queue: list[tuple[str, bytes, bool]] = []

    def check(self) -> None:
        """Raise what a test has put into `refusal`."""
        if self.refusal is not None:
            raise self.refusal

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Send one message, or queue it while disconnected."""
        self._point("before a message leaves")
        if self.up:
            self._network.carry(self.name, topic, payload, retain=retain)
        elif not self.closed:
            self._queue.append((topic, payload, retain))
        self._point("after a message has left")

    def listen(self, subscriptions: Sequence[str]) -> None:
        """Replace the subscriptions by these."""
        fresh = frozenset(subscriptions) - self.listening
        self.listening = frozenset(subscriptions)
        if self.up:
            self._network.send_retained(self, fresh)

    def connect(self) -> None:
        """Come up; does nothing where it is up, closed, or cut off for longer."""
        if self.up or self.closed or self._network.timeline.now < self.cut_until:
            return
        self.up = True
        self.connects += 1
        self._network.send_retained(self, self.listening)
        self._on_up()
        queue, self._queue = self._queue, []
        for topic, payload, retain in queue:
            self._network.carry(self.name, topic, payload, retain=retain)

    def drop(self) -> None:
        """Lose the connection, and what is on its way to here; the broker publishes the will."""
        if self.up:
            self.up, self.life = False, self.life + 1
            if self._will is not None:
                self._network.carry("broker", self._will.topic, self._will.payload, retain=True)

    def kill(self) -> None:
        """Lose the connection for good, with what is queued: the process has died."""
        self.drop()
        self.closed = True
        self._queue.clear()

    def stop(self, last: Will | None = None) -> None:
        """Publish `last`, and disconnect in good order."""
        if self.up and last is not None:
            self._network.carry(self.name, last.topic, last.payload, retain=True)
        self.up, self.closed, self.life = False, True, self.life + 1

    def receive(self, parcel: Parcel, life: int) -> None:
        """Take in what has arrived, unless the connection that it was sent to has ended."""
        if self.up and self.life == life:
            message = Inbound(parcel.topic, parcel.payload, lambda: None, parcel.retained)
            self._on_message(message)


@dataclass(slots=True)
class SimulatedNetwork:
    """A broker and the ways to it. history: all that was sent, arrived or not."""

    timeline: Timeline
    fate: Callable[[Parcel], Fate] = lambda parcel: (PROMPT,)  # of parcels without a rule
    history: list[Parcel] = field(default_factory=list)
    _rules: list[Rule] = field(default_factory=list)
    _clients: dict[str, SimulatedConnection] = field(default_factory=dict)
    _retained: dict[str, bytes] = field(default_factory=dict)
    _witnesses: list[Callable[[Parcel], None]] = field(default_factory=list)

    def client(
        self,
        name: str,
        subscriptions: Sequence[str],
        on_message: Callable[[Inbound], None],
        *,
        on_up: Callable[[], None] = lambda: None,
        will: Will | None = None,
        point: Callable[[str], None] = lambda name: None,
    ) -> SimulatedConnection:
        """Return a client's connection, which comes up in a moment; an earlier one of it ends.

        point: called before and after each message that it sends.
        """
        if name in self._clients:
            self._clients[name].kill()
        connection = SimulatedConnection(self, name, on_message, on_up, will, point)
        connection.listen(subscriptions)
        self._clients[name] = connection
        self.timeline.after(PROMPT, connection.connect)
        return connection

    def connection(self, name: str) -> SimulatedConnection:
        """Return the newest connection of a client."""
        return self._clients[name]

    def witness(self, see: Callable[[Parcel], None]) -> None:
        """Let `see` look at everything that a client sends, before it is on its way."""
        self._witnesses.append(see)

    # -- faults ------------------------------------------------------------------------------------

    def lose(self, matches: Callable[[Parcel], bool], times: int = 1) -> None:
        """Lose the next parcels that match."""
        self._rules.append(Rule(matches, (), times))

    def double(self, matches: Callable[[Parcel], bool], later: float, times: int = 1) -> None:
        """Let the next parcels that match arrive, and again `later` seconds after that."""
        self._rules.append(Rule(matches, (PROMPT, PROMPT + later), times))

    def delay(self, matches: Callable[[Parcel], bool], seconds: float, times: int = 1) -> None:
        """Let the next parcels that match take so long: others overtake them."""
        self._rules.append(Rule(matches, (seconds,), times))

    def cut(self, name: str, seconds: float) -> None:
        """Disconnect a client, if there is one, for so long."""
        connection = self._clients.get(name)
        if connection is None:
            return
        connection.drop()
        connection.cut_until = self.timeline.now + seconds
        self.timeline.after(seconds, connection.connect)

    def outage(self, seconds: float) -> None:
        """Disconnect everybody for so long, as when the broker is started again."""
        for name in list(self._clients):
            self.cut(name, seconds)

    # -- carrying ----------------------------------------------------------------------------------

    def carry(self, sender: str, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Carry one message to everybody who has subscribed to it."""
        parcel = Parcel(self.timeline.now, sender, "", topic, payload)
        for see in self._witnesses:
            see(parcel)
        self.history.append(parcel)
        if retain:
            self._retained[topic] = payload
        for connection in list(self._clients.values()):
            if connection.up and _matches(connection.listening, topic):
                self._deliver(replace(parcel, receiver=connection.name), connection)

    def send_retained(self, connection: SimulatedConnection, subscriptions: frozenset[str]) -> None:
        """Send a client the retained messages of these subscriptions."""
        for topic, payload in self._retained.items():
            if _matches(subscriptions, topic):
                now, name = self.timeline.now, connection.name
                self._deliver(Parcel(now, "broker", name, topic, payload, True), connection)

    def _deliver(self, parcel: Parcel, connection: SimulatedConnection) -> None:
        life = connection.life
        for seconds in self._fate(parcel):
            self.timeline.after(seconds, lambda: connection.receive(parcel, life))

    def _fate(self, parcel: Parcel) -> Fate:
        for rule in self._rules:
            if rule.times and rule.matches(parcel):
                rule.times -= 1
                return rule.fate
        return self.fate(parcel)


@lru_cache(1 << 12)
def _matches(subscriptions: frozenset[str], topic: str) -> bool:
    return any(topic_matches_sub(subscription, topic) for subscription in subscriptions)
