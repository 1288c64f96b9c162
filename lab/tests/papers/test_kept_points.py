"""The points beside the figure files: all are found, and three measured again are the same."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import t as student
from tacit_lab.papers.figures import figure_file, stored_results, sweep
from tacit_lab.papers.figures.stored_results import Result

from tacit.algorithms.fedasync.fedasync_settings import FedAsync
from tacit.config import RunFile
from tests.conftest import ROOT

FIGURES = ROOT / "lab" / "figures"
KEPT = 2495
FALSE_ALARM = 1e-3  # probability that an unchanged, normal number counts as changed
Kept = dict[str, Any]  # a line


def lines() -> dict[str, Kept]:
    """Return every stored point, by name."""
    files = (FIGURES / "points").glob("*.jsonl")
    points = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    return {point["name"]: point for point in points}


def seeds_of(figure: str, panel: int, line: str, x: float | None) -> list[RunFile]:
    """Return the runs of one point of a figure, one for each seed."""
    figure_plan = figure_file.read(FIGURES / f"{figure}.toml")
    cell_key = (panel, [each.name for each in figure_plan.line].index(line), x)
    return [
        cell.run
        for cell in figure_file.plotted_runs(figure_plan, quick=False)
        if (cell.panel, cell.line, cell.x) == cell_key
    ]


class TestAllAreFound:
    def test_every_run_of_every_figure_is_kept_and_nothing_else(self, tmp_path: Path) -> None:
        runs = {
            path.stem: [
                cell.run for cell in figure_file.plotted_runs(figure_file.read(path), quick=False)
            ]
            for path in sorted(FIGURES.glob("*.toml"))
        }
        results, todo = stored_results.look_up(runs, tmp_path, FIGURES / "points")
        assert (len(results), todo) == (KEPT, {})
        assert stored_results.read_folder(FIGURES / "points").keys() == results.keys()

    def test_one_that_is_deleted_is_one_to_run(self, tmp_path: Path) -> None:
        runs = {
            "dp-pasgd-5": [
                cell.run
                for cell in figure_file.plotted_runs(
                    figure_file.read(FIGURES / "dp-pasgd-5.toml"), quick=False
                )
            ]
        }
        shutil.copytree(FIGURES / "points", tmp_path / "kept")
        path = tmp_path / "kept" / "dp-pasgd-5.jsonl"
        first, *others = path.read_text().splitlines(keepends=True)
        path.write_text("".join(others))
        results, todo = stored_results.look_up(runs, tmp_path / "own", tmp_path / "kept")
        assert [*todo] == [json.loads(first)["name"]]
        assert len(results) == len(runs["dp-pasgd-5"]) - 1

    @pytest.mark.exhaustive
    def test_after_a_comment_a_rename_and_a_new_default_key(self, tmp_path: Path) -> None:
        # Given the code with a comment more, a section's class of another name, and a key that has
        # a default,
        for name in ("src/tacit", "services/tacit_services", "lab/src/tacit_lab"):
            shutil.copytree(
                ROOT / name,
                tmp_path / Path(name).name,
                ignore=shutil.ignore_patterns("__pycache__"),
            )
        for path in tmp_path.rglob("*.py"):
            path.write_text(
                re.sub(r"\bModelSection\b", "Architecture", path.read_text()) + "# a comment\n"
            )
        sections = tmp_path / "tacit" / "config" / "sections.py"
        before, head, after = sections.read_text().partition(
            '    """Each edge\'s own privacy configuration."""\n'
        )
        sections.write_text(before + head + "    floor: float = 0.5\n" + after)
        # when it looks for the runs of the figures,
        code = (
            "import sys, pathlib as p; from tacit_lab.papers.figures import figure_file, "
            "stored_results\n"
            "from tacit.config.model import *; from tacit.config.sections import *\n"
            "figures = p.Path(sys.argv[1]); assert Architecture and Privacy().floor == 0.5\n"
            "runs = {f.stem: [c.run for c in figure_file.plotted_runs(figure_file.read(f), "
            "quick=False)]"
            " for f in figures.glob('*.toml')}\n"
            "print(*map(len, stored_results.look_up(runs, p.Path(sys.argv[2]), figures / "
            "'points')))"
        )
        places = os.pathsep.join((str(tmp_path), str(ROOT / "clients" / "python")))
        output = subprocess.run(
            [sys.executable, "-c", code, FIGURES, tmp_path / "own"],
            env=os.environ | {"PYTHONPATH": places},
            cwd=tmp_path,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        # then every point is there.
        assert output.split() == [str(KEPT), "0"]


def moved(stored: Kept, seeds: list[Result], now: Result, made_by: dict[str, str]) -> list[str]:
    """Return what of a point measured `now` differs from the `stored` one.

    Where the same code, torch and instructions made both, all bits are equal. Else a number may be
    what another seed could have given: it lies in the prediction interval of those that the seeds
    have, which an honest one leaves with probability FALSE_ALARM. ε has no spread, so it must be
    the same.
    """
    if all(stored[key] == value for key, value in made_by.items()):
        return [] if stored["result"] == now else ["a bit"]
    ends = [result["series"][-1] for result in seeds]
    differences = [] if now["epsilon"] == stored["result"]["epsilon"] else ["epsilon"]
    for key in ("version", "accuracy", "loss"):
        values = np.array([end[key] for end in ends])
        width = student.ppf(1 - FALSE_ALARM / 2, len(values) - 1) * math.sqrt(1 + 1 / len(values))
        if abs(now["series"][-1][key] - values.mean()) > width * values.std(ddof=1) + 1e-9:
            differences.append(key)
    return differences


@pytest.mark.parametrize(
    ("figure", "panel", "line", "x"),
    [
        ("vafl-2", 0, "centralised", None),
        ("vafl-2", 5, "sync", None),
        ("vafl-2", 10, "sync", None),
        ("mapa-6", 1, "MAPA", 1.0),
        ("dp-pasgd-5", 0, "C = 500", 10.0),
    ],
)
def test_a_point_measured_again_is_the_same(
    data_root: Path | None, figure: str, panel: int, line: str, x: float | None
) -> None:
    """Measure the points anew.

    Where this fails: raise stored_results.RESULTS_VERSION and measure all points anew, or find the
    mistake. The first three points need no data that is not bundled.
    """
    runs = seeds_of(figure, panel, line, x)
    if data_root is None and runs[0].source.name != "digits":
        pytest.skip("needs the data")
    stored = lines()
    seeds = [stored[stored_results.result_name(run)]["result"] for run in runs]
    now = sweep.measure(runs[0], data_root)
    assert (
        moved(stored[stored_results.result_name(runs[0])], seeds, now, stored_results.made_by())
        == []
    )


ALIKE = {"version": "0.1.0+2ff785b", "torch": "2.9", "instructions": "AVX2"}


class TestMoved:
    def result(self, accuracy: float, epsilon: float = 1.0) -> Result:
        return {
            "series": [{"version": 4, "accuracy": accuracy, "loss": 1 - accuracy}],
            "epsilon": epsilon,
        }

    def judged(self, now: Result, **made_by: str) -> list[str]:
        seeds = [self.result(accuracy) for accuracy in (0.80, 0.81, 0.82, 0.83, 0.84)]
        return moved(ALIKE | {"result": seeds[0]}, seeds, now, ALIKE | made_by)

    def test_the_same_code_gives_the_same_bits(self) -> None:
        assert self.judged(self.result(0.80)) == []
        assert self.judged(self.result(0.80 + 1e-9)) == ["a bit"]

    @pytest.mark.parametrize("other", ["version", "torch", "instructions"])
    def test_other_code_gives_what_another_seed_could(self, other: str) -> None:
        assert self.judged(self.result(0.85), **{other: "another"}) == []
        assert self.judged(self.result(0.98), **{other: "another"}) == ["accuracy", "loss"]
        assert self.judged(self.result(0.80, epsilon=1.0001), **{other: "another"}) == ["epsilon"]

    def test_a_run_with_another_step_is_seen(self) -> None:
        """Measure a stored point with η/3 instead of η, as after a slip in the code."""
        runs = seeds_of("vafl-2", 0, "centralised", None)
        stored = lines()
        section = runs[0].algorithm
        assert isinstance(section, FedAsync)
        slow = section.model_copy(update={"learning_rate": section.learning_rate / 3})
        now = sweep.measure(runs[0].model_copy(update={"algorithm": slow}), None)
        seeds = [stored[stored_results.result_name(run)]["result"] for run in runs]
        assert "loss" in moved(
            stored[stored_results.result_name(runs[0])], seeds, now, stored_results.made_by()
        )
