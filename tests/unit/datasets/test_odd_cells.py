"""Cells that few files have: read by their own value, or not at all, and never in a traceback."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tacit.datasets.own.cells import dates, numbers
from tacit.datasets.own.schema import Category, Dated, Number, TableSchema
from tacit.datasets.own.table import TableReader
from tacit.datasets.own.table_form import USUAL, TableForm
from tacit.errors import DataError, OwnersError

WORDS = [
    *("nan(1)", "nan(abc)", "-nan", "+1", "1.", "  3", ".5", "+.5", "1e5", "1E+5", "1e400"),
    *("1e-400", "infinity", "-INF", "0x1F", "1_0", "١", "１", "1d5", "00012", "1e", "--", "tRue"),
    *("1 000", "\u00a05", "1,5", "- 5", "−5", "?", ""),
]


@pytest.mark.parametrize("word", WORDS)
def test_a_number_does_not_depend_on_the_cells_beside_it(word: str) -> None:
    alone = numbers(pa.array([word]), USUAL)
    beside = numbers(pa.array([word, "no number at all"]), USUAL)
    assert alone.unread[0] == beside.unread[0]
    assert (
        alone.values[:1].tobytes() == beside.values[:1].tobytes()
        or np.isnan([alone.values[0], beside.values[0]]).all()
    )


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64(), pa.string()])
@pytest.mark.parametrize("form", [USUAL, TableForm(decimal=","), TableForm(thousands=",")])
def test_a_code_with_a_fraction_is_no_value_in_every_type(
    kind: pa.DataType, form: TableForm
) -> None:
    if pa.types.is_string(kind):
        values = pa.array([text.replace(".", form.decimal) for text in ("-99.9", "7.5", "9999")])
    else:
        values = pa.array(np.array([-99.9, 7.5, 9999.0], kind.to_pandas_dtype()))
    read = numbers(values, form, ("-99.9",))
    assert not read.unread.any()
    assert np.isnan(read.values[0])
    assert read.values[1] == 7.5
    assert not np.isnan(read.values[2])


def test_a_code_is_no_number_beside_it() -> None:
    """The nearest float16 of 9999 is 10000, which is a number of its own in float64."""
    read = numbers(pa.array([9999.0, 10_000.0]), USUAL, ("9999",))
    assert np.isnan(read.values).tolist() == [True, False]


FAR = {
    "days": pa.array([18_262, 4_000_000, -900_000, None], pa.date32()),
    "milliseconds": pa.array([18_262 * 86_400_000, 2**62, -(2**62), None], pa.date64()),
    "seconds": pa.array([18_262 * 86_400, 2**62, -(2**62), None], pa.timestamp("s")),
}


@pytest.mark.parametrize("name", FAR)
def test_a_day_beyond_the_calendar_cannot_be_read(name: str) -> None:
    read = dates(FAR[name], "%Y-%m-%d")
    assert read.values == [datetime.date(2020, 1, 1), None, None, None]
    assert read.unread.tolist() == [False, True, True, False]


def test_a_time_is_of_the_day_in_its_zone() -> None:
    late = pa.array([datetime.datetime(2020, 1, 1, 23, 30)]).cast(pa.timestamp("us", "UTC"))
    east = late.cast(pa.timestamp("ns", "Asia/Tokyo"))
    assert dates(late, "%Y-%m-%d").values == [datetime.date(2020, 1, 1)]
    assert dates(east, "%Y-%m-%d").values == [datetime.date(2020, 1, 2)]
    before = pa.array([-1], pa.timestamp("ns"))
    assert dates(before, "%Y-%m-%d").values == [datetime.date(1969, 12, 31)]


def test_a_zone_that_nobody_knows_is_said_in_one_line(tmp_path: Path) -> None:
    column = Dated("seen", "%Y-%m-%d", "2020-01-01", "2021-12-31")
    table = {
        "seen": pa.array([0], pa.timestamp("s", "Nowhere/Atlantis")),
        "outcome": pa.array(["yes"]),
    }
    parquet.write_table(pa.table(table), tmp_path / "rows.parquet")
    reader = TableReader(TableSchema((column,), Category("outcome", ("no", "yes"))))
    with pytest.raises(OwnersError, match="expected dates in a zone that is known"):
        list(reader.read(tmp_path / "rows.parquet"))
    assert list(reader.remarks(tmp_path / "rows.parquet")) == []


def test_a_date_that_stands_for_none_is_missing_in_every_type() -> None:
    codes = ("9999-12-31",)
    days = pa.array([datetime.date(2020, 1, 1), datetime.date(9999, 12, 31)])
    for values in (days, days.cast(pa.string()), days.cast(pa.timestamp("s"))):
        pattern = "%Y-%m-%d %H:%M:%S" if pa.types.is_timestamp(values.type) else "%Y-%m-%d"
        assert dates(values, pattern, codes).values == [datetime.date(2020, 1, 1), None]


def test_one_odd_cell_is_left_out_and_others_are_read(tmp_path: Path) -> None:
    column = Dated("seen", "%Y-%m-%d", "2020-01-01", "2021-12-31")
    table = {
        "seen": pa.array([18_262, 4_000_000, 18_300], pa.date32()),
        "outcome": pa.array([1.0, 2.0, 3.0]),
    }
    parquet.write_table(pa.table(table), tmp_path / "rows.parquet")
    schema = TableSchema((column,), Number("outcome", 0.0, 4.0))
    rows = list(TableReader(schema, bad_rows="leave out").read(tmp_path / "rows.parquet"))
    assert np.concatenate([part.y for part in rows]).tolist() == [0.25, 0.75]


HEADED = Path("rows.csv")


@pytest.mark.parametrize(
    "text",
    ['"age", "outcome"\n1, "yes"\n', 'age,outcome\n1, "yes"\n', '"age",\t"outcome"\n1,yes\n'],
)
def test_a_blank_before_a_quote_is_said(tmp_path: Path, text: str) -> None:
    """Its quotes would be letters of the names and the values."""
    schema = TableSchema((Number("age", 0.0, 4.0),), Category("outcome", ("no", "yes")))
    (tmp_path / HEADED).write_text(text)
    with pytest.raises(DataError, match="has a blank before a quote"):
        list(TableReader(schema).read(tmp_path / HEADED))


def test_a_comment_may_name_some_of_the_columns(tmp_path: Path) -> None:
    schema = TableSchema((Number("age", 0.0, 4.0),), Category("outcome", ("no", "yes")))
    (tmp_path / HEADED).write_text("# age,outcome\n#of,outcome\nage,outcome\n1,yes\n")
    rows = list(TableReader(schema).read(tmp_path / HEADED))
    assert np.concatenate([part.x for part in rows]).tolist() == [[0.25]]


def test_an_accent_of_two_characters_is_the_same_value(tmp_path: Path) -> None:
    schema = TableSchema((Category("town", ("Zürich", "Bern")),), Category("t", ("no", "yes")))
    (tmp_path / HEADED).write_text("town,t\nZürich,yes\nZu\u0308rich,yes\n", encoding="utf-8")
    reader = TableReader(schema)
    rows = np.concatenate([part.x for part in reader.read(tmp_path / HEADED)])
    assert rows.tolist() == [[1.0, 0.0, 0.0]] * 2
    marks = np.concatenate([part.rows for part in reader.marks(tmp_path / HEADED)])
    assert marks[0] == marks[1]


def test_a_file_that_is_not_in_the_stated_encoding_is_said(tmp_path: Path) -> None:
    """In cp1252 each accent of UTF-8 is two other letters: Zürich is none of the values."""
    schema = TableSchema((Category("town", ("Zürich", "Bern")),), Category("t", ("no", "yes")))
    text = "town,t\n" + "Bern,yes\n" * 100 + "Zürich,yes\n"
    (tmp_path / HEADED).write_text(text, encoding="utf-8")
    reader = TableReader(schema, TableForm(encoding="cp1252"))
    assert [remark for remark in reader.remarks(tmp_path / HEADED) if "is UTF-8" in remark]
    for encoding in ("cp1252", "ascii"):
        content = text.replace("ü", "ue") if encoding == "ascii" else text
        (tmp_path / HEADED).write_bytes(content.encode(encoding))
        assert not any("is UTF-8" in remark for remark in reader.remarks(tmp_path / HEADED))
