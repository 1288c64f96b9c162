"""Enrollment tokens: who may ask for a certificate, and of which name.

The file keeps digests of the tokens only. Its first line is the format. Then there is one line for
each token. It has the SHA-256 of the token, `shared` or `once`, and the pattern that the edge's id
must match. Last is the edge that a one-time token has served (`-`: none yet). A pattern is an id
with stars, or a range: `edge-0..7` is eight edges.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from tacit.errors import ConfigError, other_format
from tacit_services.disk import files

_PATTERN = re.compile(r"[A-Za-z0-9*][A-Za-z0-9._*-]{0,63}")
_RANGE = re.compile(r"([A-Za-z][A-Za-z0-9_-]*-)([0-9]{1,6})\.\.([0-9]{1,6})")
NOBODY = "-"
_TITLE = "tacit tokens "
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class EnrollmentToken:
    """One token, as its line in the file has it."""

    digest: str
    once: bool
    edges: str
    served: str = NOBODY

    def allows(self, name: str) -> bool:
        """Return whether the token is for an edge of this name."""
        if (ends := _RANGE.fullmatch(self.edges)) is None:
            return fnmatchcase(name, self.edges)
        prefix, first, last = ends.groups()
        return name in (f"{prefix}{number}" for number in range(int(first), int(last) + 1))


class TokenRegister:
    """The tokens of a certificate authority. Change them under its lock."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "tokens"

    def add(self, edges: str, *, once: bool) -> str:
        """Make a token for the edges whose id matches `edges`; it is returned, and kept nowhere.

        Raises ConfigError for a pattern that cannot be meant.
        """
        if not _PATTERN.fullmatch(edges):
            raise ConfigError(
                f"edges={edges!r}: expected an edge's id, or a pattern such as edge-0..7"
            )
        token = secrets.token_urlsafe(32)
        self._write([*self.all(), EnrollmentToken(_digest(token), once, edges)])
        return token

    def find(self, token: str) -> EnrollmentToken | None:
        """Return what is registered for this token; None if it is unknown."""
        digest = _digest(token)
        match = None
        for line in self.all():
            if hmac.compare_digest(line.digest, digest):
                match = line
        return match

    def limit(self, token: str, edges: str) -> None:
        """Let `token` be for the edges whose id matches `edges` from now on."""
        registered = self.find(token)
        if registered is not None and registered.edges != edges:
            self._replace(registered, replace(registered, edges=edges))

    def serve(self, token: EnrollmentToken, name: str) -> None:
        """Note that a one-time token has served `name`."""
        self._replace(token, replace(token, served=name))

    def _replace(self, token: EnrollmentToken, changed: EnrollmentToken) -> None:
        self._write([changed if line.digest == token.digest else line for line in self.all()])

    def all(self) -> list[EnrollmentToken]:
        """Return every registered token.

        Raises ConfigError for a damaged file or another format.
        """
        if not self._path.exists():
            return []
        try:
            lines = self._path.read_text(encoding="ascii").splitlines()
            number = "".join(lines[:1]).removeprefix(_TITLE)
            if lines[:1] != [f"{_TITLE}{_FORMAT}"]:
                if number.isdecimal():
                    version = int(number)
                else:
                    version = None
                raise ValueError(other_format(version, _FORMAT))
            return [_parsed(line) for line in lines[1:]]
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self._path}: {error}") from error

    def _write(self, tokens: list[EnrollmentToken]) -> None:
        lines = (
            f"{t.digest} {'once' if t.once else 'shared'} {t.edges} {t.served}\n" for t in tokens
        )
        files.write(
            self._path, "".join([f"{_TITLE}{_FORMAT}\n", *lines]).encode("ascii"), files.SECRET
        )


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _parsed(line: str) -> EnrollmentToken:
    parts = line.split(" ")
    if len(parts) != 4 or parts[1] not in ("once", "shared"):
        raise ValueError(f"not a token: {line[:100]!r}")
    return EnrollmentToken(parts[0], parts[1] == "once", parts[2], parts[3])
