"""Files that runs refer to, by the SHA-256 of their bytes, as they were uploaded."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

from tacit_services.disk import files

_DIGEST = re.compile(r"[0-9a-f]{64}")
MOST = 2 << 30  # bytes of one file
RESERVE = 1 << 30  # bytes of the disk that are for the store, and whatever else runs go on with
_LOOK_EVERY = 1 << 24  # bytes of an upload between two looks at the disk


class BadUpload(Exception):  # noqa: N818 (a verdict on an upload)
    """What was uploaded is not what its name says, or too large."""


class NoRoom(BadUpload):
    """The disk has no room for it."""


class FilePool:
    """The files in one folder; a file is there whole, with the content of its name, or not."""

    def __init__(self, folder: Path, reserve: int = RESERVE) -> None:
        """folder: made if need be, for this user alone. What was cut short before is removed.

        reserve: bytes of the disk that no upload takes.
        """
        self._folder = folder
        self._reserve = reserve
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
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

    async def take(self, digest: str, pieces: AsyncIterator[bytes]) -> None:
        """Keep what is uploaded under `digest`, durably.

        Raises BadUpload where it has another SHA-256 or more than MOST bytes, NoRoom, OSError.
        """
        if not _DIGEST.fullmatch(digest):
            raise BadUpload(f"{digest[:80]!r}: is no SHA-256 in hexadecimal")
        part = self._folder / f".{digest}.{secrets.token_hex(4)}.part"
        seen = hashlib.sha256()
        size = looked_at = 0
        self._check_room()
        try:
            with part.open("xb") as file:
                async for piece in pieces:
                    size += len(piece)
                    if size > MOST:
                        raise BadUpload(f"more than {MOST} bytes")
                    if size - looked_at >= _LOOK_EVERY:
                        looked_at = size
                        self._check_room()
                    seen.update(piece)
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            if seen.hexdigest() != digest:
                raise BadUpload(f"has the SHA-256 {seen.hexdigest()}, not {digest}")
            part.replace(self._folder / digest)
            files.sync(self._folder)
        finally:
            part.unlink(missing_ok=True)

    def _check_room(self) -> None:
        """Raise NoRoom where the disk has only its reserve left."""
        if shutil.disk_usage(self._folder).free < self._reserve:
            raise NoRoom("the host's disk has no room for uploads; its operator makes some")
