"""A long search in parts: several processes, and a file of the parts that are done.

A search that is ended, and begun again on the same commit, goes on with the parts that are left.
"""

from __future__ import annotations

import gc
import logging
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import torch

from tests.schedules.faults import Schedule, draw
from tests.schedules.follow import follow
from tests.schedules.history import Violation

SIZE = 500  # schedules of a part
RECORDS = Path("out/schedules")


@dataclass(frozen=True, slots=True)
class Part:
    """The result of one part.

    seeds: which were run. failures: what each that failed breaks. seconds: of one processor, that
    each schedule of one run took, and each of two.
    """

    seeds: range
    failures: dict[int, str]
    seconds: dict[int, list[float]]


def failure(schedule: Schedule) -> str:
    """Run a schedule; return which promise it breaks, "": none."""
    try:
        follow(schedule)
    except Violation as violation:
        return str(violation)
    except Exception as error:  # noqa: BLE001  (what no process of the product may end with)
        return f"a process ends with {error!r}"
    return ""


def searched(first: int, count: int, processes: int) -> Iterator[Part]:
    """Yield each part of `count` seeds from `first`, in the order in which they are done.

    Parts that this commit's record names are passed over; one in which no seed fails is recorded.
    """
    record = Record.of_this_commit()
    parts = [range(at, min(at + SIZE, first + count)) for at in range(first, first + count, SIZE)]
    fresh = [seeds for seeds in parts if not record.has(seeds)]
    with ProcessPoolExecutor(processes, get_context("spawn"), quiet) as pool:
        for done in as_completed([pool.submit(run_part, seeds) for seeds in fresh]):
            part = done.result()
            if not part.failures:
                record.add(part.seeds)
            yield part


def run_part(seeds: range) -> Part:
    """Run the schedules of these seeds."""
    failures: dict[int, str] = {}
    seconds: dict[int, list[float]] = {1: [], 2: []}
    for seed in seeds:
        schedule, began = draw(seed), time.process_time()
        if promise := failure(schedule):
            failures[seed] = promise
        seconds[schedule.runs].append(time.process_time() - began)
    return Part(seeds, failures, seconds)


def quiet() -> None:
    """Log nothing, compute in one thread, and let no collection look at what is imported."""
    logging.disable(logging.CRITICAL)
    gc.freeze()
    torch.set_num_threads(1)


def first_failure(first: int, count: int, planted: AbstractContextManager[None]) -> tuple[int, str]:
    """Return the first seed that fails with a fault planted, and how; -1: none of `count` does."""
    with planted:
        for seed in range(first, first + count):
            if promise := failure(draw(seed)):
                return seed, promise
    return -1, ""


class Record:
    """The file of the parts in which nothing failed, of one commit."""

    def __init__(self, path: Path | None) -> None:
        """path: None: nothing is recorded, as the tree is not a commit's."""
        self._path = path

    @classmethod
    def of_this_commit(cls) -> Record:
        """Return the record of the commit that is checked out, if nothing differs from it."""
        changed = subprocess.run(
            ("git", "status", "--porcelain"), capture_output=True, text=True, check=False
        )
        if changed.returncode or changed.stdout:
            return cls(None)
        commit = subprocess.check_output(("git", "rev-parse", "HEAD"), text=True).strip()
        RECORDS.mkdir(parents=True, exist_ok=True)
        return cls(RECORDS / f"{commit}.txt")

    def has(self, seeds: range) -> bool:
        """Return whether the part is done."""
        if self._path is None or not self._path.exists():
            return False
        return _line(seeds) in self._path.read_text("utf-8").splitlines()

    def add(self, seeds: range) -> None:
        """Note that the part is done."""
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{_line(seeds)}\n")


def _line(seeds: range) -> str:
    return f"{seeds.start} to {seeds.stop - 1}"
