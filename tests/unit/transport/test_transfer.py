"""Messages of many parts between a sender and a receiver that lose some.

Nothing but what is missing goes out again.
"""

from __future__ import annotations

import random
import struct
import tracemalloc

import pytest
from tacit_services.aggregator.ingest.reassembly import Reassembly
from tacit_services.aggregator.ingest.receipts import RetryLater
from tacit_services.transport.transfer import (
    ANSWER_EVERY,
    MISSING,
    TRIES,
    WINDOW,
    Download,
    Transfer,
)

from tacit.errors import WireError
from tacit.protocol import wire
from tacit.protocol._pb import wire_pb2 as pb

CHUNK = 128
ENVELOPE = random.Random(1).randbytes(100 * (CHUNK - wire.PART_HEADER) - 7)
PARTS = 100


def uploaded(
    transfer: Transfer, partials: Reassembly, lose: float, rng: random.Random
) -> tuple[bytes, int, int]:
    """Send until it is whole, and ask again when both have fallen silent.

    Return (envelope, parts sent, questions).
    """
    sent = inquiries = 0
    under_way: list[bytes] = []
    while True:
        if not under_way:
            under_way, inquiries = [payload for _, payload in transfer.inquiry()], inquiries + 1
        payload = under_way.pop(0)
        sent += len(payload) > wire.PART_HEADER
        if wire.read_question(payload) is None and rng.random() < lose:
            continue
        envelope = partials.add("e", 1, payload)
        if envelope is not None:
            return bytes(envelope), sent, inquiries
        if answer := partials.answer("e", 1):
            assert answer.status == pb.Receipt.PARTIAL
            under_way += [payload for _, payload in transfer.more(answer.missing)]
        assert len(under_way) <= WINDOW


def test_a_message_of_one_part_is_sent_as_it_is() -> None:
    (only,) = Transfer(b"x" * 20, CHUNK).inquiry()
    assert only == (0, next(wire.split(b"x" * 20, CHUNK)))
    assert bytes(Reassembly(1000).add("e", 1, only[1]) or b"") == b"x" * 20


def test_what_is_not_lost_is_sent_once_after_one_question() -> None:
    assert uploaded(Transfer(ENVELOPE, CHUNK), Reassembly(1 << 20), 0.0, random.Random(1)) == (
        ENVELOPE,
        PARTS,
        1,
    )


@pytest.mark.parametrize("seed", range(20))
def test_only_lost_parts_are_sent_again(seed: int) -> None:
    rng, lost = random.Random(seed), 0.0 if seed == 0 else 0.3
    envelope, sent, _ = uploaded(Transfer(ENVELOPE, CHUNK), Reassembly(1 << 20), lost, rng)
    assert envelope == ENVELOPE
    assert sent == PARTS if not lost else PARTS < sent < 2 * PARTS  # 1/0.7 on the average


