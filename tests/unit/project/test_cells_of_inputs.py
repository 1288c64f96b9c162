"""Columns that were once read wrongly without a word: each is read by value, or said."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tacit_services.project.draft import DraftRequest
from tacit_services.project.guess import Guess, guessed
from tacit_services.project.new_table import draft

from tacit.config import run_file
from tacit.config.own_table import TableData
from tacit.datasets.own.cells import numbers, texts
from tacit.datasets.own.dealing import LikeRows
from tacit.datasets.own.schema import Category, Dated, Hashed, Number, TableSchema
from tacit.datasets.own.table import TableReader
from tacit.datasets.own.table_form import TableForm
from tacit.errors import ConfigError, DataError, OwnersError

OUTCOME = Category("outcome", ("ill", "well"))


def csv_of(path: Path, cells: list[Any], name: str = "flag") -> Path:
    lines = [f"age,{name},outcome"]
    for number, cell in enumerate(cells):
        lines.append(f"{20 + number * 7 % 601 / 10},{cell},{'ill' if number % 3 else 'well'}")
    path.write_text("\n".join(lines) + "\n")
    return path


def parquet_of(path: Path, cells: pa.Array, name: str = "flag") -> Path:
    count = len(cells)
    ages = [20 + number * 7 % 601 / 10 for number in range(count)]
    outcomes = ["ill" if number % 3 else "well" for number in range(count)]
    parquet.write_table(pa.table({"age": ages, name: cells, "outcome": outcomes}), path)
    return path


def guess_of(sample: Path, name: str = "flag") -> Guess:
    features = guessed(sample, "outcome", None).features
    return next(guess for guess in features if guess.name == name)


def encoded(path: Path, *columns: Number | Category | Hashed | Dated) -> np.ndarray:
    parts = TableReader(TableSchema(columns, OUTCOME)).read(path)
    return np.concatenate([part.x for part in parts])


def schema_of(sample: Path, folder: Path) -> TableReader:
    """Return a reader by what `tacit new` writes for the sample."""
    lines = draft(DraftRequest(sample, "outcome", None, None, name="x")).data
    text = "\n".join(
        ["run.updates = 10", 'model.name = "logistic"', "[algorithm]", 'name = "fedasync"',
         "steps_min = 1", "[privacy]", "pushes = 10", "[data]", "rows = 50", *lines]
    )  # fmt: skip
    data = run_file.parse(text, "run.toml", folder=folder).data
    assert isinstance(data, TableData)
    reader = data.reader(folder)
    assert isinstance(reader, TableReader)
    return reader


WRITTEN: dict[str, tuple[Callable[[int], Any], Callable[[int], Any]]] = {
    "A1 booleans": (lambda n: bool(n % 2), lambda n: bool(n % 2)),
    "A1 in capitals": (lambda n: str(bool(n % 2)).lower(), lambda n: str(bool(n % 2)).upper()),
    "A2 whole numbers as floats": (lambda n: n % 2, lambda n: float(n % 2)),
    "B1 a country NA": (lambda n: ("NA", "DE", "FR")[n % 3], lambda n: ("NA", "DE", "FR")[n % 3]),
    "D2 a blank after a word": (lambda n: ("f", "m", "f ")[n % 3], lambda n: ("f ", " m")[n % 2]),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_a_category_is_read_by_its_value(tmp_path: Path, case: str) -> None:
    public, private = WRITTEN[case]
    sample = csv_of(tmp_path / "public.csv", [public(number) for number in range(300)])
    rows = csv_of(tmp_path / "train.csv", [private(number) for number in range(900)])
    reader = schema_of(sample, tmp_path)
    x = np.concatenate(list(reader.inputs(rows)))
    others = x[:, reader.schema.width - 1]
    assert not others.any()
    assert x[:, 1:].sum() == 900
    assert list(reader.remarks(rows)) == []


@pytest.mark.parametrize(
    "values",
    [
        pa.array([True, False] * 50),
        pa.array(["True", "FALSE"] * 50),
        pa.array([b"true", b"false"] * 50),
        pa.array(["true", "false"] * 50).dictionary_encode(),
    ],
    ids=["bool", "text", "bytes", "dictionary"],
)
def test_a_parquet_has_the_values_of_its_csv(tmp_path: Path, values: pa.Array) -> None:
    path = parquet_of(tmp_path / "t.parquet", values)
    x = encoded(path, Category("flag", ("false", "true")))
    assert x.tolist() == [[0, 1, 0], [1, 0, 0]] * 50


DAY = datetime.date(2020, 2, 29)
TYPES: dict[str, tuple[pa.Array, float]] = {
    "int8": (pa.array([7], pa.int8()), 7.0),
    "int64 above 2**53": (pa.array([2**60 + 1], pa.int64()), float(2**60)),
    "uint64": (pa.array([2**63 + 1], pa.uint64()), float(2**63)),
    "half": (pa.array([np.float16(7.5)]), 7.5),
    "float": (pa.array([7.5], pa.float32()), 7.5),
    "decimal": (pa.array([Decimal("7.50")]), 7.5),
    "decimal256": (pa.array([Decimal("7.50")], pa.decimal256(40, 2)), 7.5),
    "bool": (pa.array([True]), 1.0),
    "text": (pa.array([" 7.5 "]), 7.5),
    "large text": (pa.array(["7.5"], pa.large_string()), 7.5),
    "text view": (pa.array(["7.5"], pa.string_view()), 7.5),
    "bytes": (pa.array([b"7.5"]), 7.5),
    "bytes of one length": (pa.array([b"7.5"], pa.binary(3)), 7.5),
    "dictionary": (pa.array([7.5]).dictionary_encode(), 7.5),
    "dictionary of text": (pa.array(["7.5"]).dictionary_encode(), 7.5),
    "duration": (pa.array([1500], pa.duration("ms")), 1.5),
    "time": (pa.array([90_000], pa.time32("ms")), 90.0),
    "null": (pa.array([None]), float("nan")),
    "word for nothing": (pa.array(["?"]), float("nan")),
    "infinite": (pa.array(["inf"]), float("inf")),
    "truth": (pa.array(["TRUE"]), 1.0),
    "exponent": (pa.array(["7.5e0"]), 7.5),
    "plus": (pa.array(["+7.5"]), 7.5),
}


@pytest.mark.parametrize("kind", TYPES)
def test_a_number_of_any_type_is_that_number(kind: str) -> None:
    values, number = TYPES[kind]
    cells = numbers(values, TableForm())
    assert not cells.unread.any()
    assert cells.values == pytest.approx([number], nan_ok=True)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([DAY]),
        pa.array(["old"]),
        pa.array(["1,5"]),
        pa.array([b"\xff"]),
        pa.array(["0x10"]),
    ],
)
def test_what_is_no_number_is_said_to_be_none(values: pa.Array) -> None:
    assert numbers(values, TableForm()).unread.tolist() == [True]


def test_bytes_that_are_no_text_are_not_read_as_words() -> None:
    cells = texts(pa.array([b"K\xf6ln", b"Bern", None]))
    assert cells.unread.tolist() == [True, False, False]
    assert cells.values.to_pylist() == [None, "Bern", None]


@pytest.mark.parametrize(
    ("form", "text", "number"),
    [
        (TableForm(decimal=","), "1,5", 1.5),
        (TableForm(decimal=","), "1.5", None),
        (TableForm(decimal=","), "1.234", None),
        (TableForm(decimal=",", thousands="."), "1.234,5", 1234.5),
        (TableForm(decimal=",", thousands="."), "1.23", None),
        (TableForm(thousands=","), "1,234,567.8", 1234567.8),
        (TableForm(thousands=","), "1,23", None),
        (TableForm(decimal=",", thousands=" "), "1\u202f234,5", 1234.5),
        (TableForm(thousands="'"), "1'234", 1234.0),
        (TableForm(), "1_000", None),
        (TableForm(), "٣", None),
    ],
)
def test_a_number_is_read_in_its_form_or_not_at_all(
    form: TableForm, text: str, number: float | None
) -> None:
    assert form.number(text) == number


def test_a_question_mark_among_numbers_is_a_missing_value(tmp_path: Path) -> None:
    chance = random.Random(1)
    cells = ["?" if number == 17 else chance.randint(40, 230) for number in range(400)]
    guess = guess_of(csv_of(tmp_path / "public.csv", cells))
    assert guess.number is not None
    assert (guess.number.low, guess.number.high, guess.missing) == (40, 230, True)


def test_codes_are_missing_values_and_no_bounds(tmp_path: Path) -> None:
    chance = random.Random(1)
    cells = [-9 if number % 20 == 0 else chance.randint(40, 230) for number in range(400)]
    sample = csv_of(tmp_path / "public.csv", cells)
    guess = guess_of(sample)
    assert guess.number is not None
    assert (guess.number.low, guess.codes, guess.missing) == (40, ("-9",), True)
    reader = schema_of(sample, tmp_path)
    x = np.concatenate(list(reader.inputs(sample)))
    assert x[0, 1] == pytest.approx(0.0)  # the center
    few = csv_of(tmp_path / "few.csv", [(0, 1, -9)[number % 3] for number in range(300)])
    assert guess_of(few).values == ("0", "1")
    assert guess_of(few).codes == ("-9",)


def test_an_infinite_number_sets_no_bound(tmp_path: Path) -> None:
    cells = ["inf" if number % 50 == 0 else number / 7 for number in range(300)]
    guess = guess_of(csv_of(tmp_path / "public.csv", cells))
    assert guess.number is not None
    assert guess.number.low == pytest.approx(0.14)
    assert guess.number.high == 43.0


def test_large_whole_numbers_are_read(tmp_path: Path) -> None:
    cells = [1_600_000_000_000_000_000 + number * 1_000_000_007 for number in range(300)]
    guess = guess_of(csv_of(tmp_path / "public.csv", cells))
    assert guess.number is not None
    assert guess.number.low <= min(cells) < max(cells) <= guess.number.high


def test_a_count_has_room_for_more_than_was_seen(tmp_path: Path) -> None:
    chance = random.Random(3)
    cells = [min(chance.randrange(8), chance.randrange(8)) for _ in range(600)]
    guess = guess_of(csv_of(tmp_path / "public.csv", cells))
    assert guess.number is not None
    assert guess.number.low == 0
    assert guess.number.high >= 2 * max(cells)


def test_ids_that_repeat_are_asked_about(tmp_path: Path) -> None:
    for name, cells in (
        ("patient_id", [number // 3 for number in range(3000)]),
        ("pid", [f"p{number // 3}" for number in range(600)]),
        ("serial", [number * 7919 % 900 for number in range(3000)]),
    ):
        guess = guess_of(csv_of(tmp_path / "public.csv", cells, name), name)
        assert guess.person, name
        assert f"--unit {name}" in guess.instead
    for name, cells in (
        ("age2", [18 + number % 77 for number in range(3000)]),
        ("score", [number * number % 5003 for number in range(3000)]),
    ):
        assert not guess_of(csv_of(tmp_path / "public.csv", cells, name), name).left_out


def test_row_numbers_are_no_feature(tmp_path: Path) -> None:
    for name in ("", "index"):
        guess = guess_of(csv_of(tmp_path / "public.csv", list(range(300)), name), name)
        assert guess.left_out


def test_missing_values_of_the_sample_fit_its_own_schema(tmp_path: Path) -> None:
    for cells in (
        ["" if number % 9 == 0 else ("yes", "no")[number % 2] for number in range(300)],
        ["" if number % 9 == 0 else number / 7 for number in range(300)],
        ["?" if number % 9 == 0 else ("yes", "no")[number % 2] for number in range(300)],
        ["" if number % 9 == 0 else f"{number % 28 + 1:02}.03.2021" for number in range(300)],
    ):
        sample = csv_of(tmp_path / "public.csv", cells)
        reader = schema_of(sample, tmp_path)
        assert "" not in str(reader.schema).split("'")
        assert sum(len(x) for x in reader.inputs(sample)) == 300


def test_rare_values_are_other(tmp_path: Path) -> None:
    cells = [("a", "b")[number % 2] for number in range(995)] + ["c", "d", "e", "f", "g"]
    guess = guess_of(csv_of(tmp_path / "public.csv", cells))
    assert guess.values == ("a", "b")
    assert guess.rare == 5


def test_line_ends_in_cells_are_read_in_a_large_file_too(tmp_path: Path) -> None:
    notes = [f'"said, at {number}:\nall {"well " * (number % 40)}\nelse"' for number in range(9000)]
    path = csv_of(tmp_path / "large.csv", notes, "note")
    assert path.stat().st_size > 10 * 65_536
    assert len(encoded(path, Number("age", 0.0, 110.0))) == 9000
    assert guess_of(path, "note").left_out


def test_a_column_at_its_scale_has_center_zero(tmp_path: Path) -> None:
    path = csv_of(tmp_path / "t.csv", [1, 10, 100, 1000, 5000])
    plain = encoded(path, Number("flag", 0, 1000, center=100, scale=50))
    assert plain[:, 0].tolist() == pytest.approx([-1.98, -1.8, 0.0, 18.0, 18.0])
    log = encoded(path, Number("flag", 1, 1000, center=10, scale=2, log=True))
    wanted = (np.log([1, 10, 100, 1000, 1000]) - np.log(10)) / 2
    assert log[:, 0] == pytest.approx(wanted, abs=1e-6)
    bounded = encoded(path, Number("flag", 0, 1000, log=True))
    assert bounded[:, 0] == pytest.approx(np.log1p([1, 10, 100, 1000, 1000]) / np.log(1001))


def test_a_date_becomes_its_parts(tmp_path: Path) -> None:
    column = Dated("flag", "%d.%m.%Y", "2000-01-01", "2010-01-01", missing="other")
    path = csv_of(tmp_path / "t.csv", ["01.01.2000", "31.12.1999", "29.02.2008", ""])
    x = encoded(path, column)
    assert x.shape == (4, 21)
    assert x[0, :2].tolist() == [0, 0]
    assert x[0, 2:].nonzero()[0].tolist() == [0, 12 + 5]  # January, a Saturday
    assert x[1, 0] == 0
    assert x[2, 0] == pytest.approx(2981 / 3653)
    assert not x[3].any()
    typed = parquet_of(tmp_path / "t.parquet", pa.array([DAY, None]))
    assert encoded(typed, column)[:, 1].tolist() == pytest.approx([28 / 30, 0])
    with pytest.raises(DataError, match="expected dates"):
        encoded(csv_of(tmp_path / "t.csv", ["30.02.2000"]), column)


def test_a_code_of_many_values_shares_places(tmp_path: Path) -> None:
    path = csv_of(tmp_path / "t.csv", [f"I{number % 500}.0" for number in range(2000)] + [""])
    x = encoded(path, Hashed("flag", 64, "other"))
    assert x.shape == (2001, 65)
    assert (x.sum(axis=1) == 1).all()
    assert (x[:500] == x[500:1000]).all()
    assert x[-1, -1] == 1
    assert x[:, :64].any(axis=0).sum() > 60


def test_a_column_that_is_another_is_refused_and_a_worse_one_is_said(tmp_path: Path) -> None:
    schema = TableSchema((Category("flag", ("yes", "no"), "other"), Number("age", 0, 110)), OUTCOME)
    reader = TableReader(schema)
    for share, cell, what in ((0.1, "maybe", "none of its values"), (0.1, "", "have no value")):
        cells = [cell if number % 10 < 10 * share else "yes" for number in range(300)]
        [remark] = reader.remarks(csv_of(tmp_path / "t.csv", cells))
        assert "column 'flag': 10% of the rows" in remark
        assert what in remark
    with pytest.raises(OwnersError) as refused:
        list(reader.remarks(csv_of(tmp_path / "t.csv", ["1"] * 300)))
    assert "column 'flag': 100% of the rows" in refused.value.for_owner
    young = TableReader(TableSchema((Number("age", 0, 1),), OUTCOME))
    with pytest.raises(OwnersError, match="nearly all rows are beyond its bounds"):
        list(young.remarks(csv_of(tmp_path / "t.csv", ["yes"] * 300)))


def test_nested_columns_are_left_out_by_name(tmp_path: Path) -> None:
    path = parquet_of(tmp_path / "t.parquet", pa.array([[1, 2], [3]] * 60))
    assert "is of list" in guess_of(path).left_out


def test_like_rows_of_a_survey_are_dealt_evenly(tmp_path: Path) -> None:
    path = csv_of(tmp_path / "t.csv", [number % 2 for number in range(64)])
    schema = TableSchema((Category("flag", ("0", "1")),), OUTCOME)
    [part] = TableReader(schema).read(path)
    assert LikeRows().before(part.units).max() > 5


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("{ low = 0, high = 1, center = 0.5 }", "center and scale: one needs the other"),
        ("{ low = 0, high = 1, center = 2, scale = 1 }", "is outside"),
        ("{ values = ['a'], log = true }", "are for a number"),
        ("{ hash = 64, values = ['a'] }", "expected low and high"),
        ('{ date = "%Y" }', "needs since"),
        ('{ date = "%Y", since = 2001-01-01, until = 2000-01-01 }', "a later until"),
        ("{ low = 0, high = 1, since = 2001-01-01 }", "are for a date"),
        ("{ hash = 64, missing = 3.0 }", "is for numbers"),
    ],
)
def test_a_column_that_contradicts_itself_is_refused(column: str, message: str) -> None:
    text = f"""
run.updates = 10
model.name = "logistic"
algorithm.name = "fedasync"
[data]
kind = "table"
train = "t.csv"
target = "y"
rows = 10
columns = {{ x = {column}, y = {{ values = ["a", "b"] }} }}
"""
    with pytest.raises(ConfigError, match=message):
        run_file.parse(text, "run.toml")
