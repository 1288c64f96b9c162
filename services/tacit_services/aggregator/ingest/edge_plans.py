"""The privacy plans of a run's edges, by name: what the run file says of them, not what they say themselves."""

from __future__ import annotations

from collections.abc import Callable

from tacit.config import RunFile
from tacit.privacy.release import Plan


def by_name(run: RunFile) -> Callable[[str], Plan]:
    """The plan of an edge by its name; calibrating takes a second, and most edges share one."""
    made: dict[int, Plan] = {}

    def plan(edge: str) -> Plan:
        index = run.index(edge)
        if index not in made:
            made[index] = run.plan(index)
        return made[index]

    return plan
