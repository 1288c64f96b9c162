"""Every edge of the small example has its share, run after run, on an idle and on a busy machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from tacit_lab.studies.shares import WITHIN, busy, measure


@pytest.mark.exhaustive
@pytest.mark.alone
@pytest.mark.parametrize("load", [0, 4])
def test_twenty_runs_of_the_small_example_every_edge_within_a_tenth(
    tmp_path: Path, load: int
) -> None:
    measurements = []
    for _ in range(20):
        with busy(load):
            measurements.append(measure(tmp_path / "run"))
    assert max(run["apart"] for run in measurements) <= WITHIN, measurements
