"""Turns at computing for edges that share a machine: no more at a time than it has processors.

Five edges on two processors would else be switched every few milliseconds, each evicting the
others' working sets from the caches. Turns are bytes in a named pipe, one for each processor: an
edge reads one, computes, and writes it back. An edge that got none in PATIENCE seconds goes on
without, and writes one back all the same. That replaces the turn of an edge that was killed or
stopped while it had it.

Edges that share one GPU take turns at a plain file instead: the edge that has its lock computes. A
step there may be longer than any patience, so others wait. The lock ends with its process.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tacit import file_lock
from tacit.errors import ConfigError

PATIENCE = 1.0
WAITS = 10


@contextmanager
def pipe(path: Path, count: int) -> Iterator[None]:
    """Make the pipe, with `count` turns in it, and hold it open.

    A pipe loses its content when no process holds it open.
    """
    path.unlink(missing_ok=True)
    os.mkfifo(path, 0o600)
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    os.write(descriptor, b"." * count)
    try:
        yield
    finally:
        os.close(descriptor)


class CpuTurns:
    """This edge's end of the pipe or the file at `path`; without one every turn is free."""

    def __init__(self, path: Path | None) -> None:
        """Raises ConfigError where there is no such pipe or file."""
        self._pipe: int | None = None
        self._file: Path | None = None
        if path is None:
            return
        if path.is_file():
            self._file = path
        elif path.is_fifo():
            self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        else:
            raise ConfigError(f"TACIT_TURNS={str(path)!r}: not a named pipe, and not a file")

    @contextmanager
    def take(self) -> Iterator[None]:
        """Hold a turn: of a pipe, or none after PATIENCE seconds; of a file, its lock."""
        if self._file is not None:
            with file_lock.locked(self._file):
                yield
            return
        if self._pipe is None:
            yield
            return
        self._wait(self._pipe)
        try:
            yield
        finally:
            os.write(self._pipe, b".")

    def close(self) -> None:
        """Close the pipe; idempotent."""
        pipe = self._pipe
        self._pipe = None
        if pipe is not None:
            os.close(pipe)

    @staticmethod
    def _wait(pipe: int) -> None:
        waited = 0
        while (
            waited < WAITS
        ):  # counted, not timed: an edge that was stopped itself has not been waiting
            try:
                os.read(pipe, 1)
            except BlockingIOError:  # another edge was quicker
                ready, _, _ = select.select([pipe], [], [], PATIENCE / WAITS)
                if not ready:
                    waited += 1
            else:
                return
