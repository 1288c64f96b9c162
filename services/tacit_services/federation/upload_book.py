"""Who has uploaded how much: each researcher has a quota of the files that lie at the host."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tacit_services.disk.json_register import JsonRegister

_FORMAT = 1
QUOTA = 10 << 30  # bytes of one researcher


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that somebody has uploaded. bytes: its size. at: seconds since 1970."""

    digest: str
    by: str
    bytes: int
    at: float


class UploadBook:
    """The uploads to one folder, in its uploads.json. For one process."""

    def __init__(
        self, folder: Path, quota: int = QUOTA, clock: Callable[[], float] = time.time
    ) -> None:
        """quota: bytes of one researcher. clock: seconds since 1970."""
        self._file = JsonRegister(folder / "uploads.json", "uploads", _FORMAT, Upload)
        self._quota = quota
        self._clock = clock
        self._used: Counter[str] = Counter()  # what is under way counts from its first byte on
        for upload in self._file.all():
            self._used[upload.by] += upload.bytes

    def left(self, by: str) -> int:
        """Return how many bytes more somebody may upload; below 0 where they have passed it."""
        return self._quota - self._used[by]

    def begin(self, by: str, size: int) -> None:
        """Count bytes that are coming."""
        self._used[by] += size

    def undo(self, by: str, size: int) -> None:
        """Count bytes no more, as they were not kept."""
        self._used[by] -= size

    def enter(self, by: str, digest: str, size: int) -> None:
        """Write down a file whose bytes were counted as they came. Raises ConfigError."""
        with self._file.changing() as uploads:
            before = next((each for each in uploads if each.digest == digest), None)
            if before is not None:  # two have uploaded it: it lies here once
                self.undo(by, size)
                return
            uploads.append(Upload(digest, by, size, self._clock()))

    def remove(self, digests: Iterable[str]) -> None:
        """Count files no more that were removed. Raises ConfigError."""
        gone = set(digests)
        with self._file.changing() as uploads:
            for upload in uploads:
                if upload.digest in gone:
                    self.undo(upload.by, upload.bytes)
            uploads[:] = [upload for upload in uploads if upload.digest not in gone]
