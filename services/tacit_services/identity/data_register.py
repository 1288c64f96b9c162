"""The register of users' own data: what each was called, and what its files were.

ledgers/lock               held while the register is read or written
ledgers/<id>/data.json     an entry
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tacit import file_lock
from tacit.errors import PrivacyError, other_format
from tacit.known_data.owned import Owned
from tacit_services.disk import files

FORMAT = 2  # 1, of tacit 0.2: had no `joined`


@dataclass(frozen=True, slots=True)
class DataRecord:
    """The record of one owner's data, as in data.json.

    id: the folder's name, and what the ledgers call their data. names, digests: all that the data
    was ever called, and the SHA-256 of every file that it ever was. unit: fixed by the first
    charge. dealing: how the file is dealt now, in words. number: of the dealing. before: the ledger
    that an edge of this dealing starts from, relative to the folder. edges: SHA-256 of the files of
    each edge, where they have files of their own. joined: entries that this one has taken over,
    with what was spent there. They count no longer.
    """

    id: str
    names: tuple[str, ...]
    digests: tuple[str, ...]
    unit: str
    dealing: str
    number: int = 0
    before: str | None = None
    edges: dict[str, tuple[str, ...]] = field(default_factory=dict)
    joined: tuple[str, ...] = ()


def entries(root: Path) -> list[DataRecord]:
    """Return all entries that count.

    Raises PrivacyError for a damaged one, ValueError for its format.
    """
    records = [read(path) for path in sorted(root.glob("*/data.json"))]
    over = {name for entry in records for name in entry.joined}
    return [entry for entry in records if entry.id not in over]


def with_name(root: Path, name: str) -> DataRecord | None:
    """Return the entry of the data that was ever called so. Raises as `entries`."""
    return next((entry for entry in entries(root) if name in entry.names), None)


def begun(owned: Owned) -> DataRecord:
    """Return the entry of data that nothing is known of."""
    name = hashlib.sha256(owned.name.encode()).hexdigest()[:16]
    return DataRecord(name, (), (), owned.unit, owned.dealing)


def named(entry: DataRecord, owned: Owned) -> DataRecord:
    """Return the entry that knows the data's name and bytes from now on."""
    names = added(entry.names, owned.name)
    digests = added(entry.digests, owned.digest)
    return replace(entry, names=names, digests=digests)


def added(existing: tuple[str, ...], *others: str) -> tuple[str, ...]:
    """Return `existing` and those of the others that are new, each once."""
    return tuple(dict.fromkeys((*existing, *others)))


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Lock the register in `root` against others until the end of the block."""
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    with file_lock.locked(root / "lock"):
        yield


def read(path: Path) -> DataRecord:
    """Return the entry in this data.json.

    Raises PrivacyError where it is damaged, and ValueError.
    """
    try:
        content = json.loads(path.read_bytes())
        number = content.pop("format")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(path, error) from error
    if number not in (1, FORMAT):
        raise ValueError(f"{path}: {other_format(number, FORMAT)}")
    try:
        edges = {slot: tuple(digests) for slot, digests in content.pop("edges").items()}
        names = tuple(content.pop("names"))
        digests = tuple(content.pop("digests"))
        joined = tuple(content.pop("joined", ()))
        return DataRecord(names=names, digests=digests, edges=edges, joined=joined, **content)
    except (KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> PrivacyError:
    return PrivacyError(
        f"{path}: is damaged ({error}); which ledger is whose cannot be told without it"
    )


def write(folder: Path, entry: DataRecord) -> None:
    """Replace the entry in `folder`, durably. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    content = {"format": FORMAT, **asdict(entry)}
    files.write(folder / "data.json", json.dumps(content, indent=1).encode(), files.SECRET)
    files.sync(folder.parent)
