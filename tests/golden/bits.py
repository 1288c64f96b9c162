"""`python -m tests.golden.bits OUT RUN.toml…`: OUT/bits.json, what this tree makes of the runs.

They are the results of `tacit simulate`, and digests of roles that are made as `tacit edge` makes
them. `same_bits` starts this module in two trees, in each the tree's own: nothing else knows where
a tree has its code.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import tacit_services
import torch
from tacit_services.testbed.simulated_run import rows_by_edge, simulate

import tacit
import tests
from tacit import config
from tacit.algorithms.gossip.gossip_settings import Gossip
from tacit.algorithms.vafl.vafl_settings import Vafl
from tacit.config import RunFile
from tacit.errors import DataError, TacitError
from tacit.simulation.client_server import Simulator
from tacit.simulation.peers import PeerSimulator
from tests.golden.harness import make_edge, make_party, make_server

SEED = 11


def main() -> None:
    """Write OUT/bits.json. Raises ImportError where a package is not this tree's."""
    for package in (tacit, tacit_services, tests):
        if not Path(str(package.__file__)).is_relative_to(Path.cwd()):
            raise ImportError(f"{package.__name__}: {package.__file__} is not in {Path.cwd()}")
    torch.set_num_threads(1)  # with two, sums are split elsewhere
    out, *files = map(Path, sys.argv[1:])
    root = Path(os.environ["TACIT_DATA"]) if "TACIT_DATA" in os.environ else None
    bits: dict[str, Any] = {}
    for file in files:
        facts = bits_of(file, root, out / file.stem)
        bits |= {f"{file.stem}: {fact}": value for fact, value in facts.items()}
    (out / "bits.json").write_text(json.dumps(bits), encoding="utf-8")


def bits_of(file: Path, root: Path | None, out: Path) -> dict[str, Any]:
    """Return what must be the same in another tree, to the last bit."""
    try:
        run = config.load(file)
        if run.privacy.noise_at == "server":
            return {}  # nothing that simulates has a trusted aggregator
        return _simulated(run, root, out) | dict(_digests(driven(run, root)))
    except DataError as error:
        return {"no data": str(error)}
    except TacitError as error:
        return {"failed": str(error)}


def _simulated(run: RunFile, root: Path | None, out: Path) -> dict[str, Any]:
    out.mkdir()
    simulate(run.define(), root, out, lambda run_status: None)
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    points = map(json.loads, (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return {
        "model": summary["model_sha256"],
        "applied": summary["applied"],
        "epsilon": summary["privacy"]["epsilon"],
        "virtual time": summary["virtual_time_s"],
        "points": [point | {"seconds": None} for point in points],  # the machine's
    }


def driven(run: RunFile, root: Path | None = None) -> Simulator | PeerSimulator:
    """Return the simulator at the end of the run.

    Its workers compute rows alone and pay a real ledger, as over MQTT, with noise from SEED.
    """
    model, definition = run.build_model(), run.define()
    server = make_server(run, model, root)
    workers: Sequence[Any]
    if isinstance(run.algorithm, Vafl):
        workers = [make_party(run, k, SEED, root=root) for k in range(run.edges.count)]
    else:
        parts = enumerate(rows_by_edge(definition, root))
        workers = [make_edge(run, model, k, SEED, part=part) for k, part in parts]
    kind = PeerSimulator if isinstance(run.algorithm, Gossip) else Simulator
    simulator = kind(definition, server, workers)
    simulator.run()
    return simulator


def states(simulator: Simulator | PeerSimulator) -> dict[str, Any]:
    """Return tensors and JSON values of the server, and of the workers that have a state."""
    roles = {"server": simulator.server, **simulator.edges}
    return {name: role.state() for name, role in roles.items() if hasattr(role, "state")}


def _digests(simulator: Simulator | PeerSimulator) -> Iterator[tuple[str, str]]:
    for name, (tensors, _) in states(simulator).items():
        for key, tensor in tensors.items():
            content = tensor.numpy().tobytes()
            yield f"in process: {name}: {key}", hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    main()
