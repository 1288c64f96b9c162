"""The owner is told of columns that say little, of codes for no value, and of a wrong encoding."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacit.datasets.own.schema import Category, Dated, Hashed, Number, TableSchema
from tacit.datasets.own.table import TableReader
from tacit.datasets.own.table_form import TableForm

OUTCOME = Category("outcome", ("ill", "well"))
AGE = Number("age", 0, 110, missing=50.0)
Columns = Number | Category | Hashed | Dated


def table(path: Path, cells: list[str], encoding: str = "utf-8") -> Path:
    lines = [f"{cell};{'ill' if number % 3 else 'well'}" for number, cell in enumerate(cells)]
    path.write_text("\n".join(["age;outcome", *lines]) + "\n", encoding=encoding)
    return path


def remarks(path: Path, column: Columns, *, quoting: bool = True) -> list[str]:
    return list(TableReader(TableSchema((column,), OUTCOME)).remarks(path, quoting=quoting))


def test_values_beyond_the_bounds_are_said_beside_missing_ones(tmp_path: Path) -> None:
    cells = [f"{20 + number % 60}" for number in range(300)]
    cells[:30] = [""] * 30
    cells[30:120] = [f"{200 + number}" for number in range(90)]
    missing, beyond = remarks(table(tmp_path / "t.csv", cells), AGE)
    assert missing == "column 'age': 10% of the rows have no value"
    assert beyond == ("column 'age': 33% of the rows with a value are beyond its bounds (0 to 110)")


def test_a_code_in_a_third_of_the_rows_is_said_beside_missing_ones(tmp_path: Path) -> None:
    cells = [f"{20 + number % 60}" for number in range(300)]
    cells[:18] = [""] * 18
    cells[18:118] = ["999"] * 100
    missing, beyond, repeated = remarks(table(tmp_path / "t.csv", cells), AGE)
    assert "6% of the rows have no value" in missing
    assert "35% of the rows with a value are beyond its bounds" in beyond
    assert repeated.startswith(
        "column 'age': values beyond its bounds (0 to 110) repeat: 999 (100 rows)"
    )


@pytest.mark.parametrize("code", ["-9", "-99", "999", "-1", "5000", "-9,0"])
def test_a_code_for_no_value_is_said_at_any_share(tmp_path: Path, code: str) -> None:
    cells = [f"{20 + number % 60}" for number in range(1000)]
    cells[5:995:330] = [code] * 3
    form = TableForm(decimal=",")
    reader = TableReader(TableSchema((AGE,), OUTCOME), form)
    path = table(tmp_path / "t.csv", cells)
    number = code.removesuffix(",0")
    [remark] = reader.remarks(path, quoting=True)
    assert f"repeat: {number} (3 rows)" in remark
    assert f"set missing_codes = [{number}] and missing" in remark
    [unquoted] = reader.remarks(path)  # as `tacit run` says it
    assert number not in unquoted.removeprefix("column 'age': values beyond its bounds (0 to 110)")
    assert "tacit check says which" in unquoted


def test_two_codes_are_both_said_and_large_values_are_not(tmp_path: Path) -> None:
    cells = [f"{20 + number % 60}" for number in range(1000)]
    cells[:20] = ["-9"] * 11 + ["-99"] * 9
    cells[40:60] = [f"{111 + number % 9}" for number in range(20)]
    [remark] = remarks(table(tmp_path / "t.csv", cells), AGE)
    assert "-9 (11 rows), -99 (9 rows)" in remark
    assert "(11 rows), -99 (9 rows); where" in remark


def test_stated_codes_and_values_within_the_bounds_are_not_said(tmp_path: Path) -> None:
    cells = [f"{20 + number % 60}" for number in range(1000)]
    cells[:20] = ["-9"] * 20
    coded = Number("age", 0, 110, missing=50.0, missing_codes=("-9",))
    path = table(tmp_path / "t.csv", cells)
    assert remarks(path, coded) == []
    assert remarks(path, Number("age", -9, 110)) == []


@pytest.mark.parametrize(
    ("column", "usual", "code", "written"),
    [
        (Category("age", ("a", "b")), "a", "-9", "-9"),
        (Hashed("age", 8), "a", "-9.0", "-9"),
        (Dated("age", "%Y-%m-%d", "2000-01-01", "2020-01-01"), "2010-03-04", "1900-01-01",
         '"1900-01-01"'),
    ],
)  # fmt: skip
def test_codes_are_said_of_categories_and_dates_too(
    tmp_path: Path, column: Columns, usual: str, code: str, written: str
) -> None:
    cells = [usual] * 500
    cells[::200] = [code] * 3
    [remark] = remarks(table(tmp_path / "t.csv", cells), column)
    assert "(3 rows)" in remark
    assert f"missing_codes = [{written}]" in remark


def test_utf8_that_is_read_as_another_encoding_is_said(tmp_path: Path) -> None:
    column = Category("age", ("Gynäkologie", "Innere"), "other")
    reader = TableReader(TableSchema((column,), OUTCOME), TableForm(encoding="cp1252"))
    cells = ["Innere"] * 100
    cells[50] = "Gynäkologie"
    assert list(reader.remarks(table(tmp_path / "right.csv", cells, "cp1252"))) == []
    [remark] = reader.remarks(table(tmp_path / "other.csv", cells))
    assert remark.startswith("is UTF-8, and data.encoding says cp1252")
    assert list(reader.remarks(table(tmp_path / "ascii.csv", ["Innere"] * 100))) == []


def test_new_rows_with_values_that_the_model_does_not_know_are_counted(tmp_path: Path) -> None:
    station = Category("age", ("Gyn", "Innere"))
    path = table(tmp_path / "t.csv", ["Gyn"] * 8 + ["Palliativ"] * 2)
    reader = TableReader(TableSchema((station,), OUTCOME))
    [remark] = reader.strangers(path)
    assert remark.startswith("column 'age': 2 of 10 rows have none of its values (Gyn, Innere)")
    high = TableReader(TableSchema((Number("age", 0, 5),), OUTCOME))
    [remark] = high.strangers(table(tmp_path / "t.csv", ["1", "999"]))
    assert remark == (
        "column 'age': 1 of 2 rows is beyond its bounds (0 to 5), and counts as the bound"
    )
    assert not list(high.strangers(table(tmp_path / "t.csv", ["1", "", "5"])))
