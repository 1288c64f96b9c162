"""The policy of a worker that is given tasks: which model it works on, and what it may spend.

As in test_session.py all is real but the network, the clock and the server, and the witness is the
same.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from tacit_services.worker.session import State

from tacit.protocol import wire
from tacit.protocol.messages import GlobalModel, Outgoing
from tests.helpers.simulated_run import EDGE, OVER, SimulatedRun, definition, is_model, is_up

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


# -- models ----------------------------------------------------------------------------------------


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


def _base(run: SimulatedRun, seq: int) -> int:
    return int(wire.decode(bytearray(run.witness.contents[seq])).meta.update.base_version)
