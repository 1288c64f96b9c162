"""A table's row has one mark, whatever file it comes in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import parquet

from tacit.datasets.own.schema import Category, Dated, Number, TableSchema
from tacit.datasets.own.table import TableReader

FEATURES = (Number("age", 0.0, 100.0, missing=0.0), Category("ward", ("A", "7"), missing="other"))
SCHEMA = TableSchema(FEATURES, Category("outcome", ("no", "yes")))
CSV = "age,ward,outcome\n70.5,A,yes\n7,7,no\n,,no\n0.1,B,yes\n"


def marks(path: Path, schema: TableSchema = SCHEMA) -> set[bytes]:
    return {bytes(row) for part in TableReader(schema).marks(path) for row in part.rows}


@pytest.mark.parametrize(
    "content",
    [
        CSV.replace("\n", "\r\n"),
        CSV + "\n",
        CSV.strip(),
        "\ufeff" + CSV,
        "age,ward,outcome\n0.1,B,yes\n7,7,no\n70.5,A,yes\n,,no\n",
        "ward,more,outcome,age\nA,1,yes,70.50\n7,2,no,7.0\n,3,no,\nB,4,yes,1e-1\n",
        "age,ward,outcome\n 70.5 ,A ,yes\n7,7.0,no\nNA,,no\n0.10,B,yes\n",
    ],
    ids=["CRLF", "newline", "none", "mark", "order", "columns", "writing"],
)
def test_the_form_of_a_table_does_not_matter(tmp_path: Path, content: str) -> None:
    (tmp_path / "one.csv").write_text(CSV)
    (tmp_path / "other.csv").write_bytes(content.encode())
    assert marks(tmp_path / "other.csv") == marks(tmp_path / "one.csv")
    assert len(marks(tmp_path / "one.csv")) == 4


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_a_parquet_has_the_marks_of_its_csv(tmp_path: Path, kind: pa.DataType) -> None:
    (tmp_path / "one.csv").write_text(CSV)
    columns = {
        "age": pa.array([70.5, 7, None, 0.1], kind),
        "ward": pa.array(["A", "7", None, "B"]).dictionary_encode(),
        "outcome": pa.array(["yes", "no", "no", "yes"]),
    }
    parquet.write_table(pa.table(columns), tmp_path / "two.parquet")
    assert marks(tmp_path / "two.parquet") == marks(tmp_path / "one.csv")


def test_bounds_and_places_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text(CSV)
    others = (Number("age", 18.0, 64.0, missing=20.0), Category("ward", ("C",), missing="other"))
    assert marks(tmp_path / "one.csv", replace(SCHEMA, features=others)) == marks(
        tmp_path / "one.csv"
    )


@pytest.mark.parametrize("cell", ["70.6,A,yes", "70.5,B,yes", "70.5,A,no", "70.5,,yes", ",A,yes"])
def test_another_value_is_another_row(tmp_path: Path, cell: str) -> None:
    (tmp_path / "one.csv").write_text("age,ward,outcome\n70.5,A,yes\n")
    (tmp_path / "other.csv").write_text(f"age,ward,outcome\n{cell}\n")
    assert not marks(tmp_path / "one.csv") & marks(tmp_path / "other.csv")


def test_columns_are_told_apart() -> None:
    two = (Number("a", 0.0, 1.0), Number("b", 0.0, 1.0))
    from tacit.datasets.own.row_marks import marks_of

    schema = TableSchema(two, Number("c", 0.0, 1.0))
    chance = np.random.default_rng(1).random((200, 2))
    batch = pa.record_batch({"a": chance[:, 0], "b": chance[:, 1], "c": np.zeros(200)})
    swapped = pa.record_batch({"a": chance[:, 1], "b": chance[:, 0], "c": np.zeros(200)})
    straight, crossed = (
        marks_of(schema.columns, schema.unit, each).rows.tolist() for each in (batch, swapped)
    )
    assert len(set(straight)) == 200
    assert not set(straight) & set(crossed)


EXPORTED = TableSchema(
    (
        Category("smoker", ("true", "false")),
        Category("dose", ("7.5", "8.25")),
        Dated("seen", "%Y-%m-%d", "2020-01-01", "2030-12-31"),
    ),
    Category("outcome", ("no", "yes")),
)
DAYS = ["2021-03-04", "2022-12-31", "2020-01-01", "2021-03-04"]


def exported(path: Path, smoker: list[str], dose: list[str]) -> Path:
    rows = zip(smoker, dose, DAYS, ["yes", "no", "no", "yes"], strict=True)
    path.write_text("smoker,dose,seen,outcome\n" + "".join(",".join(row) + "\n" for row in rows))
    return path


def test_rows_that_another_program_exports_are_the_same_rows(tmp_path: Path) -> None:
    """Who saves the same rows anew gets no second budget."""
    first = marks(
        exported(tmp_path / "py.csv", ["True", "False"] * 2, ["7.5", "8.25"] * 2), EXPORTED
    )
    assert len(first) == 4
    others = [
        exported(tmp_path / "r.csv", ["TRUE", "FALSE"] * 2, ["7.50", "8.250"] * 2),
        exported(tmp_path / "sql.csv", ["true", " false"] * 2, ["7.500", "8.25"] * 2),
    ]
    days = pa.array(DAYS).cast(pa.date32())
    for kind in (pa.date32(), pa.date64(), pa.timestamp("ns"), pa.timestamp("s", "UTC")):
        path = tmp_path / f"{len(others)}.parquet"
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            noon = pa.array([f"{day}T12:00:00" for day in DAYS]).cast(pa.timestamp("s"))
            seen = pc.assume_timezone(noon, "UTC")
        else:
            seen = days.cast(kind)
        columns = {
            "smoker": pa.array([True, False] * 2),
            "dose": pa.array([7.5, 8.25] * 2, pa.float32()),
            "seen": seen,
            "outcome": pa.array(["yes", "no", "no", "yes"]),
        }
        parquet.write_table(pa.table(columns), path)
        others.append(path)
    for path in others:
        assert marks(path, EXPORTED) == first, path.name
