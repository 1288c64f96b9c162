"""Over a real broker, no time of a push tells how many rows were drawn; without the delay it does.

An edge that computes drawn rows alone takes longer for more of them, and their number is secret.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from tacit_services.cli.audit_rows_drawn import seconds_and_rows

from tacit.audit.statistics import ScoreValues
from tacit.audit.times import counted
from tacit.audit.whole import PUSHES
from tacit.kernels.loading import library

compiled = pytest.mark.skipif(
    library() is None and not os.environ.get("CI"), reason="numba is not installed"
)


@pytest.mark.exhaustive
@compiled
def test_the_time_of_a_push_that_is_held_back_does_not_tell_how_many_rows_were_drawn() -> None:
    finding = counted(seconds_and_rows, PUSHES["counted"], delayed=True)
    assert finding.honest
    assert finding.verdict == "passes", finding


@pytest.mark.exhaustive
@compiled
def test_the_time_of_a_push_that_is_not_held_back_tells_it() -> None:
    finding = counted(seconds_and_rows, PUSHES["counted"], delayed=False)
    assert not finding.honest
    assert finding.verdict == "caught", finding


@pytest.mark.parametrize(("share", "caught"), [(0.25, "caught"), (0.0, "MISSED")])
def test_times_that_a_busy_machine_blurs_are_looked_at_again(share: float, caught: str) -> None:
    random, looks = np.random.default_rng(5), 0

    def blurred(pushes: int, delayed: bool) -> tuple[ScoreValues, ScoreValues]:
        nonlocal looks
        looks += 1
        rows = random.binomial(64, 0.25, pushes).astype(float)
        return share * (rows - 16) / 3.5 + random.normal(size=pushes), rows

    finding = counted(blurred, PUSHES["counted"], delayed=False)
    assert finding.verdict == caught
    assert looks > 1


def test_times_of_an_honest_edge_are_looked_at_once() -> None:
    random, looks = np.random.default_rng(6), []

    def independent(pushes: int, delayed: bool) -> tuple[ScoreValues, ScoreValues]:
        looks.append(delayed)
        return random.normal(size=pushes), random.binomial(64, 0.25, pushes).astype(float)

    assert counted(independent, PUSHES["counted"], delayed=True).verdict == "passes"
    assert looks == [True]
