"""What a private vertical run learns at ε a person: docs/vertical.md, "What it learns".

    python -m tacit_lab.studies.columns_at_parties --seeds 3

Two parties hold about half of a published table's columns each. Three systems are compared at one
person's ε, by the AUC on the public test people. All are simulated, so that ε is what the same
releases would cost with secret noise.

- `columns`: each party releases its columns once, with noise, and the label holder trains on that.
- `scores`: DP-SGD on summed scores, logistic regression. The label holder is trusted with the score
  of each person, so it computes what one edge with all columns does; ε is against everybody else.
- `trained`: each party trains its embedding by DP-SGD and releases it at every use (`dp_sgd`).
"""

from __future__ import annotations

import argparse
import json
import math
import os
from pathlib import Path

from tacit_services.testbed.simulated_run import Simulation

from tacit import config
from tacit.config import RunFile
from tacit.privacy.accounting import gdp

DELTA = 1e-5
EPSILONS = (1.0, 2.0, 4.0, 8.0)
TABLES = {"credit-default": (13, 0.4), "adult": (52, 0.4)}  # places of a party, B

_SHARED = """
run = {{ name = "columns", updates = {updates}, seed = {seed} }}
data.dataset = "{table}"
model.name = "logistic"
evaluation = {{ every = {updates} }}
"""
_COLUMNS = """
algorithm = {{ name = "vafl", embedding = "columns", combine = "concat", width = {width}, \
public_test = true, learning_rate = 0.2 }}
privacy = {{ mechanism = "{noise}", epsilon = {epsilon}, delta = {delta}, clip = {clip}, \
batch = 1000 }}
edges.count = 2
"""
_TRAINED = """
algorithm = {{ name = "vafl", mode = "dp_sgd", width = 2, learning_rate = 0.05 }}
privacy = {{ mechanism = "{noise}", epsilon = {epsilon}, delta = {delta}, pushes = 12, \
batch = 1000 }}
edges.count = 2
"""
_SCORES = """
algorithm = {{ name = "{central}", learning_rate = 4.0 }}
privacy = {{ mechanism = "{noise}", epsilon = {epsilon}, delta = {delta}, clip = 0.5, \
pushes = 240, batch = 1000 }}
edges.count = 1
"""
SYSTEMS = {"columns": (_COLUMNS, 240), "trained": (_TRAINED, 240), "scores": (_SCORES, 240)}


def run_file(system: str, table: str, epsilon: float | None, seed: int) -> RunFile:
    """Return the run of `system`; epsilon: a person's at all parties, None: without noise."""
    text, updates = SYSTEMS[system]
    width, clip = TABLES[table]
    of_party = epsilon or 1.0
    if epsilon is not None and system != "scores":
        of_party = gdp.epsilon(gdp.mu_within(epsilon, DELTA) / math.sqrt(2), DELTA)
    noise = "none" if epsilon is None else "gaussian"
    central = "asgd" if epsilon is None else "audp"
    values = {
        "central": central,
        "width": width,
        "clip": clip,
        "epsilon": of_party,
        "delta": DELTA,
        "noise": noise,
    }
    filled = (_SHARED + text).format(table=table, updates=updates, seed=seed, **values)
    return config.parse(filled, system)


def auc(run: RunFile, root: Path) -> float:
    """Return the AUC of `run`'s last model on the test people."""
    definition = run.define()
    simulation = Simulation(definition, root)
    test = definition.source.test(root)
    assert test is not None
    measured = simulation.measured(definition.metrics(), test)
    assert measured is not None
    return measured["auc"]


def main() -> None:
    """Print one line of JSON for each table, system, ε and seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--system", choices=tuple(SYSTEMS), nargs="*", default=tuple(SYSTEMS))
    parser.add_argument("--table", choices=tuple(TABLES), nargs="*", default=tuple(TABLES))
    arguments = parser.parse_args()
    root = Path(os.environ["TACIT_DATA"])
    for table in arguments.table:
        for system in arguments.system:
            for epsilon in (None, *EPSILONS):
                for seed in range(1, 1 + (1 if epsilon is None else arguments.seeds)):
                    run = run_file(system, table, epsilon, seed)
                    point = {"table": table, "system": system, "epsilon": epsilon, "seed": seed}
                    print(json.dumps(point | {"auc": round(auc(run, root), 4)}), flush=True)


if __name__ == "__main__":
    main()
