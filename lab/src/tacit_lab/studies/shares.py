"""The small example, again and again: every edge's releases beside its share, also on a machine
that is busy.

    python -m tacit_lab.studies.shares [--runs 20] [--load 0]

Half a minute a run; writes out/shares/shares.json.

Runs experiments/mapa-digits.toml as `make run` does, and exits with 1 where an edge is not within a
tenth of its share.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tacit.errors import ServiceError
from tacit_lab.checkout import EXPERIMENTS
from tacit_lab.papers.figures.testbed_figures import train

FILE = EXPERIMENTS / "mapa-digits.toml"
WITHIN = 0.1


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Start so many `loops` as processes, which do nothing but take a processor.

    Raises ServiceError where one has ended before.
    """
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
        if ended := [process.returncode for process in processes if process.poll() is not None]:
            raise ServiceError(
                f"{len(ended)} of {loops} busy loops ended early ({ended}): this was not under load"
            )
    finally:
        for process in processes:
            process.kill()
            process.wait()


def apart(summary: dict[str, Any], edges: int) -> float:
    """Return how far an edge's releases are from an equal share at most, as a part of it.

    Edges that are absent have 0.
    """
    counts: list[int] = [edge["pushes"] for edge in summary["privacy"]["edges"].values()]
    share = sum(counts) / edges
    return max(abs(count / share - 1) for count in counts + [0] * (edges - len(counts)))


def measure(out: Path, edges: int = 5) -> dict[str, Any]:
    """Measure one run."""
    summary = train(FILE, out)
    counts = {name: edge["pushes"] for name, edge in sorted(summary["privacy"]["edges"].items())}
    return {
        "apart": round(apart(summary, edges), 4),
        "counts": counts,
        "applied": summary["applied"],
        "duration_s": summary["duration_s"],
        "accuracy": summary["test_accuracy"],
        "load_average": round(os.getloadavg()[0], 1),  # as it was, whoever made it
    }


def main() -> int:
    """Measure, print and write; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tacit_lab.studies.shares")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--load", type=int, default=0, help="busy loops beside it")
    parser.add_argument("--out", type=Path, default=Path("out/shares"))
    arguments = parser.parse_args()
    runs = []
    for _ in range(arguments.runs):
        with busy(
            arguments.load
        ):  # of each run: loops that somebody has ended spoil one, and are noticed
            runs.append(measure(arguments.out / "run"))
        print(runs[-1], flush=True)
    worst = max(run["apart"] for run in runs)
    print(
        f"{len(runs)} runs, load {arguments.load}: the edge furthest from its share is "
        f"{100 * worst:.1f} % from it"
    )
    written = arguments.out / f"shares-load{arguments.load}.json"
    written.write_text(json.dumps(runs, indent=2) + "\n", encoding="utf-8")
    return int(worst > WITHIN)


if __name__ == "__main__":
    sys.exit(main())
