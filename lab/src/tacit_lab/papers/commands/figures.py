"""`tacit figures`: the papers' figures, from sweeps of simulations to one page."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from tacit_services.cli.data_folder import DataFolder, data_folder

from tacit.errors import ConfigError

if TYPE_CHECKING:
    from tacit_lab.papers.figures.figure_file import Figure
    from tacit_lab.papers.figures.page import ReportedFigure

FOLDER = Path("lab") / "figures"


# The options of `figures`.
Names = Annotated[list[str] | None, typer.Argument(help="figures by file name [default: all]")]
Quick = Annotated[bool, typer.Option("--quick", help="fewer panels and updates: minutes")]
ReportFolder = Annotated[
    Path, typer.Option(help="folder of the report and of what is kept for the next")
]
OverMqtt = Annotated[
    bool,
    typer.Option(
        "--testbed", help="train over MQTT as tacit run does, one run after another, not simulated"
    ),
]
Seeds = Annotated[int | None, typer.Option(min=1, help="only this many [default: the file's]")]
ClaimsTable = Annotated[Path | None, typer.Option(help="write the table of claims here, too")]
Anew = Annotated[
    bool,
    typer.Option(
        "--anew", help="measure again what is kept beside the figure files, in FOLDER/points"
    ),
]


def figures(
    names: Names = None,
    quick: Quick = False,
    out: ReportFolder = Path("out/figures"),
    jobs: Annotated[int | None, typer.Option(min=1, help="processes [default: cores]")] = None,
    folder: Annotated[Path, typer.Option(help="folder of the figure files")] = FOLDER,
    testbed: OverMqtt = False,
    seeds: Seeds = None,
    results: ClaimsTable = None,
    anew: Anew = False,
    data: DataFolder = None,
) -> None:
    """Run or reuse the sweeps of the figures, and write a page with claims and verdicts.

    The page is index.html, of --testbed testbed.html; beside it are the verdicts as JSON.
    """
    from importlib.metadata import version

    from tacit_lab.papers.figures import page

    root = data_folder(data)
    read = _read(folder, names, seeds)
    place = out / ("testbed.html" if testbed else "index.html")
    _check_writable(place, results)
    stored = None if anew else folder / "points"
    reports = _measured(
        read, out, stored, root, quick=quick, testbed=testbed, jobs=jobs or os.cpu_count() or 1
    )
    provenance = page.Provenance(quick=quick, testbed=testbed, made_by=f"tacit {version('tacit')}")
    with _writing("out", out):
        place.write_text(page.page(reports, provenance), encoding="utf-8")
        text = json.dumps(_verdicts(reports), indent=2, ensure_ascii=False) + "\n"
        (out / ("testbed.json" if testbed else "verdicts.json")).write_text(text, encoding="utf-8")
    if results is not None:
        with _writing("results", results):
            results.write_text(page.results(reports, provenance), encoding="utf-8")
    for report in reports:
        for judged in report.judged:
            typer.echo(f"{report.name}: {judged.claim.text}: {judged.verdict}")
    typer.echo(f"{place}")


def _read(folder: Path, names: list[str] | None, seeds: int | None) -> dict[str, Figure]:
    from tacit_lab.papers.figures import figure_file

    paths = {path.stem: path for path in sorted(folder.glob("*.toml"))}
    if not paths:
        raise ConfigError(f"--folder {folder}: no figure files")
    stems = names or list(paths)
    if unknown := [name for name in stems if name not in paths]:
        raise ConfigError(f"figures {unknown[0]}: there is none; there are {', '.join(paths)}")
    if twice := [stem for stem in stems if stems.count(stem) > 1]:
        raise ConfigError(f"figures {twice[0]}: more than once")
    return {stem: figure_file.seeded(figure_file.read(paths[stem]), seeds) for stem in stems}


def _check_writable(place: Path, results: Path | None) -> None:
    """Find out now whether the report can be written after hours of simulations.

    Raises ConfigError.
    """
    with _writing("out", place.parent):
        (place.parent / "points").mkdir(parents=True, exist_ok=True)
        _open_for_appending(place)
    if results is not None:
        if results.resolve() == place.resolve():
            raise ConfigError(f"--results {results}: is where the page goes")
        with _writing("results", results):
            _open_for_appending(results)


def _open_for_appending(path: Path) -> None:
    existed = os.path.lexists(path)
    path.open("ab").close()
    if not existed:
        path.unlink()


@contextmanager
def _writing(option: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(f"--{option} {path}: {error.strerror or error}") from error


def _measured(
    read: dict[str, Figure],
    out: Path,
    stored: Path | None,
    root: Path | None,
    *,
    quick: bool,
    testbed: bool,
    jobs: int,
) -> list[ReportedFigure]:
    from tacit_lab.papers.figures import draw, figure_file, sweep, verdicts
    from tacit_lab.papers.figures import testbed_figures as mqtt
    from tacit_lab.papers.figures.page import ReportedFigure

    cells_of = mqtt.cells if testbed else figure_file.plotted_runs
    cells = {name: list(cells_of(figure, quick=quick)) for name, figure in read.items()}
    runs = {name: [cell.run for cell in mine] for name, mine in cells.items()}
    with _SweepProgress() as progress:
        if testbed:
            results = mqtt.sweep(runs, out / "testbed", root, progress)
        else:
            results = sweep.sweep(runs, out / "points", root, jobs, progress, stored)
    reports = []
    for name, figure in read.items():
        curves = verdicts.curves(figure, cells[name], results)
        reports.append(
            ReportedFigure(
                name, figure, curves, verdicts.judge(figure, curves), draw.png(figure, curves)
            )
        )
    return reports


def _verdicts(reports: list[ReportedFigure]) -> list[dict[str, object]]:
    return [
        {
            "figure": report.name,
            "claim": judged.claim.text,
            "measured": judged.measured,
            "verdict": judged.verdict,
        }
        for report in reports
        for judged in report.judged
    ]


class _SweepProgress:
    """A progress bar with the time that is left, as a context manager that gives a function."""

    def __init__(self) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._progress = Progress(
            MofNCompleteColumn(),
            BarColumn(bar_width=30),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._task = self._progress.add_task("figures")

    def __enter__(self) -> Callable[[int, int], None]:
        return self._advance

    def _advance(self, count: int, total: int) -> None:
        if total:  # else every result was there already
            self._progress.start()
            self._progress.update(self._task, completed=count, total=total)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._progress.stop()
        if kind is KeyboardInterrupt:
            typer.echo(
                "tacit figures: what was done is kept: the same command goes on from there",
                err=True,
            )
