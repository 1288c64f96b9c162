"""An edge's identity: a numbered directory, held by an exclusive lock.

A replica takes the first free one, so that a container that replaces another inherits its identity,
its part of the data, its ε_k and its *spent* budget. The kernel drops the lock when the process
dies, however it dies.
"""

from __future__ import annotations

import fcntl
import logging
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tacit.errors import ConfigError, PrivacyError

log = logging.getLogger("tacit.identity")


@dataclass(frozen=True, slots=True)
class Identity:
    """An identity: its number, its directory, and the lock, held as long as this object lives."""

    number: int
    path: Path
    lock: IO[bytes]

    @property
    def edge(self) -> str:
        """The edge's id in every topic."""
        return f"edge-{self.number}"

    def close(self) -> None:
        """Give the identity back."""
        self.lock.close()


def acquire(root: Path, count: int, only: int | None, stop: threading.Event) -> Identity | None:
    """Take the first free identity below `count`, or number `only`; waits while all are taken.

    A process that waits is a standby. Returns None when `stop` is set first. Raises ConfigError
    where `only` is out of range, PrivacyError where the directory cannot be written: an edge
    without a durable ledger must not train.
    """
    if only is not None and only >= count:
        raise ConfigError(
            f"TACIT_IDENTITY={only}: the run deals its data to {count} identities (0 to "
            f"{count - 1})"
        )
    numbers = range(count) if only is None else [only]
    waiting = False
    while True:
        for number in numbers:
            identity = _try(root / str(number), number)
            if identity is not None:
                # A container's number is another one: this line is what tells them together.
                log.info("this process is %s: it holds identity %s", identity.edge, identity.path)
                return identity
        if not waiting:
            log.info("all %d identities are taken; standing by for one", len(numbers))
            waiting = True
        if stop.wait(0.5):
            return None


def _try(path: Path, number: int) -> Identity | None:
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / "lock").open("ab")
    except OSError as error:
        raise PrivacyError(
            f"identity {path}: {error}; an edge needs a durable place for its ledger"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return Identity(number, path, lock)
