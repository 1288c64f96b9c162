"""Own rows by own code: a function beside the run file that gives a map-style torch Dataset."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch.utils.data import Dataset

from tacit.datasets.own.array_values import Values
from tacit.datasets.own.file_reading import digest, digest_of
from tacit.datasets.own.rows import EncodedRows, Inputs, RowError, each_its_own, marks_of, words_of
from tacit.datasets.own.unit_ids import unit_ids
from tacit.datasets.target import Target
from tacit.errors import FROM_OWN_CODE, ConfigError, OwnersError
from tacit.known_data.sketch import Marks
from tacit.user_code import entry_digest, load_entry

_BLOCK_ROWS = 1024


@dataclass(frozen=True, slots=True)
class DatasetReader:
    """Reads what `entry` ("module:name", in `folder`, the run file's, or installed) gives.

    It is called with the path of the file or folder, and `arguments`. It gives an object with `len`
    and `[number]`, which is (x, y), or (x, y, unit) if `unit` has a name. Rows are asked for from
    the first to the last, once. The first of each thousand is asked for again after the others, and
    must be the same.
    """

    entry: str
    arguments: Mapping[str, Any]
    unit: str | None
    values: Values
    folder: Path = field(compare=False)

    folders: ClassVar[bool] = True

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row's x."""
        return self.values.shape

    @property
    def integers(self) -> int | None:
        """What the whole numbers of x are below; None: x is float32."""
        return self.values.integers

    @property
    def target(self) -> Target:
        """The kind of target that y is."""
        return self.values.target

    def code(self) -> str:
        """Return SHA-256 of the entry's code. Executes nothing. Raises ConfigError."""
        return entry_digest(self.entry, self.folder, "data.entry")

    def digest(self) -> str:
        """Return SHA-256 of the schema and of the code."""
        content = [self.entry, self.arguments, self.unit, asdict(self.values), self.code()]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def content(self, path: Path) -> str:
        """Return SHA-256 of the file, or of all files in the folder. Raises DataError."""
        if not path.is_dir():
            return digest(path)
        return digest_of(sorted(file for file in path.rglob("*") if file.is_file()), path)

    def read(self, path: Path) -> Iterator[EncodedRows]:
        """Yield the rows, a thousand at a time. Raises ConfigError, DataError."""
        width = 3 if self.unit else 2
        for first, (raw, target, *unit) in self._blocks(path, width):
            x = self.values.x(raw, f"{self.entry}: x", first)
            y = self.values.y(np.asarray(target), f"{self.entry}: y", first)
            whose = f"{self.entry}: unit"
            if unit:
                ids = unit_ids(unit[0], whose, first)
            else:
                ids = each_its_own(x, y)
            yield EncodedRows(x, y, ids)

    def inputs(self, path: Path) -> Iterator[Inputs]:
        """Yield x of every row. Raises ConfigError, DataError."""
        for first, (raw, *_) in self._blocks(path, 1):
            yield self.values.x(raw, f"{self.entry}: x", first)

    def marks(self, path: Path) -> Iterator[Marks]:
        """Yield what its rows hold as they are read, and whose they are. Raises DataError."""
        return marks_of(self.read(path), self.unit)

    def remarks(self, path: Path, *, quoting: bool = False) -> Iterator[str]:
        """Yield nothing: no column is taken for another."""
        return iter(())

    def _blocks(self, path: Path, width: int) -> Iterator[tuple[int, list[Any]]]:
        """Yield the number of the first row; then x as an array, and the rest as lists."""
        rows = self._opened(path)
        for first in range(0, len(rows), _BLOCK_ROWS):
            last = min(first + _BLOCK_ROWS, len(rows))
            block = [self._row(rows, row, width) for row in range(first, last)]
            self._same(block[0], self._row(rows, first, width), first)
            x, *others = zip(*block, strict=True)
            yield first, [np.stack(x), *map(list, others)]

    def _opened(self, path: Path) -> Any:
        entry = load_entry(self.entry, self.folder, "data.entry")
        if not entry.from_folder and not _a_dataset(entry.target):
            raise ConfigError(
                f"data.entry={self.entry}: of an installed package, only a class of "
                "torch.utils.data.Dataset can be named; write a function beside the run file"
            )
        try:
            rows = entry.target(str(path), **self.arguments)
            len(rows)
        except FROM_OWN_CODE as error:
            call = f"data.entry={self.entry}: called with {path.name!r}: "
            must = "; it must give an object with a length and rows by number"
            raise OwnersError(
                f"{call}{type(error).__name__}{must}",
                f"{call}{type(error).__name__}: {words_of(error)}{must}",
            ) from error
        return rows

    def _row(self, rows: Any, row: int, width: int) -> tuple[Any, ...]:
        """Return (x, y, unit), as far as they are asked for. Raises RowError."""
        try:
            item = rows[row]
            if isinstance(item, tuple | list):
                cells = tuple(item)
            else:
                cells = (item,)
            numbers = [np.asarray(cell) for cell in cells[: min(width, 2)]]
        except FROM_OWN_CODE as error:
            message = f"data.entry={self.entry}: {type(error).__name__}"
            raise RowError(message, row, cause=error) from error
        shapes = [self.shape, self.target.shape]
        if len(cells) < width or any(
            (array.shape, array.dtype.kind in "biuf") != (shape, True)
            for array, shape in zip(numbers, shapes, strict=False)
        ):
            if width > 2:
                what = "(x, y, unit)"
            else:
                what = "(x, y)"
            raise RowError(
                f"data.entry={self.entry}: expected {what} with x of numbers and shape "
                f"{list(self.shape)}, and y {_of_shape(self.target.shape)}",
                row,
            )
        return (*numbers, *cells[2:width])

    def _same(self, once: tuple[Any, ...], again: tuple[Any, ...], row: int) -> None:
        """Raise RowError where a row is drawn anew each time.

        Every edge would deal it elsewhere: its person would be charged at one edge and used at two.
        """
        numbers = zip(once[:2], again[:2], strict=True)
        if any(array.tobytes() != other.tobytes() for array, other in numbers):
            raise RowError(
                f"data.entry={self.entry}: gives one row in two ways; leave out what is random, as "
                "a row must be a function of itself alone",
                row,
            )


def _of_shape(shape: tuple[int, ...]) -> str:
    if shape:
        return f"of shape {list(shape)}"
    return "one number"


def _a_dataset(target: object) -> bool:
    return isinstance(target, type) and issubclass(target, Dataset)


@dataclass(frozen=True, slots=True)
class OwnersReader(DatasetReader):
    """Reads what a member's own code gives, wherever that has it from.

    It is called with the folder that its module is in. Its rows are known again by what they hold.
    """

    def content(self, path: Path) -> str:
        """Return SHA-256 of the code: where the rows lie is known to it alone."""
        return self.code()
