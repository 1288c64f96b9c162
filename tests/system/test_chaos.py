"""Everybody is killed at random, receipts are lost, messages doubled and reordered: nothing lost,
nothing twice.

A short form with every `make test-all`; `make chaos` runs the long one: 2,000 updates, 100 kills
and more.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.chaos import judge, run_text, scene
from tests.helpers.processes import Deployment, Watcher, deployment
from tests.helpers.servers import PATIENCE, Mosquitto, RedisServer, redis_server

EDGES = 5


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    options = ("--auto-aof-rewrite-min-size", "1gb", "--maxmemory-policy", "noeviction")
    with redis_server(tmp_path, *options) as running:
        yield running


def play(
    run: Deployment,
    broker: Mosquitto,
    redis: RedisServer,
    kills: int,
    every: int,
    seed: int,
    *,
    hostile: bool,
) -> None:
    watcher = Watcher(run.broker, run.run_id, f"edge-{EDGES}")
    watcher.connection.start(PATIENCE)
    with scene(run, broker, redis, EDGES, seed, hostile=hostile) as chaos_scene:
        chaos_scene.rage(kills, every)
        counts = judge(chaos_scene, chaos_scene.ended(), watcher)
        for kind in ("edge", "aggregator", "broker", "redis"):
            assert chaos_scene.kills[kind] > 0
    watcher.connection.stop()
    print("chaos:", dict(chaos_scene.kills), counts)  # noqa: T201  (shown by make chaos)


def staged(
    folder: Path, broker: Mosquitto, redis: RedisServer, updates: int, *, hostile: bool
) -> Iterator[Deployment]:
    text = run_text(updates, EDGES, hostile=hostile)
    with deployment(folder, text, f"{broker.host}:{broker.port}", redis.url, "chaos") as run:
        yield run


HOSTILE = pytest.mark.parametrize(
    "hostile",
    [
        pytest.param(False, id="among honest ones"),
        pytest.param(True, id="with a hostile member"),  # dies of all that the other does, and more
    ],
)


@pytest.mark.exhaustive
@HOSTILE
def test_a_hundred_kills_lose_and_double_nothing(
    tmp_path: Path, broker: Mosquitto, redis: RedisServer, hostile: bool
) -> None:
    for run in staged(tmp_path, broker, redis, 2000, hostile=hostile):
        play(run, broker, redis, kills=110, every=12, seed=2, hostile=hostile)
