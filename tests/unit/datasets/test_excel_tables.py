"""Excel workbooks: read by value as a CSV is, and refused in a line where they are hostile."""

from __future__ import annotations

import contextlib
import datetime
import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tacit_services.project.draft import DraftRequest, StatedForm
from tacit_services.project.guess import guessed
from tacit_services.project.new_table import draft

from tacit.datasets.own import excel_parts
from tacit.datasets.own.schema import Category, Dated, Number, TableSchema
from tacit.datasets.own.table import TableReader
from tacit.datasets.own.table_form import USUAL, TableForm
from tacit.errors import DataError
from tests.helpers.extras import needs
from tests.helpers.real_files import workbook

pytestmark = needs("openpyxl")
OUTCOME = Category("outcome", ("false", "true"))
DAY = Dated("day", "%d.%m.%Y", "2000-01-01", "2030-01-01", ("days",), "other")
SCHEMA = TableSchema(
    (Number("age", 0, 100, 50.0), Category("code", ("007", "7", "7.5"), "other"), DAY), OUTCOME
)
HEAD = ["age", " code ", "day", "outcome", None]
ROWS: list[list[Any]] = [
    [41, "007", datetime.datetime(2015, 1, 1), True],
    [41.5, 7, "01.01.2015", False],
    [None, 7.5, None, "TRUE"],
    ["62", 7.0, datetime.date(2030, 1, 1), "false"],
]


def changed(path: Path, part: str, old: bytes, new: bytes) -> Path:
    """Return a copy of a workbook with other bytes in one part."""
    copy = path.with_name("changed.xlsx")
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(copy, "w", zipfile.ZIP_DEFLATED) as to:
        for name in source.namelist():
            content = source.read(name)
            if name == part:
                assert old in content
                content = content.replace(old, new, 1)
            to.writestr(name, content)
    return copy


def read(path: Path, form: TableForm = USUAL) -> tuple[np.ndarray, np.ndarray]:
    parts = list(TableReader(SCHEMA, form).read(path))
    return np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts])


SHEET = "xl/worksheets/sheet1.xml"


def test_a_sheet_is_read_as_the_same_table_in_csv(tmp_path: Path) -> None:
    path = workbook(tmp_path / "t.xlsx", {"rows": [[], HEAD, *ROWS, [], [None, None]]})
    text = "age,code,day,outcome\n41,007,01.01.2015,TRUE\n41.5,7,01.01.2015,false\n"
    text += ",7.5,,true\n62,7.0,01.01.2030,FALSE\n"
    (tmp_path / "t.csv").write_text(text)
    x, y = read(path)
    expected_x, expected_y = read(tmp_path / "t.csv")
    np.testing.assert_array_equal(x, expected_x)
    np.testing.assert_array_equal(y, expected_y)
    assert y.tolist() == [1, 0, 1, 0]
    assert x[:, 0] == pytest.approx([0.41, 0.415, 0.5, 0.62])


def test_numbers_are_the_same_whatever_decimal_mark_the_text_has(tmp_path: Path) -> None:
    rows: list[list[Any]] = [[41.5, "a", None, "true"], ["41,5", "a", None, "true"]]
    path = workbook(tmp_path / "t.xlsx", {"rows": [HEAD, *rows]})
    x, _ = read(path, TableForm(decimal=",", thousands="."))
    assert x[:, 0] == pytest.approx([0.415, 0.415])


def test_of_several_sheets_the_run_file_names_one(tmp_path: Path) -> None:
    sheets = {"notes": [["x"], ["y"]], "rows": [HEAD, *ROWS]}
    path = workbook(tmp_path / "t.xlsx", sheets)
    with pytest.raises(DataError, match=r"has 2 sheets; say which is read: data\.sheet"):
        read(path)
    assert len(read(path, TableForm(sheet="rows"))[0]) == 4
    with pytest.raises(DataError, match="no sheet called 'other'"):
        read(path, TableForm(sheet="other"))


def test_a_formula_counts_by_its_stored_value(tmp_path: Path) -> None:
    plain = workbook(tmp_path / "t.xlsx", {"rows": [HEAD, *ROWS]})
    stored = changed(plain, SHEET, b"<v>41.5</v>", b"<f>40+1.5</f><v>41.5</v>")
    assert read(stored)[0][1, 0] == pytest.approx(0.415)
    without = workbook(tmp_path / "u.xlsx", {"rows": [HEAD, ["=40+1.5", "a", None, True]]})
    with pytest.raises(DataError, match="a formula whose value is not stored; open it in"):
        read(without)


