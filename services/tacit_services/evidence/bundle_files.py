"""A bundle's files: a folder, or the same as one zip whose bytes follow from the files alone.

In the zip, files stand in the order of their names, uncompressed, with the time 1980-01-01 00:00
and the mode 0644. So there is one zip for each folder, and one folder for each zip.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

from tacit import regular_file
from tacit.errors import ConfigError, DataError
from tacit.shown import printable

MOST_TEXT = 64 << 20  # bytes of a file that is read whole: all but weights and the journal
_MOST_FILES = 20_000
_MODE = 0o100644 << 16
_BLOCK = 1 << 20


class BundleFiles:
    """The files of one bundle, by their names, which are relative and have no `..`."""

    def __init__(self, root: Path) -> None:
        """root: a folder, or a zip. Raises DataError for what is no bundle's files."""
        self.root = root
        self._zip: zipfile.ZipFile | None = None
        try:
            if root.is_dir():
                self.names = sorted(_names_in(root))
            else:
                regular_file.check(root)
                self._zip = zipfile.ZipFile(root)
                self.names = _names_of(self._zip)
        except zipfile.BadZipFile as error:
            raise DataError(f"{root}: is no folder, and no zip: {error}") from error
        except (OSError, NotImplementedError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise DataError(f"{root}: {reason}") from error
        if len(self.names) > _MOST_FILES:
            raise DataError(f"{root}: has {len(self.names)} files, a bundle at most {_MOST_FILES}")
        for name in self.names:
            _require_plain(name, root)

    @contextmanager
    def opened(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file. Raises DataError where there is none, or it cannot be read."""
        if name not in self.names:
            raise DataError(f"{name}: is not in the bundle")
        try:
            if self._zip is None:
                with regular_file.opened(self.root / name) as file:
                    yield file
            else:
                with self._zip.open(name) as entry:
                    yield entry
        except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise DataError(f"{name}: {reason}") from error

    def content(self, name: str) -> bytes:
        """Return a file of at most `MOST_TEXT` bytes. Raises DataError."""
        with self.opened(name) as file:
            content = file.read(MOST_TEXT + 1)
        if len(content) > MOST_TEXT:
            raise DataError(f"{name}: has more than {MOST_TEXT:,} bytes")
        return content

    def digest(self, name: str) -> str:
        """Return the SHA-256 of a file, in hexadecimal. Raises DataError."""
        hasher = hashlib.sha256()
        with self.opened(name) as file:
            while block := file.read(_BLOCK):
                hasher.update(block)
        return hasher.hexdigest()

    def copy(self, name: str, path: Path) -> None:
        """Copy a file to `path`. Raises DataError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with self.opened(name) as file, path.open("wb") as target:
            while block := file.read(_BLOCK):
                target.write(block)

    def is_exact(self) -> bool:
        """Check whether a zip has the very bytes that its files make; a folder always has."""
        if self._zip is None:
            return True
        hashed = _OneWay(None)
        _write_zip(hashed, self)
        hasher = hashlib.sha256()
        with regular_file.opened(self.root) as file:
            while block := file.read(_BLOCK):
                hasher.update(block)
        return hasher.digest() == hashed.digest()


def write_zip(folder: Path, path: Path) -> None:
    """Write the files of `folder` as one zip to `path`. Raises ConfigError, DataError."""
    try:
        with path.open("xb") as target:
            _write_zip(_OneWay(target), BundleFiles(folder))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error


def _write_zip(target: _OneWay, files: BundleFiles) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name in files.names:
            info = zipfile.ZipInfo(name)
            info.create_system = 3
            info.external_attr = _MODE
            with files.opened(name) as file, archive.open(info, "w", force_zip64=True) as entry:
                while block := file.read(_BLOCK):
                    entry.write(block)


class _OneWay(io.RawIOBase):
    """A stream that cannot go back, to `target` or nowhere, and the SHA-256 of what went by.

    A zip has other bytes where its writer can go back.
    """

    def __init__(self, target: IO[bytes] | None) -> None:
        self._target = target
        self._hasher = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        if self._target is not None:
            self._target.write(content)
        self._hasher.update(content)
        return memoryview(content).nbytes

    def digest(self) -> bytes:
        return self._hasher.digest()


def _names_in(folder: Path) -> Iterator[str]:
    for place, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            if (Path(place) / name).is_symlink():
                raise ValueError(f"{name}: is a link; a bundle has files alone")
        for name in files:
            yield (Path(place) / name).relative_to(folder).as_posix()


def _names_of(archive: zipfile.ZipFile) -> list[str]:
    names = [info.filename for info in archive.infolist()]
    if len(set(names)) != len(names):
        raise ValueError("has a file twice")
    return sorted(names)


def _require_plain(name: str, root: Path) -> None:
    parts = PurePosixPath(name).parts
    plain = name == "/".join(parts) and not name.startswith("/") and ".." not in parts
    if not plain or printable(name) != name or "\\" in name or ":" in name:
        raise DataError(f"{root}: has a file that a bundle cannot have: {printable(name, 80)}")


def digests(files: BundleFiles, apart_from: str) -> Mapping[str, str]:
    """Return the SHA-256 of every file but one, by name. Raises DataError."""
    return {name: files.digest(name) for name in files.names if name != apart_from}
