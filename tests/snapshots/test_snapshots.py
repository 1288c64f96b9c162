"""What users hold stays as the JSON files beside this test have it; prose is free.

A change that is meant: `pytest tests/snapshots --write`, and the diff is part of the commit.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tacit import config
from tacit.privacy.accounting import Spend, calibrate, epsilon_pld, epsilon_rdp, gdp
from tests.conftest import ROOT
from tests.snapshots import interfaces, message_samples, stored_keys

PLANS = Path(__file__).parent / "epsilon-of-plans.json"
CLOSE = 1e-9  # relative: the last digits of ε and z are the processor's


def fingerprints() -> dict[str, str]:
    """Return the fingerprint of every file of experiments/."""
    paths = (ROOT / "experiments").glob("*.toml")
    return {path.name: config.load(path).fingerprint() for path in paths}


def computed(mechanism: str, q: float, pushes: int, delta: float, **other: float) -> dict[str, Any]:
    """Return ε of a plan by each accountant; of a plan with a budget, its z."""
    if "budget" in other:
        return {"z": calibrate(other["budget"], delta, pushes, q, mechanism)}
    history = (Spend(q, other["noise"], pushes, mechanism),)
    epsilons = {"pld": epsilon_pld(history, delta), "rdp": epsilon_rdp(history, delta)}
    if q == 1 and mechanism == "gaussian":  # as a party's
        epsilons["gdp"] = gdp.epsilon(gdp.mu(history), delta)
    return epsilons


SNAPSHOTS: dict[str, Callable[[], dict[str, Any]]] = {
    "commands": interfaces.commands,
    "envelopes": message_samples.envelopes,
    "fingerprints": fingerprints,
    "metrics": interfaces.metric_names,
    "rest": interfaces.rest,
    "run-file": interfaces.run_file,
    "snapshots": stored_keys.snapshots,
    "summaries": stored_keys.summaries,
    "topics": interfaces.topic_names,
}


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_what_users_hold_is_as_its_snapshot(name: str, request: pytest.FixtureRequest) -> None:
    path = Path(__file__).parent / f"{name}.json"
    facts = SNAPSHOTS[name]()
    now = json.dumps(facts, indent=1, sort_keys=True, ensure_ascii=False, default=str) + "\n"
    if request.config.getoption("write", default=False):
        path.write_text(now, encoding="utf-8")
    was = path.read_text(encoding="utf-8")
    assert list(difflib.unified_diff(was.splitlines(), now.splitlines())) == []


def test_the_epsilon_of_plans_is_as_its_snapshot() -> None:
    """Compare each plan with the ε beside it in the file, which is changed by hand."""
    for row in json.loads(PLANS.read_text(encoding="utf-8")):
        assert computed(**row["plan"]) == pytest.approx(row["is"], rel=CLOSE), row


def test_every_file_here_is_of_a_test() -> None:
    """epsilon.json has how an ε is shown: tests/unit/test_rounding.py, tests/system/aggregator/test_page.py."""
    names = {path.stem for path in PLANS.parent.glob("*.json")}
    assert names == {*SNAPSHOTS, PLANS.stem, "epsilon"}
