"""The keys of what is kept: snapshots of every algorithm, and the results of a run."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from torch import Tensor

from golden.inside.bits import SEED
from golden.inside.drive import driven
from golden.inside.shapes import generic, shape
from golden.layout import AggregatorRig, RunFile, kept_snapshot, read_snapshot, simulate

Tables = dict[str, dict[str, Any]]


def snapshots(tables: Tables) -> dict[str, Any]:
    """Tensors and JSON values of the state of every role, at the end of the runs `tables`."""
    found: dict[str, Any] = {}
    for table in tables.values():
        run = RunFile.model_validate(table)
        ended = driven(run, None, SEED)
        found[run.algorithm.name] = {"server": _kept(*ended.server.state())}
        if ended.workers:
            found[run.algorithm.name]["worker"] = _kept(*ended.workers[0].state())
    return found | {"around a server's": _around()}


def summaries(tables: Tables) -> dict[str, Any]:
    """The keys of summary.json and metrics.jsonl, of simulations and of an aggregator."""
    found: dict[str, Any] = {}
    for name, table in tables.items():
        with tempfile.TemporaryDirectory() as folder:
            simulate(RunFile.model_validate(table), None, Path(folder), lambda run_status: None)
            found[f"simulated {name}"] = {
                "files": sorted(path.name for path in Path(folder).iterdir()),
                "summary.json": shape(
                    json.loads((Path(folder) / "summary.json").read_text(encoding="utf-8"))
                ),
                "metrics.jsonl": shape(
                    json.loads((Path(folder) / "metrics.jsonl").read_text().splitlines()[-1])
                ),
            }
    with tempfile.TemporaryDirectory() as folder:
        rig = fed(Path(folder))
        found["aggregator"] = {
            "summary.json": shape(rig.run_status.summary()),
            "edges": shape(rig.run_status.edges()),
        }
    return found


def fed(folder: Path) -> AggregatorRig:
    """A real aggregator that has heard of an edge, taken an update, refused another and measured
    its model.
    """
    rig = AggregatorRig(folder)
    rig.hello("edge-0")
    rig.update("edge-0")
    rig.update("edge-1")
    rig.run_status.point(1, 0.5, 0.5, 10)
    return rig


def _around() -> Any:
    """What a driver keeps beside its role's state."""
    with tempfile.TemporaryDirectory() as folder:
        rig = fed(Path(folder))
        rig.driver.save()
        kept = kept_snapshot(rig)
    assert kept is not None
    _, values = read_snapshot(bytes(kept.state))
    return {key: shape(value) for key, value in values.items() if key != "role"}


def _kept(tensors: dict[str, Tensor], values: dict[str, Any]) -> dict[str, Any]:
    dtypes = {
        generic(name): str(tensor.dtype).removeprefix("torch.") for name, tensor in tensors.items()
    }
    return {
        "tensors": dict(sorted(dtypes.items())),
        "values": shape(json.loads(json.dumps(values))),
    }
