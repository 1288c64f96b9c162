"""`least-squares` by real processes over a broker: four lines of a run file, one push an edge."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.helpers.processes import environment
from tests.system.examples.test_examples import printed, trained

RUN = """
[data]
dataset = "digits"

[algorithm]
name = "least-squares"

[edges]
count = 3

[privacy]
epsilon = 4.0
"""


def test_it_learns_over_the_broker_and_replays_to_the_same_bits(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(RUN)
    variables = environment(XDG_DATA_HOME=str(tmp_path / "home"))
    journal = tmp_path / "journal"
    summary, _ = trained(file, tmp_path / "out", variables, "--journal", str(journal))
    assert summary["metrics"]["accuracy"] > 0.85
    privacy = summary["privacy"]
    assert 3.9 < privacy["epsilon"] <= 4.0
    assert [edge["pushes"] for edge in privacy["edges"].values()] == [1, 1, 1]
    command = [sys.executable, "-m", "tacit_services.cli.main", "replay", str(journal), "--json"]
    replayed = json.loads(printed(command, variables))
    assert replayed["model_sha256"] == summary["model_sha256"]
