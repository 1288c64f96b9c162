"""What `make gpu` compares, with the CPU in the GPU's place: equal to the last bit, and it can fail."""

from __future__ import annotations

import pytest
import torch
from tacit_lab.bench import gpu

from tacit.models import build

TINY = {"cnn": build("cnn", (1, 8, 8), 2, channels=(2,), kernel=3)}


def test_edge_peer_and_party_are_compared_and_are_themselves() -> None:
    comparisons = gpu.compared("cpu", 1, TINY)
    assert [comparison.name for comparison in comparisons] == ["edge, cnn", "peer", "party"]
    assert all(comparison.distance == 0 and comparison.equal for comparison in comparisons)
    assert all(min(comparison.cpu_ms, comparison.device_ms) > 0 for comparison in comparisons)


@pytest.mark.parametrize(("distance", "equal"), [(0.0, True), (9e-5, True), (2e-4, False)])
def test_a_difference_beyond_rounding_is_one(distance: float, equal: bool) -> None:
    assert gpu.Compared("edge", distance, 1.0, 1.0).equal is equal
    assert not gpu.Compared("edge", float("nan"), 1.0, 1.0).equal


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA here")
def test_a_gpu_releases_what_the_cpu_does() -> None:
    assert all(comparison.equal for comparison in gpu.compared("cuda", 1))
