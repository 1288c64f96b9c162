"""The place of a ledger: its file, and the files beside it that a lock or a move needs."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import PrivacyError


@dataclass(frozen=True, slots=True)
class LedgerPlace:
    """The place of the ledger that lies at `path`, or will."""

    path: Path

    @property
    def copy(self) -> Path:
        """Where `tacit ledger move` writes its copy on the way to this place."""
        return Path(f"{self.path}.moving")

    @property
    def retired(self) -> Path:
        """The name that `tacit ledger move` gives to a ledger here that it takes out of use."""
        return Path(f"{self.path}.moved")

    def require_file(self) -> None:
        """Raise PrivacyError where there is something that is no file, or would be none."""
        if str(self.path) == ":memory:" or (self.path.exists() and not self.path.is_file()):
            raise PrivacyError(
                f"ledger {self.path}: not a file; an edge needs a durable place for it"
            )

    def refuse_unfinished(self) -> None:
        """Raise PrivacyError where a move from or to this place was killed half-way.

        A new ledger here would not know what was charged before.
        """
        for leftover in (self.copy, self.retired):
            if leftover.exists():
                raise PrivacyError(
                    f"ledger {self.path}: {leftover} is of a move that was not finished: "
                    "`tacit ledger move` again"
                )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the ledger, whether it exists or not, until the end of the block.

        Raises PrivacyError where another process has it.
        """
        try:
            lock = Path(f"{self.path}.lock").open("ab")  # noqa: SIM115  (closed below)
        except OSError as error:
            raise PrivacyError(
                f"ledger {self.path}: {error.strerror or error}; "
                "an edge needs a durable place for it"
            ) from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise PrivacyError(
                    f"ledger {self.path}: an edge is using it, and two would spend one budget "
                    f"(TACIT_LEDGER: a file for each)"
                ) from error
            yield
