"""Two runs at once over one ledger for each member, whose processes die: nothing lost or doubled.

At every point where a worker or an aggregator can die, and at random, with `make chaos`. CI has the
kills of test_federation.py, and the schedules of two runs.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.helpers.crash_plan import HOST_POINTS, Death
from tests.helpers.crash_worker import SHARED_POINTS
from tests.helpers.federation import federation
from tests.helpers.federation_chaos import RUNS, FederationScene

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.exhaustive]


def deaths(chance: random.Random, points: tuple[str, ...], count: int) -> dict[str, list[Death]]:
    """Return for each run at which `count` of the points its processes die, in some order."""
    return {
        run: [(point, chance.randint(1, 3)) for point in chance.sample(points, count)]
        for run in RUNS
    }


@pytest.mark.parametrize(
    ("seed", "count"), [(0, 2), *((seed, len(SHARED_POINTS)) for seed in range(1, 4))]
)
def test_two_runs_go_on_at_whatever_point_their_processes_die(
    tmp_path: Path, seed: int, count: int
) -> None:
    chance = random.Random(seed)
    most = min(count, len(HOST_POINTS))
    hosts = deaths(chance, HOST_POINTS, most)
    with federation(tmp_path, members=2, deaths=hosts) as (host, sites):
        for site in sites:
            site.dying(**deaths(chance, SHARED_POINTS, count))
        scene = FederationScene(host, sites, updates=80 * count, seed=seed)
        scene.begin()
        scene.judge()
        for run in RUNS:
            assert host.deaths(run) == most
            assert [site.deaths(run) for site in sites] == [count, count]


@pytest.mark.parametrize(("seed", "kills"), [(0, 3), (1, 20), (2, 20), (3, 20)])
def test_two_runs_lose_and_double_nothing_whoever_is_killed(
    tmp_path: Path, seed: int, kills: int
) -> None:
    with federation(tmp_path, members=2) as (host, sites):
        scene = FederationScene(host, sites, updates=150 * kills, seed=seed)
        scene.begin()
        scene.rage(kills, every=10)
        assert sum(scene.kills.values()) >= kills // 2
        scene.judge()
        print("chaos:", dict(scene.kills))  # noqa: T201  (shown by make chaos)
