"""A disk that loses what was not synced when its machine loses its power.

Files are real, in memory; beside them it is noted what each had when it was last synced, and which
names its folder had. A crash puts that back, and of what was written since a piece at most.
"""

from __future__ import annotations

from io import FileIO
from pathlib import Path
from typing import BinaryIO

from tacit_services.disk.files import Disk


class SimulatedDisk(Disk):
    """The disk of one machine. tears: what part of what was not synced is there after a crash."""

    def __init__(self, tears: float) -> None:
        self._tears = tears
        self._contents: dict[int, bytes] = {}  # of each file, by its inode
        self._names: dict[Path, dict[str, int]] = {}  # of each folder

    def sync_file(self, file: BinaryIO | FileIO) -> None:
        """Note what the file has."""
        number = file.fileno()
        path = Path(f"/proc/self/fd/{number}")
        self._contents[path.stat().st_ino] = path.read_bytes()

    def sync(self, folder: Path) -> None:
        """Note which names the folder has."""
        self._names[folder] = {path.name: path.stat().st_ino for path in folder.iterdir()}

    def durable(self, path: Path) -> bytes | None:
        """Return what the file at `path` would have after a crash at least; None: it would be gone."""
        inode = self._names.get(path.parent, {}).get(path.name)
        return None if inode is None else self._contents.get(inode, b"")

    def crash(self, folder: Path) -> None:
        """Put the folder's files back to what was durable, with a torn piece of what was not."""
        for path in folder.iterdir() if folder.is_dir() else ():
            durable, written = self.durable(path), path.read_bytes()
            path.unlink()
            if durable is None:
                continue
            if written.startswith(durable):
                durable += written[len(durable) :][
                    : int(self._tears * (len(written) - len(durable)))
                ]
            path.write_bytes(durable)
            self._contents[path.stat().st_ino] = durable
        self._names[folder] = {}
        if folder.is_dir():
            self.sync(folder)
