"""Rows of arrays in an npz or a safetensors file: x, y and, if it has one, whose row it is.

Arrays are read some thousand rows at a time, and nothing in a file is ever executed: arrays of
Python objects are refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np
from numpy.lib import format as npy
from safetensors import SafetensorError, safe_open

from tacit.datasets.own.array_values import Array, Values
from tacit.datasets.own.file_reading import OTHERS, digest
from tacit.datasets.own.rows import EncodedRows, Inputs, each_its_own, marks_of
from tacit.datasets.own.unit_ids import unit_ids
from tacit.datasets.target import Target
from tacit.errors import DataError
from tacit.known_data.sketch import Marks
from tacit.regular_file import again, opened

# Types of safetensors that numpy has, too.
_NUMPYS = ("BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64", "F16", "F32", "F64")
_BLOCK_BYTES = 1 << 24  # the most bytes of x in a block
_UNIT_BYTES = 1 << 12  # the most bytes of one unit's name: it is read some thousand times at once
# What a damaged archive, or one that is encrypted or packed in another way, ends in.
_DAMAGED = (zipfile.BadZipFile, zlib.error, SafetensorError, EOFError, RuntimeError, TypeError)
Take = Callable[[int, int], Array]  # (first row, after the last one)


@dataclass(frozen=True, slots=True)
class ArraysReader:
    """Reads arrays x (n, *shape), y (n,), and unit (n,) if it has a name."""

    x: str
    y: str
    unit: str | None
    values: Values

    folders: ClassVar[bool] = False

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

    def digest(self) -> str:
        """Return SHA-256 of the schema."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    def content(self, path: Path) -> str:
        """Return SHA-256 of the file. Raises DataError."""
        return digest(path)

    def read(self, path: Path) -> Iterator[EncodedRows]:
        """Yield the file's rows, in bounded memory. Raises DataError."""
        for first, (raw, target, *unit) in self._blocks(path, with_targets=True):
            x = self.values.x(raw, f"{path.name}: array {self.x!r}", first)
            y = self.values.y(target, f"{path.name}: array {self.y!r}", first)
            whose = f"{path.name}: array {self.unit!r}"
            if unit:
                ids = unit_ids(unit[0].tolist(), whose, first)
            else:
                ids = each_its_own(x, y)
            yield EncodedRows(x, y, ids)

    def inputs(self, path: Path) -> Iterator[Inputs]:
        """Yield x of every row; the file need not have more. Raises DataError."""
        for first, (raw,) in self._blocks(path, with_targets=False):
            yield self.values.x(raw, f"{path.name}: array {self.x!r}", first)

    def marks(self, path: Path) -> Iterator[Marks]:
        """Yield what its rows hold as they are read, and whose they are. Raises DataError."""
        return marks_of(self.read(path), self.unit)

    def remarks(self, path: Path, *, quoting: bool = False) -> Iterator[str]:
        """Yield nothing: no column is taken for another."""
        return iter(())

    def _blocks(self, path: Path, *, with_targets: bool) -> Iterator[tuple[int, list[Array]]]:
        """Yield the number of the first row, and some rows of each array."""
        if with_targets:
            others = [self.y, *([self.unit] if self.unit else [])]
        else:
            others = []
        with _opened(path, [self.x, *others]) as arrays:
            count = self._checked(path, arrays)
            step = max(1, _BLOCK_BYTES // (8 * math.prod(self.shape)))
            for first in range(0, count, step):
                last = min(first + step, count)
                yield first, [array.take(first, last) for array in arrays]

    def _checked(self, path: Path, arrays: list[_Stored]) -> int:
        """Return how many rows there are. Raises DataError for arrays of other shapes or kinds."""
        x, *others = arrays
        if x.shape[1:] != self.shape:
            raise DataError(
                f"{path.name}: array {x.name!r}: expected shape (n, "
                f"{', '.join(map(str, self.shape))}), found {x.shape}"
            )
        for array, of_one in zip(others, (self.target.shape, ()), strict=False):
            expected = (*x.shape[:1], *of_one)
            if array.shape != expected:
                raise DataError(
                    f"{path.name}: array {array.name!r}: expected shape {expected}, as many as "
                    f"{x.name!r} has rows; found {array.shape}"
                )
        for array in arrays[:2]:
            if array.kind not in "biuf":
                raise DataError(f"{path.name}: array {array.name!r}: expected numbers")
        return int(x.shape[0])


@dataclass(frozen=True, slots=True)
class _Stored:
    """An array of a file. kind: numpy's letter for what it holds. take: some of its rows.

    Rows are taken from the first to the last, each once.
    """

    name: str
    shape: tuple[int, ...]
    kind: str
    take: Take


@contextmanager
def _opened(path: Path, names: list[str]) -> Iterator[list[_Stored]]:
    """Open the arrays `names` of the file, which stays open meanwhile. Raises DataError."""
    try:
        with ExitStack() as stack:
            stream = stack.enter_context(opened(path))
            head = stream.read(4)
            stream.seek(0)
            if OTHERS.get(head) == "a zip":
                archive = stack.enter_context(zipfile.ZipFile(stream))
                _all_there(
                    path, names, [name[:-4] for name in archive.namelist() if name.endswith(".npy")]
                )
                yield [
                    _member(path, name, stack.enter_context(archive.open(f"{name}.npy")))
                    for name in names
                ]
            else:
                yield _tensors(path, names, head, stream, stack)
    except _DAMAGED as error:
        raise DataError(
            f"{path.name}: is no npz or safetensors file, or is damaged or cut off: {error}"
        ) from error
    except OSError as error:
        raise DataError(f"{path.name}: {error.strerror or 'cannot be read'}") from error


def _all_there(path: Path, names: list[str], present: list[str]) -> None:
    for name in names:
        if name not in present:
            raise DataError(
                f"{path.name}: array {name!r}: expected one; the file has {', '.join(present[:20])}"
            )


def _member(path: Path, name: str, file: IO[bytes]) -> _Stored:
    """Return an array of an npz, read as it comes."""
    try:
        version = npy.read_magic(file)
        if version == (1, 0):
            header = npy.read_array_header_1_0
        else:
            header = npy.read_array_header_2_0
        shape, by_columns, dtype = header(file)
    except ValueError as error:
        raise DataError(f"{path.name}: array {name!r}: is not one of numpy's") from error
    if not 0 < dtype.itemsize <= _UNIT_BYTES:
        raise DataError(
            f"{path.name}: array {name!r}: has cells of {dtype.itemsize:,} bytes; a cell has 1 to "
            f"{_UNIT_BYTES:,}"
        )
    if dtype.hasobject:
        raise DataError(f"{path.name}: array {name!r}: holds Python objects, which are not read")
    if by_columns and len(shape) > 1:
        raise DataError(
            f"{path.name}: array {name!r}: is stored by columns; save np.ascontiguousarray of it"
        )

    def take(first: int, last: int) -> Array:
        size = dtype.itemsize * math.prod(shape[1:]) * (last - first)
        content = file.read(size)
        if len(content) < size:
            raise EOFError(f"array {name!r} has fewer rows than it says")
        return np.frombuffer(content, dtype).reshape(last - first, *shape[1:])

    return _Stored(name, tuple(shape), dtype.kind, take)


def _tensors(
    path: Path, names: list[str], head: bytes, stream: IO[bytes], stack: ExitStack
) -> list[_Stored]:
    """Return the arrays of a safetensors file."""
    for magic, what in OTHERS.items():
        if head.startswith(magic):
            raise DataError(f"{path.name}: is {what}, not an npz or safetensors file")
    with safe_open(again(stream), framework="np") as file:
        _all_there(path, names, list(file.keys()))
        return [_slices(name, file.get_slice(name), stream) for name in names]


def _by_torch(name: str, stream: IO[bytes], first: int, last: int) -> Array:
    """Return rows of a type that numpy has not, as bfloat16, in float32."""
    with safe_open(again(stream), framework="pt") as file:
        array: Array = file.get_slice(name)[first:last].float().numpy()
    return array


def _slices(name: str, stored: Any, stream: IO[bytes]) -> _Stored:
    shape = tuple(stored.get_shape())
    if stored.get_dtype() not in _NUMPYS:
        return _Stored(name, shape, "f", lambda first, last: _by_torch(name, stream, first, last))
    if shape and shape[0]:
        kind = np.asarray(stored[0:1]).dtype.kind
    else:
        kind = "f"

    def take(first: int, last: int) -> Array:
        # Mapped anew each time: pages that were read stay a process's until its mapping ends.
        with safe_open(again(stream), framework="np") as file:
            return np.asarray(file.get_slice(name)[first:last])

    return _Stored(name, shape, kind, take)


def row_shape(path: Path, name: str) -> tuple[int, ...]:
    """Return the shape of one row of array `name`. Raises DataError."""
    with _opened(path, [name]) as (stored,):
        return stored.shape[1:]
