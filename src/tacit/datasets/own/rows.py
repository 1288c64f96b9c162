"""Rows of a user's own file, encoded: what every kind of file becomes, and how it is read.

A row's encoding is a function of that row and of public constants alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tacit.datasets.target import Target
from tacit.errors import OwnersError
from tacit.known_data.sketch import Marks

UNIT_BYTES = 16
UNIT = np.dtype((np.void, UNIT_BYTES))
Floats = npt.NDArray[np.float32]
Inputs = Floats | npt.NDArray[np.int64]  # numbers, or whole numbers
UnitIds = npt.NDArray[np.void]


class RowError(OwnersError):
    """A row that does not fit the schema.

    message: what does not fit. row: its number, from 0. where: its number, or its file. cause: what
    own code raised at it. help_: what to set, for the owner's screen.
    """

    def __init__(
        self,
        message: str,
        row: int,
        file: str = "",
        cause: BaseException | None = None,
        help_: str = "",
    ) -> None:
        self.message = message
        self.row = row
        self.where = file or f"row {row + 1}"
        if cause:
            reason = f": {words_of(cause)}"
        else:
            reason = ""
        if help_:
            reason += f" ({help_})"
        super().__init__(message, f"{message}, in {self.where} of the data{reason}")


def words_of(error: BaseException) -> str:
    """Return what own code said when it raised, in one line."""
    return " ".join(str(error).split())[:300] or "without a word"


@dataclass(frozen=True, slots=True, eq=False)
class EncodedRows:
    """Rows: x float32 or int64 (n, *shape), y int64 or float32 (n,), whose each is: units (n,)."""

    x: Inputs
    y: npt.NDArray[np.int64] | Floats
    units: UnitIds


class Reader(Protocol):
    """Reads one kind of file into rows, by a public schema."""

    @property
    def unit(self) -> str | None:
        """The column that names the unit; None: each row is one."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row's x."""
        ...

    @property
    def integers(self) -> int | None:
        """What the whole numbers of x are below; None: x is float32."""
        ...

    @property
    def target(self) -> Target:
        """The kind of target that y is: classes, or a number."""
        ...

    def digest(self) -> str:
        """Return SHA-256 of the schema, in hexadecimal: two that encode alike have the same."""
        ...

    @property
    def folders(self) -> bool:
        """Whether what it reads may be a folder."""
        ...

    def content(self, path: Path) -> str:
        """Return SHA-256 of all that is read at `path`, in hexadecimal. Raises DataError."""
        ...

    def read(self, path: Path) -> Iterator[EncodedRows]:
        """Yield its rows, some thousand at a time, in bounded memory. Raises DataError."""
        ...

    def inputs(self, path: Path) -> Iterator[Inputs]:
        """Yield x of its rows, which need neither target nor unit. Raises DataError."""
        ...

    def marks(self, path: Path) -> Iterator[Marks]:
        """Yield what its rows hold, and whose they are. Raises DataError."""
        ...

    def remarks(self, path: Path, *, quoting: bool = False) -> Iterator[str]:
        """Yield what its owner should know of the rows, for no log.

        quoting: whether a cell may be quoted, as on the screen of `tacit check`. Raises
        OwnersError where nearly all of a column does not fit the schema; DataError.
        """
        ...


def hashed(contents: Iterable[bytes]) -> UnitIds:
    """Return 16 bytes of SHA-256 of each: who a row is of, without saying it."""
    digests = b"".join(hashlib.sha256(content).digest()[:UNIT_BYTES] for content in contents)
    return np.frombuffer(digests, dtype=UNIT)


def each_its_own(x: Inputs, y: npt.NDArray[np.generic]) -> UnitIds:
    """Return the units, where each row is its own: by what the encoded row holds."""
    return hashed(row.tobytes() + label.tobytes() for row, label in zip(x, y, strict=True))


def marks_of(parts: Iterable[EncodedRows], unit: str | None) -> Iterator[Marks]:
    """Yield x and y of encoded rows, and their unit if `unit` names a column."""
    for part in parts:
        if unit is None:
            yield Marks(part.units, None)
        else:
            yield Marks(each_its_own(part.x, part.y), part.units)
