"""An aggregator's REST interface, for commands: the operator's token and the client."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tacit.errors import ConfigError

if TYPE_CHECKING:
    from tacit_client import Client


def client(url: str, token: str | None = None) -> Client:
    """Not connected yet. Raises ConfigError for an address or token that cannot be meant."""
    from tacit_client import Client

    try:
        return Client(url, token)
    except ValueError as error:
        raise ConfigError(f"--{error}") from error


def token(path: Path | None) -> str | None:
    """What the file at `path` holds. Raises ConfigError when it cannot be read."""
    if path is None:
        return None
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise ConfigError(f"token file {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"token file {path}: {error}") from error
