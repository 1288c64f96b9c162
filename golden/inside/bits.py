"""Shortened runs and figure points of one tree: what must be the same, to the last bit, in two."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

from torch import Tensor

from golden.inside.drive import driven
from golden.layout import Asked, RunFile, datasets, figures, measure, simulate

Facts = dict[str, Any]
SEED = 11
CLOCKED = ("seconds",)  # of a point of metrics.jsonl: how long the machine took
PICKED = 3  # points of a figure


def available(names: list[str], root: str | None) -> list[str]:
    """Those of the datasets `names` that are there."""
    return [name for name in names if datasets.available(name, _path(root))]


def simulated(table: dict[str, Any], root: str | None) -> Facts:
    """The results of `tacit simulate`, less what is a matter of time."""
    run = RunFile.model_validate(table)
    with tempfile.TemporaryDirectory() as folder:
        simulate(run, _path(root), Path(folder), lambda observer: None)
        summary = json.loads((Path(folder) / "summary.json").read_text(encoding="utf-8"))
        lines = (Path(folder) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    points = [
        {key: value for key, value in json.loads(line).items() if key not in CLOCKED}
        for line in lines
    ]
    return {
        "model": summary["model_sha256"],
        "applied": summary["applied"],
        "points": points,
        "epsilon": summary["privacy"]["epsilon"],
        "virtual time": summary["virtual_time_s"],
    }


def in_process(table: dict[str, Any], root: str | None) -> Facts:
    """What roles that take turns end with."""
    ended = driven(RunFile.model_validate(table), _path(root), SEED)
    role = ended.server
    pushes = {name: sum(row.count for row in record.spent) for name, record in role.edges.items()}
    return {
        "model": sha256(role.params),
        "version": role.version,
        "schedule": role.schedule(),
        "pushes": pushes,
        "workers": {name: sha256(params) for name, params in ended.models().items()},
    }


def points(folder: str) -> dict[str, dict[str, Any]]:
    """Return some points of every figure file's quick report, of one seed.

    They are spread evenly among its panels, lines and x.
    """
    found = {}
    for path in sorted(Path(folder).glob("*.toml")):
        cells = list(figures.cells(figures.seeded(figures.read(path), 1), quick=True))
        for number in sorted({len(cells) * part // PICKED for part in range(PICKED)}):
            cell = cells[number]
            table = cell.run.model_dump(mode="json", exclude_unset=True)
            found[f"{path.stem} {number}"] = table
    return found


def measured(table: dict[str, Any], root: str | None) -> Facts:
    """A figure's point."""
    kind = Asked if table.keys() & {"design", "attack"} else RunFile
    return measure(kind.model_validate(table), _path(root))


def sha256(params: Tensor) -> str:
    """Of the numbers, bit for bit."""
    return hashlib.sha256(params.numpy().tobytes()).hexdigest()


def _path(root: str | None) -> Path | None:
    return None if root is None else Path(root)
