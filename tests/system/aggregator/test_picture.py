"""plot.png shows what matters: not from zero, steps as steps, ε against its budget, edges apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tacit_services.aggregator.reporting import run_picture

from tests.helpers.rest import Rig


@pytest.fixture
def run(tmp_path: Path) -> Rig:
    """Return a run whose accuracy went from 90 to 95 %, and whose C was halved once."""
    rig = Rig(tmp_path, more="[run]\nupdates = 100\n[privacy]\nepsilon = 4.0\n")
    for edge in ("edge-0", "edge-1"):
        rig.hello(edge)
    for version in range(1, 5):
        rig.update(f"edge-{version % 2}", pushes=10 * version)
        rig.run_status.point(version, 0.89 + 0.015 * version, 0.5, 100)
    for point in rig.run_status.series[2:]:
        point["clip"] /= 2
    return rig


def axes(rig: Rig) -> list[Any]:
    """Return the four parts of the picture."""
    return run_picture.drawn(rig.run_status.summary(), rig.run_status.series).axes


def test_accuracy_begins_where_it_was_first_measured(run: Rig) -> None:
    low, high = axes(run)[0].get_ylim()
    assert 89.0 < low < 90.5
    assert 95.0 < high < 96.5


def test_the_clip_norm_is_drawn_as_steps(run: Rig) -> None:
    [line] = axes(run)[1].lines
    assert line.get_drawstyle() == "steps-post"
    assert set(line.get_ydata()) == {1.0, 0.5}


def test_epsilon_is_drawn_against_its_budget_and_each_edge_apart(run: Rig) -> None:
    spent, edges = axes(run)[2:]
    assert [line.get_ydata()[0] for line in spent.lines][1:] == [4.0]
    assert spent.get_ylim()[1] > 4.0
    shares = [bar.get_width() for bar in edges.patches]
    assert len(shares) == 2
    assert all(0 < share <= 100 for share in shares)


def test_a_loss_that_falls_by_decades_has_a_logarithmic_axis(run: Rig) -> None:
    for number, point in enumerate(run.run_status.series):
        point |= {"accuracy": None, "loss": 10.0**-number}
    assert axes(run)[0].get_yscale() == "log"


def test_the_file_is_a_picture(run: Rig, tmp_path: Path) -> None:
    run_picture.plot(tmp_path / "plot.png", run.run_status.summary(), run.run_status.series)
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert not (tmp_path / "plot.tmp.png").exists()


def test_calibration_says_of_which_class_the_probability_is(run: Rig) -> None:
    bins = [{"predicted": 0.2, "observed": 0.3, "rows": 5}]
    summary = {**run.run_status.summary(), "calibration": {"bins": bins}}

    def label(*classes: str) -> str:
        axis = run_picture.drawn(summary, run.run_status.series, classes).axes[4]
        return str(axis.get_xlabel())

    assert label("ja", "nein") == "p(nein) that the model gives, %"
    assert label("a", "b", "c") == "p of the likeliest class that the model gives, %"


def test_epsilon_never_falls_and_begins_where_edges_have_told_theirs(run: Rig) -> None:
    for point, value in zip(run.run_status.series, (2.2, 2.3, 2.41, 2.365), strict=True):
        point["epsilon"] = value
    before = run.run_status.series[0] | {"version": 0, "epsilon": 0.0}
    picture = run_picture.drawn(run.run_status.summary(), [before, *run.run_status.series])
    drawn: Any = picture.axes[2].lines[0].get_ydata()
    assert list(drawn) == [2.2, 2.3, 2.365, 2.365]
