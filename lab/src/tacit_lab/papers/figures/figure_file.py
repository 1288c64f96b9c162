"""Figure files: TOML with what a paper shows, what it claims, and which runs show it here."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from tacit import regular_file
from tacit.config import RunFile, one_line
from tacit.config.sections import Section
from tacit.errors import ConfigError
from tacit_lab.papers.figures.untrained_points import UntrainedPoint

Noise = Literal["paper", "rigorous", "none"]
Table = dict[str, Any]


class XValue(Section):
    """One place on the x axis of a figure whose x axis is not a run's time."""

    x: float = Field(allow_inf_nan=False)
    set: Table = Field({}, description="what differs from the figure's base, as in a run file")


class Panel(Section):
    """One pair of axes."""

    title: str
    noise: Noise
    claimed: str = Field("nothing", description="the ε that the paper states for these runs")
    set: Table = Field({})
    points: tuple[XValue, ...] = Field((), strict=False)
    full: bool = Field(False, description="left out of the quick report")


class Line(Section):
    """One line of a figure: an algorithm or a setting."""

    name: str
    set: Table = Field({})
    drop: tuple[str, ...] = Field(
        (), strict=False, description="section.key that this line does not have"
    )
    flat: bool = Field(
        False, description="does not depend on x: one run a seed, its end drawn across"
    )
    panels: tuple[str, ...] = Field(
        (), strict=False, description="only in panels of these noises; (): in all"
    )


class Claim(Section):
    """A claim of the paper about the figure, as a computation on means over points and seeds.

    - order: the lines' scores do not get better from first to last by more than `tolerance`.
    - near: the lines' scores differ by at most `tolerance`.
    - rising, falling: each line's last point is above, or below, its first.
    - flat: each line's points differ by at most `tolerance`.
    - below: each line's first point is at most `tolerance`.

    A line's score is the mean of its points, or its last point (`at`). In a figure over time it is
    taken as far as all lines of the claim have come.
    """

    text: str
    kind: Literal["order", "near", "rising", "falling", "flat", "below"]
    lines: tuple[str, ...] = Field(strict=False, min_length=1)
    panels: tuple[str, ...] = Field(
        (), strict=False, description="titles; (): all that have these lines"
    )
    at: Literal["mean", "end"] = "mean"
    tolerance: float = Field(0.0, ge=0)


class FigureSettings(Section):
    """The table [figure] of a figure file: what the figure is, and how it is drawn."""

    paper: str
    name: str
    title: str
    setting: str = Field(description="the paper's")
    scaled: str = Field(description="what is smaller here, and why")
    over: Literal["points", "version", "gradients", "virtual_time_s"] = "points"
    x: str = Field(description="label")
    y: Literal[
        "accuracy",
        "loss",
        "perplexity",
        "auc",
        "gradient_norm",
        "clip",
        "reached",
        "tau",
        "likeness",
    ] = Field("accuracy", description="tau, likeness: with [base] design or attack")
    label: str = Field(description="of y")
    below: float | None = Field(
        None, description="reached: the first version whose test loss is below this"
    )
    logarithmic: bool = False
    less_is_more: bool = Field(False, description="the best score is the smallest")
    seeds: tuple[int, ...] = Field((1, 2, 3, 4, 5), strict=False, min_length=1)


