"""Runs schedules of faults: `python -m tests.schedules --count N --seed SEED [--plant NAME]`.

Prints how many run in a minute, and each that fails: shrunk, with the command that shows it again.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch

from tests.schedules.faults import Schedule, draw
from tests.schedules.follow import follow
from tests.schedules.history import Violation
from tests.schedules.planted import PLANTED
from tests.schedules.shrink import shrunk


def failure(schedule: Schedule) -> str:
    """Run a schedule; return which promise it breaks, "": none."""
    try:
        follow(schedule)
    except Violation as violation:
        return str(violation)
    except Exception as error:  # noqa: BLE001  (what no process of the product may end with)
        return f"a process ends with {error!r}"
    return ""


def first_failure(first: int, count: int) -> tuple[int, str]:
    """Return the first seed that fails, and how; -1: none of `count` seeds does."""
    for seed in range(first, first + count):
        if promise := failure(draw(seed)):
            return seed, promise
    return -1, ""


def report(seed: int, promise: str, plant: str) -> None:
    """Print a schedule that fails, shrunk."""
    small = shrunk(draw(seed), lambda schedule: bool(failure(schedule)))
    print(f"seed {seed}: {promise}")
    print(f"  again: make schedules N=1 SEED={seed}{plant and f' PLANT={plant}'}")
    settings = str(replace(small, faults=())).removesuffix(", faults=())")
    print(f"  {settings}) with")
    for fault in small.faults:
        print(f"    {fault}")
    print(f"  then: {failure(small)}", flush=True)


def main() -> int:
    """Run what the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--plant", default="", choices=["", *sorted(PLANTED)], help="plant a fault in the product"
    )
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    planted: AbstractContextManager[None] = nullcontext()
    if options.plant:
        planted = PLANTED[options.plant]()
    began, failed = time.monotonic(), 0
    with planted:
        for seed in range(options.seed, options.seed + options.count):
            if promise := failure(draw(seed)):
                failed += 1
                report(seed, promise, options.plant)
            if options.plant and failed:
                print(f"after {seed - options.seed + 1} schedules")
                return 0
    took = time.monotonic() - began
    print(f"{options.count} schedules, {failed} failed, {60 * options.count / took:.0f} a minute")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
