"""At which points the processes of a run die, one after the other, and which of them have."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[2]  # tests/conftest.py has it, and pytest
_VARIABLE = "CRASH_PLAN"
Died = Callable[[], None]
# Where an aggregator dies, in the order of one batch of messages: before they are appended, when
# the store has answered, when one is folded and not receipted, when all have their answers, and
# when a snapshot is being saved.
HOST_POINTS = ("before_append", "after_append", "after_fold", "after_reply", "in_save")
# The same of batches with an update alone.
UPDATE_POINTS = ("before_update", "update_appended", "update_folded", "update_answered", "in_save")
LOOK = "look "  # before a point: of an answer to a look at held-out rows alone
LOOK_POINTS = (*(LOOK + point for point in UPDATE_POINTS[:-1]), UPDATE_POINTS[-1])
Death = tuple[str, int]  # a point, and at which release, or for which time, it is passed


def plan(folder: Path, deaths: Mapping[str, Sequence[Death]]) -> dict[str, str]:
    """Write the plan of every run; returns the variables by which processes read it."""
    folder.mkdir(exist_ok=True)
    for run, points in deaths.items():
        (folder / f"{run}.json").write_text(json.dumps(points))
    return {_VARIABLE: str(folder), "PYTHONPATH": str(ROOT)}


def died(folder: Path, run: str) -> list[str]:
    """Return the points at which processes of a run have died."""
    path = folder / f"{run}.died"
    return path.read_text().splitlines() if path.exists() else []


def next_death(run: str) -> tuple[Death, Died] | None:
    """Return where this process of a run dies, and what to call before; None: it does not."""
    folder = Path(os.environ[_VARIABLE])
    path = folder / f"{run}.json"
    deaths = json.loads(path.read_text()) if path.exists() else []
    before = len(died(folder, run))
    if before >= len(deaths):
        return None
    point, number = deaths[before]
    return (point, number), partial(_note, folder / f"{run}.died", point)


def _note(path: Path, point: str) -> None:
    with path.open("a") as file:
        file.write(f"{point}\n")
