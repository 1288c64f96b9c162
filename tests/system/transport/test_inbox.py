"""What waits in front of the aggregator: every edge has a queue, and they take turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tacit_services.aggregator.ingest.presence import all_but
from tacit_services.peer.exchange import sender_of
from tacit_services.transport.flood_limit import CHANGES_AT_ONCE, STEPS_AT_ONCE, RateLimiter
from tacit_services.transport.flood_limit import PATIENCE as DROPS
from tacit_services.transport.inbox import FEW, ROOM, ROOM_BYTES, WORD, Inbox
from tacit_services.transport.mqtt import Inbound

from tacit.protocol import topics
from tests.helpers.hostile import Member
from tests.helpers.rig import STATUS, Hostile, Rig, hello_meta, inbound, part, run_file, take
from tests.helpers.servers import Mosquitto, mosquitto

NAMES = ("edge-0", "edge-1", "edge-2")


class Door:
    """An inbox without [guard], and who was acknowledged to the broker."""

    def __init__(self) -> None:
        self.limiter = RateLimiter(None, 5, 2800, lambda: 0.0)
        self.presence, self.done = list[Inbound](), Counter[str]()
        self.inbox = Inbox(self.limiter, frozenset(NAMES), self.presence.append)

    def comes(self, name: str, payload: bytes = b"x", *, retained: bool = False) -> None:
        topic = topics.up_numbered("r", name)
        on_done = lambda: self.done.update([name])  # noqa: E731
        self.inbox.put(Inbound(topic, payload, on_done, retained))

    def taken(self) -> list[str]:
        batch = self.inbox.gather(0.0)
        for message in batch:
            message.done()
        return [arrival.topic.split("/")[4] for arrival in batch]


def test_who_sends_more_waits_for_itself() -> None:
    door = Door()
    for _ in range(50):
        door.comes("edge-0")
    for name in ("edge-1", "edge-2", "edge-1"):
        door.comes(name)
    assert door.taken()[:6] == ["edge-0", "edge-1", "edge-2", "edge-0", "edge-1", "edge-0"]


def test_an_edges_messages_keep_their_order() -> None:
    door = Door()
    for number in range(40):
        door.comes("edge-0", bytes([number]))
        door.comes("edge-1", bytes([number]))
    gathered = door.inbox.gather(0.0) + door.inbox.gather(0.0)
    for name in NAMES[:2]:
        assert [arrival.payload[0] for arrival in gathered if f"/{name}/" in arrival.topic] == list(
            range(40)
        )


def test_one_message_an_edge_is_the_brokers_to_wait_for() -> None:
    # A broker waits for some twenty acknowledgements: all of one edge would keep others' back.
    door = Door()
    for _ in range(20):
        door.comes("edge-0")
    door.comes("edge-1")
    assert door.done == {"edge-0": 19}
    assert len(door.taken()) == 21
    assert door.done == {"edge-0": 20, "edge-1": 1}


def test_what_an_edge_has_no_room_for_is_dropped_and_the_edge_shut_out() -> None:
    door = Door()
    for _ in range(ROOM + DROPS):
        door.comes("edge-0")
    assert (len(door.inbox), door.limiter.dropped, door.limiter.shut()) == (
        ROOM,
        DROPS,
        frozenset(),
    )
    door.comes("edge-0")
    door.comes("edge-1")
    assert (len(door.inbox), set(door.limiter.shut())) == (ROOM + 1, {"edge-0"})
    assert door.done["edge-0"] == ROOM + DROPS
    heard = all_but("r", frozenset(NAMES), door.limiter.shut())
    assert not [topic for topic in heard if "edge-0" in topic or "+/+/+" in topic]
    assert len(heard) == 4


def test_bytes_are_bounded_and_one_message_always_has_room() -> None:
    door = Door()
    for _ in range(3):
        door.comes("edge-0", bytes(ROOM_BYTES // 2))
    door.comes("edge-1", bytes(2 * ROOM_BYTES))
    assert door.taken() == ["edge-0", "edge-1", "edge-0"]


def test_strangers_share_one_short_queue() -> None:
    door = Door()
    for number in range(10 * FEW):
        door.comes(f"stranger-{number}")
    door.comes("edge-0")
    assert len(door.inbox) == FEW + 1
    assert door.limiter.dropped == 9 * FEW
    assert len(door.limiter._accounts) == 1


def test_what_is_retained_is_dropped_unread_but_presence() -> None:
    door = Door()
    door.comes("edge-0", retained=True)
    assert (len(door.inbox), door.done["edge-0"]) == (0, 1)
    door.inbox.put(Inbound(topics.presence("r", "edge-0"), b"online", lambda: None, retained=True))
    assert len(door.inbox) == 1
    assert door.inbox.gather(0.0) == []
    assert [arrival.payload for arrival in door.presence] == [b"online"]
    assert len(door.inbox) == 0


@pytest.mark.parametrize("retained", [False, True])
def test_of_an_edges_presence_the_newest_word_is_kept_and_the_broker_waits_for_none(
    retained: bool,
) -> None:
    # Given a driver that takes nothing for a while, as its store is away,
    door = Door()
    for number in range(1000):
        word = b"%d " % number + bytes(1 << 20)
        on_done = lambda: door.done.update(["it"])  # noqa: E731
        door.inbox.put(Inbound(topics.presence("r", "edge-0"), word, on_done, retained))
    assert door.done["it"] == 1000
    assert len(door.inbox) == 1
    assert door.inbox.gather(0.0) == []
    (arrival,) = door.presence
    assert len(arrival.payload) == WORD
    newest = 999 if retained else CHANGES_AT_ONCE - 1
    assert arrival.payload.split()[0] == b"%d" % newest


def test_of_strangers_no_presence_is_kept() -> None:
    door = Door()
    for number in range(100):
        topic = topics.presence("r", f"stranger-{number}")
        for retained in (False, True):
            door.inbox.put(Inbound(topic, b"online", lambda: door.done.update(["it"]), retained))
    assert (len(door.inbox), door.done["it"]) == (0, 200)


def test_presence_is_noted_before_the_messages_that_came_with_it() -> None:
    door = Door()
    door.comes("edge-0")
    door.inbox.put(Inbound(topics.presence("r", "edge-0"), b"left", lambda: None))
    lengths: list[int] = []
    door.inbox._note = lambda inbound: lengths.append(len(door.inbox))
    assert (len(door.inbox.gather(0.0)), lengths) == (1, [0])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with mosquitto(tmp_path) as running:
        yield running


def test_who_changes_its_presence_all_the_time_is_heard_once_in_a_while_and_shut_out() -> None:
    # Each change is a line of log: 9,000 a second were 25 GB a day, and the others' rate a third.
    now, handled = [0.0], Counter[str]()
    limiter = RateLimiter(None, 5, 2800, lambda: now[0])
    noted = list[Inbound]()
    inbox = Inbox(limiter, frozenset(NAMES), noted.append)

    def comes(name: str, payload: bytes, *, retained: bool = False) -> None:
        topic = topics.presence("r", name)
        inbox.put(Inbound(topic, payload, lambda: handled.update([name]), retained))

    def heard() -> int:
        """Return how many were noted since the last call."""
        assert not inbox.gather(0.0)
        count = len(noted)
        noted.clear()
        return count

    count = 0
    for number in range(CHANGES_AT_ONCE + DROPS + 1):
        comes("edge-0", b"left" if number % 2 else b"online")
        count += heard()
    assert (count, limiter.dropped) == (CHANGES_AT_ONCE, DROPS + 1)
    assert limiter.shut() == {"edge-0"}
    # Others are heard, and so is what the broker has in store when it is subscribed to again,
    for name, retained in (("edge-1", False), ("edge-0", True)):
        comes(name, b"online", retained=retained)
        assert heard() == 1
    # and an edge whose connection comes and goes every two seconds.
    for _ in range(1000):
        now[0] += 2.0
        for word in (b"offline", b"online"):
            comes("edge-2", word)
            assert heard() == 1


def test_large_hellos_are_told_to_wait_before_they_are_decoded(broker: Mosquitto) -> None:
    # Given a run with an honest edge, and a member that says sixty Hellos of nearly a megabyte,
    address, run = f"{broker.host}:{broker.port}", run_file()
    rig = Rig(run, address, "large")
    rig.serve()
    honest = Hostile(rig, "edge-0")
    assert honest.hello() == STATUS.ACCEPTED
    member = Member(run, address, "large", "edge-1")
    member.connection.start(30.0)
    for _ in range(12):
        member.large_hellos(5)
        # then the honest one is served meanwhile,
        assert honest.said(honest.update()) == STATUS.ACCEPTED
    # and of the large ones two at most were decoded.
    with rig.live.lock:
        refused = rig.live.counts["rejected:definition"] + rig.live.counts["rejected:length"]
        assert refused <= 2
        assert rig.live.counts["throttled"] > 0
    for connection in (honest.connection, member.connection):
        connection.stop()
    rig.close()
    assert not rig.failures


def test_of_many_small_hellos_the_journal_keeps_few(broker: Mosquitto) -> None:
    # Given a member that says Hello 4,000 times, with a new number each,
    now = [0.0]
    rig = Rig(run_file(), f"{broker.host}:{broker.port}", "small", clock=lambda: now[0])
    rig.driver.recover()
    connection, sent = rig.connect(), 0

    def hellos(count: int) -> int:
        nonlocal sent
        before = rig.live.counts["accepted"]
        for _ in range(count // 50):
            take(rig.pipeline, inbound(rig, [hello_meta(rig.run)] * 50, sent + 1))
            sent += 50
        return rig.live.counts["accepted"] - before

    # then the journal has what an edge may say at once,
    assert 0 < hellos(4000) <= (1 << 20) // 512  # bytes that each counts for
    # and after ten minutes at most two for every second,
    now[0] += 600.0
    assert 0 < hellos(4000) <= 2 * 600
    # while those that are there already are duplicates, and cost nothing of that.
    now[0] += 20.0
    take(rig.pipeline, inbound(rig, [hello_meta(rig.run)] * 20))
    assert rig.live.counts["duplicate"] == 20
    connection.stop()
    rig.close()


def test_who_is_none_of_the_run_is_told_so_and_nothing_is_kept(broker: Mosquitto) -> None:
    # Given a run of two edges, and certificates of other names,
    rig = Rig(run_file(), f"{broker.host}:{broker.port}", "names", places=2)
    rig.serve()
    honest = Hostile(rig, "edge-1")
    assert honest.hello() == STATUS.ACCEPTED
    # when they say Hello, begin something, or say that they are there,
    for name in ("edge-2", "edge-01", "stranger"):
        caller = Hostile(rig, name)
        caller.connection.publish(topics.presence(rig.run_id, name), b"online", retain=True)
        greeting = caller.greeting()
        for payload in (*caller.parts(greeting), part(b"x", parts=2, total=20)):
            caller.publish(greeting.seq, payload)
            receipt = caller.receipt(greeting.seq)
            # then they are told why not,
            assert receipt.status == STATUS.REJECTED
            assert receipt.reason == f"name: {name} is none of this run's 2"
        caller.connection.stop()
    # and nothing of them is kept.
    assert honest.said(honest.update()) == STATUS.ACCEPTED
    assert set(rig.live.role.edges) == {"edge-1"}
    assert not rig.live.presence
    assert len(rig.pipeline._reassembly) == 0
    assert {entry.edge for entry in rig.store.read(0, 9)} == {"edge-1"}
    honest.connection.stop()
    rig.close()


# -- of peers ----------------------------------------------------------------------------------------


class PeersDoor:
    """The inbox of edge-0 in a run of peers, whose clock stands still."""

    def __init__(self) -> None:
        self.limiter = RateLimiter(None, 0, 2800, lambda: 0.0)
        self.words = list[Inbound]()
        self.inbox = Inbox(self.limiter, frozenset(NAMES), self.words.append, sender_of)

    def comes(self, topic: str, payload: bytes = b"x", *, retained: bool = False) -> None:
        self.inbox.put(Inbound(topic, payload, lambda: None, retained))


def test_a_peer_that_sends_more_than_can_be_read_waits_for_itself_and_is_shut_out() -> None:
    door = PeersDoor()
    flood, other = (topics.peer_numbered("r", "edge-0", name) for name in NAMES[1:])
    for _ in range(ROOM + DROPS):
        door.comes(flood)
    door.comes(other)
    # The other is read next but one, and what waits is bounded.
    assert [sender_of(arrival.topic) for arrival in door.inbox.gather(0.0, 2)] == [
        ("peer", "edge-1"),
        ("peer", "edge-2"),
    ]
    assert len(door.inbox) == ROOM - 1
    assert door.limiter.shut() == frozenset()
    door.comes(flood)
    door.comes(flood)
    assert door.limiter.shut() == {"edge-1"}


def test_of_a_peers_words_the_newest_of_each_kind_is_kept_and_a_flood_of_them_ends() -> None:
    door = PeersDoor()
    for number in range(STEPS_AT_ONCE):
        door.comes(topics.steps("r", "edge-1"), b"%d" % number)
    door.comes(topics.presence("r", "edge-1"), b"online", retained=True)
    assert len(door.inbox) == 2
    assert door.inbox.gather(0.0) == []
    assert [arrival.payload for arrival in door.words] == [b"%d" % (STEPS_AT_ONCE - 1), b"online"]
    assert door.limiter.shut() == frozenset()
    for _ in range(DROPS + 1):
        door.comes(topics.steps("r", "edge-1"), b"9" * 9)
    assert door.limiter.shut() == {"edge-1"}


@pytest.mark.parametrize("suffix", ["", "/from", "/from/", "/from/x", "/from/edge-9/0/0"])
def test_whoever_is_no_peer_has_little_room(suffix: str) -> None:
    door = PeersDoor()
    for _ in range(100):
        door.comes("tacit/v1/r/peer/edge-0" + suffix)
    assert len(door.inbox) == FEW
