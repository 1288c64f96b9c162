"""The client of an aggregator's REST interface, as the commands use it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tacit.errors import ConfigError
from tacit_services.disk.secret_file import token_in

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
    """Return the token in the file at `path`; None without a file. Raises as `token_in`."""
    return None if path is None else token_in(path, "--token-file")
