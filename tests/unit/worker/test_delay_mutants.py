"""Delays with one defect each: when pushes leave then tells how long the work took.

For each, two series of tasks in which the same pushes are late, one with little work and one with
much. Pushes of an honest delay leave at the same times in both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from tacit_services.worker.release_delay import MARGIN, ReleaseDelay

D = 0.02
# Work in units of the delay in force: the fourth and the eighth pushes are late, for two and three.
LITTLE = (0.1, 0.2, 0.1, 1.1, 0.1, 0.1, 0.2, 2.1, *[0.1] * 70, 1.2, 0.1)
MUCH = (0.9, 0.8, 0.9, 1.9, 0.9, 0.7, 0.9, 2.9, *[0.9] * 70, 1.8, 0.9)


class Clock:
    """A clock that stands where it is put."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class LeavesAtOnce(ReleaseDelay):
    """A late push leaves when it is ready."""

    def left(self, started_at: float, steps: int) -> float:
        """Return the seconds until D, or 0."""
        took, delay = self._clock() - started_at, self.seconds * steps
        super().left(started_at, steps)
        return max(0.0, delay - took)


class InQuarters(ReleaseDelay):
    """A late push leaves at the next quarter of D."""

    def left(self, started_at: float, steps: int) -> float:
        """Return the seconds until that quarter."""
        took, delay = self._clock() - started_at, self.seconds * steps
        super().left(started_at, steps)
        quarters = max(4, math.ceil(4 * took / delay))
        return max(0.0, delay * quarters / 4 - took)


class FollowsTheWork(ReleaseDelay):
    """D goes towards what the work took, late or not."""

    def left(self, started_at: float, steps: int) -> float:
        """Return the delay as it should be, but change D afterwards."""
        took, remaining = (self._clock() - started_at) / steps, super().left(started_at, steps)
        self._own_seconds = 0.9 * self._own_seconds + 0.1 * MARGIN * took
        return remaining


class GrowsToTheWork(ReleaseDelay):
    """D becomes long enough for the late push."""

    def left(self, started_at: float, steps: int) -> float:
        """Return the delay as it should be, but change D afterwards."""
        took, late = (self._clock() - started_at) / steps, self.late
        remaining = super().left(started_at, steps)
        if self.late > late:
            self._own_seconds = MARGIN * took
        return remaining


MUTANTS = (LeavesAtOnce, InQuarters, FollowsTheWork, GrowsToTheWork)


def leaves(kind: type[ReleaseDelay], works: Sequence[float], steps: int) -> list[float]:
    """Return when each push leaves, after its model came."""
    clock, departures = Clock(), []
    delay = kind(lambda: D, clock=clock)
    for work in works:
        started_at = delay.starting(clock.now)
        clock.now = started_at + work * steps * delay.seconds
        clock.now += delay.left(started_at, steps)
        departures.append(round(clock.now - started_at, 9))
    return departures


@pytest.mark.parametrize("steps", [1, 3])
def test_pushes_leave_at_times_that_tell_no_more_than_which_were_late(steps: int) -> None:
    times = leaves(ReleaseDelay, LITTLE, steps)
    assert times == leaves(ReleaseDelay, MUCH, steps)
    assert times[:4] == [round(steps * D * times, 9) for times in (1, 1, 1, 2)]
    assert len(set(times)) > 4  # D grew, and went back


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_delay_that_tells_how_long_the_work_took_is_caught(
    mutant: type[ReleaseDelay], steps: int
) -> None:
    assert leaves(mutant, LITTLE, steps) != leaves(mutant, MUCH, steps)
