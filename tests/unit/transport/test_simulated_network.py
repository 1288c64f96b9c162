"""The simulated network of tests does what an MQTT broker does, and the faults that it is told to.

What a connection promises over a real broker is in tests/system/transport/test_mqtt.py.
"""

from __future__ import annotations

import pytest
from tacit_services.transport.mqtt import Inbound, Will

from tests.helpers.simulated_network import (
    PROMPT,
    Parcel,
    SimulatedConnection,
    SimulatedNetwork,
    Timeline,
)


class Pair:
    """A sender, and a receiver that notes when it hears what."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.network = SimulatedNetwork(self.timeline)
        self.heard: list[tuple[float, bytes, bool]] = []
        self.receiver = self.network.client("receiver", ["to/+"], self._hear, will=Will("w", b"x"))
        self.sender = self.network.client("sender", [], lambda inbound: None)
        self.timeline.run(1.0)

    def _hear(self, inbound: Inbound) -> None:
        self.heard.append((round(self.timeline.now - 101.0, 6), inbound.payload, inbound.retained))

    def words(self) -> list[bytes]:
        """All that was heard, after a minute."""
        self.timeline.run(60.0)
        return [payload for _, payload, _ in self.heard]


def publish(sender: SimulatedConnection, *words: bytes, retain: bool = False) -> None:
    for word in words:
        sender.publish("to/receiver", word, retain=retain)


def any_parcel(parcel: Parcel) -> bool:
    return True


def test_messages_arrive_in_their_order_a_moment_later() -> None:
    # given
    pair = Pair()
    # when
    publish(pair.sender, b"1", b"2")
    pair.sender.publish("elsewhere", b"3")
    # expected
    assert pair.words() == [b"1", b"2"]
    assert pair.heard[0] == (PROMPT, b"1", False)


def test_messages_are_lost_doubled_and_overtaken_as_the_test_says() -> None:
    # given
    pair = Pair()
    pair.network.lose(lambda parcel: parcel.payload == b"1")
    pair.network.double(any_parcel, later=5.0)
    pair.network.delay(any_parcel, 2.0)
    # when: each rule is used up by one message
    publish(pair.sender, b"1", b"2", b"3", b"4")
    # expected
    assert pair.words() == [b"2", b"4", b"3", b"2"]
    assert [when for when, _, _ in pair.heard] == [PROMPT, PROMPT, 2.0, PROMPT + 5.0]
    assert len(pair.network.history) == 4


def test_a_client_that_is_cut_off_misses_what_is_said_meanwhile_and_what_was_on_its_way() -> None:
    # given
    pair = Pair()
    # when
    publish(pair.sender, b"on its way")
    pair.network.cut("receiver", 10.0)
    publish(pair.sender, b"meanwhile")
    pair.timeline.run(11.0)
    publish(pair.sender, b"later")
    # expected
    assert pair.words() == [b"later"]


def test_what_is_published_while_disconnected_leaves_when_the_connection_is_back() -> None:
    # given
    pair = Pair()
    pair.network.cut("sender", 10.0)
    # when
    publish(pair.sender, b"queued")
    # expected
    assert pair.words() == [b"queued"]
    assert pair.heard[0][0] == 10.0 + PROMPT


def test_what_a_killed_process_had_queued_never_leaves_and_its_name_can_be_used_again() -> None:
    # given
    pair = Pair()
    pair.network.cut("sender", 10.0)
    publish(pair.sender, b"queued")
    # when
    pair.sender.kill()
    successor = pair.network.client("sender", [], lambda inbound: None)
    pair.timeline.run(1.0)
    publish(successor, b"of the next")
    # expected
    assert pair.words() == [b"of the next"]


def test_a_retained_message_comes_with_every_subscription_and_says_so() -> None:
    # given
    pair = Pair()
    publish(pair.sender, b"old", b"new", retain=True)
    pair.words()
    # when
    pair.network.cut("receiver", 1.0)
    pair.timeline.run(2.0)
    # expected: the newest alone
    assert [(word, retained) for _, word, retained in pair.heard] == [
        (b"old", False),
        (b"new", False),
        (b"new", True),
    ]


@pytest.mark.parametrize(("end", "will"), [("kill", [b"x"]), ("stop", [])])
def test_the_broker_says_the_will_of_a_client_that_dies_alone(end: str, will: list[bytes]) -> None:
    # given
    pair = Pair()
    heard: list[bytes] = []
    pair.network.client("observer", ["w"], lambda inbound: heard.append(inbound.payload))
    pair.timeline.run(1.0)
    # when
    getattr(pair.receiver, end)()
    pair.timeline.run(1.0)
    # expected
    assert heard == will


def test_an_action_is_done_once_as_soon_as_its_condition_holds() -> None:
    # given
    timeline = Timeline()
    times: list[float] = []
    timeline.when(lambda: timeline.now >= 105.0, lambda: times.append(timeline.now))
    for seconds in (3.0, 6.0, 9.0):
        timeline.after(seconds, lambda: None)
    # when
    timeline.run(20.0)
    # expected
    assert (times, timeline.now) == ([106.0], 120.0)


def test_time_stops_where_it_is_told_to_and_fails_where_nothing_ends() -> None:
    # given
    timeline = Timeline(limit=50.0)
    timeline.after(5.0, lambda: None)
    # when
    timeline.run(20.0, until=lambda: timeline.now >= 105.0)
    # expected
    assert timeline.now == 105.0
    with pytest.raises(AssertionError, match="no end by 150 s"):
        timeline.run(50.0)
