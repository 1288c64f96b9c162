"""The loop of a worker: deaths, reconnections, restarts and the end, in every state of its session.

As in test_session.py all is real but the network, the clock and the server, and the witness is the
same.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tacit_services.worker.session import State

from tacit.errors import BrokerRefuses
from tacit.protocol import wire
from tacit.protocol.messages import Halt, Outgoing
from tests.helpers.simulated_edge import Killed
from tests.helpers.simulated_run import EDGE, OVER, SimulatedRun, is_announcement, is_up

every_state = pytest.mark.parametrize("state", State, ids=lambda state: state.name.lower())


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


def test_the_reason_of_a_halt_is_not_lost_to_the_announcement_behind_it(tmp_path: Path) -> None:
    # given: a server that says why once, and then announces how the run stands
    run = SimulatedRun(tmp_path)

    def halt() -> None:
        role = run.server.role
        role.on_message(Halt(role.version, "enough"))
        run.server.send(Outgoing(EDGE, Halt(role.version, "enough")))
        run.network.lose(lambda parcel: "control" in parcel.topic.split("/"), times=99)
        run.server.announce()

    run.once_in(State.WAITING, halt)
    # expected
    assert run.edge.run() == "enough"


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


# -- other ends ------------------------------------------------------------------------------------


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


def test_a_broker_that_takes_no_such_message_ends_the_edge(tmp_path: Path) -> None:
    # given
    run = SimulatedRun(tmp_path)

    def refuse() -> None:
        run.network.connection(EDGE).refusal = BrokerRefuses("too large")

    run.once_in(State.UNRECEIPTED, refuse)
    # when, expected
    with pytest.raises(BrokerRefuses, match="too large"):
        run.edge.run()
