"""Rows by own code: whatever it does, one line says so, and only its owner reads what it said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacit.datasets.own.array_values import Bounds, Values
from tacit.datasets.own.rows import RowError
from tacit.datasets.own.rows_file import rows_of
from tacit.datasets.own.torch_dataset import DatasetReader
from tacit.errors import ConfigError, OwnersError

CODE = """
import random
import sys


class Rows:
    def __init__(self, path):
        {opening}

    def __len__(self):
        return {count}

    def __getitem__(self, row):
        {row}
"""
VALUES = Values((2,), Bounds(0.0, 1.0), 2)


def reader(
    folder: Path,
    row: str = "return [0.25, 0.75], row % 2",
    opening: str = "self.path = path",
    count: str = "1500",
) -> DatasetReader:
    text = CODE.format(opening=opening, count=count, row=row)
    (folder / "rows.py").write_text(text, encoding="utf-8")
    return DatasetReader("rows:Rows", {}, None, VALUES, folder)


def refused(folder: Path, reader: DatasetReader) -> OwnersError:
    """Return the error that refuses the code, before a row is stored."""
    (folder / "train").touch()
    with pytest.raises(OwnersError) as caught:
        rows_of(folder / "train", reader, folder / "kept")
    assert not (folder / "kept").exists()
    assert len(caught.value.for_owner.splitlines()) == 1
    return caught.value


def test_rows_are_as_the_code_gives_them(tmp_path: Path) -> None:
    (tmp_path / "train").touch()
    rows = rows_of(tmp_path / "train", reader(tmp_path), tmp_path / "kept")
    assert rows.records == 1500
    assert rows.x[7].tolist() == [0.25, 0.75]


@pytest.mark.parametrize(
    ("opening", "message"),
    [
        ("raise KeyError('ward 7')", "KeyError: 'ward 7'"),
        ("raise RuntimeError('one\\n\\ntwo')", "RuntimeError: one two"),
        ("sys.exit(0)", "SystemExit: 0"),
    ],
)
def test_what_own_code_says_when_it_cannot_begin_is_for_its_owner(
    tmp_path: Path, opening: str, message: str
) -> None:
    error = refused(tmp_path, reader(tmp_path, opening=opening))
    assert message in error.for_owner
    assert message.partition(": ")[0] in str(error)
    assert message.partition(": ")[2] not in str(error)


@pytest.mark.parametrize("count", ["-3", "1 / 0"])
def test_a_length_that_is_none_is_refused(tmp_path: Path, count: str) -> None:
    assert "must give an object with a length" in str(
        refused(tmp_path, reader(tmp_path, count=count))
    )


@pytest.mark.parametrize(
    ("at", "message"),
    [("raise KeyError('ward 7')", "'ward 7'"), ("sys.exit('of ward 7')", "of ward 7")],
)
def test_what_own_code_says_of_a_row_is_for_its_owner(
    tmp_path: Path, at: str, message: str
) -> None:
    body = f"if row == 1200:\n            {at}\n        return [0.25, 0.75], 1"
    error = refused(tmp_path, reader(tmp_path, row=body))
    assert isinstance(error, RowError)
    short = str(error).removesuffix(" (tacit check says which)")
    assert error.for_owner == f"{short}, in row 1201 of the data: {message}"
    assert "ward" not in str(error)
    assert "1201" not in str(error)


@pytest.mark.parametrize(
    "row",
    [
        "return 3",
        "return None",
        "return [0.25], 1",
        "return ['a', 'b'], 1",
        "return [0.25, 0.75]",
        "return [0.25, 0.75], 'yes'",
        "return [0.25, 0.75], [1, 2]",
        "return [0.25, 0.75], ([1, 2] if row == 5 else 1)",
    ],
)
def test_a_row_of_another_form_is_refused(tmp_path: Path, row: str) -> None:
    error = refused(tmp_path, reader(tmp_path, row=row))
    assert "expected (x, y) with x of numbers and shape [2], and y one number" in str(error)


@pytest.mark.parametrize(
    "row", ["return [random.random(), 0.75], 1", "return [0.25, 0.75], random.getrandbits(48)"]
)
def test_a_row_that_is_drawn_anew_each_time_is_refused(tmp_path: Path, row: str) -> None:
    # Else each edge would read other rows, deal them elsewhere, and one person would be at two.
    assert "gives one row in two ways" in str(refused(tmp_path, reader(tmp_path, row=row)))


def test_a_function_that_yields_is_no_data_set(tmp_path: Path) -> None:
    (tmp_path / "rows.py").write_text("def Rows(path):\n    yield [0.25, 0.75], 1\n")
    error = refused(tmp_path, DatasetReader("rows:Rows", {}, None, VALUES, tmp_path))
    assert "must give an object with a length and rows by number" in str(error)


def test_a_module_that_ends_the_process_does_not(tmp_path: Path) -> None:
    (tmp_path / "rows.py").write_text("import sys\nsys.exit(0)\n")
    (tmp_path / "train").touch()
    with pytest.raises(ConfigError, match="importing rows failed: SystemExit: 0"):
        rows_of(
            tmp_path / "train",
            DatasetReader("rows:Rows", {}, None, VALUES, tmp_path),
            tmp_path / "kept",
        )
