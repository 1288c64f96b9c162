"""The bench's row of a federation."""

from __future__ import annotations

from tacit_lab.bench.federation_rate import compared


def test_a_ratio_is_of_turns_that_are_neighbours() -> None:
    # Given a machine that is half as fast in every other turn,
    one = [(100.0, 95.0), (50.0, 47.5), (100.0, 95.0)]
    two = [(50.0, 45.0), (100.0, 90.0), (50.0, 45.0)]
    # when they are compared,
    results = compared(one, two)
    # then that is in no ratio.
    assert round(results["door_over_run"], 6) == 0.95
    assert round(results["two_runs_over_one"], 6) == round(0.9 / 0.95, 6)
    assert results["run_per_s"] == 75.0
