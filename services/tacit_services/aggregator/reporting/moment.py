"""The fold at one moment: what one answer says of it belongs together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from tacit.algorithms.base.records import EdgeRecord
from tacit.algorithms.base.server import ServerRole


class Locked(Protocol):
    """An object that drives a role and counts messages, while others read."""

    role: ServerRole
    counts: Counter[str]

    @property
    def state(self) -> str:
        """The state of the run."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A consistent reading of a run. params: (d,), which the fold replaces and never writes into.

    mean_staleness: of the latest updates; staleness: how many updates were how old.
    """

    version: int
    params: Tensor
    clip: float
    schedule: Mapping[str, float]
    staleness: Mapping[int, int]
    mean_staleness: float
    tau_max: int
    stale: int
    state: str
    reason: str
    counts: Mapping[str, int]
    records: Mapping[str, EdgeRecord]

    def ages(self) -> dict[str, float | int]:
        """The staleness of all updates: mean, 95th percentile, largest, and largest lately."""
        total, seen, p95 = sum(self.staleness.values()), 0, 0
        for tau in sorted(self.staleness):
            if seen >= 0.95 * total:
                break
            seen, p95 = seen + self.staleness[tau], tau
        mean = sum(tau * n for tau, n in self.staleness.items()) / total if total else 0.0
        most = max(self.staleness, default=0)
        return {"mean": round(mean, 3), "p95": p95, "max": most, "tau_max": self.tau_max}

    @property
    def rejected(self) -> int:
        """Messages that were refused, for whatever reason, since the last snapshot at least."""
        return sum(n for reason, n in self.counts.items() if reason.startswith("rejected:"))


def read(driver: Locked) -> Moment:
    """Read the fold now; to be called under the driver's lock.

    It takes a tenth of a millisecond at a thousand edges.
    """
    role, recent = driver.role, driver.role.recent
    return Moment(
        version=role.version,
        params=role.params,
        clip=role.clip,
        schedule=role.schedule(),
        staleness=dict(role.staleness),
        mean_staleness=sum(recent) / len(recent) if recent else 0.0,
        tau_max=role.tau_max,
        stale=role.stale,
        state=driver.state,
        reason=role.halt_reason,
        counts=dict(driver.counts),
        records=dict(role.edges),
    )
