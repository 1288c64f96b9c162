"""The bench's ratio of a private step to a plain one."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from tacit_lab.bench.one_step import MECHANISMS, NETWORKS, Way
from tacit_lab.bench.step import charge_ms, step_over_plain
from tacit_lab.bench.step_memory import peak_of, steps_of

from tacit.models import build


@pytest.mark.parametrize("way", [Way(), Way(alone=False), Way(disk=True)])
def test_every_network_batch_and_mechanism_has_a_ratio_of_processor_times(way: Way) -> None:
    tiny = {
        "logistic": build("logistic", (4,), 2),
        "cnn": build("cnn", (1, 8, 8), 2, channels=(2,), kernel=3),
    }

    networks = step_over_plain(tiny, (4, 8), rows=40, seconds=0.0, way=way)

    assert {name: list(batches) for name, batches in networks.items()} == {
        name: ["4", "8"] for name in tiny
    }
    ratios = [ratios for batches in networks.values() for ratios in batches.values()]
    assert all(tuple(row) == MECHANISMS for row in ratios)
    assert all(0 < ratio < math.inf for row in ratios for ratio in row.values())


def test_the_networks_are_the_five_that_edges_train() -> None:
    assert {name: model.name for name, model in NETWORKS.items()} == {
        name: name for name in ("cnn", "resnet", "mobilenet", "lstm", "logistic")
    }


def test_a_charge_has_a_time_of_its_own_in_memory_and_on_disk() -> None:
    assert 0 < charge_ms(Way(), 5) < math.inf
    assert 0 < charge_ms(Way(disk=True), 5) < math.inf


def test_the_peak_of_a_step_is_what_it_held_at_once() -> None:
    def step() -> None:
        torch.ones(25_000_000)

    assert 90e6 < peak_of(step) < 150e6


def test_a_step_has_a_peak_and_a_push_a_delay(tmp_path: Path) -> None:
    steps = steps_of(build("logistic", (1, 4, 4), 3), tmp_path)
    assert steps["plain"]() >= 0  # type: ignore[operator]
    assert 0 < steps["delay"]() < math.inf  # type: ignore[operator]
