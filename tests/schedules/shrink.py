"""Shrinks a schedule that fails to the fewest faults with which it still does (delta debugging)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.schedules.faults import Fault, Schedule


def shrunk(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    """Return the schedule without each fault that is not needed for it to fail."""
    faults = schedule.faults
    pieces = 2
    while len(faults) > 1 and pieces <= len(faults):
        for without in _each_without(faults, pieces):
            if fails(replace(schedule, faults=without)):
                faults, pieces = without, max(2, pieces - 1)
                break
        else:
            if pieces == len(faults):
                break
            pieces = min(len(faults), 2 * pieces)
    if len(faults) == 1 and fails(replace(schedule, faults=())):
        faults = ()
    return replace(schedule, faults=faults)


def _each_without(faults: tuple[Fault, ...], pieces: int) -> list[tuple[Fault, ...]]:
    size = -(-len(faults) // pieces)
    return [faults[:at] + faults[at + size :] for at in range(0, len(faults), size)]
