"""What the ledger of a user's own data is found by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tacit.known_data.sketch import Marks

EDGE = "{edge}"  # in the name of a file: the number of its edge


@dataclass(frozen=True, slots=True)
class Owned:
    """What the ledger of a user's own data is found by.

    name: whose it is, or the file's absolute path. digest: SHA-256 of the file. unit: whose privacy
    it is. dealing: how one file was dealt, in words, or "" where an edge has a file of its own.
    marks: says what it holds, in one pass over it; None: it is found by name and bytes alone. view:
    of the schema by which it says that. file: its file's name, for messages. apart_from: names of
    ledgers that are of other people, as the owner says, though their ids or rows are alike.
    """

    name: str
    digest: str
    unit: str
    dealing: str
    view: str = ""
    marks: Callable[[], Iterator[Marks]] | None = field(default=None, compare=False, repr=False)
    apart_from: tuple[str, ...] = ()
    file: str = field(default="", compare=False)
