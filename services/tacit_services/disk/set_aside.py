"""Results of an earlier run, moved out of the way of a new one.

Guarantee: nothing is overwritten and nothing deleted. They may be all that is left of what a budget
was spent on.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterable
from pathlib import Path


def moved_aside(folder: Path, names: Iterable[str]) -> Path:
    """Move files of these `names` out of `folder`, which stays; returns where to.

    That is FOLDER-1, or the next number that is free. Raises OSError.
    """
    place = _free(folder)
    for name in names:
        if (folder / name).exists():
            shutil.move(folder / name, place / name)
    return place


def _free(folder: Path) -> Path:
    """Return a new folder beside `folder`: its name, and the first number that no other has."""
    resolved = folder.resolve()  # "." has no name
    for number in itertools.count(1):
        place = resolved.with_name(f"{resolved.name}-{number}")
        try:
            place.mkdir()
        except FileExistsError:
            continue
        if folder.is_absolute():
            return place
        return Path(os.path.relpath(place))
    raise AssertionError
