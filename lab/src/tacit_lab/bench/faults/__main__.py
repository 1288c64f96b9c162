"""One task under eight faults, in tacit, Flower and NVFlare: `make bench-faults`.

Every system runs as real processes, its sites behind links that the bench owns
(`plan.toml` has the task, the faults and every setting). A row and seed that is measured is not run
again. Writes out/faults.json after each run, and at the end out/faults.md and out/faults.png.

    python -m tacit_lab.bench.faults [--rows link-down …] [--systems tacit …] [--seeds 5]

Needs root for the row disk-full, which mounts a small disk. The others' venvs are
out/peers/faults-flower and out/peers/faults-nvflare (the Makefile makes them).
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path

from tacit_lab.bench.faults import fault_plan, fault_table
from tacit_lab.bench.faults.fault_plan import FaultPlan
from tacit_lab.bench.faults.fault_table import SYSTEMS, Runs, undisturbed
from tacit_lab.bench.faults.federation import Founder
from tacit_lab.bench.faults.trial import trial
from tacit_lab.bench.faults.with_flower import FlowerFederation
from tacit_lab.bench.faults.with_nvflare import NvflareFederation
from tacit_lab.bench.faults.with_tacit import TacitFederation
from tacit_lab.checkout import ROOT

VENVS = ROOT / "out" / "peers"
FOUNDERS: dict[str, Founder] = {
    "tacit": TacitFederation,
    "flower": FlowerFederation,
    "nvflare": NvflareFederation,
}


def peer_versions() -> dict[str, str]:
    """Return the versions in the peers' venvs, of those that are there."""
    versions = dict[str, str]()
    for system, package in (("flower", "flwr"), ("nvflare", "nvflare")):
        site_packages = (VENVS / f"faults-{system}").glob("lib/*/site-packages")
        for place in (
            info for each in site_packages for info in each.glob(f"{package}-*.dist-info")
        ):
            versions[system] = place.name.removesuffix(".dist-info").rpartition("-")[2]
    return versions


def missing(
    runs: Runs, rows: list[str], systems: list[str], seeds: int
) -> list[tuple[str, str, int]]:
    """Return (row, system, seed) of what is not measured: seed by seed, and row by row in each."""
    wanted_runs = [
        (row, system, seed) for seed in range(1, seeds + 1) for row in rows for system in systems
    ]
    return [
        (row, system, seed)
        for row, system, seed in wanted_runs
        if str(seed) not in runs.get(system, {}).get(row, {})
    ]


def measure(
    plan: FaultPlan, runs: Runs, rows: list[str], systems: list[str], seeds: int, path: Path
) -> None:
    """Run what is missing, and write after each."""
    for name, system, seed in missing(runs, rows, systems, seeds):
        row = plan.rows[name]
        if row.disk_mib and os.geteuid() != 0:
            print(f"{name}: needs root", flush=True)
            continue
        base = undisturbed(plan, runs, system, row)
        try:
            outcome = trial(plan, row, seed, FOUNDERS[system], base)
        except (RuntimeError, OSError) as error:
            print(f"{system}, {name}, seed {seed}: could not be run: {error}", flush=True)
            continue
        runs.setdefault(system, {}).setdefault(name, {})[str(seed)] = asdict(outcome)
        fault_table.write(path, runs, peer_versions())
        print(f"{system}, {name}, seed {seed}: {outcome}", flush=True)


def main() -> None:
    """Measure, print and write."""
    plan = fault_plan.load()
    parser = argparse.ArgumentParser(prog="python -m tacit_lab.bench.faults")
    parser.add_argument("--rows", nargs="*", choices=list(plan.rows), help="default: all")
    parser.add_argument("--systems", nargs="*", choices=SYSTEMS, help="default: all")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("out/faults.json"))
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended
    runs = fault_table.read(arguments.out)
    rows = arguments.rows or list(plan.rows)
    systems = arguments.systems or list(SYSTEMS)
    measure(plan, runs, rows, systems, arguments.seeds, arguments.out)
    if not runs:
        sys.exit("faults: nothing was measured")
    table = fault_table.markdown(plan, runs)
    print(table)
    arguments.out.with_suffix(".md").write_text(table + "\n", encoding="utf-8")
    fault_table.draw(plan, runs, arguments.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
