"""The worker's session under schedules of faults that nobody has thought of, each shrunk if it fails.

A schedule is a list: what happens to the 1st, 2nd, … message on its way, and at which of the points
that a process passes it dies. When the list is used up, the network is whole again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.simulated_network import PROMPT, Fate, Parcel
from tests.helpers.simulated_run import EDGE, OVER, SimulatedRun

UPDATES = 4
MOST_DEATHS = 4  # each may cost two pushes of the budget, which pays for 17
FATES: dict[str, Fate] = {
    "passes": (PROMPT,),
    "lost": (),
    "twice": (PROMPT, 3 * PROMPT),
    "twice, much later": (PROMPT, 40.0),
    "overtaken": (4 * PROMPT,),
    "very late": (70.0,),
}
DISTURBANCES: dict[str, Callable[[SimulatedRun], None]] = {
    "the edge is cut off": lambda run: run.network.cut(EDGE, 3.0),
    "the broker starts again": lambda run: run.network.outage(1.0),
    "the server starts again": lambda run: run.server.restart(),
    "the signal to stop": lambda run: run.edge.stop.set(),
}


@dataclass(frozen=True)
class Schedule:
    """messages: what happens to each in turn. deaths: points between one death and the next.

    chunk: bytes of a payload. computing: simulated seconds of a task.
    """

    messages: list[str]
    deaths: list[int]
    chunk: int
    computing: float


schedules = st.builds(
    Schedule,
    messages=st.lists(st.sampled_from([*FATES, *DISTURBANCES]), min_size=12, max_size=40),
    deaths=st.lists(st.integers(1, 60), max_size=MOST_DEATHS),
    chunk=st.sampled_from([1 << 18, 512]),
    computing=st.sampled_from([0.0, 5.0]),
)


def follow(schedule: Schedule, folder: Path) -> SimulatedRun:
    """Run the edge, process after process, by the schedule, to the end of its run."""
    run = SimulatedRun(folder, updates=UPDATES, patience=20.0, chunk=schedule.chunk)
    run.edge.computing = schedule.computing
    messages = iter(schedule.messages)

    def fate(parcel: Parcel) -> Fate:
        word = next(messages, "passes")
        if word in FATES:
            return FATES[word]
        # Not here: a message that is being sent is sent.
        run.timeline.after(0.0, lambda: DISTURBANCES[word](run))
        return FATES["passes"]

    run.network.fate = fate
    point = 0
    for points in schedule.deaths:
        point += points
        run.edge.at("", run.edge.die, number=point)
    while (reason := run.edge.run_on()) == "stopped":
        run.edge.stop.clear()
    assert reason in (OVER, "finished")
    return run


@settings(derandomize=True, deadline=None, max_examples=30)
@given(schedule=schedules)
def test_under_any_schedule_every_push_counts_once_and_the_run_goes_on(
    schedule: Schedule, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # given, when: the witness compares all that leaves with the disk meanwhile
    run = follow(schedule, tmp_path_factory.mktemp("edge"))
    # expected: the run has come to its end
    server, witness, edge = run.server, run.witness, run.edge
    assert server.role.version == UPDATES
    assert not server.lost_store
    # every push that left before the run's end is applied once, byte for byte, and no vector has two
    # numbers; a later one is of a model that came again when all was over
    sequence = [entry.seq for entry in server.pushes]
    assert sequence == sorted(seq for seq in witness.pushes if seq <= sequence[-1])
    assert all(witness.contents[entry.seq] == entry.envelope for entry in server.journal)
    assert len({entry.tensor_digest for entry in server.pushes}) == UPDATES
    # all that left was charged, and beside it at most one push for each death
    assert 0 <= edge.charged - len(witness.pushes) <= edge.deaths
