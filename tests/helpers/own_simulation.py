"""A simulated run on own rows, whose results lie where those of `tacit run` would.

`tacit simulate` refuses own rows, as it charges no ledger; the rows of tests are made up.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from tacit_services.aggregator.reporting import results
from tacit_services.aggregator.reporting.evaluation import Points
from tacit_services.aggregator.reporting.other_models import OtherModels
from tacit_services.aggregator.reporting.run_status import RunStatus
from tacit_services.testbed.simulated_run import Simulation

from tacit import config


def simulated(run_file: Path, out: Path) -> dict[str, Any]:
    """Train as the run file says, write the results to `out`, and return the summary."""
    torch.set_num_threads(1)
    definition = config.load(run_file).define()
    source = definition.source
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        parts = [
            source.edge(number, None, Path(folder) / str(number))
            for number in range(definition.edges.count)
        ]
        simulation = Simulation(definition, None, parts)
        status = RunStatus(definition, simulation, out / "metrics.jsonl", virtual=simulation.clock)
        status.resumed()
        simulation.simulator.run(lambda role: None)
    status.end()
    test = source.test(None)
    assert test is not None
    points = Points(definition, simulation.model, test, test, status.point)
    due = simulation.role.evaluation_input(test)
    assert due is not None
    points.measure(*due)
    results.write(out, definition, status, simulation.model, test, OtherModels())
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return summary
