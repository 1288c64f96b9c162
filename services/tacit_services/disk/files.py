"""Durable replacement of small files that hold secrets or identities.

A file is written whole or not at all, and is on disk when the call returns. It has exactly the
requested file mode, at every moment of its life. Results of a run have the mode that the umask
leaves.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from tacit import file_lock

SECRET = 0o600
GROUP = 0o640
PUBLIC = 0o644
_ANYBODYS = 0o666  # before the umask
_NEW = ".new"  # how the name of a file ends that is not whole yet
_FRESH = 10.0  # seconds, far more than between making such a file and locking it


class Disk:
    """The two calls that make files outlive the machine; a simulated disk replaces them."""

    def sync_file(self, file: BinaryIO | FileIO) -> None:
        """Make what was written to `file` durable. Raises OSError."""
        os.fsync(file.fileno())

    def sync(self, folder: Path) -> None:
        """Make what was created, renamed or deleted in `folder` durable. Raises OSError.

        Windows opens no folders: there it is durable when the file system says so (NTFS journals
        it).
        """
        if os.name != "posix":
            return
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write(path: Path, data: bytes, mode: int | None) -> None:
    """Replace the content of `path` by `data`, with file mode `mode`; durable when this returns.

    mode: None is what the process's umask leaves. A crash leaves either the old content or the new
    one. Raises OSError.
    """
    write_pieces(path, (data,), mode)


def write_for_owner(path: Path, data: bytes, mode: int) -> None:
    """Write as `write` does, for the owner and group of the folder, where root writes.

    The folder of a service that has a user of its own stays readable by it. Raises OSError.
    """
    write_pieces(path, (data,), mode, of_folder=is_root())


def is_root() -> bool:
    """Return whether this process is the superuser's; systems without one have none."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


def write_pieces(
    path: Path,
    pieces: Iterable[bytes | memoryview],
    mode: int | None,
    disk: Disk | None = None,
    *,
    of_folder: bool = False,
) -> None:
    """Write as `write` does, with content in pieces, which are not put together.

    of_folder: the file has the folder's owner and group. Modes are POSIX's: on Windows a file has
    the rights that its folder hands on.
    """
    disk = disk or Disk()
    # A name of its own: of several that write at once each replaces the file.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_NEW}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    descriptor = os.open(temporary, flags, _ANYBODYS if mode is None else SECRET)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _lock(descriptor)
            _sweep(path, os.fstat(descriptor).st_mtime - _FRESH)
            if of_folder and hasattr(os, "fchown"):
                folder = path.parent.stat()
                os.fchown(descriptor, folder.st_uid, folder.st_gid)
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(descriptor, mode)
            file.writelines(pieces)
            file.flush()
            disk.sync_file(file)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    disk.sync(path.parent)


def _lock(descriptor: int) -> bool:
    """Take the lock of an open file; False: another process is at work on it, or has no locks."""
    try:
        file_lock.take(descriptor, BlockingIOError())
    except OSError:
        return False
    return True


def _sweep(path: Path, before: float) -> None:
    """Remove what others that wrote `path` have left: those that died have locked nothing.

    before: whose last byte was written earlier; others may be about to lock it.
    """
    try:
        with os.scandir(path.parent) as entries:
            unfinished = [
                Path(entry.path)
                for entry in entries
                if entry.name.startswith(f".{path.name}.")
                and entry.name.endswith(_NEW)
                and entry.is_file(follow_symlinks=False)
                and entry.stat(follow_symlinks=False).st_mtime < before
            ]
    except OSError:
        return
    for path in unfinished:
        with suppress(OSError):
            with path.open("ab") as file:
                is_dead = _lock(file.fileno())
            if is_dead:
                path.unlink()


def sync(folder: Path) -> None:
    """Make what was created, renamed or deleted in `folder` durable. Raises OSError."""
    Disk().sync(folder)
