"""What a run's documents have on looks: one best model, a short status, and ε of each side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tacit_services.aggregator.reporting import run_picture
from tacit_services.aggregator.reporting.run_status import RunStatus
from tacit_services.testbed import simulated_run

from tests.helpers.run_files import run_file

EPSILON = 20.0
BASE: dict[str, Any] = {
    "run": {"updates": 30},
    "edges": {"count": 3},
    "privacy": {"clip": 1.0, "batch": 64, "epsilon": EPSILON},
    "algorithm": {"name": "mapa", "learning_rate": 2.0},
    "evaluation": {"at": "edges", "looks": 3, "epsilon": 30.0},
}


def simulated(folder: Path, **run: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the summary of a simulated run, and its last status."""
    statuses: list[dict[str, Any]] = []

    def report(status: RunStatus) -> None:
        statuses[:] = [status.status()]

    folder.mkdir()
    definition = run_file(BASE, run={"updates": 30, **run}).define()
    simulated_run.simulate(definition, None, folder, report)
    return json.loads((folder / "summary.json").read_text()), statuses[-1]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    return simulated(tmp_path_factory.mktemp("judged") / "out")


def test_the_look_that_is_the_best_is_that_of_the_best_model(
    judged: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    summary, status = judged
    best = [look["look"] for look in summary["looks"] if look["best"]]
    assert best == [summary["models"]["best"]["look"]]
    assert status["judged"]["best"] in (1, 2, 3)


def test_a_status_names_few_figures_however_many_classes_there_are(
    judged: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    summary, status = judged
    whole, short = summary["looks"][-1], status["judged"]
    assert len(whole["metrics"]) == 11
    assert whole["reliability"]
    assert list(short["metrics"]) == ["accuracy", "accuracy of 0"]
    assert "reliability" not in short
    assert len(json.dumps(short)) < 600
    assert summary["judged"] == whole


def test_epsilon_is_that_of_the_worse_side_and_not_the_sum(
    judged: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    privacy = judged[0]["privacy"]
    assert privacy["sides"].keys() == {"training", "held_out"}
    assert 0 < privacy["sides"]["training"] <= EPSILON < privacy["sides"]["held_out"] <= 30.0
    assert privacy["epsilon"] == max(privacy["sides"].values())
    assert "sides" not in judged[1]["privacy"]  # it would need every edge


def test_where_a_public_test_set_chooses_the_best_model_looks_choose_none(tmp_path: Path) -> None:
    summary, _ = simulated(tmp_path / "out", stop="no better")
    assert not any(look["best"] for look in summary["looks"])
    assert "look" not in summary["models"]["best"]


def test_a_run_without_looks_has_no_sides(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    definition = run_file(BASE, evaluation={"at": "server", "looks": 5, "epsilon": 0.3}).define()
    simulated_run.simulate(definition, None, tmp_path / "out", lambda status: None)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert "sides" not in summary["privacy"]
    assert "looks" not in summary


def test_the_picture_shows_looks_where_no_public_test_set_has_a_figure(
    tmp_path: Path, judged: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    summary = judged[0] | {"test_accuracy": None, "test_loss": None}
    drawn = run_picture.drawn(summary, [])
    first = drawn.axes[0]
    assert first.get_ylabel() == "accuracy, judged at the edges (95 %)"
    (bars,) = first.containers
    assert len(bars) == 3  # points, caps and lines of an error bar
    figure = summary["judged"]["metrics"]["accuracy"]
    title = drawn.get_suptitle()
    assert f"accuracy {figure['low']:.3g} to {figure['high']:.3g} (judged at the edges)" in title
    hidden = [look | {"metrics": {}, "suppressed": True} for look in summary["looks"]]
    summary |= {"looks": hidden, "judged": hidden[-1]}
    run_picture.plot(tmp_path / "plot.png", summary, [])
    with Image.open(tmp_path / "plot.png") as picture:
        assert picture.size[0] > 0
    assert "judged: hidden by noise" in run_picture.drawn(summary, []).get_suptitle()
