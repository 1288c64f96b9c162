"""Runs schedules of faults: `python -m tests.schedules --count N --seed SEED [--plant NAME]`.

Prints each that fails: shrunk, with the command that shows it again. Then how many run in a minute
on one processor.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from tests.schedules.faults import draw
from tests.schedules.parts import failure, first_failure, quiet, searched
from tests.schedules.planted import PLANTED
from tests.schedules.shrink import shrunk


def report(seed: int, promise: str, plant: str = "") -> None:
    """Print a schedule that fails, shrunk."""
    planted: AbstractContextManager[None] = nullcontext()
    if plant:
        planted = PLANTED[plant]()
    with planted:
        small = shrunk(draw(seed), lambda schedule: bool(failure(schedule)))
        then = failure(small)
    print(f"seed {seed}: {promise}")
    print(f"  again: make schedules N=1 SEED={seed}{plant and f' PLANT={plant}'}")
    settings = str(replace(small, faults=())).removesuffix(", faults=())")
    print(f"  {settings}) with")
    for fault in small.faults:
        print(f"    {fault}")
    print(f"  then: {then}", flush=True)


def search(first: int, count: int, processes: int) -> int:
    """Run `count` schedules, and report those that fail; return the exit code."""
    failed = 0
    seconds: dict[int, list[float]] = {1: [], 2: []}
    for part in searched(first, count, processes):
        for runs, each in part.seconds.items():
            seconds[runs] += each
        failed += len(part.failures)
        for seed, promise in part.failures.items():
            report(seed, promise)
    before = count - len(seconds[1]) - len(seconds[2])
    print(f"seeds {first} to {first + count - 1}: {failed} failed, {before} were done before")
    for runs, each in seconds.items():
        if each:
            rate = 60 * len(each) / sum(each)
            print(
                f"{len(each)} schedules with runs at once: {runs}, {rate:.0f} a minute of a processor"
            )
    return min(failed, 1)


def main() -> int:
    """Run what the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "--plant", default="", choices=["", *sorted(PLANTED)], help="plant a fault in the product"
    )
    options = parser.parse_args()
    quiet()
    if not options.plant:
        return search(options.seed, options.count, options.processes)
    seed, promise = first_failure(options.seed, options.count, PLANTED[options.plant]())
    if seed < 0:
        print(f"no schedule of {options.count} sees it")
        return 1
    report(seed, promise, options.plant)
    print(f"after {seed - options.seed + 1} schedules")
    return 0


if __name__ == "__main__":
    sys.exit(main())
