"""The keys and types of what a run leaves on disk: snapshots of roles, and results."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

from tacit_services.journal import snapshot_file
from tacit_services.testbed.simulated_run import simulate

from tacit import config
from tests.conftest import ROOT
from tests.golden.bits import driven, states
from tests.golden.same_bits import RULES, shortened
from tests.helpers.rest import Rig

TEXTS = shortened(ROOT)


def snapshots() -> dict[str, list[str]]:
    """Return the keys of the state of every algorithm's roles, and what is stored around it."""
    with tempfile.TemporaryDirectory() as folder:
        rig = served_run(Path(folder))
        rig.driver.save()
        snapshot = rig.live.journal.store.snapshot()
    assert snapshot is not None
    _, around = snapshot_file.loads(bytes(snapshot.state))
    stored = {"around a server's": keys(around | {"role": None})}
    for name in RULES["quick"]:
        run = config.parse(TEXTS[name], name)
        stored[run.algorithm.name] = keys(states(driven(run)))
    return stored


def summaries() -> dict[str, list[str]]:
    """Return the keys of results, of simulations and of an aggregator."""
    stored = {}
    for name in RULES["summaries"]:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder)
            simulate(config.parse(TEXTS[name], name).define(), None, out, lambda run_status: None)
            files = {path.name: None for path in out.iterdir()}
            last = (out / "metrics.jsonl").read_text().splitlines()[-1]
            parsed = {"metrics.jsonl": json.loads(last)}
            parsed["summary.json"] = json.loads((out / "summary.json").read_text())
            stored[f"simulated {name}"] = keys(files | parsed)
    with tempfile.TemporaryDirectory() as folder:
        run_status = served_run(Path(folder)).run_status
        facts = {"summary.json": run_status.summary(), "edges": run_status.edges()}
        return stored | {"aggregator": keys(facts)}


def served_run(folder: Path) -> Rig:
    """Return an aggregator that has accepted an update, refused another and measured its model."""
    rig = Rig(folder)
    rig.hello("edge-0")
    rig.update("edge-0")
    rig.update("edge-1")
    rig.run_status.point(1, 0.5, 0.5, 10)
    return rig


def keys(value: Any) -> list[str]:
    """Return the ways to the values in `value`, each with its type; names of edges are one key."""
    return sorted(set(_ways(value)))


def _ways(value: Any, way: str = "") -> list[str]:
    if isinstance(value, dict) and value:
        masked = [(re.sub(r"edge-\d+", "edge-N", str(key)), inner) for key, inner in value.items()]
        return [each for key, inner in masked for each in _ways(inner, f"{way}: {key}")]
    if isinstance(value, list | tuple) and value:
        return [each for inner in value for each in _ways(inner, f"{way}[]")]
    kind = str(getattr(value, "dtype", type(value).__name__))
    return [f"{way.removeprefix(': ')}: {kind}"]