class Figure(Section):
    """A whole figure file."""

    figure: FigureSettings
    base: Table
    quick: Table = Field({})
    panel: tuple[Panel, ...] = Field(strict=False, min_length=1)
    line: tuple[Line, ...] = Field(strict=False, min_length=1)
    claim: tuple[Claim, ...] = Field((), strict=False)

    @model_validator(mode="after")
    def _nothing_is_meant_twice(self) -> Self:
        """Refuse two things with one name: one of them would be drawn, and judged, as the other."""
        kinds: dict[str, list[object]] = {
            "line.name": [line.name for line in self.line],
            "panel.title": [(panel.title, panel.noise) for panel in self.panel],
            "figure.seeds": list(self.figure.seeds),
            **{
                f"points of panel {panel.title!r}: x": [point.x for point in panel.points]
                for panel in self.panel
            },
        }
        for field, names in kinds.items():
            if twice := [name for name in names if names.count(name) > 1]:
                raise ValueError(f"{field}={twice[0]!r}: more than once")
        return self

    @model_validator(mode="after")
    def _axes_agree(self) -> Self:
        """Refuse what would only show when everything has been simulated."""
        head = self.figure
        base = self.base
        if head.over != "points" and any(panel.points for panel in self.panel):
            raise ValueError(f"figure.over={head.over!r}: its panels have no points")
        needed = {"tau": "design", "likeness": "attack"}.get(head.y)
        if needed is not None and needed not in base:
            raise ValueError(f"figure.y={head.y!r}: needs base.{needed}")
        if head.y == "reached" and head.below is None:
            raise ValueError("figure.y='reached': needs figure.below")
        if head.logarithmic and any(point.x <= 0 for panel in self.panel for point in panel.points):
            raise ValueError("figure.logarithmic=true: needs every x above 0")
        return self

    @model_validator(mode="after")
    def _claims_agree(self) -> Self:
        """Refuse a claim about a line or panel that does not exist: it would claim nothing."""
        lines = {line.name for line in self.line}
        panels = {panel.title for panel in self.panel}
        for claim in self.claim:
            for kind, names, existing in (
                ("line", claim.lines, lines),
                ("panel", claim.panels, panels),
            ):
                if unknown := [name for name in names if name not in existing]:
                    raise ValueError(f"claim {claim.text!r}: there is no {kind} {unknown[0]!r}")
        return self


@dataclass(frozen=True, slots=True)
class PlottedRun:
    """One run of a figure: the numbers of its panel and line, its x, its seed, and the run file.

    `x` is None for a flat line, and in a figure over a run's time.
    """

    panel: int
    line: int
    x: float | None
    seed: int
    run: RunFile


def read(path: Path) -> Figure:
    """Read a figure file. Raises ConfigError with one line."""
    try:
        return Figure.model_validate(tomllib.loads(regular_file.text(path)))
    # RecursionError: thousands of brackets.
    except (OSError, ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        if isinstance(error, ValidationError):
            reason = one_line(error, RunFile)
        raise ConfigError(f"figure file {path}: {reason}") from error


def seeded(figure: Figure, most: int | None) -> Figure:
    """Return the figure with its first `most` seeds; None: with all."""
    head = figure.figure.model_copy(update={"seeds": figure.figure.seeds[:most]})
    return figure.model_copy(update={"figure": head})


def plotted_runs(figure: Figure, *, quick: bool) -> Iterator[PlottedRun]:
    """Yield every run that the figure is made of.

    Raises ConfigError for a run file that is wrong, or where nothing is left for `quick`.
    """
    if quick and all(panel.full for panel in figure.panel):
        raise ConfigError(
            f"{figure.figure.paper} {figure.figure.name}: all its panels are full: none for --quick"
        )
    base = merged(figure.base, figure.quick if quick else {})
    for p, panel in enumerate(figure.panel):
        if quick and panel.full:
            continue
        for number, line in enumerate(figure.line):
            if line.panels and panel.noise not in line.panels:
                continue
            points = (XValue(x=0.0),) if line.flat or not panel.points else panel.points
            for point in points:
                table = merged(merged(merged(base, panel.set), line.set), point.set)
                if line.flat or not panel.points:
                    x = None
                else:
                    x = point.x
                for seed in figure.figure.seeds:
                    seeded = merged(table, {"run": {"seed": seed}})
                    yield PlottedRun(
                        p, number, x, seed, _run(_without(seeded, line.drop), figure, line)
                    )


def merged(table: Table, other: Table) -> Table:
    """Return `table` with the values of `other` in place of its own, section by section."""
    both = dict(table)
    for key, value in other.items():
        before = both.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            value = merged(before, value)
        both[key] = value
    return both


def _without(table: Table, dropped: Iterable[str]) -> Table:
    removed = [tuple(name.split(".")) for name in dropped]
    remaining: Table = {}
    for section, keys in table.items():
        if isinstance(keys, dict):
            keys = {key: value for key, value in keys.items() if (section, key) not in removed}
        remaining[section] = keys  # what is no section stays, for the run file's check to name
    return remaining


def _run(table: Table, figure: Figure, line: Line) -> RunFile:
    try:
        if table.keys() & {"design", "attack"}:
            return UntrainedPoint.model_validate(table)
        return RunFile.model_validate(table)
    except ValidationError as error:
        what = f"{figure.figure.paper} {figure.figure.name}, {line.name}"
        raise ConfigError(f"{what}: {one_line(error, RunFile)}") from error