def test_a_new_run_takes_its_sample_from_a_sheet(tmp_path: Path) -> None:
    rows = [
        [
            20 + n % 50 + 0.5,
            datetime.datetime(2020, 1, 1 + n % 28),
            n % 2 == 0,
            "ill" if n % 3 else "well",
        ]
        for n in range(120)
    ]
    head = ["age", "seen", "smoker", "outcome"]
    path = workbook(tmp_path / "t.xlsx", {"notes": [["x"]], "rows": [head, *rows]})
    guesses = guessed(path, "outcome", None, StatedForm(sheet="rows"))
    kinds = {guess.name: guess for guess in guesses.features}
    assert kinds["age"].number is not None
    assert kinds["seen"].date is not None
    assert kinds["seen"].date[0] == "%Y-%m-%d"
    assert kinds["smoker"].values == ("false", "true")
    request = DraftRequest(path, "outcome", None, None, name="x", form=StatedForm(sheet="rows"))
    lines = draft(request).data
    assert 'train = "train.xlsx"' in "\n".join(lines)
    assert any(line.startswith('sheet = "rows"') for line in lines)


def test_a_sheet_without_names_has_numbered_columns(tmp_path: Path) -> None:
    rows = [[20 + n % 7, n % 3, "ill" if n % 2 else "well"] for n in range(60)]
    path = workbook(tmp_path / "t.xlsx", {"rows": rows})
    guesses = guessed(path, None, None)
    assert [guess.name for guess in guesses.features] == ["1", "2"]
    assert not guesses.form.header


def hostile(folder: Path, case: str) -> Path:
    plain = workbook(folder / "plain.xlsx", {"rows": [HEAD, *ROWS]})
    whole = plain.read_bytes()
    path = folder / "hostile.xlsx"
    if case == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif case == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.txt", "x")
    elif case == "entities":
        declared = b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaa">]><worksheet'
        return changed(plain, SHEET, b"<worksheet", declared)
    elif case == "cells":
        return changed(plain, SHEET, b"</row>", b"<c/>" * (1 << 19) + b"</row>")
    elif case == "row":
        return changed(plain, SHEET, b'<row r="2"', b'<row r="999999999999"')
    elif case == "order":
        return changed(plain, SHEET, b'<row r="3"', b'<row r="2"')
    elif case == "string":
        return changed(plain, SHEET, b"<v>41.5</v>", b"<v>not a number</v>")
    elif case == "far":
        return changed(plain, SHEET, b'r="A2"', b'r="ZZZZZZZZ2"')
    elif case == "shared":
        return changed(plain, SHEET, b"<v>41</v>", b"<v>" + b"4" * 5000 + b"</v>")
    return path


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("cut", "is no whole Excel workbook"),
        ("zip", "is a zip, not a CSV, Parquet or Excel table"),
        ("entities", "a document type of its own"),
        ("cells", "more cells in a row"),
        ("row", "more rows, than are read"),
        ("order", "rows that are not in order"),
        ("string", "is no whole Excel workbook"),
        ("far", "is no whole Excel workbook"),
        ("shared", "is no whole Excel workbook"),
    ],
)
def test_a_hostile_workbook_is_refused_in_a_line(tmp_path: Path, case: str, words: str) -> None:
    with pytest.raises(DataError, match=words) as refused:
        read(hostile(tmp_path, case))
    assert "\n" not in str(refused.value)


def test_a_workbook_that_unpacks_to_much_is_refused_by_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = workbook(tmp_path / "t.xlsx", {"rows": [HEAD, *ROWS]})
    monkeypatch.setattr(excel_parts, "MOST_BYTES", 2000)
    with pytest.raises(DataError, match=r"unpacks to more than 2,000 bytes.*save the sheet as CSV"):
        read(path)


def test_any_damaged_byte_gives_rows_or_a_line(tmp_path: Path) -> None:
    whole = workbook(tmp_path / "t.xlsx", {"rows": [HEAD, *ROWS]}).read_bytes()
    generator = np.random.default_rng(5)
    damaged = tmp_path / "d.xlsx"
    for place in generator.choice(len(whole), 120, replace=False):
        content = bytearray(whole)
        content[place] ^= 1 << int(generator.integers(8))
        damaged.write_bytes(bytes(content))
        with contextlib.suppress(DataError):
            read(damaged)


def test_an_old_workbook_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "t.xls"
    path.write_bytes(b"\xd0\xcf\x11\xe0" + io.BytesIO(bytes(600)).getvalue())
    with pytest.raises(DataError, match=r"old or encrypted Excel file \(save it as \.xlsx\)"):
        read(path)
