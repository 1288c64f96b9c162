"""A figure's runs as processes over MQTT."""

from __future__ import annotations

from pathlib import Path

import pytest
from tacit_lab.papers.figures import stored_results, testbed_figures

from lab.tests.papers.figure_files import HEAD, written
from tacit.errors import ConfigError, ServiceError

FIGURE = (
    HEAD
    + """
over = "version"
seeds = [1]
[base]
run = {updates = 12}
data = {dataset = "digits"}
model = {name = "logistic"}
algorithm = {name = "mapa", smoothness = 1.0}
privacy = {epsilon = 8.0, pushes = 12, batch = 256}
edges = {count = 2}
evaluation = {every = 4}
network = {compute = {seconds = 1000.0}}
[[panel]]
title = "p"
noise = "rigorous"
[[line]]
name = "MAPA"
"""
)


@pytest.mark.exhaustive
def test_a_run_is_trained_over_mqtt_and_kept(tmp_path: Path) -> None:
    (cell,) = testbed_figures.cells(written(tmp_path, FIGURE), quick=False)
    counted: list[tuple[int, int]] = []
    results = testbed_figures.sweep(
        {"f": [cell.run]}, tmp_path / "kept", None, lambda *progress: counted.append(progress)
    )
    result = results[stored_results.result_name(cell.run)]
    assert result["series"][-1]["version"] == 12
    assert 0.1 < result["series"][-1]["accuracy"] <= 1
    assert 0 < result["epsilon"] <= 8
    assert (
        testbed_figures.sweep(
            {"f": [cell.run]}, tmp_path / "kept", None, lambda *progress: counted.append(progress)
        )
        == results
    )
    assert counted == [(0, 1), (1, 1), (0, 0)]


@pytest.mark.exhaustive
def test_a_run_that_fails_says_why_in_one_line(tmp_path: Path) -> None:
    text = FIGURE.replace('"digits"', '"mnist"')
    (cell,) = testbed_figures.cells(written(tmp_path, text), quick=False)
    with pytest.raises(ServiceError, match=r"tacit run ended with exit code 3 and said: .*mnist"):
        testbed_figures.sweep({"f": [cell.run]}, tmp_path / "kept", tmp_path, lambda *_: None)
    assert list((tmp_path / "kept").iterdir()) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('over = "version"', 'over = "virtual_time_s"'),
        ('over = "version"', 'over = "version"\ny = "gradient_norm"'),
        ("[[panel]]", "attack = {pushes = 1}\n[[panel]]"),
    ],
)
def test_what_only_a_simulation_shows_is_refused(tmp_path: Path, before: str, after: str) -> None:
    with pytest.raises(ConfigError, match=r"--testbed: P Fig. 1"):
        testbed_figures.cells(written(tmp_path, FIGURE.replace(before, after)), quick=False)
