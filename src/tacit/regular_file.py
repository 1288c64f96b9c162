"""Opens files, and nothing in their place.

No pipe, device, socket or folder. A pipe is waited for without an end, and a device may have none.
Each is refused at once, by an OSError whose `strerror` names what is there.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import IO

MOST_TEXT = 1 << 24  # bytes of a file that is read whole and is no data: settings, JSON, keys
_WITHOUT_WAITING = getattr(os, "O_NONBLOCK", 0)  # Windows has no pipes among its files

_KINDS = (
    (stat.S_ISFIFO, "is a pipe; expected a file"),
    (stat.S_ISCHR, "is a device; expected a file"),
    (stat.S_ISBLK, "is a device; expected a file"),
    (stat.S_ISSOCK, "is a socket; expected a file"),
)


def opened(path: Path) -> BufferedReader:
    """Open the file at `path` to read. Raises OSError, at once also where there is no file."""
    check(path)
    # By now a pipe may have taken the place of what was looked at.
    file = open(path, "rb", opener=_at_once)  # noqa: SIM115  (for the caller)
    try:
        _refuse(os.fstat(file.fileno()), path)
    except OSError:
        file.close()
        raise
    return file


def again(file: IO[bytes]) -> str:
    """Return a path by which a library opens the same file anew, not another one of its name.

    Where systems have no such path, nothing takes the name of a file that is open.
    """
    if os.name == "posix":
        return f"/dev/fd/{file.fileno()}"
    return str(file.name)


def check(path: Path) -> None:
    """Raise OSError unless `path` is a file, for libraries that open files by their names."""
    _refuse(path.stat(), path)


def content(path: Path, most: int = MOST_TEXT) -> bytes:
    """Return all bytes of the file at `path`. Raises OSError, also for more than `most`."""
    with opened(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"has more than {most:,} bytes", str(path))
    return data


def text(path: Path, encoding: str = "utf-8", most: int = MOST_TEXT) -> str:
    """Return the text of the file at `path`. Raises OSError, UnicodeDecodeError."""
    return content(path, most).decode(encoding).replace("\r\n", "\n")


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | _WITHOUT_WAITING)


def _refuse(status: os.stat_result, path: Path) -> None:
    """Raise OSError for what is no file."""
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    for so, what in _KINDS:
        if so(status.st_mode):
            raise OSError(errno.EINVAL, what, str(path))
