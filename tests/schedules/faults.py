"""Faults, and schedules of them that a seed draws.

A schedule is a list of faults, each independent of the others: what fails with a list can be tried
with a shorter one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tests.helpers.simulated_network import PROMPT, Fate

FATES: dict[str, Fate] = {
    "lost": (),
    "twice": (PROMPT, 3 * PROMPT),
    "twice, much later": (PROMPT, 20.0),
    "overtaken": (4 * PROMPT,),
    "late": (9.0,),
}
EDGES = 2
MESSAGES = 60  # among the first so many a message may be disturbed
MOST = 14  # faults in a schedule, of each run
TOGETHER = 0.25  # of all schedules have two runs
SHORT = 0.3  # of those, with a short lifetime


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    kind: what happens. who: to whom, if not to all. at: the number of the message or of the point,
    or the time. how: the fate of the message. seconds: how long it lasts. run: of two, in which.
    """

    kind: str
    who: str = ""
    at: float = 0
    how: str = ""
    seconds: float = 0.0
    run: int = 0

    def __str__(self) -> str:
        """Return it as a line."""
        lasts = f" for {self.seconds:g} s" if self.seconds else ""
        where = " in the second run" if self.run else ""
        return f"{self.kind} {self.who} at {self.at:g} {self.how}".strip() + lasts + where


@dataclass(frozen=True, slots=True)
class Schedule:
    """A run's settings, and its faults.

    updates: after which it ends. chunk: bytes of a payload. snapshot_every: accepted messages.
    limit: of the journal's entries. computing: seconds of a task. journal_file: whether there is
    one. large: bytes above which a message has a file of its own. tears: what part of what was not
    synced is on a disk after a crash. runs: at the same time, over the same edges' ledgers. apart:
    seconds between their beginnings. short: whether the lifetime of an edge's data is.
    """

    seed: int
    updates: int
    chunk: int
    snapshot_every: int
    limit: int
    computing: float
    journal_file: bool
    large: int
    tears: float
    runs: int
    apart: float
    short: bool
    faults: tuple[Fault, ...]


def draw(seed: int) -> Schedule:
    """Return the schedule of a seed: of one run, or of two at once."""
    schedule = _of_one_run(seed)
    chance = random.Random(f"two runs {seed}")
    if chance.random() >= TOGETHER:
        return schedule
    more = [replace(_fault(chance), run=1) for _ in range(chance.randint(1, MOST))]
    deaths = [_death_of_both(chance) for _ in range(chance.choice((0, 0, 1, 2)))]
    faults = (*schedule.faults, *more, *deaths)
    apart, short = chance.choice((0.0, 0.5, 2.0)), chance.random() < SHORT
    return replace(schedule, faults=faults, runs=2, apart=apart, short=short)


def _of_one_run(seed: int) -> Schedule:
    chance = random.Random(seed)
    return Schedule(
        seed,
        updates=chance.choice((4, 6)),
        chunk=chance.choice((1 << 18, 1 << 18, 1024)),
        snapshot_every=chance.choice((1, 3, 1000)),
        limit=chance.choice((2, 4096, 4096)),
        computing=chance.choice((0.0, 0.0, 2.0)),
        journal_file=chance.random() < 0.4,
        large=chance.choice((1 << 18, 1000)),
        tears=chance.choice((0.0, 0.5, 1.0)),
        runs=1,
        apart=0.0,
        short=False,
        faults=(*(_fault(chance) for _ in range(chance.randint(1, MOST))), *_signals(seed)),
    )


def _signals(seed: int) -> list[Fault]:
    """Return the signals to stop, one in three schedules, to an edge that is then started again."""
    chance = random.Random(f"signals {seed}")
    if chance.random() >= 1 / 3:
        return []
    edge = f"edge-{chance.randrange(EDGES)}"
    return [Fault("signal", edge, round(chance.uniform(0.0, 6.0), 2))]


def _death_of_both(chance: random.Random) -> Fault:
    """Return the death of an edge's processes in both runs, at a point of one of them."""
    edge = f"edge-{chance.randrange(EDGES)}"
    return Fault("both", edge, chance.randint(1, 60), run=chance.randrange(2))


def _fault(chance: random.Random) -> Fault:
    edge = f"edge-{chance.randrange(EDGES)}"
    anybody = chance.choice((edge, edge, "aggregator"))
    when = round(chance.uniform(0.0, 6.0), 2)
    match chance.choices(_KINDS, _WEIGHTS)[0]:
        case "message":
            return Fault("message", "", chance.randint(1, MESSAGES), chance.choice(list(FATES)))
        case "kill":
            return Fault("kill", anybody, chance.randint(1, 60))
        case "power":
            return Fault("power", anybody, chance.randint(1, 60))
        case "cut":
            return Fault("cut", anybody, when, seconds=chance.choice((0.5, 3.0, 20.0)))
        case "jump":
            return Fault("jump", "", when, seconds=chance.choice((1.0, 40.0)))
        case ("silent" | "halt" | "older") as kind:
            return Fault(kind, "", when)
        case kind:
            return Fault(kind, "", when, seconds=chance.choice((0.5, 3.0, 20.0)))


_KINDS = ("message", "kill", "power", "cut", "outage", "away", "silent", "jump", "halt", "older")
_WEIGHTS = (8, 5, 3, 2, 1, 1, 1, 1, 0.3, 0.3)
