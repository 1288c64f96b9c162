"""What computing edges together buys: updates/s of experiments/mapa-k1000.toml, over role objects
one by one.

`python -m tacit_lab.bench.simulator_speed [UPDATES]`: CPU seconds of one process with one
thread, after the setup; the same bits both ways. `tacit simulate experiments/mapa-k1000.toml` is
the whole run.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
from tacit_services.testbed.simulated_run import Simulation

from tacit import config
from tacit.simulation import batched_edges as batched
from tacit_lab.checkout import EXPERIMENTS


def rate(updates: int, *, together: bool) -> tuple[float, torch.Tensor]:
    """Return the updates per CPU second, and the model at the end."""
    run = config.load(EXPERIMENTS / "mapa-k1000.toml")
    run = run.model_copy(update={"run": run.run.model_copy(update={"updates": updates})})
    simulation = Simulation(run.define(), Path(os.environ["TACIT_DATA"]))
    usual = batched.batchable
    started = time.process_time()
    if not together:
        batched.batchable = lambda edge, message: False
    try:
        simulation.simulator.run()
    finally:
        batched.batchable = usual
    return updates / (time.process_time() - started), simulation.role.params


def main(updates: int) -> None:
    """Measure both and print JSON."""
    torch.set_num_threads(1)
    (fast, params_together), (slow, params_single) = (
        rate(updates, together=True),
        rate(updates, together=False),
    )
    result = {"updates": updates, "updates_per_s": round(fast, 1), "one_by_one": round(slow, 1)}
    print(
        json.dumps(
            result
            | {
                "ratio": round(fast / slow, 2),
                "same_bits": torch.equal(params_together, params_single),
            }
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4000)
