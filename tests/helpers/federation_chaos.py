"""A federation with two runs at once, whose processes are killed, and what must be true in the end."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import psutil

from tests.helpers.chaos import storm
from tests.helpers.federation import Host, Member, check_counted_once, run_file
from tests.helpers.servers import PATIENCE

RUNS = ("first", "second")
POLICY = 'accept = "within"\nlifetime_epsilon = 8.0'
KINDS = ("host", "aggregator", "broker", "store", "member", "worker", "worker")
_NAMES = {"aggregator": "tacit aggregato", "broker": "mosquitto", "store": "redis-server"}


class FederationScene:
    """Members that train two runs of so many updates, and how often each kind was killed.

    A charge may be lost with a worker: `lost` counts those that died, of each member.
    """

    def __init__(self, host: Host, sites: list[Member], updates: int, seed: int) -> None:
        self.host, self.sites, self._updates = host, sites, updates
        self.random = random.Random(seed)
        self.kills: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()

    def begin(self) -> None:
        """Submit the runs, and let the members join: both runs begin with them."""
        host = self.host
        for name in RUNS:
            file = run_file(host.folder, updates=self._updates, epsilon=4.0, count=len(self.sites))
            text = file.read_text().replace("[run]", "[run]\nsnapshot_every = 10")
            file.write_text(text.replace("[privacy]", "[privacy]\nnoise_multiplier = 40.0"))
            words = ("submit", file, "--name", name, "--federation", host.place)
            host.tacit(*words, patience=3 * PATIENCE)
        for site in self.sites:
            site.join(host, POLICY)

    def applied(self) -> int:
        """Return how many updates both runs have applied."""
        return sum(stands["applied"] for stands in self.host.runs().values())

    def rage(self, kills: int, every: int) -> None:
        """Kill somebody, sometimes two, whenever about `every` more updates were applied.

        It ends where the runs are about to: on a busy machine a start takes long.
        """

        def over() -> bool:
            killed = sum(self.kills.values())
            return killed >= kills or self.applied() > 0.8 * len(RUNS) * self._updates

        storm(self.random, KINDS, self.strike, self.applied, every, over)

    def strike(self, kind: str) -> None:
        """Kill a process of this kind with -9; who has started it, or we, start it again."""
        site = self.random.choice(self.sites)
        if kind == "host":
            self.host.kill()
            self.host.serve("--log", "info")
        elif kind == "member":
            self.lost[site.name] += len(workers(site))
            site.kill()
            site.join(self.host, POLICY)
        elif kind == "worker":
            self.lost[site.name] += self._kill_one(kind, workers(site))
            return
        else:
            assert self.host.serving is not None
            children = psutil.Process(self.host.serving.pid).children(recursive=True)
            self._kill_one(kind, [child for child in children if is_named(child, _NAMES[kind])])
            return
        self.kills[kind] += 1

    def _kill_one(self, kind: str, processes: list[psutil.Process]) -> bool:
        if not processes:  # its successor is still starting
            return False
        self.random.choice(processes).kill()
        self.kills[kind] += 1
        return True

    def _is_over(self, stands: dict[str, Any]) -> bool:
        for site in self.sites:
            assert site.joined is not None
            assert site.joined.poll() is None, site.text("join.log")
        return stands["state"] not in ("offered", "waiting", "training")

    def _end_of(self, name: str) -> dict[str, Any]:
        """Wait for the end of a run, for as long as it moves; returns how it stands."""
        stands = self.host.runs()[name]
        while not self._is_over(stands):
            stands = self.host.wait_run(name, partial(self._has_moved, stands["applied"]))
        return stands

    def _has_moved(self, applied: int, stands: dict[str, Any]) -> bool:
        return self._is_over(stands) or stands["applied"] > applied

    def judge(self) -> None:
        """Wait for the end of both runs, and check what was promised."""
        host = self.host
        distinct: Counter[str] = Counter()
        for name in RUNS:
            stands = self._end_of(name)
            assert stands["state"] == "ended", stands
            pushes = host.accepted(name)
            check_counted_once(pushes, self._updates)
            assert stands["applied"] == self._updates
            distinct.update(edge for edge, _ in pushes)
        for site in self.sites:
            spare = site.charges() - distinct[site.identity]
            # One that a run's end overtook, in each, beside what the dead had charged.
            dead = self.lost[site.name] + sum(site.deaths(run) for run in RUNS)
            assert 0 <= spare <= dead + len(RUNS), (site.name, spare, dead)


def workers(site: Member) -> list[psutil.Process]:
    """Return a member's processes that work in runs now."""
    assert site.joined is not None
    children = psutil.Process(site.joined.pid).children(recursive=True)
    return [child for child in children if says(child, "worker")]


def is_named(process: psutil.Process, name: str) -> bool:
    """Return whether a process is alive and has this name."""
    return _asked(process, lambda: process.name() == name)


def says(process: psutil.Process, word: str) -> bool:
    """Return whether a process is alive and its command line has `word`."""
    return _asked(process, lambda: any(word in part for part in process.cmdline()))


def _asked(process: psutil.Process, question: Callable[[], bool]) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and question()
    except psutil.NoSuchProcess:
        return False
