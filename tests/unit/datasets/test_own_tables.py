"""An own table: its rows by its public schema, dealt by unit, kept in fixed-width files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from tacit.datasets.own import file_reading
from tacit.datasets.own.dealing import edges_of
from tacit.datasets.own.rows import EncodedRows, RowError, UnitIds
from tacit.datasets.own.rows_file import Dealt, rows_of
from tacit.datasets.own.schema import Category, Number, TableSchema
from tacit.datasets.own.table import TableReader
from tacit.errors import ConfigError, DataError

AGE, SEX = Number("age", 0.0, 100.0), Category("sex", ("f", "m"))
OUTCOME = Category("outcome", ("home", "ward"))
SCHEMA = TableSchema((AGE, SEX), OUTCOME)
ROWS = {
    "note": ["private"] * 4,
    "outcome": ["home", "ward", "home", "ward"],
    "age": ["50", "-3", "250", "10"],
    "sex": ["m", "f", "x", "f"],
    "person": ["ada", "bob", "ada", "cyd"],
}


def written(path: Path, columns: dict[str, list[str]] = ROWS) -> Path:
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    csv.write_csv(table, path) if path.suffix == ".csv" else parquet.write_table(table, path)
    return path


def read(
    tmp_path: Path, schema: TableSchema = SCHEMA, *, name: str = "t.csv", **changed: Any
) -> EncodedRows:
    rows = rows_of(
        written(tmp_path / name, {**ROWS, **changed}), TableReader(schema), tmp_path / "rows"
    )
    assert not rows.x[-1].any()  # the public row
    assert rows.y[-1] == 0
    return EncodedRows(rows.x[:-1].numpy(), rows.y[:-1].numpy(), ids(tmp_path / "rows"))


def ids(folder: Path) -> UnitIds:
    """Return the unit of each row in `folder`."""
    return np.fromfile(folder / "units.bin", dtype=np.dtype((np.void, 16)))


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_a_row_becomes_its_columns_in_the_schemas_order(tmp_path: Path, name: str) -> None:
    rows = read(tmp_path, name=name)
    # age is cut at its bounds and scaled; sex is one-hot with a last place for all else.
    assert rows.x.tolist() == [
        [0.5, 0, 1, 0],
        [0, 1, 0, 0],
        [1, 0, 0, 1],
        pytest.approx([0.1, 1, 0, 0]),
    ]
    assert rows.y.tolist() == [0, 1, 0, 1]


def test_numbers_of_a_parquet_are_read_as_they_are(tmp_path: Path) -> None:
    table = pa.table(
        {
            "age": pa.array([20, None, 30], pa.int32()),
            "sex": pa.array(["f"] * 3).dictionary_encode(),
            "outcome": pa.array([True, False, True]),
        }
    )
    parquet.write_table(table, tmp_path / "t.parquet")
    schema = TableSchema(
        (Number("age", 0, 100, missing=40.0), SEX), Category("outcome", ("false", "true"))
    )
    rows = rows_of(tmp_path / "t.parquet", TableReader(schema), tmp_path / "rows")
    assert rows.x[:-1, 0].tolist() == pytest.approx([0.2, 0.4, 0.3])
    assert rows.y[:-1].tolist() == [1, 0, 1]


def test_a_regression_scales_its_target(tmp_path: Path) -> None:
    rows = read(tmp_path, TableSchema((SEX,), AGE))
    assert rows.y.tolist() == pytest.approx([0.5, 0.0, 1.0, 0.1])
    assert rows.y.dtype == np.float32


@pytest.mark.parametrize(
    ("column", "values", "row", "message"),
    [
        ("age", ["1", "old", "3", "4"], 1, "column 'age': expected numbers"),
        ("age", ["1", "2", "", "4"], 2, "column 'age' (number): a missing value"),
        ("age", ["1", "2", "3", "nan"], 3, "column 'age' (number): a missing value"),
        ("sex", ["", "f", "m", "f"], 0, "column 'sex' (category): a missing value"),
        (
            "outcome",
            ["home", "ward", "icu", "home"],
            2,
            "column 'outcome' (category): a value outside its values",
        ),
        ("person", ["a", "b", "c", " "], 3, "column 'person' (unit): a missing value"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_without_its_value(
    tmp_path: Path, column: str, values: list[str], row: int, message: str
) -> None:
    schema = TableSchema((AGE, SEX), OUTCOME, "person")
    assert len(read(tmp_path, schema).y) == 4
    with pytest.raises(RowError) as refused:
        read(tmp_path, schema, **dict[str, Any]({column: values}))
    assert str(refused.value).startswith(f"t.csv: {message}")
    assert refused.value.where == f"row {row + 1}"
    assert not {"old", "icu"} & set(str(refused.value).split())


def test_what_is_missing_has_its_place_where_the_schema_says_so(tmp_path: Path) -> None:
    schema = TableSchema(
        (Number("age", 0, 100, missing=25.0), Category("sex", ("f", "m"), missing="other")), OUTCOME
    )
    rows = read(tmp_path, schema, age=["", "nan", "inf", "25"], sex=["", "f", "f", "f"])
    assert rows.x[:, 0].tolist() == [0.25, 0.25, 1.0, 0.25]
    assert rows.x[0, 1:].tolist() == [0, 0, 1]


def test_one_row_more_moves_no_other(tmp_path: Path) -> None:
    people = [f"person-{number}" for number in range(300)]
    columns = {name: (values * 75) for name, values in ROWS.items()} | {"person": people}
    schema = TableSchema((AGE, SEX), OUTCOME, "person")

    def parts(folder: str, columns: dict[str, list[str]]) -> list[set[bytes]]:
        path = written(tmp_path / f"{folder}.csv", columns)
        for k in range(5):
            rows_of(path, TableReader(schema), tmp_path / f"{folder}-{k}", Dealt(k, 5, seed=7))
        return [
            {unit_id.tobytes() for unit_id in ids(tmp_path / f"{folder}-{k}")} for k in range(5)
        ]

    before = parts("before", columns)
    after = parts(
        "after",
        {name: [values[0], *values] for name, values in columns.items()}
        | {"person": ["new", *people]},
    )
    assert sum(map(len, before)) == 300
    assert sum(len(new - old) for old, new in zip(before, after, strict=True)) == 1
    assert all(old <= new for old, new in zip(before, after, strict=True))


def test_all_rows_of_a_unit_go_to_one_edge_and_edges_get_alike_many() -> None:
    units = np.frombuffer(np.random.default_rng(3).bytes(16 * 5000), dtype=np.dtype((np.void, 16)))
    edges = edges_of(np.concatenate([units, units[::-1]]), seed=1, edges=5)
    assert edges[:5000].tolist() == edges[5000:][::-1].tolist()
    assert np.bincount(edges, minlength=5) == pytest.approx(2000, abs=5 * math.sqrt(2 * 2000))
    assert edges_of(units, seed=2, edges=5).tolist() != edges[:5000].tolist()


def test_rows_are_read_once_and_anew_when_the_source_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = read(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(TableReader, "read", None)  # would not be called: the file is the same
        assert (
            rows_of(tmp_path / "t.csv", TableReader(SCHEMA), tmp_path / "rows").x[:-1].tolist()
            == first.x.tolist()
        )
    assert read(tmp_path, age=["0", "0", "0", "0"]).x[:, 0].tolist() == [0, 0, 0, 0]


def test_a_crash_while_rows_are_written_leaves_nothing_that_is_taken_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(*_: object, **__: object) -> object:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("tacit.datasets.own.table.encode", cut_off)
        with pytest.raises(KeyboardInterrupt):
            read(tmp_path)
    assert not (tmp_path / "rows").exists()
    assert len(read(tmp_path).y) == 4


@pytest.mark.parametrize(
    "content",
    [b"PK\x03\x04rest", b"\x1f\x8brest", b"\x80\x04\x95rest", b"PAR1rest", b"\xd0\xcf\x11\xe0rest"],
)
def test_what_is_not_a_table_is_refused_unopened(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(DataError, match=r"^t\.csv: is "):
        rows_of(tmp_path / "t.csv", TableReader(SCHEMA), tmp_path / "rows")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        ("age,sex,outcome\n50,m,h\xf6me\n".encode("latin-1"), "is not UTF-8 text"),
        ("age,sex,outcome\n50,m,home\n".encode("utf-16-le"), "is not UTF-8 text"),
        (b"PAR1 and no more", "is not a whole Parquet table"),
        (b"age,sex,outcome\n50,m\n", "has another number of columns"),
    ],
)
def test_what_is_wrong_with_a_whole_table_is_said(
    tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    schema = TableSchema((Number("age", 0, 100),), OUTCOME)
    with pytest.raises(DataError, match=message):
        rows_of(tmp_path / "t.csv", TableReader(schema), tmp_path / "rows")


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="column 'ages': there is none among 5; there is age"):
        read(tmp_path, TableSchema((Number("ages", 0, 1),), OUTCOME))


def test_the_first_row_of_a_table_without_names_is_not_said(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("p0,61,33.9,f,ward\np1,47,20.1,m,home\n")
    with pytest.raises(DataError) as refused:
        rows_of(tmp_path / "t.csv", TableReader(SCHEMA), tmp_path / "rows")
    assert "the first line of a CSV names its columns" in str(refused.value)
    assert not {"p0", "61", "33.9", "ward"} & set(str(refused.value).replace(",", " ").split())


def test_a_ragged_csv_is_refused_without_its_values(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age,sex,outcome\n50,m,home\n50,secret,home,ward\n")
    with pytest.raises(DataError) as refused:
        rows_of(tmp_path / "t.csv", TableReader(SCHEMA), tmp_path / "rows")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("name", ["../t.csv", "/etc/hostname", "a/../../t.csv"])
def test_a_path_that_leaves_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    written(folder / "t.csv")
    assert file_reading.located("t.csv", folder) == (folder / "t.csv").resolve()
    with pytest.raises(ConfigError, match=r"^data\.train="):
        file_reading.located(name, folder)


def test_a_link_out_of_the_folder_leaves_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    written(tmp_path / "t.csv")
    (folder / "t.csv").symlink_to(tmp_path / "t.csv")
    with pytest.raises(ConfigError, match="leaves the run file's folder"):
        file_reading.located("t.csv", folder)


def test_more_units_than_the_public_bound_are_refused(tmp_path: Path) -> None:
    schema, path = TableSchema((AGE, SEX), OUTCOME, "person"), written(tmp_path / "t.csv")
    assert rows_of(path, TableReader(schema), tmp_path / "rows", most=3).records == 3
    with pytest.raises(DataError, match=r"more units than data\.rows_max=2"):
        rows_of(path, TableReader(schema), tmp_path / "rows", most=2)
