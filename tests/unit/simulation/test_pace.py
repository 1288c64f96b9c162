"""Delays have the mean they are given, edges do not disturb one another, and absences postpone."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from tacit.config.definition import Definition
from tacit.config.sections import Delay
from tacit.errors import ConfigError
from tacit.simulation.pace import Durations, EdgeTimes, seeded_stream
from tests.helpers.run_files import Layer, run_file

RUN: Layer = {
    "run": {"updates": 10},
    "algorithm": {"name": "asgd"},
    "privacy": {"mechanism": "none"},
}


def parsed(more: str = "", edges: int = 4, seed: int = 1) -> Definition[Any]:
    return run_file(RUN, more, edges={"count": edges}, run={"seed": seed}).define()


@pytest.mark.parametrize("model", ["constant", "uniform", "exponential", "poisson", "lognormal"])
def test_a_delay_has_its_mean_whatever_its_model(model: str) -> None:
    random = seeded_stream(5, 1)
    delay = Delay.model_validate({"model": model, "seconds": 3.0, "spread": 0.4})
    durations = Durations(delay, random)
    times = np.array([durations.next() for _ in range(20_000)])
    assert times.min() >= 0
    assert abs(times.mean() - 3.0) <= 5 * times.std() / math.sqrt(len(times))
    spreads = {
        "constant": 0.0,
        "uniform": 1.2 / math.sqrt(3),
        "exponential": 3.0,
        "poisson": math.sqrt(3.0),
    }
    spreads["lognormal"] = 3 * math.sqrt(math.exp(0.16) - 1)
    assert times.std() == pytest.approx(spreads[model], rel=0.05)


def test_what_happens_to_one_edge_changes_no_other() -> None:
    run = parsed('network.compute.model = "exponential"\nnetwork.drop_out = 0.1')
    alone = EdgeTimes(run, 2)
    times = [alone.task(float(i), 1) for i in range(5)]
    other, again = EdgeTimes(run, 1), EdgeTimes(run, 2)
    mixed = []
    for i in range(5):
        other.task(float(i), 3)
        mixed.append(again.task(float(i), 1))
    assert mixed == times
    assert [EdgeTimes(run, 1).task(0.0, 1), EdgeTimes(run, 3).task(0.0, 1)] != [times[0], times[0]]


def test_a_task_takes_its_way_there_its_steps_and_its_way_back() -> None:
    run = parsed("network = {compute.seconds = 2.0, downlink.seconds = 0.25, uplink.seconds = 0.5}")
    assert EdgeTimes(run, 0).task(10.0, 3) == 10 + 0.25 + 3 * 2 + 0.5
    assert EdgeTimes(run, 0).hello(1.0) == 1.5


def test_slow_edges_are_slow_by_their_factors() -> None:
    run = parsed("edges.slowdown = [1, 3]\nnetwork.stragglers = 1")
    assert [EdgeTimes(run, number).task(0.0, 2) for number in range(4)] == [2, 6, 2, 20]


def test_slow_tasks_come_as_often_as_they_should() -> None:
    pace = EdgeTimes(parsed("network.slow_tasks = 0.25"), 0)
    times = [pace.task(0.0, 1) for _ in range(4000)]
    assert set(times) == {1.0, 2.0}
    assert times.count(2.0) == pytest.approx(1000, abs=5 * math.sqrt(4000 * 0.25 * 0.75))


def test_a_cyclic_start_spreads_the_edges_over_a_task() -> None:
    run = parsed('network = {start = "cyclic", compute.seconds = 2.0}')
    assert [EdgeTimes(run, number).start(3) for number in range(4)] == [0.0, 1.5, 3.0, 4.5]


def test_an_edge_that_is_away_answers_on_its_return() -> None:
    away = (
        "network.away = [{edge = 0, leaves = 5, returns = 8}, {edge = 0, leaves = 8, returns = 9}, "
    )
    pace = EdgeTimes(parsed(away + "{edge = 0, leaves = 20}]"), 0)
    assert [pace.next_online(when) for when in (4.9, 5.0, 7.0, 8.5, 9.0, 20.0)] == [
        4.9,
        9.0,
        9.0,
        9.0,
        9.0,
        math.inf,
    ]
    assert pace.task(3.0, 4) == 9.0
    assert pace.task(19.0, 4) == math.inf


def test_churn_leaves_the_edge_there_for_its_part_of_the_time() -> None:
    pace = EdgeTimes(parsed("network = {online_s = 3.0, offline_s = 1.0}"), 0)
    moments = np.arange(0, 20_000, 0.5)
    online_share = np.mean([pace.next_online(float(when)) == when for when in moments])
    assert online_share == pytest.approx(0.75, abs=0.02)


def test_who_drops_out_is_never_there_again() -> None:
    pace = EdgeTimes(parsed("network.drop_out = 0.5"), 1)
    times = [pace.task(0.0, 1) for _ in range(40)]
    assert times[-1] == math.inf
    assert pace.next_online(100.0) == math.inf


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ("edges.slowdown = [1, 1, 1, 1, 1]", "edges.slowdown names 5 edges, edges.count=4"),
        (
            "network.away = [{edge = 4, leaves = 1}]",
            "network.away: an edge is not below edges.count=4",
        ),
        (
            'network.compute = {model = "uniform", spread = 1.5}',
            "spread=1.5: a uniform delay would be negative",
        ),
        ("network.staleness = 101", "network.staleness=101 is above algorithm.max_staleness=100"),
        ("network.compute.seconds = -1.0", "network.compute.seconds=-1.0"),
        ("network.away = [{edge = 0, leaves = 5, returns = 5}]", "returns=5 is not after leaves=5"),
        ("network.online_s = 1e-9", "network.online_s=1e-09"),
        ("network.offline_s = inf", "network.offline_s=inf"),
        ("network.bandwidth = 3", "network.bandwidth=3: unknown key"),
    ],
)
def test_a_world_that_cannot_be(more: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        parsed(more)


def test_the_world_is_not_in_the_fingerprint() -> None:
    assert parsed("network.stragglers = 2").fingerprint == parsed().fingerprint
