"""Files that runs refer to, by the SHA-256 of their bytes, as they were uploaded."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

from tacit_services.disk import files

_DIGEST = re.compile(r"[0-9a-f]{64}")
MOST = 2 << 30  # bytes of one file


class BadUpload(Exception):  # noqa: N818 (a verdict on an upload)
    """What was uploaded is not what its name says, or too large."""


class FilePool:
    """The files in one folder; a file is there whole, with the content of its name, or not."""

    def __init__(self, folder: Path) -> None:
        """folder: made if need be, for this user alone. What was cut short before is removed."""
        self._folder = folder
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

        Raises BadUpload where it has another SHA-256 or more than MOST bytes, OSError.
        """
        if not _DIGEST.fullmatch(digest):
            raise BadUpload(f"{digest[:80]!r}: is no SHA-256 in hexadecimal")
        part = self._folder / f".{digest}.{secrets.token_hex(4)}.part"
        seen = hashlib.sha256()
        size = 0
        try:
            with part.open("xb") as file:
                async for piece in pieces:
                    size += len(piece)
                    if size > MOST:
                        raise BadUpload(f"more than {MOST} bytes")
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
