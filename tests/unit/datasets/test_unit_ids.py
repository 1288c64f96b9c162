"""A unit's id: of its own value alone, and the same one in every type and every kind of data."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import csv, parquet

from tacit.datasets.own.array_values import Bounds, Values
from tacit.datasets.own.arrays import ArraysReader
from tacit.datasets.own.images import ImagesReader
from tacit.datasets.own.rows import Reader, RowError, hashed
from tacit.datasets.own.schema import Category, Number, TableSchema
from tacit.datasets.own.table import TableReader
from tacit.datasets.own.torch_dataset import DatasetReader
from tacit.datasets.own.unit_ids import unit_text

VALUES = Values((1,), Bounds(0.0, 1.0), 2)
TABLE = TableReader(TableSchema((Number("x", 0, 1),), Category("y", ("0",)), "who"))
PICTURES = ImagesReader((1, 1), 1, ("0",), "path", "y", "who")
CODE = "from math import inf, nan\n\n\ndef rows(path):\n    return [([0.5], 0, unit) for unit in {units}]\n"
KINDS = ["csv", "parquet", "npz", "images", "python"]


def rows_file(kind: str, folder: Path, who: Any) -> tuple[Path, Reader]:
    """Return a file of `kind` with a row for each of `who`, a NumPy array, and its reader."""
    path = folder / f"rows.{kind}"
    if kind == "npz":
        np.savez(path, x=np.full((len(who), 1), 0.5), y=np.zeros(len(who), int), who=who)
        return path, ArraysReader("x", "y", "who", VALUES)
    if kind == "python":
        return coded(folder, repr(who.tolist()))
    Image.new("L", (1, 1)).save(folder / "a.png")
    columns = {"x": [0.5] * len(who), "y": ["0"] * len(who), "path": ["a.png"] * len(who)}
    # CSV as other programs write it: 7.0 for a number that is stored as a float
    table = pa.table(columns | {"who": list(map(str, who.tolist())) if kind == "csv" else who})
    csv.write_csv(table, path) if kind == "csv" else parquet.write_table(table, path)
    return path, PICTURES if kind == "images" else TABLE


def coded(folder: Path, units: str) -> tuple[Path, Reader]:
    (folder / "visits.py").write_text(CODE.format(units=units))
    return folder, DatasetReader("visits:rows", {}, "who", VALUES, folder)


def ids(path: Path, reader: Reader) -> list[bytes]:
    return [unit.tobytes() for rows in reader.read(path) for unit in rows.units]


def of(*texts: str) -> list[bytes]:
    return [unit.tobytes() for unit in hashed(map(str.encode, texts))]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("who", "texts"),
    [
        (np.array([7, 12, -3]), ("7", "12", "-3")),
        (np.array([7.0, 12.0, -3.0]), ("7", "12", "-3")),
        (np.array([7.0], np.float32), ("7",)),
        (np.array([2.0**52 + 1, 2.0**53]), (str(2**52 + 1), str(2**53))),
        (np.array(["p 1", "007", "1.5.0", "7.10", "é"]), ("p 1", "007", "1.5.0", "7.10", "é")),
        (np.array(["7.0", "-3.00"]), ("7", "-3")),
        (np.array([2**60 + 1, 2**60 + 3]), (str(2**60 + 1), str(2**60 + 3))),
    ],
)
def test_a_value_has_one_text_in_every_type_and_kind(
    tmp_path: Path, kind: str, who: Any, texts: tuple[str, ...]
) -> None:
    if kind == "csv" and who.dtype == float and who.max() > 1e15:
        pytest.skip("is written with an exponent")
    assert ids(*rows_file(kind, tmp_path, who)) == of(*texts)


@pytest.mark.parametrize("kind", KINDS[1:])  # in a CSV all are words
@pytest.mark.parametrize("bad", [8.5, float("inf"), 2.0**53 + 2, float("nan")])
def test_a_float_that_says_no_whole_number_is_refused(
    tmp_path: Path, kind: str, bad: float
) -> None:
    with pytest.raises(RowError) as refused:
        ids(*rows_file(kind, tmp_path, np.array([7.0, bad])))
    assert "whole number" in str(refused.value) or "missing" in str(refused.value)
    assert str(bad) not in str(refused.value)
    assert refused.value.where == "row 2"


def test_a_units_id_does_not_depend_on_the_rows_beside_it(tmp_path: Path) -> None:
    mixed = f"[7, 9.0, 'p1', {2**60 + 1}, {2**60 + 3}, True, b'p2']"
    assert ids(*coded(tmp_path, mixed)) == of(
        "7", "9", "p1", str(2**60 + 1), str(2**60 + 3), "true", "p2"
    )


@pytest.mark.parametrize("bad", ["object()", "[7]", "None", "' '", "'\\ud800'", "b'\\xff'"])
def test_a_unit_without_a_text_of_its_own_is_refused(tmp_path: Path, bad: str) -> None:
    with pytest.raises(RowError, match=r"visits:rows: unit: a (unit is a word|missing value)"):
        ids(*coded(tmp_path, f"[7, {bad}]"))


def test_decimals_are_whole_numbers_or_refused(tmp_path: Path) -> None:
    columns = {"x": [0.5] * 2, "y": ["0"] * 2}
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table(columns | {"who": [Decimal("7.00"), Decimal("12.00")]}), path)
    assert ids(path, TABLE) == of("7", "12")
    parquet.write_table(pa.table(columns | {"who": [Decimal("7.00"), Decimal("7.50")]}), path)
    with pytest.raises(RowError, match="whole number"):
        ids(path, TABLE)


def test_an_id_has_one_unit_whichever_way_its_accents_are_written() -> None:
    """A person in a file that a Mac and another machine have filled would count twice."""
    one, two = "J\u00fcrg", "Ju\u0308rg"
    assert unit_text(one, "who", 0) == unit_text(f" {two} ", "who", 1) == one
