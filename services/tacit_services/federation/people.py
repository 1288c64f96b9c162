"""Who may ask a federation's host over REST, and with which rights.

A person has a name and a secret token, of which the file keeps the digest only. `people.json` in
FOLDER/people is {"format": 1, "people": [{"name", "right", "digest", "since", "until"}]}. An
*operator* may do all that the host may. A *researcher* submits runs, and stops and sees their own.
A *reader* sees.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from tacit.errors import ConfigError
from tacit_services.disk.json_register import JsonRegister
from tacit_services.disk.secret_file import kept_secret
from tacit_services.enrollment.human_names import alike, checked_human_name

OPERATOR_FILE = "operator"  # its token, for commands at the host
_FORMAT = 1


class Right(IntEnum):
    """What a person may do; each includes those before it."""

    READER = 1
    RESEARCHER = 2
    OPERATOR = 3

    @classmethod
    def named(cls, name: str) -> Right:
        """Return the right of this name. Raises ConfigError."""
        try:
            return cls[name.upper()]
        except KeyError:
            raise ConfigError(f"role={name!r}: expected reader, researcher or operator") from None


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody with a token. since, until: seconds since 1970; until: None is for good."""

    name: str
    right: Right
    since: float
    until: float | None = None

    def may(self, right: Right) -> bool:
        """Return whether they have at least this right."""
        return self.right >= right


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    right: str
    digest: str
    since: float
    until: float | None

    @property
    def person(self) -> Person:
        return Person(self.name, Right.named(self.right), self.since, self.until)


class People:
    """The people of the federation in `folder`, FOLDER/people. Several processes may work on it."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        """Open it; a new one has nobody but the operator. clock: seconds since 1970."""
        self._folder = folder
        self._clock = clock
        self._file = JsonRegister(folder / "people.json", "people", _FORMAT, _Entry)

    def operator_token(self) -> str:
        """Return the token of the host's own operator, from FOLDER/people/operator (0600).

        It is made at the first call. Raises ConfigError where it cannot be read or written.
        """
        return kept_secret(self._folder / OPERATOR_FILE, "operator")

    def add(self, name: str, right: Right, until: float | None = None) -> str:
        """Enter a person; returns their token, which is kept nowhere.

        Raises ConfigError for a name that is taken, or cannot be one.
        """
        checked_human_name("name", name)
        token = secrets.token_urlsafe(32)
        entry = _Entry(name, right.name.lower(), _digest(token), self._clock(), until)
        with self._file.changing() as entries:
            if _is_taken(name, entries):
                raise ConfigError(f"name={name!r}: is taken; cancel it first, or choose another")
            entries.append(entry)
        return token

    def remove(self, name: str) -> bool:
        """Let the token of `name` be worth nothing from now on; False: nobody has this name."""
        with self._file.changing() as entries:
            before = len(entries)
            entries[:] = [entry for entry in entries if entry.name != name]
            return len(entries) < before

    def has(self, name: str) -> bool:
        """Return whether somebody has this name, or one that looks like it; the operator has."""
        return _is_taken(name, self._file.all())

    def all(self) -> list[Person]:
        """Return everybody but the host's own operator."""
        return [entry.person for entry in self._file.all()]

    def person(self, token: str) -> Person | None:
        """Return whose token this is; None: nobody's, or its time is over.

        How long it takes says nothing of the tokens: digests are compared, each in constant time.
        """
        digest = _digest(token)
        own = Person(OPERATOR_FILE, Right.OPERATOR, 0.0)
        match = own if hmac.compare_digest(_digest(self.operator_token()), digest) else None
        for entry in self._file.all():
            if hmac.compare_digest(entry.digest, digest):
                match = entry.person
        if match is None or (match.until is not None and match.until < self._clock()):
            return None
        return match


def _is_taken(name: str, entries: Iterable[_Entry]) -> bool:
    return alike(name) in {OPERATOR_FILE, *(alike(other.name) for other in entries)}


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
