"""The client of an aggregator's REST interface, as the commands use it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tacit import regular_file
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from tacit_client import Client


def client(url: str, token: str | None = None) -> Client:
    """Return a client for `url`, which connects at its first request.

    Raises ConfigError for a bad URL or token.
    """
    from tacit_client import Client

    try:
        return Client(url, token)
    except ValueError as error:
        raise ConfigError(f"--{error}") from error


def token(path: Path | None) -> str | None:
    """Return the token in the file at `path`; None without a file.

    Raises ConfigError if unreadable.
    """
    if path is None:
        return None
    try:
        return regular_file.text(path, "ascii").strip()
    except OSError as error:
        raise ConfigError(f"token file {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"token file {path}: {error}") from error
