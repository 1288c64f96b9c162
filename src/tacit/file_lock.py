"""Locks on files. By them the processes of one machine keep out of each other's way.

A lock belongs to an open file, and ends with it, however its process ends. By portalocker: it is
flock on POSIX, and LockFileEx on Windows.

Where INHERITED, a child that inherits the open file has its lock as well, and the lock stays until
the last of them is closed. Elsewhere a lock is its process's alone. There a locked file cannot be
read through another open file, so what others are to read lies in a file of its own.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tacit import regular_file

# It would import redis, where that is installed, for a lock that nobody uses here.
sys.modules.setdefault("portalocker.redis", None)  # type: ignore[arg-type]
import portalocker  # noqa: E402

if sys.modules["portalocker.redis"] is None:
    del sys.modules["portalocker.redis"]

INHERITED = os.name == "posix"


@contextmanager
def locked(
    path: Path, refusal: Exception | None = None, *, shared: bool = False
) -> Iterator[IO[bytes]]:
    """Hold the lock of the file at `path`, made if need be, until the end of the block.

    Yields the open file. refusal and shared are as of `take`. Raises as that, and OSError.
    """
    with path.open("ab") as file:
        take(file, refusal, shared=shared)
        yield file


def take(file: IO[bytes] | int, refusal: Exception | None = None, *, shared: bool = False) -> None:
    """Lock an open file, or the one of a descriptor.

    refusal: raised at once where another has it; None: it is waited for. shared: others may have
    it, too, who share it. It stays as it is where it is ours. Raises OSError where the file system
    has no locks.
    """
    flags = portalocker.LockFlags.SHARED if shared else portalocker.LockFlags.EXCLUSIVE
    if refusal is not None:
        flags |= portalocker.LockFlags.NON_BLOCKING
    while True:
        try:
            portalocker.lock(file, flags)
        except portalocker.AlreadyLocked as error:
            if refusal is not None:
                raise refusal from error
            continue  # Windows waits for some seconds only
        except portalocker.LockException as error:
            raise OSError(errno.ENOLCK, error.strerror or "no lock") from error
        return


def release(file: IO[bytes] | int) -> None:
    """Unlock an open file, which stays open."""
    portalocker.unlock(file)


def is_held(path: Path, *, shared: bool = False) -> bool:
    """Return whether a process has the file at `path` locked now: by itself, or shared with others.

    Nothing is written. Raises OSError where it cannot be opened.
    """
    try:
        # Network file systems want a file open for writing that one process is to have alone.
        with path.open("r+b") if shared else regular_file.opened(path) as file:
            take(file, BlockingIOError(), shared=not shared)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
