"""Results of the runs of figures, kept as JSON lines, one file for each figure.

    {"name", "results_version", "version", "torch", "instructions", "run",
     "result": {"series", "epsilon", …}}

`run` is what the run file sets differently from the defaults, [network] and the seed included.
`name` is the beginning of the SHA-256 of that (tacit/config/fingerprint.py), so a result is found
again by what was run. No name depends on the code: a result is one of the `version` that made it. A
run that two figures share is in the file of the first.
"""

from __future__ import annotations

import json
import logging
import math
import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from io import FileIO
from pathlib import Path
from typing import Any

import torch

from tacit import file_lock
from tacit.config import RunFile, fingerprint
from tacit.errors import ConfigError

log = logging.getLogger("tacit.figures")
Result = dict[str, Any]
# Raise it by hand when a change moves points by more than their seeds spread: then no stored result
# counts any more, and all are measured anew. A test measures three again and tells.
RESULTS_VERSION = 1


@dataclass(frozen=True, slots=True)
class RequestedRun:
    """A run, and the figure to whose file its result goes."""

    figure: str
    run: RunFile


def result_name(run: RunFile) -> str:
    """Return the name of a run's result, made of all in its run file that is not a default."""
    return _name(fingerprint.differences(run))


def _name(different: dict[str, Any]) -> str:
    return fingerprint.name("point", different)[:24]


def look_up(
    runs: Mapping[str, Iterable[RunFile]], folder: Path, fallback: Path | None = None
) -> tuple[dict[str, Result], dict[str, RequestedRun]]:
    """Find stored results; returns the results, and the runs that have none, both by name.

    `runs` are given by figure. A result is looked for in `folder`, which is made if it is
    missing, and then in `fallback`. Raises ConfigError where one cannot be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    requests: dict[str, RequestedRun] = {}
    for figure, each in runs.items():
        for run in each:
            requests.setdefault(result_name(run), RequestedRun(figure, run))
    stored = ({} if fallback is None else read_folder(fallback)) | read_folder(folder)
    results = {key: stored[key] for key in requests if key in stored}
    return results, {key: request for key, request in requests.items() if key not in results}


def read_folder(folder: Path) -> dict[str, Result]:
    """Return every result in `folder`, by name.

    Lines that are not whole, as after a kill, are left out, and the log reports it. Results of
    another RESULTS_VERSION are left out, too. Raises ConfigError where a file cannot be read.
    """
    results: dict[str, Result] = {}
    for path in sorted(folder.glob("*.jsonl")):
        try:
            lines = path.read_bytes().splitlines()
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror or error}") from error
        points = [_parsed(line) for line in lines]
        results |= {
            point["name"]: point["result"]
            for point in points
            if point and point["results_version"] == RESULTS_VERSION
        }
        if None in points:
            log.warning(
                "%s: %d of %d lines are no whole points (first: %d): left out",
                path,
                points.count(None),
                len(lines),
                points.index(None) + 1,
            )
    return results


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Return the result that a line holds; None where it holds none, or not under its own name."""
    try:
        point = json.loads(line)
        matches = point["name"] == _name(point["run"]) and type(point["results_version"]) is int
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return point if matches and _is_result(point.get("result")) else None


def _is_result(result: object) -> bool:
    """Check whether `result` is one of `sweep.measure`: a series of numbers, and an ε or none."""
    if not isinstance(result, dict):
        return False
    series = result.get("series")
    if not isinstance(series, list) or not series:
        return False
    numbers = [result.get("epsilon", math.nan)]
    for point in series:
        numbers.extend(_numbers(point))
    return all(
        number is None or (isinstance(number, int | float) and math.isfinite(number))
        for number in numbers
    )


def _numbers(point: object) -> list[object]:
    """Return what must be numbers in a point: its values, and those under `metrics`."""
    if not isinstance(point, dict) or "version" not in point:
        return [math.nan]
    metrics = point.get("metrics", {})
    if isinstance(metrics, dict):
        metric_values = list(metrics.values())
    else:
        metric_values = [math.nan]
    return [value for key, value in point.items() if key != "metrics"] + metric_values


def store(folder: Path, request: RequestedRun, result: Result) -> None:
    """Append a result to its figure's file; when this returns it outlives kill -9.

    Several processes may do so at once. A line that one of them was killed at is cut off. Raises
    ConfigError, and then leaves nothing.
    """
    path = folder / f"{request.figure}.jsonl"
    line = _line(request.run, result)
    try:
        with path.open("ab+", buffering=0) as file:
            file_lock.take(file)
            end, gap = _end_of_points(file)
            file.truncate(end)
            try:
                remaining = memoryview(gap + line)
                while remaining:  # the file is unbuffered, and a disk that fills up takes a part
                    remaining = remaining[file.write(remaining) :]
            except OSError:
                file.truncate(end)
                raise
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error


def _line(run: RunFile, result: Result) -> bytes:
    different = fingerprint.differences(run)
    point = {
        "name": _name(different),
        "results_version": RESULTS_VERSION,
        **made_by(),
        "run": different,
        "result": result,
    }
    return json.dumps(point, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _end_of_points(file: FileIO) -> tuple[int, bytes]:
    """Return where the last whole line ends, and what must be written before the next."""
    size = file.seek(0, os.SEEK_END)
    if not size or os.pread(file.fileno(), 1, size - 1) == b"\n":
        return size, b""
    file.seek(0)
    data = file.read()
    last = data.rfind(b"\n") + 1
    if _parsed(data[last:]) is None:
        return last, b""
    return size, b"\n"  # whole, but somebody has taken the end of the line away


@lru_cache(maxsize=1)
def made_by() -> dict[str, str]:
    """Return what a result's bits depend on besides the run: tacit, torch, and the processor.

    The last is the set of instructions that torch computes with.
    """
    return {
        "version": f"{metadata.version('tacit')}{_commit()}",
        "torch": torch.__version__,
        "instructions": torch.backends.cpu.get_cpu_capability(),
    }


def _commit() -> str:
    """Return the commit of the checkout that this file is in, as +2ff785b or +2ff785b.dirty.

    It is empty for an installed tacit.
    """
    here = Path(__file__)
    try:
        for command in (
            ["ls-files", "--error-unmatch", here.name],
            ["describe", "--always", "--dirty", "--exclude=*"],
        ):
            git = ["git", "-C", str(here.parent), *command]
            output = subprocess.run(git, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):  # no git, no repository, or somebody else's
        return ""
    return "+" + output.strip().replace("-", ".")
