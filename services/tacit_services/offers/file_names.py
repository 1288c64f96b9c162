"""The names that files of an offer may have."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import PurePosixPath

_PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}"
_FILE_NAME = re.compile(rf"({_PART}/){{0,4}}{_PART}")
_SUFFIXES = (".json", ".safetensors", ".txt")  # of files that are data for tacit's own readers


def check_file_name(name: str) -> None:
    """Raise ValueError unless `name` is a plain relative name of a file that holds data."""
    if not _FILE_NAME.fullmatch(name) or not name.endswith(_SUFFIXES):
        raise ValueError(
            f"{name[:200]!r}: expected letters, digits, _, . and -, in folders at most four deep, "
            f"and an end of {', '.join(_SUFFIXES)}"
        )


def a_folder_too(names: Collection[str]) -> str | None:
    """Return the first of the files' names that is also a folder of another; None: there is none.

    Such files cannot lie side by side on a disk.
    """
    parents = (str(parent) for name in names for parent in PurePosixPath(name).parents)
    return next((parent for parent in parents if parent in names), None)
