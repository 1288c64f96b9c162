"""The session of a worker, sentence by sentence: receipts, restarts, reconnections, and the end.

The loop, the session, the policy, the outbox, the ledger, the role and the wire are the product's,
in this thread; the network, its broker and the clock are simulated, and the server is a small honest
one. Every test runs under a witness (tests/helpers/simulated_edge.py): no byte leaves that is not on
the disk, no number has two contents, and no push leaves that is not charged.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from tacit_services.worker.session import State

from tacit.errors import BrokerRefuses, ConfigError, PrivacyError
from tacit.protocol import topics, wire
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import GlobalModel, Outgoing
from tests.helpers.honest_server import BUSY, DUPLICATE, REJECTED
from tests.helpers.simulated_edge import Killed
from tests.helpers.simulated_run import (
    EDGE,
    OVER,
    RUN,
    SimulatedRun,
    answers,
    definition,
    is_announcement,
    is_model,
    is_up,
    receipt,
)

every_state = pytest.mark.parametrize("state", State, ids=lambda state: state.name.lower())


@pytest.fixture(autouse=True)
def _same_jitter() -> None:
    """The pauses of the session are a little random: the same in every run of these tests."""
    random.seed(1)


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


# -- restarts, reconnections and the end, in every state -------------------------------------------


@every_state
def test_a_process_that_dies_in_any_state_is_continued_with_the_same_bytes(
    tmp_path: Path, state: State
) -> None:
    # given
    run = SimulatedRun(tmp_path)
    run.once_in(state, run.edge.die)
    # when
    with pytest.raises(Killed):
        run.edge.run()
    contents, last = dict(run.witness.contents), max(run.witness.contents)
    times, charged = len(run.witness.sent[last]), run.edge.charged
    reason = run.edge.run()
    # expected: what had no receipt on the disk goes out again, and every push counts once
    assert reason == OVER
    assert len(run.witness.sent[last]) == times + 1
    assert contents.items() <= run.witness.contents.items()
    assert len({entry.tensor_digest for entry in run.server.pushes}) == 4
    assert charged <= run.edge.charged <= charged + 4


@every_state
def test_a_connection_that_comes_back_in_any_state_loses_nothing(
    tmp_path: Path, state: State
) -> None:
    # given
    run = SimulatedRun(tmp_path, patience=30.0)
    pending: list[int] = []

    def cut() -> None:
        oldest = run.edge.session.outbox.oldest()
        pending.extend([] if oldest is None else [oldest[0]])
        run.network.cut(EDGE, 2.0)

    run.once_in(state, cut)
    # when
    reason = run.edge.run()
    # expected: a message without its receipt is sent again when the connection is back, not later
    assert reason == OVER
    assert bool(pending) == (state is State.UNRECEIPTED)
    for seq in pending:
        first, second = run.witness.sent[seq]
        assert 2.0 <= second - first <= 2.3
    assert len({entry.tensor_digest for entry in run.server.pushes}) == 4
    assert run.edge.charged == 4


@every_state
def test_a_server_that_starts_again_in_any_state_gets_what_it_has_not_receipted(
    tmp_path: Path, state: State
) -> None:
    # given
    run = SimulatedRun(tmp_path, patience=30.0)
    run.once_in(state, run.server.restart)
    # when
    began, reason = run.timeline.now, run.edge.run()
    # expected: its new epoch is enough, no patience is needed
    assert reason == OVER
    assert len({entry.tensor_digest for entry in run.server.pushes}) == 4
    assert run.edge.charged == 4
    if state is not State.OVERDUE:
        assert run.timeline.now - began < 10.0


@every_state
def test_a_signal_to_stop_ends_the_process_in_any_state_and_the_next_goes_on(
    tmp_path: Path, state: State
) -> None:
    # given
    run = SimulatedRun(tmp_path)
    run.once_in(state, run.edge.stop.set)
    # when
    reason, charged = run.edge.run(), run.edge.charged
    run.edge.stop.clear()
    # expected: what was charged ahead was taken back
    assert reason == "stopped"
    assert charged == len(run.witness.pushes)
    assert run.edge.run() == OVER
    assert len({entry.tensor_digest for entry in run.server.pushes}) == 4
    assert run.edge.charged == 4


@every_state
def test_a_halt_in_any_state_is_answered_with_a_last_account_and_no_push(
    tmp_path: Path, state: State
) -> None:
    # given
    run = SimulatedRun(tmp_path)
    pushes: list[int] = []

    def halt() -> None:
        pushes.extend(run.witness.pushes)
        run.server.halt("enough")

    run.once_in(state, halt)
    # when
    reason = run.edge.run()
    # expected: at most the push on the model that was there, or on its way with the receipt
    assert (reason, run.server.kinds()[-1]) == ("enough", "hello")
    under_way = state in (State.UNRECEIPTED, State.TASK_HERE)
    assert len(run.witness.pushes) - len(pushes) == under_way
    assert run.edge.charged == len(run.witness.pushes)
    account = wire.decode(bytearray(run.server.journal[-1].envelope)).meta.hello
    assert account.charged.count == run.edge.charged


def test_a_halt_while_a_push_is_pending_gives_it_up(tmp_path: Path) -> None:
    # given: the first push is lost, and then the run is halted
    run = SimulatedRun(tmp_path)
    run.network.lose(lambda parcel: is_up(parcel) and 2 in run.witness.sent)
    run.timeline.when(
        lambda: 2 in run.witness.sent and run.edge.is_in(State.UNRECEIPTED),
        lambda: run.server.halt("enough"),
    )
    # when
    reason = run.edge.run()
    # expected: it is not sent again, its charge stands, and the last account has it
    assert (reason, run.server.kinds()) == ("enough", ["hello", "hello"])
    assert (len(run.witness.sent[2]), run.edge.charged) == (1, 1)


def test_a_last_account_that_nobody_receipts_does_not_keep_the_edge(tmp_path: Path) -> None:
    # given: after the run's end the server hears nothing
    run = SimulatedRun(tmp_path, updates=1)
    run.network.lose(lambda parcel: is_up(parcel) and run.server.role.halted, times=100)
    # when
    reason = run.edge.run()
    # expected: the announcement has told it of the end, and tells the next process
    assert (reason, run.server.kinds()) == ("finished", ["hello", "update"])
    assert len(run.witness.sent[3]) == 1
    assert run.edge.run() == "finished"


def test_an_edge_that_is_told_of_the_end_by_hello_alone_ends(tmp_path: Path) -> None:
    # given: the announcement of the halt is lost
    run = SimulatedRun(tmp_path, patience=5.0)
    run.once_in(State.WAITING, lambda: run.server.halt("enough"))
    run.network.lose(lambda parcel: is_announcement(parcel) and run.server.role.halted, times=100)
    # when
    reason = run.edge.run()
    # expected
    assert reason == "enough"


# -- the budget ------------------------------------------------------------------------------------


def test_an_edge_whose_budget_is_spent_retires_and_pushes_no_more(tmp_path: Path) -> None:
    # given: a budget of three pushes, and a run of ten
    budget = definition(10, epsilon=2.0, noise_multiplier=0.82)
    run = SimulatedRun(tmp_path, run=budget)
    run.timeline.when(
        lambda: "retired" in run.server.kinds(),
        lambda: run.timeline.after(500.0, lambda: run.server.halt("enough")),
    )
    # when
    reason = run.edge.run()
    # expected: the whole budget was used, and it waits for the end in silence
    assert reason == "halted"
    assert run.server.kinds() == ["hello", *["update"] * 3, "retired"]
    assert run.edge.standings[-1] == "retired"
    assert (run.edge.charged, len(run.witness.sent[5])) == (3, 1)
    # and a next process in the same run retires again, with nothing charged
    assert run.edge.run() == "enough"
    assert run.edge.charged == 3


def test_what_a_crash_has_spent_is_not_given_back(tmp_path: Path) -> None:
    # given: a budget of three pushes; the process dies when the first is computed
    budget = definition(10, epsilon=2.0, noise_multiplier=0.82)
    run = SimulatedRun(tmp_path, run=budget)
    run.edge.at("after computing", run.edge.die)
    run.timeline.when(
        lambda: "retired" in run.server.kinds(),
        lambda: run.timeline.after(1.0, lambda: run.server.halt("enough")),
    )
    # when
    reason = run.edge.run_on()
    # expected
    assert (reason, len(run.server.pushes), run.edge.charged) == ("halted", 2, 3)


# -- another history, another model ----------------------------------------------------------------


def test_a_server_whose_store_has_lost_messages_is_shown_their_receipt(tmp_path: Path) -> None:
    # given: the server starts again without its newest message
    run = SimulatedRun(tmp_path, updates=3)
    run.timeline.when(lambda: len(run.server.pushes) == 2, lambda: run.server.restart(lost=1))
    # when
    reason = run.edge.run()
    # expected: it goes on with what such a server has, which is for the server to refuse
    assert reason == OVER
    assert "edge-0 holds a receipt for its message 3, the store ends at its 2" in (
        run.server.lost_store
    )


def test_a_retained_announcement_is_no_news(tmp_path: Path) -> None:
    # given: a broker that has in store what an earlier server has said
    run = SimulatedRun(tmp_path, updates=1)
    run.timeline.run(1.0)
    # when
    run.edge.run()
    # expected: one Hello
    assert [len(times) for times in run.witness.sent.values()] == [1, 1, 1]


def test_a_model_that_comes_while_a_push_is_pending_is_not_worked_on(tmp_path: Path) -> None:
    # given: the first model comes again, while the first push is on its way; the next comes later
    run = SimulatedRun(tmp_path, updates=2)
    run.network.delay(lambda parcel: is_up(parcel) and 2 in run.witness.sent, 1.0)
    run.network.double(is_model, later=0.1)

    def withhold() -> None:
        run.server.withholds = True
        run.timeline.after(5.0, run.server.grant)

    run.timeline.when(lambda: 2 in run.witness.sent, withhold)
    # when
    reason = run.edge.run()
    # expected: the edge waits for it
    assert reason == OVER
    assert [_base(run, seq) for seq in run.witness.pushes] == [0, 1]


def test_a_model_older_than_the_last_costs_one_push_which_says_how_old_it_is(
    tmp_path: Path,
) -> None:
    # given: the first model comes again, when the edge waits for its third
    run = SimulatedRun(tmp_path, updates=3)
    first = run.server.role.global_model()
    run.once_in(State.WAITING, lambda: run.server.send(Outgoing(EDGE, first)))
    # when
    reason = run.edge.run()
    # expected: the server measures its age, and no version is left out
    assert (reason, run.edge.charged) == (OVER, 3)
    assert [_base(run, seq) for seq in run.witness.pushes] == [0, 0, 2]
    assert run.server.role.tau_max == 1


def test_a_model_that_the_policy_forbids_is_refused_once_aloud_and_costs_nothing(
    tmp_path: Path,
) -> None:
    # given: a model with a clip that the plan does not allow, again and again; then a good one
    run = SimulatedRun(tmp_path, updates=2)
    good = run.server.role.global_model()
    bad = GlobalModel(good.version, good.params, 1e9, good.terms)
    run.server.withholds = True
    for seconds in (1.0, 2.0, 3.0):
        run.timeline.after(seconds, lambda: run.server.send(Outgoing(EDGE, bad)))
    run.timeline.after(10.0, run.server.grant)
    # when
    reason = run.edge.run()
    # expected: one Hello says so, and its presence until it works again
    assert (reason, run.server.kinds()) == (OVER, ["hello", "hello", "update", "update", "hello"])
    refused = wire.decode(bytearray(run.witness.contents[2])).meta.hello
    assert (refused.refusals, refused.charged.count) == (1, 0)
    assert run.edge.standings == ["", "refusing", "online"]
    assert run.edge.charged == 2


def test_an_edge_that_gets_no_task_asks_ever_more_seldom(tmp_path: Path) -> None:
    # given: a server that has no task for ten minutes
    run = SimulatedRun(tmp_path, updates=1, patience=5.0)
    run.server.withholds = True
    run.timeline.after(600.0, run.server.grant)
    # when
    run.edge.run()
    # expected: its patience, then twice as long each time, up to a minute
    hellos = [
        times[0] for seq, times in run.witness.sent.items() if run.witness.kind(seq) == "hello"
    ]
    pauses = [later - earlier for earlier, later in pairwise(hellos[:-1])]
    assert pauses == sorted(pauses, key=lambda pause: round(pause / 5.0))
    assert pauses[0] < 15.0
    assert 60.0 <= pauses[-1] <= 67.0


def test_a_broker_that_takes_no_such_message_ends_the_edge(tmp_path: Path) -> None:
    # given
    run = SimulatedRun(tmp_path)

    def refuse() -> None:
        run.network.connection(EDGE).refusal = BrokerRefuses("too large")

    run.once_in(State.UNRECEIPTED, refuse)
    # when, expected
    with pytest.raises(BrokerRefuses, match="too large"):
        run.edge.run()


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


def _base(run: SimulatedRun, seq: int) -> int:
    return int(wire.decode(bytearray(run.witness.contents[seq])).meta.update.base_version)
