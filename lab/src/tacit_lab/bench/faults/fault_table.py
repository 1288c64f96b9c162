"""What the bench measured, as a table and a picture."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit_lab.bench.faults.fault_plan import FaultPlan, Row

Runs = dict[str, dict[str, dict[str, Any]]]  # system, row, seed
SYSTEMS = ("tacit", "flower", "nvflare")
TITLES = {"tacit": "tacit", "flower": "Flower", "nvflare": "NVFlare"}
BASE = "nothing"


@dataclass(frozen=True, slots=True)
class Cell:
    """A system under a row, over its seeds. over: median wall time over undisturbed, if finished.

    alone: how many finished without a person.
    """

    seeds: int
    finished: int
    alone: int
    lost: float
    by_hand: float
    over: float | None
    wall_s: float

    def text(self) -> str:
        """Return it as the table has it."""
        parts = [f"{self.finished} of {self.seeds}"]
        if self.finished > self.alone:
            parts.append(f"{self.finished - self.alone} by hand")
        parts.append(f"lost {self.lost:g}")
        if self.finished and self.over is not None:
            parts.append(f"{self.over:.2f} ×")
        return ", ".join(parts)


def cell(runs: list[dict[str, Any]], undisturbed_s: float | None) -> Cell | None:
    """Return the cell of these runs; None where there is none.

    undisturbed_s: what the wall time is compared with.
    """
    if not runs:
        return None
    ended = [run for run in runs if run["finished"]]
    walls = [run["wall_s"] for run in ended or runs]
    wall = statistics.median(walls)
    over = wall / undisturbed_s if undisturbed_s else None
    return Cell(
        seeds=len(runs),
        finished=len(ended),
        alone=sum(not run["by_hand"] for run in ended),
        lost=statistics.median(run["lost"] for run in runs),
        by_hand=statistics.median(len(run["by_hand"]) for run in runs),
        over=over,
        wall_s=wall,
    )


def undisturbed(plan: FaultPlan, runs: Runs, system: str, row: Row) -> float | None:
    """Return what the row's time is compared with: the system's own without a fault.

    A row with a task of its own is compared with what the links alone take.
    """
    if row.rounds:
        return plan.task_of(row).ideal_s
    base = runs.get(system, {}).get(BASE, {}).values()
    walls = [run["wall_s"] for run in base if run["finished"]]
    return statistics.median(walls) if walls else None


def cells(plan: FaultPlan, runs: Runs) -> dict[str, dict[str, Cell]]:
    """Return {row: {system: cell}} of everything that was measured."""
    table = dict[str, dict[str, Cell]]()
    for name, row in plan.rows.items():
        table[name] = {}
        for system in SYSTEMS:
            seeds = list(runs.get(system, {}).get(name, {}).values())
            entry = cell(seeds, undisturbed(plan, runs, system, row))
            if entry is not None:
                table[name][system] = entry
    return table


def markdown(plan: FaultPlan, runs: Runs) -> str:
    """Return the table of docs/what-a-bad-link-costs.md."""
    lines = [f"| | {' | '.join(TITLES[system] for system in SYSTEMS)} |", "|---|---|---|---|"]
    for name, row in cells(plan, runs).items():
        texts = [row[system].text() if system in row else "not run" for system in SYSTEMS]
        lines.append(f"| {plan.rows[name].title} | {' | '.join(texts)} |")
    return "\n".join(lines)


def read(path: Path) -> Runs:
    """Return what is measured already."""
    if not path.exists():
        return {}
    content: Runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
    return content


def write(path: Path, runs: Runs, versions: dict[str, str]) -> None:
    """Write it, all or nothing. versions: of the peers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    text = json.dumps({"versions": versions, "runs": runs}, indent=1, sort_keys=True)
    part.write_text(text + "\n", encoding="utf-8")
    part.replace(path)


def draw(plan: FaultPlan, runs: Runs, path: Path) -> None:
    """Draw wall time over undisturbed, a group of bars for each row; a cross: not finished."""
    from matplotlib.figure import Figure

    table = cells(plan, runs)
    figure = Figure(figsize=(8.0, 5.5), layout="constrained")
    axes = figure.subplots()
    height = 0.8 / len(SYSTEMS)
    for number, system in enumerate(SYSTEMS):
        places = []
        lengths = []
        for at, name in enumerate(table):
            entry = table[name].get(system)
            place = at + (number - 1) * height
            if entry is None or entry.over is None:
                continue
            places.append(place)
            lengths.append(entry.over)
            if entry.finished < entry.seeds:
                axes.plot([entry.over], [place], marker="x", color="black", clip_on=False)
            elif entry.alone < entry.seeds:
                axes.text(entry.over, place, " by hand", va="center", fontsize=7)
        axes.barh(places, lengths, height, label=TITLES[system])
    axes.set_yticks(range(len(table)), [plan.rows[name].title for name in table], fontsize=8)
    axes.invert_yaxis()
    axes.axvline(1.0, color="grey", linewidth=0.8)
    axes.set_xlabel("wall time over undisturbed (x: not every seed finished)")
    axes.legend()
    figure.savefig(path, dpi=110)
