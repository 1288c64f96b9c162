"""An edge's rows as a folder of fixed-width files, made once from its file and mapped from then on.

    meta.json   format, SHA-256 of the source and of the schema, who the rows are dealt to, how many
    x.f32       float32 (n + 1, *shape), the last one the public row, all zeros; or x.i64, int64
    y.bin       int64 or float32 (n + 1,), or int64 (n + 1, length)
    units.bin   16 bytes (n,)

The folder is made beside its place and renamed, so it is whole or not there. A source, a schema or
a dealing that differs makes it anew. Reading it copies nothing: what is drawn is paged in.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tacit.datasets.edge_rows import EdgeRows, Units
from tacit.datasets.held_out import SplitHalf, numbered
from tacit.datasets.own.dealing import CopyCounts, LikeRows, edges_of
from tacit.datasets.own.featured import plain, seen
from tacit.datasets.own.rows import UNIT, EncodedRows, Reader, UnitIds
from tacit.errors import DataError

# 1: units had another text in some kinds of data; 2: like rows had one edge; 3: of an id with
# accents each way to write them was a unit
FORMAT = 4
_OTHERS = ("y.bin", "units.bin")  # beside x


@dataclass(frozen=True, slots=True)
class Dealt:
    """The part of a file that edge number `index` of `edges` has, by `seed`.

    With one edge it is all of the file.
    """

    index: int = 0
    edges: int = 1
    seed: int = 0


@dataclass(frozen=True, slots=True)
class UnitRows:
    """The way in which a unit's rows count: up to `most` in a draw, by mean gradient or by sum."""

    most: int = 1
    mean: bool = True


def rows_of(
    path: Path,
    reader: Reader,
    folder: Path,
    dealt: Dealt = Dealt(),
    most: int | None = None,
    of_unit: UnitRows = UnitRows(),
    half: SplitHalf | None = None,
) -> EdgeRows:
    """Return the rows of the file at `path` that are this edge's, mapped from `folder`.

    most: the public number of rows or, with a unit column, of units, that an edge may have. half:
    the side of a split that they are on; None: there is none. Raises DataError for a row that does
    not fit, for more than `most`, and for none, unless they are held out.
    """
    meta = {
        "format": FORMAT,
        "source": reader.content(path),
        "schema": reader.digest(),
        "dealt": asdict(dealt),
    }
    if half is not None:
        meta["split"] = half.split.digest()
    if not _is_there(folder, meta):
        _make(path, reader, folder, dealt, half, meta)
    x, y = _mapped(folder, reader)
    if reader.unit:
        units = _units(folder, of_unit)
    else:
        units = None
    rows = EdgeRows(_tensor(x), _tensor(y), units)
    _count(path, rows, most, may_be_none=half is not None and half.held)
    return rows


def _units(folder: Path, of_unit: UnitRows) -> Units:
    """Return the units: the numbers of their rows, unit by unit."""
    ids = _array(folder / "units.bin", UNIT)
    order = np.argsort(ids, kind="stable").astype(np.int64)
    first = np.ones(len(ids), dtype=np.bool_)
    first[1:] = ids[order[1:]] != ids[order[:-1]]
    starts = np.append(np.flatnonzero(first), len(ids)).astype(np.int64)
    return Units(order, starts, of_unit.most, of_unit.mean)


def _count(path: Path, rows: EdgeRows, most: int | None, *, may_be_none: bool) -> None:
    if not rows.records and not may_be_none:
        raise DataError(f"{path.name}: no row is this edge's")
    if most is not None and rows.records > most:
        if rows.units is None:
            word = "rows"
        else:
            word = "units"
        raise DataError(
            f"{path.name}: more {word} than data.rows_max={most}; set it higher (in a federation: "
            f"join --rows): it is public, and sets no ε"
        )


def _is_there(folder: Path, meta: dict[str, object]) -> bool:
    try:
        stored = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(stored, dict) and {k: v for k, v in stored.items() if k != "rows"} == meta


def _make(
    path: Path,
    reader: Reader,
    folder: Path,
    dealt: Dealt,
    half: SplitHalf | None,
    meta: dict[str, object],
) -> None:
    """Write the folder from the file. Raises DataError; then nothing is left of it."""
    fresh = folder.with_name(folder.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True, mode=0o700)
    try:
        count = _write(path, reader, fresh, dealt, half)
        _durable(fresh / "meta.json", json.dumps(meta | {"rows": count}).encode())
    except BaseException:  # whatever ends it, Ctrl-C or a user's own reader: no rows stay behind
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)


def _write(path: Path, reader: Reader, folder: Path, dealt: Dealt, half: SplitHalf | None) -> int:
    count = 0
    with ExitStack() as stack:
        name, dtype = _input(reader)
        paths = [folder / each for each in (name, *_OTHERS)]
        files = [stack.enter_context(path.open("wb")) for path in paths]
        for rows in _dealt(path, reader, dealt, half):
            for file, content in zip(files, (rows.x, rows.y, rows.units), strict=True):
                file.write(np.ascontiguousarray(content).data.cast("B") if len(rows.y) else b"")
            count += len(rows.y)
        files[0].write(bytes(dtype.itemsize * math.prod(reader.shape)))  # the public row
        files[1].write(bytes(np.dtype(_target(reader)).itemsize * math.prod(reader.target.shape)))
        for file in files:
            file.flush()
            os.fsync(file.fileno())
    return count


def _dealt(
    path: Path, reader: Reader, dealt: Dealt, half: SplitHalf | None
) -> Iterator[EncodedRows]:
    like = LikeRows()
    for rows in plain(reader).read(path):  # features, which cost most, only of rows that are ours
        if dealt.edges == 1 and half is None:
            yield seen(reader, rows)
            continue
        if reader.unit is None:
            copies = like.before(rows.units)
        else:
            copies = None
        mine = np.ones(len(rows.units), np.bool_)
        if dealt.edges > 1:
            edges = edges_of(rows.units, seed=dealt.seed, edges=dealt.edges, copies=copies)
            mine = edges == dealt.index
        if half is not None:
            mine &= half.mask(_named(rows.units, copies))
        dealt_rows = EncodedRows(rows.x[mine], rows.y[mine], rows.units[mine])
        yield seen(reader, dealt_rows)


def _named(units: UnitIds, copies: CopyCounts | None) -> Iterable[bytes]:
    """Return the ids of units; like rows, each a unit of its own, have ids that differ."""
    ids = (unit.tobytes() for unit in units)
    return ids if copies is None else numbered(ids, map(int, copies))


def _durable(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _mapped(folder: Path, reader: Reader) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    name, dtype = _input(reader)
    x = _array(folder / name, dtype).reshape(-1, *reader.shape)
    y = _array(folder / "y.bin", _target(reader)).reshape(-1, *reader.target.shape)
    return x, y


def _input(reader: Reader) -> tuple[str, np.dtype[Any]]:
    """Return the file of x, and its type of numbers."""
    if reader.integers is None:
        return "x.f32", np.dtype(np.float32)
    return "x.i64", np.dtype(np.int64)


def _target(reader: Reader) -> npt.DTypeLike:
    if reader.target.codes:
        return np.int64
    return np.float32


def _array(path: Path, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return the file as an array that is paged in when it is read, and not written to."""
    if path.stat().st_size == 0:
        return np.empty(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r")


def _tensor(mapped: npt.NDArray[Any]) -> torch.Tensor:
    """Return the same memory as a tensor, which is only ever indexed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the warning that writing to it is undefined
        return torch.from_numpy(mapped)
