"""An edge's identity: a numbered directory, held by an exclusive lock, and what lies in it.

A replica takes the first free one, so that a container that replaces another inherits its identity,
its part of the data, its ε_k and its *spent* budget. The kernel drops the lock when the process
dies, however it dies.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tacit import file_lock
from tacit.errors import ConfigError, PrivacyError
from tacit_services.identity import enrolment
from tacit_services.identity.enrolment import Enrolment
from tacit_services.identity.ledger_place import LedgerPlace

log = logging.getLogger("tacit.identity")


@dataclass(frozen=True, slots=True)
class Identity:
    """An identity: its number, its directory, and the lock, held as long as this object lives.

    ledger: the file of its ledger (`TACIT_LEDGER`), in which {n} stands for its number; None: it
    lies in the directory.
    """

    number: int
    path: Path
    lock: IO[bytes]
    ledger: str | None = None

    @property
    def edge(self) -> str:
        """The edge's id in every topic."""
        return f"edge-{self.number}"

    @property
    def ledger_place(self) -> LedgerPlace:
        """The place of its own ledger."""
        if self.ledger is None:
            return LedgerPlace(self.path / "ledger.db")
        return LedgerPlace(Path(self.ledger.replace("{n}", str(self.number))))

    def enrolment(self) -> Enrolment:
        """Read its record of its id and its ledgers. Raises PrivacyError."""
        return enrolment.read(self.path)

    def close(self) -> None:
        """Give the identity back."""
        self.lock.close()


@dataclass(frozen=True, slots=True)
class Identities:
    """The identities whose directories are in `root`.

    only: the number of the one that may be taken; None: any. ledger: as each `Identity` has it.
    called: the name in the log of who takes one, by default the identity's.
    """

    root: Path
    only: int | None = None
    ledger: str | None = None
    called: str | None = None

    def acquire(self, count: int, stop: threading.Event) -> Identity | None:
        """Take the first free identity below `count`, or the `only` one; waits while all are taken.

        A process that waits is a standby. Returns None when `stop` is set first. Raises ConfigError
        where `only` is out of range, PrivacyError where the directory cannot be written: an edge
        without a durable ledger must not train.
        """
        if self.only is not None and self.only >= count:
            raise ConfigError(
                f"TACIT_IDENTITY={self.only}: the run deals its data to {count} identities (0 to "
                f"{count - 1})"
            )
        numbers = range(count) if self.only is None else [self.only]
        waiting = False
        while True:
            for number in numbers:
                identity = self._try(number)
                if identity is not None:
                    # A container's number is another one: this line is what tells them together.
                    line = "this process is %s: it holds identity %s"
                    log.info(line, self.called or identity.edge, identity.path)
                    return identity
            if not waiting:
                log.info("all %d identities are taken; standing by for one", len(numbers))
                waiting = True
            if stop.wait(0.5):
                return None

    def _try(self, number: int) -> Identity | None:
        path = self.root / str(number)
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = (path / "lock").open("ab")
        except OSError as error:
            raise PrivacyError(
                f"identity {path}: {error}; an edge needs a durable place for its ledger"
            ) from error
        try:
            file_lock.take(lock, BlockingIOError())
        except BlockingIOError:
            lock.close()
            return None
        return Identity(number, path, lock, self.ledger)
