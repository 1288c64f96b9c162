"""A member's state folder: who it is in its federation, and what was said to each offer.

The folder has

    member.json             the federation's address, this member's id and name
    ca.crt tls.crt tls.key  whom it believes, its certificate, its key (0600)
    consents.json           its owner's answers to offers
    runs/RUN/               the offer, its files, how it was looked at, and the files of its work
    lock                    held by the one process that works, whose number is in it
    leaving                 there while `tacit leave` waits for that process to end
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tacit import file_lock
from tacit.errors import ConfigError
from tacit_services.disk import files, json_record
from tacit_services.member.consent import Consents
from tacit_services.transport.tls import Tls

FORMAT = 1
_FILE = "member.json"
_CONSENTS = "consents.json"
_WORKING = "working"
_LOOKING = "looking"
_LOCK = "lock"
_LEAVING = "leaving"


class StateInUse(ConfigError):  # noqa: N818 (a verdict on a folder)
    """Another process works in this state folder."""


@dataclass(frozen=True, slots=True)
class Membership:
    """A membership: the host's address, the id there, the name that people know.

    data: its rows, a path or module:name. dataset: the name of their ledger. rows: the public count
    that the owner states, or None for the offer's. policy: the owner's policy file, or None.
    here: the folder that a module of the owner's is in. public_web: whether the host's HTTPS
    certificate is of an authority that the system trusts. published: of a member without rows of
    its own the folder of its part's ledger, and `data` is the folder of published data sets.
    """

    url: str
    member: str
    name: str
    data: str
    dataset: str
    rows: int | None = None
    policy: str | None = None
    here: str = "."
    public_web: bool = False
    published: str | None = None

    @property
    def number(self) -> int:
        """The member's number in its federation."""
        return int(self.member.removeprefix("edge-"))


class MemberState:
    """The state in one folder."""

    def __init__(self, folder: Path) -> None:
        """folder: made if need be, for this user alone. Raises ConfigError."""
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise ConfigError(f"--state {folder}: {error.strerror or error}") from error

    @property
    def tls(self) -> Tls:
        """The files with which this member shows who it is."""
        return Tls(self.folder / "ca.crt", self.folder / "tls.crt", self.folder / "tls.key")

    def run(self, run: str) -> Path:
        """Return the folder of a run, made if need be."""
        folder = self.folder / "runs" / run
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder

    def membership(self) -> Membership | None:
        """Return the membership; None: this folder is of no member. Raises ConfigError."""
        return json_record.read(self.folder / _FILE, FORMAT, lambda values: Membership(**values))

    def keep(self, membership: Membership) -> None:
        """Write the membership, durably. Raises OSError."""
        json_record.write(self.folder / _FILE, FORMAT, asdict(membership))

    def consents(self) -> Consents:
        """Return the owner's answers as they are now. Raises PrivacyError."""
        return Consents(self.folder / _CONSENTS)

    @contextmanager
    def answering(self) -> Iterator[Consents]:
        """Yield the owner's answers for a change, which no other process changes meanwhile."""
        with file_lock.locked(self.folder / f"{_CONSENTS}.lock"):
            yield self.consents()

    def leave(self) -> None:
        """Forget the membership; answers, and of course ledgers, stay. Raises OSError."""
        (self.folder / _FILE).unlink(missing_ok=True)
        (self.folder / _LEAVING).unlink(missing_ok=True)
        files.sync(self.folder)

    def ask_to_leave(self) -> None:
        """Ask the process that works here to end, for good. Raises OSError."""
        files.write(self.folder / _LEAVING, b"", files.SECRET)

    @property
    def is_left(self) -> bool:
        """Whether this member is about to leave: nobody works here any more."""
        return (self.folder / _LEAVING).exists()

    def worker(self) -> str:
        """Return the number of the process that has worked here last.

        Return "" for none, and where nobody can read a locked file (Windows).
        """
        try:
            return (self.folder / _LOCK).read_text(encoding="ascii", errors="replace").strip()
        except (FileNotFoundError, PermissionError):
            return ""

    @contextmanager
    def working(self, run: str) -> Iterator[None]:
        """Be the process that works on a run. Raises ConfigError where another one does."""
        refusal = ConfigError(f"run {run}: another process works on it")
        with file_lock.locked(self.run(run) / _WORKING, refusal):
            yield

    def works_on(self, run: str) -> bool:
        """Return whether a process works on a run now."""
        return file_lock.is_held(self.folder / "runs" / run / _WORKING)

    @contextmanager
    def looking(self, run: str) -> Iterator[None]:
        """Be the process that looks at a run's offer, until the end of the block."""
        with file_lock.locked(self.run(run) / _LOOKING):
            yield

    def looked_at_now(self) -> list[str]:
        """Return the runs whose offers a process looks at now."""
        locks = sorted((self.folder / "runs").glob(f"*/{_LOOKING}"))
        return [lock.parent.name for lock in locks if file_lock.is_held(lock)]

    def at_work(self) -> bool:
        """Return whether a process works in this folder now."""
        return file_lock.is_held(self.folder / _LOCK)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the one process that works in this folder.

        Raises StateInUse where another does.
        """
        refusal = StateInUse(
            f"--state {self.folder}: another process is at work there; `tacit offers` talks to it"
        )
        with file_lock.locked(self.folder / _LOCK, refusal) as lock:
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n".encode("ascii"))
            lock.flush()
            yield
