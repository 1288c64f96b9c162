"""A secret of one service, kept in a file of its own."""

from __future__ import annotations

import os
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
        secret = regular_file.text(path, "ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{variable}={str(path)!r}: {error}") from error
    if len(secret) < _SHORTEST:
        raise ConfigError(
            f"{variable}={str(path)!r}: the token has fewer than {_SHORTEST} characters"
        )
    return secret
