"""The peak memory of a plain and of a private step, and how often an edge pushes.

    python -m tacit_lab.bench.step_memory NETWORK plain|private|delay

Each in a fresh process. *Peak*: what the process's resident memory rises by, at most, in three
steps after a first one. The first loads code and tables, which stay. What it has given back is then
returned to the system, and the peak begins anew (Linux: /proc/self/clear_refs). Nothing of a
library escapes that, as it is the kernel's count.

*Delay*: the public time that a private push is held back for (`worker.release_delay`), as an edge
alone on this machine measures it. So it pushes 3600/delay times an hour.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from tacit_services.worker import release_delay
from tacit_services.worker.cpu_turns import CpuTurns

from tacit.models import Model
from tacit_lab.bench.one_step import (
    BATCHES,
    Step,
    Way,
    bench_edge,
    network_of,
    plain_step,
    push_step,
    rows_of,
)
from tacit_lab.checkout import ROOT

_STEPS = 3
_MB = 1e6


def memory_and_pushes(names: list[str]) -> dict[str, dict[str, float]]:
    """Return {network: {plain_mb, private_mb, gradients_more, delay_ms, pushes_an_hour}}.

    gradients_more: how many gradients the private peak is above the plain one.
    """
    results: dict[str, dict[str, float]] = {}
    for name in names:
        plain, private, delay = (_asked(name, what) for what in ("plain", "private", "delay"))
        gradient = 4 * network_of(name).size
        results[name] = {
            "plain_mb": round(plain / _MB, 1),
            "private_mb": round(private / _MB, 1),
            "gradients_more": round((private - plain) / gradient, 2),
            "delay_ms": round(1e3 * delay, 1),
            "pushes_an_hour": round(3600 / delay),
        }
    return results


def _asked(name: str, what: str) -> float:
    command = [sys.executable, "-m", "tacit_lab.bench.step_memory", name, what]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, env=environment)
    return float(ran.stdout)


def peak_of(step: Step, steps: int = _STEPS) -> int:
    """Return by how many bytes this process's resident memory rises, at most, in some steps."""
    step()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    for _ in range(steps):
        step()
    return _status("VmHWM") - before


def _status(key: str) -> int:
    text = Path("/proc/self/status").read_text(encoding="ascii")
    match = re.search(rf"^{key}:\s+(\d+) kB$", text, re.MULTILINE)
    assert match is not None, key
    return 1024 * int(match[1])


def steps_of(model: Model, folder: Path) -> dict[str, Step]:
    """Return a plain and a private step at the first batch, and what finds the delay of a push."""
    data = rows_of(model)
    batch, params = BATCHES[0], model.init(1)

    def private() -> Step:
        path = folder / "ledger.db"
        edge = bench_edge(model, data, batch, "discrete_gaussian", path, alone=True)
        return push_step(edge, params)

    def delay() -> float:
        path = folder / "ledger.db"
        edge = bench_edge(model, data, batch, "discrete_gaussian", path, alone=True)
        work, _ = release_delay.slowest(edge.rehearsals())
        size = 4 * edge.push_size
        return release_delay.measured(work, CpuTurns(None), folder / "trial", size)

    return {
        "plain": lambda: peak_of(plain_step(model, data, batch, params)),
        "private": lambda: peak_of(private()),
        "delay": delay,
    }


def main() -> None:
    """Measure in this process, and print a number."""
    parser = argparse.ArgumentParser(prog="python -m tacit_lab.bench.step_memory")
    parser.add_argument("network")
    parser.add_argument("what", choices=("plain", "private", "delay"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=Way().folder) as folder:
        asked = steps_of(network_of(arguments.network), Path(folder))[arguments.what]
        sys.stdout.write(f"{asked()}\n")


if __name__ == "__main__":
    main()
