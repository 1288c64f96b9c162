"""`audit.jsonl`: who submitted, began, stopped, invited, revoked and answered, and when."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import IO, Any

_READ = 1 << 20  # bytes of the file's end that are read


class AuditLog:
    """A file to which a line is added for each thing that somebody did, durably.

    A line is a JSON object with `at` (seconds since 1970), `who`, `did` and what it was done to.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        """path: made at the first line, readable by its owner alone."""
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()

    def add(self, who: str, did: str, **what: str | int | float | bool | None) -> None:
        """Add a line; on disk when this returns. Raises OSError."""
        line = json.dumps({"at": self._clock(), "who": who, "did": did, **what}) + "\n"
        with self._lock:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
            descriptor = os.open(self._path, flags, 0o600)
            with os.fdopen(descriptor, "a+b") as file:
                if _torn(file):  # a crash cut the line before: this one must not continue it
                    file.write(b"\n")
                file.write(line.encode())
                file.flush()
                os.fsync(file.fileno())

    def newest(self, most: int) -> list[dict[str, Any]]:
        """Return the newest `most` lines, of the last 1 MiB, the newest first.

        Lines that a crash cut short are left out. Raises OSError.
        """
        try:
            with self._path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _READ))
                lines = file.read().split(b"\n")
        except FileNotFoundError:
            return []
        entries = (_entry(line) for line in reversed(lines))
        return list(islice((entry for entry in entries if entry is not None), most))


def _entry(line: bytes) -> dict[str, Any] | None:
    """Return what a whole line says; None: it is none."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None


def _torn(file: IO[bytes]) -> bool:
    end = file.seek(0, os.SEEK_END)
    if not end:
        return False
    file.seek(end - 1)
    return file.read(1) != b"\n"
