"""A user's own files: where they may lie, and what they hash to."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tacit.errors import ConfigError, DataError

OTHERS = {
    b"PK\x03\x04": "a zip",
    b"\x1f\x8b": "a gzip",
    b"\x80\x04": "a pickle",
    b"\x80\x05": "a pickle",
}


def located(name: str, folder: Path, field: str = "data.train") -> Path:
    """The file `name` in the run file's `folder`.

    Raises ConfigError where it is not in it or not there.
    """
    path = (folder / name).resolve()
    if Path(name).is_absolute() or not path.is_relative_to(folder.resolve()):
        raise ConfigError(
            f"{field}={name!r}: leaves the run file's folder; put the file beside the run file"
        )
    if not path.is_file():
        raise ConfigError(f"{field}={name!r}: no such file in {folder}")
    return path


def digest(path: Path) -> str:
    """SHA-256 of the file's bytes, in hexadecimal. Raises DataError."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from error
