"""The bench's edge step, taken apart."""

from __future__ import annotations

import math

import pytest
from tacit_lab.bench.cost import BATCHES, costs

from tacit.privacy.release import PRIVATE


@pytest.mark.exhaustive
def test_every_part_of_the_step_runs_and_has_a_ratio() -> None:
    ratios = costs(rounds=1)

    parts = ("plain", "clip", "padding", *PRIVATE)
    assert {f"cost_{batch}_{part}" for batch in BATCHES for part in parts} <= set(ratios)
    assert all(0 < ratio < math.inf for ratio in ratios.values())
