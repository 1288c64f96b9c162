"""Tokens in files: read, and made where there is none yet."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from tacit.errors import ConfigError

FEWEST = 16  # characters of a token


def kept(path: Path | None, variable: str) -> str | None:
    """The token in the file that `variable` names; made with mode 0600 if there is no such file.

    None without a file. Raises ConfigError where it cannot be read or made, or is too short.
    """
    if path is None:
        return None
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_urlsafe(32) + "\n")
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{variable}={str(path)!r}: {error}") from error
    if len(token) < FEWEST:
        raise ConfigError(f"{variable}={str(path)!r}: the token has fewer than {FEWEST} characters")
    return token