def test_a_receiver_that_was_replaced_is_sent_everything_and_one_that_has_a_half_the_other_half() -> (
    None
):
    transfer, partials = Transfer(ENVELOPE, CHUNK), Reassembly(1 << 20)
    for number in range(0, PARTS, 2):
        partials.add("e", 1, wire.part(ENVELOPE, CHUNK, number))
    assert uploaded(transfer, partials, 0.0, random.Random(1)) == (ENVELOPE, PARTS // 2, 1)
    assert uploaded(transfer, Reassembly(1 << 20), 0.0, random.Random(1)) == (ENVELOPE, PARTS, 1)


def test_an_edge_that_cuts_otherwise_after_a_restart_begins_anew() -> None:
    # Given a half of a message in parts of 128 bytes,
    partials = Reassembly(1 << 20)
    for number in range(50):
        partials.add("e", 1, wire.part(ENVELOPE, CHUNK, number))
    # when its edge comes back with larger ones, then it is not refused.
    envelope, sent, _ = uploaded(Transfer(ENVELOPE, 2 * CHUNK), partials, 0.0, random.Random(1))
    assert (envelope, sent) == (ENVELOPE, wire.count_parts(len(ENVELOPE), 2 * CHUNK))


def test_an_answer_names_a_bounded_number_of_parts() -> None:
    partials = Reassembly(1 << 30)
    partials.add("e", 1, wire.question(bytes(1 << 20), 32))
    answer = partials.answer("e", 1)
    assert answer is not None
    assert list(answer.missing) == list(range(MISSING))
    assert partials.answer("e", 1) is None  # said once
    assert ANSWER_EVERY < WINDOW < MISSING


def test_an_edge_has_one_unfinished_message() -> None:
    # Given a message of which half has come,
    partials = Reassembly(1 << 20)
    for number in range(50):
        partials.add("e", 1, wire.part(ENVELOPE, CHUNK, number))
    # when the next one begins, and a late part of the first comes,
    partials.add("e", 2, wire.part(ENVELOPE, CHUNK, 0))
    assert partials.add("e", 1, wire.part(ENVELOPE, CHUNK, 50)) is None
    # then the first is forgotten.
    assert len(partials) == 1
    for number in range(1, PARTS):
        envelope = partials.add("e", 2, wire.part(ENVELOPE, CHUNK, number))
    assert bytes(envelope or b"") == ENVELOPE
    assert len(partials) == 0


def test_what_unfinished_messages_take_is_bounded() -> None:
    # Given room for 16 first parts, and more names than that,
    clock = [0.0]
    first, room = wire.part(ENVELOPE, CHUNK, 0), CHUNK - wire.PART_HEADER
    partials = Reassembly(1 << 28, 1000, 16 * room + 50, clock=lambda: clock[0])
    for number in range(16):
        partials.add(f"edge-{number}", 1, first)
    # then one more is told to wait, and so is one that goes on,
    for edge, number in (("edge-16", 0), ("edge-3", 1)):
        with pytest.raises(RetryLater):
            partials.add(edge, 1, wire.part(ENVELOPE, CHUNK, number))
    assert partials.held == 16 * room
    # but not one that begins another message in place of its first; and nobody after a while.
    partials.add("edge-3", 2, first)
    assert (len(partials), partials.held) == (16, 16 * room)
    clock[0] = 61.0
    partials.expire()
    assert (len(partials), partials.held) == (0, 0)
    partials.add("edge-16", 1, first)


def test_an_edge_that_holds_less_than_its_share_goes_on_whatever_the_others_hold() -> None:
    partials = Reassembly(1 << 28, 2, 16 * CHUNK)
    partials.add("greedy", 1, wire.part(ENVELOPE, 14 * CHUNK, 0))
    for number in range(4):
        partials.add("honest", 1, wire.part(ENVELOPE, CHUNK, number))
    with pytest.raises(RetryLater):
        partials.add("greedy", 1, wire.part(ENVELOPE, 14 * CHUNK, 1))


def test_what_is_announced_takes_no_memory_before_it_comes() -> None:
    # Given names that each begin a message of 28 MB with a byte, in the middle, and a question,
    largest = 28_000_000
    partials = Reassembly(largest, 3000)
    tracemalloc.start()
    try:
        for number in range(3000):
            parts = largest // 1000
            for at, body in ((parts // 2, b"x"), (0, b"")):
                head = struct.pack("<4sIIQQ", b"TCTP", at, parts, largest, largest // 2)
                assert partials.add(f"edge-{number}", 1, head + body) is None
        # then they take less than 2 KiB each, and not 56 MB.
        assert tracemalloc.get_traced_memory()[1] < 3000 * 2048
    finally:
        tracemalloc.stop()


def test_parts_of_one_byte_take_no_more_than_a_message_may() -> None:
    # Given a message of a million bytes, each a part, of which the first never comes,
    assembler = wire.Assembler(1_000_000)

    def flood() -> None:
        for number in range(1, 10**6):
            assembler.add(struct.pack("<4sIIQQ", b"TCTP", number, 10**6, 10**6, number) + b"x")

    with pytest.raises(WireError, match="far too small"):
        flood()
    # then it is refused before it takes more than twice what such a message may.
    assert assembler.held < 2 * 1_000_000 + wire.HELD_BESIDE + 300


def test_slow_parts_keep_a_message_alive_and_silence_ends_it() -> None:
    clock = [0.0]
    partials = Reassembly(1 << 20, clock=lambda: clock[0])
    for number in range(PARTS - 1):  # two hours and three quarters for all of it
        partials.add("e", 1, wire.part(ENVELOPE, CHUNK, number))
        clock[0] += 100.0 if number == PARTS - 2 else 59.0
        partials.expire()
        assert len(partials) == (number < PARTS - 2)


class Aggregator:
    """The sender of a model, and the edge's side of it."""

    def __init__(self, envelope: bytes) -> None:
        self.transfer = Transfer(envelope, CHUNK)
        self.under_way = list(self.transfer.first())
        self.wants: list[pb.Want] = []
        self.download = Download(1 << 20, self.asked)

    def asked(self, want: pb.Want) -> None:
        self.wants.append(want)
        if want.head == self.transfer.head():
            self.under_way += self.transfer.more(want.missing, lost=want.lost)

    def deliver(self, count: int) -> bytes | None:
        """Hand the next `count` parts over; the envelope if that completed it."""
        envelope = None
        while count and self.under_way and envelope is None:
            count, (number, payload) = count - 1, self.under_way.pop(0)
            envelope = self.download.add(payload, first=number == 0)
        return None if envelope is None else bytes(envelope)


def test_a_model_comes_window_by_window_and_its_sender_hears_the_end() -> None:
    sender, most, envelope = Aggregator(ENVELOPE), 0, None
    while envelope is None:
        most = max(most, len(sender.under_way))
        envelope = sender.deliver(1)
    assert envelope == ENVELOPE
    assert most == WINDOW
    assert not sender.under_way
    assert list(sender.wants[-1].missing) == []


def test_a_model_of_few_parts_costs_no_question() -> None:
    sender = Aggregator(ENVELOPE[:500])
    assert sender.deliver(WINDOW) == ENVELOPE[:500]
    assert not sender.wants


def test_a_model_goes_on_after_a_loss_where_it_was() -> None:
    # Given a model of which 45 parts have come, and the window after them is lost,
    sender = Aggregator(ENVELOPE)
    sender.deliver(45)
    sender.under_way.clear()
    # when the edge asks, then the other 55 come, each once.
    assert sender.download.ask_again()
    delivered, envelope = 0, None
    while envelope is None:
        delivered, envelope = delivered + 1, sender.deliver(1)
    assert (envelope, delivered) == (ENVELOPE, PARTS - 45)


def test_the_first_part_again_is_no_new_model_and_another_first_part_is() -> None:
    sender = Aggregator(ENVELOPE)
    sender.deliver(20)
    sender.download.add(wire.part(ENVELOPE, CHUNK, 0), first=True)
    sender.deliver(1000)
    other = Aggregator(ENVELOPE)
    other.deliver(20)
    newer = ENVELOPE[::-1]
    for number in range(PARTS):
        envelope = other.download.add(wire.part(newer, CHUNK, number), first=number == 0)
    assert bytes(envelope or b"") == newer


def test_who_says_that_parts_have_come_and_then_that_they_have_not_has_each_once() -> None:
    # A Want is some dozen bytes, and a window of parts is megabytes.
    transfer = Transfer(ENVELOPE, CHUNK)
    sent = [number for number, _ in transfer.first()]
    for first in 50 * (WINDOW, 0, 3 * WINDOW, 2 * WINDOW):
        sent += [number for number, _ in transfer.more(range(first, first + WINDOW))]
    assert sorted(sent) == list(range(PARTS))
    # Of what is said to be lost a window is sent again, and no more than that.
    lost = list(transfer.more(range(2 * WINDOW), lost=True))
    assert [number for number, _ in lost] == list(range(WINDOW))
    assert not list(transfer.more(range(WINDOW, 3 * WINDOW)))
    assert not list(transfer.more(8 * [0]))


def test_a_model_whose_beginning_was_lost_is_not_asked_for() -> None:
    sender = Aggregator(ENVELOPE)
    sender.under_way.pop(0)
    assert sender.deliver(1000) is None
    assert not sender.download.ask_again()
    assert not sender.wants


def test_a_receiver_asks_a_few_times_in_vain_and_gives_up() -> None:
    sender = Aggregator(ENVELOPE)
    sender.deliver(20)
    assert [sender.download.ask_again() for _ in range(TRIES + 1)] == [True] * TRIES + [False]
    assert not sender.download.ask_again()


def test_parts_that_disagree_end_the_download() -> None:
    sender = Aggregator(ENVELOPE)
    sender.deliver(20)
    with pytest.raises(WireError):
        sender.download.add(wire.part(ENVELOPE[:-300], CHUNK, 3), first=False)
    assert not sender.download.ask_again()
