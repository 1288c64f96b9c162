"""A secret in a file of its own: one that a service keeps, or a token that somebody was given."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

from tacit import regular_file
from tacit.errors import ConfigError

_SHORTEST = 16  # characters


def kept_secret(path: Path, variable: str) -> str:
    """Return the secret in `path`; made with mode 0600 if the file does not exist.

    variable: the setting that names the file. Raises ConfigError: unreadable, or too short.
    """
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_urlsafe(32) + "\n")
    except OSError as error:
        raise ConfigError(f"{variable}={str(path)!r}: {error}") from error
    secret = token_in(path, variable)
    if len(secret) < _SHORTEST:
        raise ConfigError(
            f"{variable}={str(path)!r}: the token has fewer than {_SHORTEST} characters"
        )
    return secret


def token_in(path: Path, setting: str) -> str:
    """Return the token in `path`, which is one word.

    setting: names the file. Raises ConfigError: unreadable, or no token.
    """
    try:
        token = regular_file.text(path, "ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"{setting}={str(path)!r}: {why}") from error
    if not re.fullmatch(r"[!-~]+", token):
        raise ConfigError(f"{setting}={str(path)!r}: not a token: one word is expected")
    return token
