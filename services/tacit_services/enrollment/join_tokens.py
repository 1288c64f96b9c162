"""Tokens with which machines join a federation: how many, until when, and a name to cancel them by.

The file `join-tokens.json` keeps digests of the tokens only: {"format": 1, "tokens": [{"name",
"digest", "since", "uses", "until", "served"}]}. A token that has served a key serves the same key
again while its time lasts, so an answer that was lost can be had again.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from tacit.errors import ConfigError
from tacit_services.disk.json_register import JsonRegister
from tacit_services.enrollment.human_names import alike, checked_human_name

_FORMAT = 1


EACH_HOUR = 100  # machines that a token without a number of uses admits within an hour
_HOUR = 3600.0


class TooManyError(ConfigError):
    """A token that is for any number of machines has admitted many lately.

    wait: seconds until it admits more.
    """

    def __init__(self, wait: float) -> None:
        super().__init__(
            f"the join token admits {EACH_HOUR} machines an hour; try again in "
            f"{math.ceil(wait / 60)} min, or ask the host for a token of your own"
        )
        self.wait = math.ceil(wait)


class TokenRefusedError(ConfigError):
    """A token that is unknown, cancelled, expired or used up."""


@dataclass(frozen=True, slots=True)
class JoinToken:
    """One token, as the file has it.

    uses: for how many machines it is, where that is limited. until: its end in seconds since 1970,
    if it has one. served: SHA-256 of the keys that it has served, in hex. hour, in_hour: when the
    latest hour of serving began, and how many new keys it has served in that.
    """

    name: str
    digest: str
    since: float
    uses: int | None
    until: float | None
    served: tuple[str, ...] = ()
    hour: float = 0.0
    in_hour: int = 0

    @property
    def left(self) -> int | None:
        """For how many machines more it is; None: any number."""
        return None if self.uses is None else max(0, self.uses - len(self.served))


class JoinTokens:
    """The join tokens in `folder`. Several processes may work on it."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        """Open them; clock: seconds since 1970."""
        self._clock = clock
        self._file = JsonRegister(folder / "join-tokens.json", "tokens", _FORMAT, JoinToken)

    def add(self, name: str, *, uses: int | None = None, until: float | None = None) -> str:
        """Make a token; it is returned, and kept nowhere.

        Raises ConfigError for a name that is taken or cannot be one, and for one without any use.
        """
        checked_human_name("name", name)
        if uses is not None and uses < 1:
            raise ConfigError(f"uses={uses}: expected at least 1")
        if until is not None and until <= self._clock():
            raise ConfigError(f"until={_date(until)}: is over already")
        secret = secrets.token_urlsafe(32)
        with self._file.changing() as tokens:
            if any(alike(token.name) == alike(name) for token in tokens):
                raise ConfigError(f"name={name!r}: is taken; cancel it first, or choose another")
            tokens.append(JoinToken(name, _digest(secret), self._clock(), uses, until))
        return secret

    def cancel(self, name: str) -> bool:
        """Let the token of this name be worth nothing from now on; False: there is none.

        A machine that has joined with it stays a member.
        """
        with self._file.changing() as tokens:
            before = len(tokens)
            tokens[:] = [token for token in tokens if token.name != name]
            return len(tokens) < before

    def has(self, name: str) -> bool:
        """Return whether a token that was not cancelled has this name, or one that looks like it.

        It may have ended.
        """
        return any(alike(token.name) == alike(name) for token in self._file.all())

    def all(self) -> list[JoinToken]:
        """Return every token that was not cancelled."""
        return self._file.all()

    def check(self, secret: str) -> None:
        """Raise TokenRefusedError unless this is a token whose time is not over."""
        self._live(self._file.all(), secret)

    def serve(self, secret: str, key: str) -> JoinToken:
        """Note durably that this token serves `key`, and return it as it is then.

        key: SHA-256 of the public key, in hex. Raises TokenRefusedError, in one line, where it is
        unknown, cancelled, expired, or used up by other keys. Raises TooManyError where it is for
        any number, and has served EACH_HOUR new keys within an hour. So one token cannot use up the
        numbers of a federation while it lasts.
        """
        with self._file.changing() as tokens:
            token = self._live(tokens, secret)
            if key in token.served:
                return token
            if token.left == 0:
                raise TokenRefusedError(
                    f"the join token was for {token.uses} and is used up; ask the host for another"
                )
            served = self._with(token, key)
            tokens[tokens.index(token)] = served
            return served

    def _with(self, token: JoinToken, key: str) -> JoinToken:
        """Return a token that has served `key` now. Raises TooManyError."""
        now = self._clock()
        hour, before = token.hour, token.in_hour
        if not 0 <= now - hour < _HOUR:
            hour, before = now, 0
        if token.uses is None and before >= EACH_HOUR:
            raise TooManyError(hour + _HOUR - now)
        return replace(token, served=(*token.served, key), hour=hour, in_hour=before + 1)

    def _live(self, tokens: list[JoinToken], secret: str) -> JoinToken:
        digest = _digest(secret)
        match = None
        for token in tokens:  # all of them: how long it takes says nothing
            if hmac.compare_digest(token.digest, digest):
                match = token
        if match is None:
            raise TokenRefusedError("the join token is unknown, or was cancelled")
        if match.until is not None and match.until <= self._clock():
            raise TokenRefusedError(
                f"the join token ended on {_date(match.until)}; ask the host for another"
            )
        return match


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
