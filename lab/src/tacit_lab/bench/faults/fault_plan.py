"""The plan of `make bench-faults`, as plan.toml states it."""

from __future__ import annotations

import random
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("plan.toml")
BYTES = 4  # of a parameter


@dataclass(frozen=True, slots=True)
class SiteTask:
    """What every system learns: its table, network, local work and links."""

    sites: int
    rows: int
    test_rows: int
    features: int
    hidden: int
    rounds: int
    steps: int
    batch: int
    learning_rate: float
    link_rate: float

    @property
    def updates(self) -> int:
        """Updates of the whole run: a round has one of each site."""
        return self.rounds * self.sites

    @property
    def model_bytes(self) -> int:
        """Bytes of the model's parameters."""
        inside = self.features * self.hidden + self.hidden + self.hidden**2 + self.hidden
        return BYTES * (inside + 2 * self.hidden + 2)

    @property
    def ideal_s(self) -> float:
        """Seconds that the links alone take: each round a model down, and one up."""
        return self.rounds * 2 * self.model_bytes / self.link_rate


@dataclass(frozen=True, slots=True)
class Row:
    """A fault. seconds: how long it lasts at a hospital; 0: for good, or no time."""

    name: str
    title: str
    seconds: float = 0.0
    factor: float = 1.0
    back: bool = False
    disk_mib: int = 0
    hidden: int = 0
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class Moment:
    """Where a seed lets the fault begin: at this site, when so many updates are in."""

    site: int
    updates: int


@dataclass(frozen=True)
class FaultPlan:
    """All of plan.toml."""

    scale: float
    patience_s: float
    limit_factor: float
    limit_s: float
    task: SiteTask
    rows: dict[str, Row]
    peers: dict[str, dict[str, Any]]

    def task_of(self, row: Row) -> SiteTask:
        """Return the row's task: a row may have a larger network, and fewer rounds."""
        hidden = row.hidden or self.task.hidden
        return replace(self.task, hidden=hidden, rounds=row.rounds or self.task.rounds)

    def seconds(self, row: Row) -> float:
        """Return how long the row's fault lasts here."""
        return row.seconds / self.scale

    def used(self, peer: str, name: str) -> Any:
        """Return what a peer's setting is here. Raises KeyError."""
        settings = {each["name"]: each["used"] for each in self.peers[peer]["settings"]}
        return settings[name]

    def moment(self, row: Row, seed: int) -> Moment:
        """Return where and when the fault of this seed begins: between 30 % and 60 % of the run.

        The server is killed when half of the sites have answered in a round, or all in the last.
        """
        task = self.task_of(row)
        chance = random.Random(f"{row.name} {seed}")
        site = chance.randrange(task.sites)
        begun = chance.randint(3 * task.rounds // 10, 6 * task.rounds // 10) * task.sites
        if row.name == "server-killed-last":
            return Moment(site, task.updates)
        if row.name == "server-killed":
            return Moment(site, begun + task.sites // 2)
        return Moment(site, begun)


def load(path: Path = FILE) -> FaultPlan:
    """Read the plan."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    rows = {name: Row(name, **keys) for name, keys in content.pop("rows").items()}
    return FaultPlan(task=SiteTask(**content.pop("task")), rows=rows, **content)
