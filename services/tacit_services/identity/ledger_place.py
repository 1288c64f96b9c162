"""The place of a ledger: its file, and the files beside it that a lock or a move needs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tacit import file_lock
from tacit.errors import PrivacyError


@dataclass(frozen=True, slots=True)
class HeldLock:
    """A file that this process has open and locked.

    A child that inherits the descriptor has the lock as well, for as long as either lives. Where
    locks are not inherited (Windows), the lock stays with this process. The child sees that it is
    held, and is to end with this process.
    """

    path: Path
    descriptor: int
    shared: bool = False  # whether others may have it, too

    def check(self) -> None:
        """Raise PrivacyError unless this process has the lock, by a descriptor of this number.

        Where locks are not inherited, unless any process has it.
        """
        refusal = PrivacyError(
            f"lock {self.path}: no member has it for this process; only a member starts one "
            f"that charges its ledger"
        )
        try:
            if not file_lock.INHERITED:
                ours = file_lock.is_held(self.path, shared=self.shared)
            elif ours := os.path.samestat(os.fstat(self.descriptor), self.path.stat()):
                file_lock.take(self.descriptor, refusal, shared=self.shared)
        except OSError as error:
            raise refusal from error
        if not ours:
            raise refusal


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
    def locked(self) -> Iterator[HeldLock]:
        """Lock the ledger, whether it exists or not, until the end of the block.

        Raises PrivacyError where another process has it.
        """
        path = Path(f"{self.path}.lock")
        refusal = PrivacyError(
            f"ledger {self.path}: an edge is using it, and two would spend one budget "
            f"(TACIT_LEDGER: a file for each)"
        )
        with ExitStack() as stack:
            try:
                lock = stack.enter_context(file_lock.locked(path, refusal))
            except OSError as error:
                raise PrivacyError(
                    f"ledger {self.path}: {error.strerror or error}; "
                    "an edge needs a durable place for it"
                ) from error
            yield HeldLock(path, lock.fileno())
