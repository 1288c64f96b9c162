"""Files that runs refer to, by the SHA-256 of their bytes, as they were uploaded."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path

from tacit_services.disk import files
from tacit_services.federation.upload_book import QUOTA, UploadBook

_DIGEST = re.compile(r"[0-9a-f]{64}")
MOST = 2 << 30  # bytes of one file
RESERVE = 1 << 30  # bytes of the disk that are for the store, and whatever else runs go on with
UNNAMED = 86_400.0  # seconds that a file stays which no offer names
_LOOK_EVERY = 1 << 24  # bytes of an upload between two looks at the disk


class BadUpload(Exception):  # noqa: N818 (a verdict on an upload)
    """What was uploaded is not what its name says, or too large."""


class NoRoom(BadUpload):
    """The disk has no room for it."""


class OverQuota(BadUpload):
    """Its researcher has as much at the host as they may have."""


def placed(source: Path, to: Path) -> None:
    """Put a file at `to` as well: the same one, or a copy where the file system has no links."""
    try:
        os.link(source, to)
    except OSError:
        shutil.copy(source, to)


class FilePool:
    """The files in one folder; a file is there whole, with the content of its name, or not."""

    def __init__(
        self,
        folder: Path,
        reserve: int = RESERVE,
        quota: int = QUOTA,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """folder: made if need be, for this user alone. What was cut short before is removed.

        reserve: bytes of the disk that no upload takes. quota: bytes that one researcher may have
        here. clock: seconds since 1970, as the file system has them.
        """
        self._folder = folder
        self._reserve = reserve
        self._clock = clock
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._book = UploadBook(folder, quota, clock)
        for part in folder.glob(".*.part"):
            part.unlink(missing_ok=True)

    def path(self, digest: str) -> Path | None:
        """Return the path of the file with this SHA-256 in hexadecimal; None: it is not here."""
        if not _DIGEST.fullmatch(digest):
            return None
        path = self._folder / digest
        return path if path.is_file() else None

    def missing(self, digests: list[str]) -> list[str]:
        """Return those of the digests of which there is no file."""
        return [digest for digest in digests if self.path(digest) is None]

    def wanted(self, digest: str) -> bool:
        """Return whether a file is here; then its age begins anew, as somebody is to name it."""
        path = self.path(digest)
        if path is None:
            return False
        now = self._clock()
        os.utime(path, (now, now))
        return True

    def sweep(self, named: Collection[str]) -> list[str]:
        """Remove the files that no offer names and nobody has asked for in UNNAMED seconds.

        named: the digests that offers name. Returns those of the removed files.
        """
        oldest = self._clock() - UNNAMED
        removed = []
        for path in self._folder.iterdir():
            unnamed = _DIGEST.fullmatch(path.name) and path.name not in named
            if unnamed and path.stat().st_mtime < oldest:
                path.unlink()
                removed.append(path.name)
        self._book.remove(removed)
        return removed

    async def take(self, digest: str, pieces: AsyncIterator[bytes], by: str | None = None) -> None:
        """Keep what is uploaded under `digest`, durably.

        by: the researcher whose quota it is taken from; None: nobody's. Raises BadUpload where it
        has another SHA-256 or more than MOST bytes, OverQuota, NoRoom, OSError.
        """
        if not _DIGEST.fullmatch(digest):
            raise BadUpload(f"{digest[:80]!r}: is no SHA-256 in hexadecimal")
        part = self._folder / f".{digest}.{secrets.token_hex(4)}.part"
        seen = hashlib.sha256()
        size = looked_at = 0
        whole = False
        self.check_room()
        try:
            with part.open("xb") as file:
                async for piece in pieces:
                    size += len(piece)
                    self._count(by, len(piece))
                    if size > MOST:
                        raise BadUpload(f"more than {MOST} bytes")
                    if size - looked_at >= _LOOK_EVERY:
                        looked_at = size
                        self.check_room()
                    seen.update(piece)
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            if seen.hexdigest() != digest:
                raise BadUpload(f"has the SHA-256 {seen.hexdigest()}, not {digest}")
            part.replace(self._folder / digest)
            files.sync(self._folder)
            whole = True
            if by is not None:
                self._book.enter(by, digest, size)
        finally:
            part.unlink(missing_ok=True)
            if by is not None and not whole:
                self._book.undo(by, size)

    def _count(self, by: str | None, size: int) -> None:
        """Count bytes that have come. Raises OverQuota where they are too many."""
        if by is None:
            return
        self._book.begin(by, size)
        if self._book.left(by) < 0:
            raise OverQuota(
                f"{by}: has as many uploads at the host as one researcher may have; those that no "
                f"run names are removed after {UNNAMED / 3600:g} h"
            )

    def check_room(self) -> None:
        """Raise NoRoom where the disk has only its reserve left."""
        if shutil.disk_usage(self._folder).free < self._reserve:
            raise NoRoom("the host's disk has no room for uploads; its operator makes some")
