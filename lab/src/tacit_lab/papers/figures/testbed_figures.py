"""Measures the runs of figures on the testbed (processes and MQTT) instead of simulating them."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tacit_services import python_child

from tacit.config import RunFile
from tacit.config.sections import Network
from tacit.errors import ConfigError, ServiceError
from tacit_lab.papers.figures import figure_file, stored_results
from tacit_lab.papers.figures.figure_file import Figure, PlottedRun
from tacit_lab.papers.figures.stored_results import Result
from tacit_lab.papers.figures.untrained_points import UntrainedPoint
from tacit_lab.papers.round_cost import as_toml

MEASURED = {"accuracy", "loss"}  # what a figure may show that a run's metrics.jsonl has


def cells(figure: Figure, *, quick: bool) -> list[PlottedRun]:
    """Return the figure's runs without [network]: on the testbed, things take as long as they take.

    Raises ConfigError for a figure that only simulations can show.
    """
    head = figure.figure
    if head.y not in MEASURED or head.over not in ("version", "points"):
        raise ConfigError(
            f"--testbed: {head.paper} {head.name} shows {head.y} over {head.over}: simulations only"
        )
    plotted = [
        replace(c, run=c.run.model_copy(update={"network": Network()}))
        for c in figure_file.plotted_runs(figure, quick=quick)
    ]
    if any(isinstance(cell.run, UntrainedPoint) for cell in plotted):
        raise ConfigError(f"--testbed: {head.paper} {head.name} does not train")
    return plotted


def sweep(
    runs: Mapping[str, Iterable[RunFile]],
    folder: Path,
    root: Path | None,
    report: Callable[[int, int], None],
) -> dict[str, Result]:
    """Train every run that `folder` has no result of, one by one; returns all, by name.

    `runs` are given by figure. `done(count, total)` is called as results come. Two runs of one seed
    differ by whose update came first, so a stored result is one that was seen once.
    """
    results, todo = stored_results.look_up(runs, folder)
    report(0, len(todo))
    for count, (name, request) in enumerate(todo.items(), 1):
        results[name] = _trained(request.run, root)
        stored_results.store(folder, request, results[name])
        report(count, len(todo))
    return results


def _trained(run: RunFile, root: Path | None) -> Result:
    content = run.model_dump(mode="json", exclude_unset=True, exclude={"network"})
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.toml"
        out = Path(folder) / "out"
        file.write_text(as_toml(content), encoding="utf-8")
        summary = train(file, out, *(() if root is None else ("--data", str(root))))
        lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    points = map(json.loads, lines)
    return {
        # Without the time of day, which is no number of a figure.
        "series": [{key: point[key] for key in point if key != "at"} for point in points],
        "epsilon": summary["privacy"]["epsilon"],
    }


def train(file: Path, out: Path, *options: str) -> dict[str, Any]:
    """Run `tacit run FILE --out OUT` with more options to its end; returns its summary.

    Raises ServiceError with the last line that it printed.
    """
    command = python_child.command(
        "tacit_services.cli.main", "run", str(file), "--out", str(out), "--json", *options
    )
    ended = subprocess.run(
        command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    if ended.returncode:
        lines = ended.stderr.strip().splitlines() or ["nothing"]
        raise ServiceError(
            f"tacit run ended with exit code {ended.returncode} and said: {lines[-1]}"
        )
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    return summary
