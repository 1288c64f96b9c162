"""The session of a worker, sentence by sentence: receipts, restarts, reconnections, and the end.

The loop, the session, the policy, the outbox, the ledger, the role and the wire are the product's,
in this thread; the network, its broker and the clock are simulated, and the server is a small honest
one. Every test runs under a witness (tests/helpers/simulated_edge.py): no byte leaves that is not on
the disk, no number has two contents, and no push leaves that is not charged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from tacit_services.worker.session import State

from tacit.errors import ConfigError, PrivacyError
from tacit.protocol import topics, wire
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import Outgoing
from tacit.protocol.vertical import Feedback, Request, Roster
from tests.helpers.honest_server import BUSY, DUPLICATE, REJECTED
from tests.helpers.simulated_edge import Killed
from tests.helpers.simulated_run import (
    EDGE,
    OVER,
    RUN,
    SimulatedRun,
    answers,
    is_model,
    is_up,
    receipt,
)

# -- the greeting ----------------------------------------------------------------------------------


def test_an_edge_says_hello_and_works_on_the_model_that_welcomes_it(tmp_path: Path) -> None:
    # given
    run = SimulatedRun(tmp_path, updates=1)
    # when
    reason = run.edge.run()
    # expected: one push on the first model, and a last account
    assert reason == OVER
    assert run.server.kinds() == ["hello", "update", "hello"]
    hello, push = (wire.decode(bytearray(run.witness.contents[seq])).meta for seq in (1, 2))
    assert hello.hello.definition
    assert (push.update.base_version, push.update.charged.count) == (0, 1)
    assert run.edge.charged == 1


@pytest.mark.parametrize(
    ("reason", "error", "exit_code"),
    [
        ("definition: data.seed=1, here 2", ConfigError, 2),
        ("name: edge-9 is none of this run's 2", ConfigError, 2),
        ("rollback", PrivacyError, 5),
        ("clone", PrivacyError, 5),
    ],
)
def test_an_edge_whose_hello_is_refused_for_good_ends_and_has_charged_nothing(
    tmp_path: Path, reason: str, error: type[ConfigError | PrivacyError], exit_code: int
) -> None:
    # given
    run = SimulatedRun(tmp_path)
    run.server.verdicts.append(receipt(REJECTED, reason))
    # when
    with pytest.raises(error) as ended:
        run.edge.run()
    # expected
    assert ended.value.exit_code == exit_code
    assert reason.partition(":")[2] in str(ended.value)
    assert (list(run.witness.sent), run.edge.charged) == ([1], 0)


@pytest.mark.parametrize("reason", ["definition: data.seed=1, here 2", "name: edge-9 is none"])
def test_an_edge_that_was_refused_is_heard_with_another_run_file(
    tmp_path: Path, reason: str
) -> None:
    # given an edge that ended, as its Hello was refused
    run = SimulatedRun(tmp_path, updates=1)
    run.server.verdicts.append(receipt(REJECTED, reason))
    with pytest.raises(ConfigError):
        run.edge.run()
    # when it is started again, with the aggregator's run file
    ending = run.edge.run()
    # expected: the refused Hello is not sent again
    assert ending == OVER
    assert len(run.witness.sent[1]) == 1
    assert run.server.kinds() == ["hello", "update", "hello"]


def test_an_edge_whose_hello_is_refused_otherwise_says_another_after_a_while(
    tmp_path: Path,
) -> None:
    # given
    run = SimulatedRun(tmp_path, updates=1, patience=30.0)
    run.server.verdicts.append(receipt(REJECTED, "quarantine"))
    # when
    reason = run.edge.run()
    # expected
    assert (reason, run.server.kinds()) == (OVER, ["hello", "update", "hello"])
    first, second = run.witness.sent[1], run.witness.sent[2]
    assert (len(first), len(second)) == (1, 1)
    assert second[0] - first[0] > 30.0


def test_an_edge_that_the_server_does_not_know_says_hello_at_once(tmp_path: Path) -> None:
    # given: the first push is refused, as the server has forgotten who sends it
    run = SimulatedRun(tmp_path, updates=1)
    run.timeline.when(
        lambda: run.server.last_seq(EDGE) == 1,
        lambda: run.server.verdicts.append(receipt(REJECTED, "unknown")),
    )
    # when
    reason = run.edge.run()
    # expected: the push is spent, and not sent again
    assert (reason, run.server.kinds()) == (OVER, ["hello", "hello", "update", "hello"])
    assert [len(times) for times in run.witness.sent.values()] == [1, 1, 1, 1, 1]
    assert run.witness.sent[3][0] - run.witness.sent[2][0] < 1.0
    assert run.edge.charged == 2


def test_a_hello_waits_for_a_connection_and_leaves_once(tmp_path: Path) -> None:
    # given: the broker is there after a minute
    run = SimulatedRun(tmp_path, updates=1, patience=10.0)
    run.timeline.after(0.005, lambda: run.network.cut(EDGE, 60.0))
    # when
    began, reason = run.timeline.now, run.edge.run()
    # expected
    assert reason == OVER
    assert len(run.witness.sent[1]) == 1
    assert run.witness.sent[1][0] - began >= 60.0


@pytest.mark.parametrize(
    "message",
    [
        Feedback(1, 1, None),
        Feedback(1, 1, torch.ones(2, 3)),
        Request(1, torch.arange(3)),
        Roster(np.arange(3, dtype="<u8"), 2),
    ],
    ids=["feedback", "gradient", "request", "roster"],
)
def test_a_message_to_a_vertical_party_is_refused_and_the_edge_goes_on(
    tmp_path: Path, message: Feedback | Request | Roster
) -> None:
    # given: the server sends it where a task is waited for
    run = SimulatedRun(tmp_path, updates=3)
    run.once_in(State.WAITING, lambda: run.server.send(Outgoing(EDGE, message)))
    # when
    reason = run.edge.run()
    # expected: it costs nothing, and a Hello tells of it
    assert (reason, run.edge.role.refusals, run.edge.charged) == (OVER, 1, 3)
    assert run.server.kinds().count("update") == 3
    assert run.edge.role.refusal == f"{type(message).__name__}: this edge works on models only"


# -- receipts --------------------------------------------------------------------------------------


def test_an_accepted_message_is_sent_once_and_then_forgotten(tmp_path: Path) -> None:
    # given
    run = SimulatedRun(tmp_path, updates=3)
    # when
    run.edge.run()
    # expected: numbers rise by one, each is on the wire once, none is pending
    assert {seq: len(times) for seq, times in run.witness.sent.items()} == dict.fromkeys(
        range(1, 6), 1
    )
    assert [entry.seq for entry in run.server.journal] == [1, 2, 3, 4, 5]
    assert run.edge.session.outbox.oldest() is None


def test_of_two_messages_the_second_leaves_when_the_first_has_its_receipt(tmp_path: Path) -> None:
    # given: the receipt of the first is lost
    run = SimulatedRun(tmp_path, patience=30.0)
    run.network.lose(lambda parcel: answers(parcel) == 3)

    def post_two() -> None:
        run.edge.session.post([*run.edge.role.start(), *run.edge.role.start()])

    run.once_in(State.WAITING, post_two)
    # when
    reason = run.edge.run()
    # expected
    assert reason == OVER
    assert run.server.kinds()[:4] == ["hello", "update", "hello", "hello"]
    first, second = run.witness.sent[3], run.witness.sent[4]
    assert (len(first), len(second)) == (2, 1)
    assert second[0] > first[1]


@pytest.mark.parametrize("lost", ["push", "receipt"])
def test_without_a_receipt_the_same_bytes_go_out_again_and_are_not_computed_again(
    tmp_path: Path, lost: str
) -> None:
    # given: of the first push (message 2) either it is lost, or its receipt, twice
    run = SimulatedRun(tmp_path, updates=2, patience=30.0)
    if lost == "receipt":
        run.network.lose(lambda parcel: answers(parcel) == 2, times=2)
    else:
        run.network.lose(lambda parcel: is_up(parcel) and 2 in run.witness.sent, times=2)
    # when
    reason = run.edge.run()
    # expected: the witness has compared the bytes
    assert (reason, run.server.kinds()) == (OVER, ["hello", "update", "update", "hello"])
    times = run.witness.sent[2]
    assert len(times) == 3
    assert all(24.0 <= later - earlier <= 37.0 for earlier, later in pairwise(times))
    assert (run.edge.points["before computing"], run.edge.charged) == (2, 2)


def test_a_receipt_that_comes_twice_changes_nothing(tmp_path: Path) -> None:
    # given: all that the server answers comes twice, the second much later
    run = SimulatedRun(tmp_path, updates=3)
    run.network.double(lambda parcel: answers(parcel) > 0, later=0.035, times=100)
    # when
    reason = run.edge.run()
    # expected
    assert reason == OVER
    assert run.server.kinds() == ["hello", "update", "update", "update", "hello"]
    assert all(len(times) == 1 for times in run.witness.sent.values())


def test_a_busy_server_gets_the_same_bytes_later(tmp_path: Path) -> None:
    # given
    run = SimulatedRun(tmp_path, updates=1, patience=30.0)
    run.server.verdicts.append(receipt(BUSY, retry_after_s=8.0))
    # when
    reason = run.edge.run()
    # expected: a random half to three halves of what it asked for
    assert reason == OVER
    first, second = run.witness.sent[1]
    assert 4.0 <= second - first <= 12.2


@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), -5.0, 1e9])
def test_a_busy_server_cannot_silence_an_edge_for_ever(tmp_path: Path, seconds: float) -> None:
    # given
    run = SimulatedRun(tmp_path, updates=1)
    run.server.verdicts.append(receipt(BUSY, retry_after_s=seconds))
    # when
    reason = run.edge.run()
    # expected
    assert reason == OVER
    first, second = run.witness.sent[1]
    assert 0.05 <= second - first <= 91.0


def test_a_push_that_is_too_old_is_spent_and_the_newest_model_is_worked_on(tmp_path: Path) -> None:
    # given: the first push is called stale
    run = SimulatedRun(tmp_path, updates=1, patience=5.0)
    stale = receipt(pb.Receipt.STALE)
    run.timeline.when(
        lambda: run.server.last_seq(EDGE) == 1, lambda: run.server.verdicts.append(stale)
    )
    # when
    reason = run.edge.run()
    # expected: it is not sent again, and its charge stands
    assert (reason, len(run.witness.sent[2])) == (OVER, 1)
    assert run.server.kinds() == ["hello", "hello", "update", "hello"]
    assert run.edge.charged == 2


def test_an_edge_whose_number_is_older_than_the_servers_stops(tmp_path: Path) -> None:
    # given: the server has more of this edge than the edge's disk
    run = SimulatedRun(tmp_path)
    run.server.verdicts.append(receipt(DUPLICATE, last_seq=9))
    # when
    with pytest.raises(PrivacyError, match="the aggregator has message 9") as ended:
        run.edge.run()
    # expected
    assert (ended.value.exit_code, run.edge.charged) == (5, 0)


def _rubbish(run: SimulatedRun) -> None:
    run.server.publish(topics.down(RUN, EDGE, "receipt"), b"\xff" * 40)


def _cut_short(run: SimulatedRun) -> None:
    meta = pb.Meta(run=RUN, edge=EDGE, seq=2, receipt=receipt(pb.Receipt.ACCEPTED))
    run.server.publish(topics.down(RUN, EDGE, "receipt"), wire.encode(meta)[:-1])


def _of_another_edge(run: SimulatedRun) -> None:
    meta = pb.Meta(run=RUN, edge="edge-1", seq=2, receipt=receipt(pb.Receipt.ACCEPTED))
    run.server.publish(topics.down(RUN, EDGE, "receipt"), wire.encode(meta))


@pytest.mark.parametrize(
    "forge",
    [
        lambda run: run.server.receipt(EDGE, 2, receipt(pb.Receipt.ACCEPTED), "another"),
        lambda run: run.server.receipt(EDGE, 1, receipt(pb.Receipt.ACCEPTED)),
        lambda run: run.server.receipt(EDGE, 3, receipt(pb.Receipt.ACCEPTED)),
        lambda run: run.server.receipt(EDGE, 0, receipt(pb.Receipt.REJECTED, "definition")),
        lambda run: run.server.receipt(EDGE, 2, receipt(pb.Receipt.UNKNOWN)),
        _of_another_edge,
        _rubbish,
        _cut_short,
    ],
    ids=[
        "another_run",
        "older",
        "newer",
        "none",
        "without_status",
        "another_edge",
        "rubbish",
        "cut_short",
    ],
)
def test_a_receipt_that_is_not_of_this_message_is_no_receipt(
    tmp_path: Path, forge: Callable[[SimulatedRun], None]
) -> None:
    # given: the first push, message 2, is lost; something else comes instead of its receipt
    run = SimulatedRun(tmp_path, updates=1)
    run.network.lose(lambda parcel: is_up(parcel) and 2 in run.witness.sent)
    run.timeline.when(lambda: 2 in run.witness.sent, lambda: forge(run))
    # when
    reason = run.edge.run()
    # expected: the push is sent again
    assert (reason, len(run.witness.sent[2])) == (OVER, 2)
    assert run.server.kinds() == ["hello", "update", "hello"]
    assert run.edge.charged == 1


def test_the_newest_receipt_goes_with_every_message_also_after_a_restart(tmp_path: Path) -> None:
    # given: a process that dies when its second push has its receipt
    run = SimulatedRun(tmp_path, updates=3)
    run.timeline.when(lambda: run.server.last_seq(EDGE) == 3, run.edge.die)
    # when
    reason = run.edge.run_on()
    # expected: message n shows the receipt of message n - 1
    assert reason == OVER
    for entry in run.server.journal[1:]:
        receipted = wire.decode(bytearray(entry.envelope)).meta.held
        assert receipted.seq == entry.seq - 1
        assert receipted.proof
    assert not run.server.lost_store


# -- messages in parts -----------------------------------------------------------------------------


def test_of_a_push_in_parts_only_what_was_lost_goes_out_again(tmp_path: Path) -> None:
    # given: a push of several parts, of which the second is lost
    run = SimulatedRun(tmp_path, updates=1, chunk=512)
    run.network.lose(lambda parcel: is_up(parcel) and len(run.witness.sent.get(2, [])) == 2)
    # when
    reason = run.edge.run()
    # expected: the parts, a question, one part
    assert (reason, run.server.kinds()) == (OVER, ["hello", "update", "hello"])
    parts = wire.count_parts(len(run.witness.contents[2]), 512 - topics.NUMBER_HEADER)
    assert parts > 2
    assert len(run.witness.sent[2]) == parts + 2


def test_of_a_model_in_parts_only_what_was_lost_comes_again(tmp_path: Path) -> None:
    # given: the second part of the first model is lost
    run = SimulatedRun(tmp_path, updates=1, chunk=512)
    run.network.lose(lambda parcel: is_model(parcel) and parcel.topic.endswith("/1"))
    # when
    reason = run.edge.run()
    # expected: it is asked for, without another Hello
    assert (reason, run.server.kinds()) == (OVER, ["hello", "update", "hello"])
    models = [parcel.topic for parcel in run.network.history if is_model(parcel)]
    assert models.count(topics.down(RUN, EDGE, "model", 1)) == 2
    assert models.count(topics.down(RUN, EDGE, "model", 0)) == 1


def test_a_model_that_its_server_has_forgotten_is_asked_for_by_hello(tmp_path: Path) -> None:
    # given: a part of the first model is lost, and then the server starts again
    run = SimulatedRun(tmp_path, updates=1, chunk=512)
    run.network.lose(lambda parcel: is_model(parcel) and parcel.topic.endswith("/1"))
    run.timeline.after(1.0, run.server.restart)
    # when
    began, reason = run.timeline.now, run.edge.run()
    # expected: at once, not after its patience
    assert (reason, run.server.kinds()) == (OVER, ["hello", "hello", "update", "hello"])
    assert run.witness.sent[2][0] - began < 3.0


# -- what is on the disk, and when -----------------------------------------------------------------


def test_a_push_is_charged_then_durable_with_the_next_charge_and_only_then_sent(
    tmp_path: Path,
) -> None:
    # given
    run = SimulatedRun(tmp_path, updates=2)
    passed: list[tuple[str, int]] = []

    def note(point: str) -> None:
        passed.append((point, run.edge.charged))

    for point, number in (
        ("before computing", 1),
        ("after computing", 1),
        ("before a message leaves", 3),  # after presence and Hello
    ):
        run.edge.at(point, partial(note, point), number)
    run.edge.at("after a message has left", run.edge.die, number=3)
    # when
    with pytest.raises(Killed):
        run.edge.run()
    # expected: with the commit of the push the next is charged as well
    assert passed == [
        ("before computing", 0),
        ("after computing", 1),
        ("before a message leaves", 2),
    ]
    assert list(run.witness.sent) == [1, 2]


@pytest.mark.parametrize("point", ["before the commit", "in the commit"])
def test_a_push_that_never_became_durable_is_spent_and_never_sent(
    tmp_path: Path, point: str
) -> None:
    # given: commits are of Hello, the first charge, and the first push
    run = SimulatedRun(tmp_path, updates=1)
    run.edge.at(point, run.edge.die, number=3)
    # when
    with pytest.raises(Killed):
        run.edge.run()
    after_death = run.edge.charged
    reason = run.edge.run()
    # expected: Hello goes out again, and the push's number is another push's
    assert (after_death, reason) == (1, OVER)
    assert run.server.kinds() == ["hello", "update", "hello"]
    assert [len(times) for times in run.witness.sent.values()] == [2, 1, 1]
    assert run.edge.charged == 2


def test_a_full_disk_ends_the_edge_before_anything_is_sent(tmp_path: Path) -> None:
    # given: the commit of the first push fails
    def fail() -> None:
        raise OSError(28, "No space left on device")

    run = SimulatedRun(tmp_path)
    run.edge.at("in the commit", fail, number=3)
    # when
    with pytest.raises(PrivacyError, match="No space left on device; the update was not sent"):
        run.edge.run()
    # expected
    assert (list(run.witness.sent), run.edge.charged) == ([1], 1)


def test_the_witness_of_these_tests_sees_a_byte_that_is_not_on_the_disk(tmp_path: Path) -> None:
    # given
    run = SimulatedRun(tmp_path)
    run.edge.run()
    payload = wire.part(run.server.journal[0].envelope, 1 << 18, 0)
    # when, expected
    for seq, changed in ((99, payload), (6, payload)):
        with pytest.raises(AssertionError, match=f"message {seq} "):
            run.network.carry(
                EDGE, topics.up_numbered(RUN, EDGE), topics.number_front(seq) + changed
            )
