"""Enrollment tokens: who may ask for a certificate, and of which name.

The file keeps digests of the tokens only. Its first line is the format (tacit 0.1 wrote none). Then
there is one line for each token: SHA-256 of the token, `shared` or `once`, the pattern that the
edge's id must match, and whom a one-time token has served (`-`: nobody yet).
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from tacit.errors import ConfigError
from tacit_services.disk import files

_PATTERN = re.compile(r"[A-Za-z0-9*][A-Za-z0-9._*-]{0,63}")
NOBODY = "-"
_FORMAT = "tacit tokens 1"


@dataclass(frozen=True, slots=True)
class EnrollmentToken:
    """One token, as its line in the file has it."""

    digest: str
    once: bool
    edges: str
    served: str = NOBODY

    def allows(self, name: str) -> bool:
        """Whether the token is for an edge of this name."""
        return fnmatchcase(name, self.edges)


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
                f"edges={edges!r}: expected an edge's id, or a pattern such as edge-*"
            )
        token = secrets.token_urlsafe(32)
        self._write([*self.all(), EnrollmentToken(_digest(token), once, edges)])
        return token

    def find(self, token: str) -> EnrollmentToken | None:
        """What is registered for this token; None if it is unknown."""
        digest, found = _digest(token), None
        for line in self.all():
            if hmac.compare_digest(line.digest, digest):
                found = line
        return found

    def serve(self, token: EnrollmentToken, name: str) -> None:
        """Note that a one-time token has served `name`."""
        self._write(
            [
                replace(line, served=name) if line.digest == token.digest else line
                for line in self.all()
            ]
        )

    def all(self) -> list[EnrollmentToken]:
        """Every registered token. Raises ConfigError where the file is damaged."""
        try:
            lines = (
                self._path.read_text(encoding="ascii").splitlines() if self._path.exists() else []
            )
            return [_parsed(line) for line in (lines[1:] if lines[:1] == [_FORMAT] else lines)]
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self._path}: {error}") from error

    def _write(self, tokens: list[EnrollmentToken]) -> None:
        lines = (
            f"{t.digest} {'once' if t.once else 'shared'} {t.edges} {t.served}\n" for t in tokens
        )
        files.write(self._path, "".join([f"{_FORMAT}\n", *lines]).encode("ascii"), files.SECRET)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _parsed(line: str) -> EnrollmentToken:
    parts = line.split(" ")
    if len(parts) != 4 or parts[1] not in ("once", "shared"):
        raise ValueError(f"not a token: {line[:100]!r}")
    return EnrollmentToken(parts[0], parts[1] == "once", parts[2], parts[3])
