"""A user's own files: where they may lie, and what they hash to."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from tacit.errors import ConfigError, DataError
from tacit.regular_file import opened

# The most of one picture, by its header, before any is unpacked, where the run file says nothing:
# it bounds the memory and the time that one record can cost. Public.
PIXELS_MAX = 25_000_000
OTHERS = {
    b"PK\x03\x04": "a zip",
    b"\xd0\xcf\x11\xe0": "an old or encrypted Excel file (save it as .xlsx)",
    b"\x93NUM": "one array (.npy)",
    b"\x1f\x8b": "a gzip",
    b"\x80\x04": "a pickle",
    b"\x80\x05": "a pickle",
}


def located(name: str, folder: Path, field: str = "data.train", *, folders: bool = False) -> Path:
    """Return the path of `name` in the run file's `folder`.

    It is a file, or a folder where `folders` are read. Raises ConfigError where it is not in it or
    not there.
    """
    path = (folder / name).resolve()
    if Path(name).is_absolute() or not path.is_relative_to(folder.resolve()):
        raise ConfigError(
            f"{field}={name!r}: leaves the run file's folder; put the file beside the run file"
        )
    if path.is_dir() and not folders:
        raise ConfigError(f"{field}={name!r}: is a folder; expected a file")
    if path.exists() and not path.is_file() and not path.is_dir():  # it would be waited for
        raise ConfigError(f"{field}={name!r}: is no file but a pipe, a device or a socket")
    if not path.exists():
        raise ConfigError(f"{field}={name!r}: no such file in {folder}")
    return path


def digest(path: Path) -> str:
    """Return SHA-256 of the file's bytes, in hexadecimal. Raises DataError."""
    try:
        with opened(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from error


def digest_of(paths: Iterable[Path], folder: Path) -> str:
    """Return SHA-256 of the names (relative to `folder`) and bytes of several files, in this order.

    Asked again for files of the same sizes and times, it reads none of them. Raises DataError.
    """
    try:
        stats = [(path, path.stat()) for path in paths]
    except OSError as error:
        raise DataError(f"{error.filename}: {error.strerror}") from error
    return _digest_of(
        tuple((str(path), stat.st_size, stat.st_mtime_ns) for path, stat in stats), folder
    )


@lru_cache(maxsize=16)
def _digest_of(files: tuple[tuple[str, int, int], ...], folder: Path) -> str:
    every = hashlib.sha256()
    for name, *_ in files:
        path = Path(name)
        every.update(f"{path.relative_to(folder)}\0{digest(path)}\0".encode())
    return every.hexdigest()
