"""The price of a private step in tacit, in Opacus (ghost clipping) and in FastDP, side by side.

    python -m tacit_lab.bench.peers.private_steps [--rounds 3] [--seconds 8] [--networks own-mlp …]

The networks are the same (`plain_networks`), and so is the batch. Each step has one thread, and is
taken over a plain one of its process. Rounds are interleaved, as a shared machine is twice as fast
in one minute as in the next. Medians count. Writes out/private_steps.json.

tacit draws its rows by Poisson sampling with a secret key, charges a ledger and releases integers.
The others take rows that are drawn for them, and add the noise of torch's generator.

Venvs of their own: out/peers/opacus, out/peers/fastdp (the Makefile makes them). FASTDP_SOURCE: a
checkout of awslabs/fast-differential-privacy, which is on no package index.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tacit_lab.bench.own_networks import OWN_NETWORKS
from tacit_lab.bench.peers.__main__ import VENVS
from tacit_lab.bench.step import step_over_plain
from tacit_lab.checkout import ROOT

BATCH = 48
_HERE = Path(__file__).parent
_LIMIT = 600.0  # seconds of one network in one system
Ratio = Callable[[str, float], float]


class DoesNotRunError(RuntimeError):
    """A system does not take a network; the message is its last line."""


def tacits(network: str, seconds: float) -> float:
    """Return the ratio of tacit's whole push, with `discrete_gaussian`."""
    models = {network: OWN_NETWORKS[network]()}
    ratios = step_over_plain(models, (BATCH,), seconds=seconds)
    return ratios[network][str(BATCH)]["discrete_gaussian"]


def other(python: Path, system: str, source: str | None = None) -> Ratio:
    """Return what measures `system` in the venv of `python`. source: a checkout of its code."""

    def measure(network: str, seconds: float) -> float:
        place = str(_HERE.parent)
        runner = str(_HERE / "in_private_step.py")
        child = subprocess.run(
            [str(python), runner, system, network, str(BATCH), str(seconds), place],
            capture_output=True,
            text=True,
            timeout=_LIMIT,
            check=False,
            env={"OMP_NUM_THREADS": "1", "PYTHONPATH": source or "", "PATH": os.environ["PATH"]},
        )
        if child.returncode:
            raise DoesNotRunError((child.stderr.strip().splitlines() or ["no word"])[-1][:200])
        return float(json.loads(child.stdout.splitlines()[-1])["ratio"])

    return measure


def systems() -> dict[str, Ratio | str]:
    """Return what measures each system; or why it is not run here."""
    chosen: dict[str, Ratio | str] = {"tacit": tacits}
    source = os.environ.get("FASTDP_SOURCE")
    for name, system in (("Opacus, ghost clipping", "opacus"), ("FastDP", "fastdp")):
        python = VENVS / system / "bin" / "python"
        if not python.exists():
            chosen[name] = f"needs the venv out/peers/{system}"
        elif system == "fastdp" and not source:
            chosen[name] = "needs FASTDP_SOURCE"
        else:
            chosen[name] = other(python, system, source if system == "fastdp" else None)
    return chosen


def private_steps(
    chosen: dict[str, Ratio | str], networks: list[str], rounds: int, seconds: float
) -> dict[str, dict[str, float | str]]:
    """Return {system: {network: median ratio, or why there is none}}."""
    table: dict[str, dict[str, float | str]] = {}
    ratios: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for network in networks:
            for name, measure in chosen.items():
                cell = table.setdefault(name, {})
                if isinstance(measure, str):
                    cell[network] = f"not run here: {measure}"
                elif not isinstance(cell.get(network), str):
                    try:
                        ratios.setdefault((name, network), []).append(measure(network, seconds))
                    except (DoesNotRunError, subprocess.TimeoutExpired) as error:
                        cell[network] = f"does not run: {error}"
                    else:
                        cell[network] = statistics.median(ratios[name, network])
    return table


def show(table: dict[str, dict[str, float | str]]) -> None:
    """Print the table, as docs/performance.md has it."""
    networks = list(next(iter(table.values())))
    print(f"| private ÷ plain step at {BATCH} | {' | '.join(networks)} |")
    print("|---" * (len(networks) + 1) + "|")
    for name, cells in table.items():
        shown = (f"{cell:.2f}" if isinstance(cell, float) else cell for cell in cells.values())
        print(f"| {name} | {' | '.join(shown)} |")


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m tacit_lab.bench.peers.private_steps")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--networks", nargs="*", default=[*OWN_NETWORKS], choices=[*OWN_NETWORKS])
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "private_steps.json")
    arguments = parser.parse_args()
    table = private_steps(systems(), arguments.networks, arguments.rounds, arguments.seconds)
    show(table)
    written: dict[str, Any] = {"batch": BATCH, "rounds": arguments.rounds, "systems": table}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(
        json.dumps(written, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
