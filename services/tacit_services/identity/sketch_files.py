"""The sketches beside the ledgers of own data: whose rows were released from, as far as they tell.

    ledgers/sketch.key           32 bytes, of this user's data folder alone
    ledgers/<id>/units-all.json  of the file that is dealt to all edges
    ledgers/<id>/units-<n>.json  of the file of edge n

All have mode 0600. A sketch is of all that the data ever was: it grows with the file, and forgets
nobody. It never leaves this machine. Without the key nobody can test whether a person is in it, so
a copy of a ledger's folder reveals nothing. A reader of the user's files can read the rows, too.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tacit.errors import PrivacyError, other_format
from tacit.known_data.owned import Owned
from tacit.known_data.sketch import Sketches, merged, packed, sketched, unpacked
from tacit_services.disk import files

FORMAT = 1
_KEY = "sketch.key"
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True, eq=False)
class PartSketches:
    """A part's sketches, and the files that they were made of: SHA-256 and schema of each."""

    files: tuple[str, ...]
    sketches: Sketches


def made_key(root: Path) -> bytes:
    """Return the key of this register, made where there is none. Raises OSError, PrivacyError.

    The caller has the register locked.
    """
    if (key := key_of(root)) is None:
        key = secrets.token_bytes(_KEY_BYTES)
        files.write(root / _KEY, key, files.SECRET)
    return key


def key_of(root: Path) -> bytes | None:
    """Return the key of this register; None: it has no sketch yet. Raises OSError, PrivacyError."""
    path = root / _KEY
    if not path.exists():
        if any(root.glob("*/units-*.json")):
            raise PrivacyError(
                f"{path}: is gone, and without it no data is known by its rows; put it back from a "
                "backup (or delete every units-*.json beside it: data is known by its rows again "
                "from its next use on)"
            )
        return None
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise PrivacyError(f"{path}: is damaged; put it back from a backup of the folder")
    return key


def part_of(owned: Owned, slot: str) -> str:
    """Return what the sketch of this data is called: of a dealt file one, else one of each edge."""
    if owned.dealing:
        return "all"
    return slot


def drawn(owned: Owned, key: bytes) -> Sketches | None:
    """Return the sketches of the data's file, in one pass; None where it has no marks.

    A second call for the same bytes and schema does not read. Raises ConfigError, DataError.
    """
    if owned.marks is None:
        return None
    return _drawn(owned, key)


@lru_cache(maxsize=64)  # a dealt file is asked for by every edge
def _drawn(owned: Owned, key: bytes) -> Sketches:
    assert owned.marks is not None
    return sketched(owned.marks(), key)


def name_of(owned: Owned) -> str:
    """Return the name by which a sketch knows this file."""
    return f"{owned.digest}:{owned.view}"


def read(folder: Path, part: str) -> PartSketches | None:
    """Return the sketches of a part; None: of tacit 0.2, which made none. Raises PrivacyError."""
    path = _path(folder, part)
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_bytes())
        if (number := content["format"]) != FORMAT:
            raise ValueError(other_format(number, FORMAT))
        units = content["units"]
        sketches = Sketches(unpacked(content["rows"]), None if units is None else unpacked(units))
        return PartSketches(tuple(content["files"]), sketches)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise PrivacyError(
            f"{path}: is damaged ({error}); put it back from a backup of the folder"
        ) from error


def parts(folder: Path) -> Iterator[tuple[str, PartSketches]]:
    """Yield every part of the data in `folder` that has sketches. Raises PrivacyError."""
    for path in sorted(folder.glob("units-*.json")):
        part = path.stem.removeprefix("units-")
        if (stored := read(folder, part)) is not None:
            yield part, stored


def add(folder: Path, part: str, owned: Owned, sketches: Sketches) -> None:
    """Let the part know this file, too, durably. Raises OSError, PrivacyError."""
    stored = read(folder, part)
    name = name_of(owned)
    if stored is None:
        write(folder, part, PartSketches((name,), sketches))
    elif name not in stored.files:
        write(folder, part, PartSketches((*stored.files, name), merged(stored.sketches, sketches)))


def write(folder: Path, part: str, part_sketches: PartSketches) -> None:
    """Replace the sketches of a part, durably. Raises OSError."""
    units = part_sketches.sketches.units
    content = {
        "format": FORMAT,
        "files": part_sketches.files,
        "rows": packed(part_sketches.sketches.rows),
        "units": None if units is None else packed(units),
    }
    files.write(_path(folder, part), json.dumps(content).encode(), files.SECRET)


def _path(folder: Path, part: str) -> Path:
    return folder / f"units-{part}.json"
