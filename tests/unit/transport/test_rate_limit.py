"""A flood is dropped where it comes in.

A sender that keeps to the rate, in parts of any size, never notices.
"""

from __future__ import annotations

import pytest
from tacit_services.transport.flood_limit import (
    FRUITLESS,
    FRUITLESS_AT_ONCE,
    SMALLEST_PART,
    RateLimiter,
)
from tacit_services.transport.inbox import Inbox
from tacit_services.transport.mqtt import Inbound

from tacit.protocol import topics, wire


class Edge:
    """One edge in front of a door whose clock it moves."""

    def __init__(self, rate: float, burst: int, update_bytes: int) -> None:
        self.now, self.acknowledged, self.size = 0.0, 0, update_bytes
        self.door = RateLimiter(rate, burst, update_bytes, lambda: self.now)
        self.noted = list[Inbound]()
        self.inbox = Inbox(self.door, {"edge-0", "edge-1"}, self.noted.append)

    def sends(self, payload: bytes, name: str = "edge-0") -> bool:
        return self.comes(topics.up("r", name, 1, 0), payload)

    def comes(self, topic: str, payload: bytes) -> bool:
        """Check whether a message is taken in."""
        self.inbox.put(Inbound(topic, payload, self._acknowledge))
        before = len(self.noted)
        return bool(self.inbox.gather(0.0)) or len(self.noted) > before

    def _acknowledge(self) -> None:
        self.acknowledged += 1


@pytest.mark.parametrize("chunk", [1024, 16 * 1024, 256 * 1024])
@pytest.mark.parametrize("size", [2_800, 90_000, 3_000_000])
def test_an_edge_that_keeps_to_the_rate_in_any_parts_is_never_dropped(
    size: int, chunk: int
) -> None:
    # Given a rate of 5 updates a second, and an edge that sends its burst and then just as many,
    # with a question each,
    edge = Edge(5.0, 5, size)
    for number in range(50):
        edge.now += 0.0 if number < 5 else 0.2
        assert edge.sends(wire.question(bytes(size), chunk))
        assert all(edge.sends(payload) for payload in wire.split(bytes(size), chunk))
    assert (edge.door.dropped, edge.acknowledged) == (0, 0)


def test_a_flood_is_acknowledged_and_dropped_and_others_are_not() -> None:
    edge, accepted = Edge(5.0, 5, 2_800), 0
    for number in range(10_000):
        edge.now += 0.001
        accepted += edge.sends(bytes(2_800))
        assert number % 200 or edge.sends(bytes(2_800), "edge-1")
    # Ten seconds of a thousand a second, of which some three times the rate came through.
    assert 5 * 10 < accepted < 4 * 5 * 10
    assert edge.door.dropped >= 10_000 - accepted
    assert edge.acknowledged == edge.door.dropped
    edge.now += 60.0
    assert edge.sends(bytes(2_800))


def test_who_goes_on_flooding_is_shut_out_twice_as_long_each_time() -> None:
    edge = Edge(5.0, 5, 2_800)

    def flood() -> float:
        """Return the seconds until it is heard again."""
        while not edge.door.shut():
            edge.now += 0.001
            edge.sends(bytes(2_800))
        assert edge.door.shut() == {"edge-0"}
        began = edge.now
        while edge.door.shut():
            edge.now += 0.5
            edge.sends(bytes(2_800))
        return edge.now - began

    assert [flood() for _ in range(8)] == pytest.approx(
        [10, 20, 40, 80, 160, 320, 600, 600], abs=0.5
    )


def test_who_is_dropped_now_and_then_is_not_shut_out() -> None:
    edge = Edge(1.0, 1, 2_800)
    for _ in range(1000):
        edge.now += 0.1  # ten a second, of which some three are heard
        edge.sends(bytes(2_800))
    assert edge.door.dropped > 500
    assert edge.door.shut() == frozenset()


@pytest.mark.parametrize("chunk", [1024, 256 * 1024])
@pytest.mark.parametrize("size", [2_800, 3_000_000])
def test_messages_that_come_to_the_journal_shut_nobody_out(size: int, chunk: int) -> None:
    edge = Edge(5.0, 5, size)
    for _ in range(100):
        for _ in range(1 + wire.count_parts(size, chunk)):  # a question, and each part
            edge.door.begin("edge-0")
        edge.door.succeed("edge-0", size)
    assert edge.door.shut() == frozenset()


@pytest.mark.parametrize("size", [2_800, 3_000_000])
def test_who_goes_on_with_messages_that_lead_to_nothing_is_shut_out(size: int) -> None:
    edge, sent = Edge(5.0, 5, size), 0
    while not edge.door.shut():
        edge.door.begin("edge-0")
        sent += 1
        if sent % 100 == 0:
            edge.door.begin("edge-1")
            edge.now += 0.02  # five thousand a second
    assert edge.door.shut() == {"edge-0"}
    assert FRUITLESS_AT_ONCE <= sent <= 1.1 * (FRUITLESS_AT_ONCE + 2 * size / SMALLEST_PART)
    edge.now += 10.0
    for _ in range(1000):  # as many as an edge may have for good
        edge.door.begin("edge-0")
        edge.now += 1 / FRUITLESS
    assert edge.door.shut() == frozenset()


def test_presence_and_odd_topics_are_not_the_doors_business() -> None:
    edge = Edge(0.001, 1, 10)
    for topic in ("tacit/v1/r/presence/edge-0", "tacit/v1/r/up", "x", "tacit/v1/r/up/edge-0"):
        assert all(edge.comes(topic, bytes(100_000)) for _ in range(10))
    assert edge.acknowledged == 10  # of presence, which the broker need not wait for
