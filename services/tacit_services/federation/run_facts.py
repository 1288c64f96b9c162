"""What a host must know of a run to begin and to end it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Facts of a run file: `edges.count`, `min`, `wait` and `grace`, and `run.updates`."""

    needed: int
    least: int
    wait: float
    grace: float
    updates: int
