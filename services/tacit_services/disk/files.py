"""Files that hold secrets: whole or not there, on disk when written, and for nobody else's eyes."""

from __future__ import annotations

import os
from pathlib import Path

SECRET, GROUP, PUBLIC = 0o600, 0o640, 0o644


def write(path: Path, data: bytes, mode: int) -> None:
    """Replace `path` by `data`, durable, with exactly `mode`; a crash leaves the old or the new. Raises OSError."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, SECRET)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    temporary.replace(path)
    sync(path.parent)


def sync(folder: Path) -> None:
    """What was created, renamed or deleted in `folder` is on disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
