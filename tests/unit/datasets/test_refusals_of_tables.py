"""A table that is refused says which file, which column, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tacit.datasets.own.schema import Category, Number, TableSchema
from tacit.datasets.own.table import TableReader
from tacit.datasets.own.table_form import TableForm
from tacit.errors import DataError, OwnersError

GERMAN = TableForm(separator=";", decimal=",", encoding="cp1252")
SCHEMA = TableSchema(
    (Number("Größe", 0, 250), Number("Wert", 0, 9)), Category("aus", ("ja", "nein"))
)
HEAD = "Größe;Wert;aus"
ROWS = ["170,5;1,5;ja", "180,5;2,25;nein"] * 20


def refused(
    folder: Path,
    rows: list[str],
    head: str = HEAD,
    form: TableForm = GERMAN,
    encoding: str = "cp1252",
) -> str:
    path = folder / "site1.csv"
    path.write_text("\n".join([head, *rows]) + "\n", encoding=encoding)
    with pytest.raises(DataError) as error:
        list(TableReader(SCHEMA, form).read(path))
    if isinstance(error.value, OwnersError):
        return error.value.for_owner
    return str(error.value)


def test_a_wrong_separator_is_named(tmp_path: Path) -> None:
    said = refused(tmp_path, ROWS, form=TableForm(",", ",", "", "cp1252"))
    assert said == (
        "site1.csv: column 'Größe': there is none among 1; what parts its cells is read as ',': is "
        "that right? It is data.separator in the run file"
    )


def test_a_header_in_another_encoding_names_the_encoding(tmp_path: Path) -> None:
    said = refused(tmp_path, ROWS, encoding="utf-8")
    assert "it is there in UTF-8, and data.encoding = 'cp1252' says another" in said
    assert "data.header" not in said


def test_a_renamed_column_is_not_taken_for_a_file_without_a_header(tmp_path: Path) -> None:
    said = refused(tmp_path, ROWS, head="Grösse;Wert;aus")
    assert said.endswith("there is Grösse; rename it in the file")
    lacking = refused(tmp_path, ROWS, head="xyz;Wert;aus")
    assert lacking.endswith("none among 3; add it to the file, or take it out of [data.columns]")
    assert "data.header = false" in refused(tmp_path, ROWS[1:], head=ROWS[0])


def test_a_cell_that_does_not_fit_names_the_file(tmp_path: Path) -> None:
    said = refused(tmp_path, ["170;x;ja", *ROWS])
    assert said.startswith("site1.csv: column 'Wert': expected numbers")
    assert "in row 1 of the data" in said


def test_numbers_in_two_ways_of_writing_are_told_from_another_way(tmp_path: Path) -> None:
    mixed = refused(tmp_path, [*ROWS, "170.5;1.5;ja"])
    assert mixed.count("two ways of writing") == 2
    assert "data.decimal" not in mixed
    other = refused(tmp_path, [row.replace(",", ".") for row in ROWS])
    assert 'set data.decimal = "."' in other
    assert "where others have the decimal mark ',', write this one so" in other


@pytest.mark.parametrize("cell", ["Ja", "1", "0"])
def test_a_target_names_its_values_and_what_to_do(tmp_path: Path, cell: str) -> None:
    said = refused(tmp_path, [*ROWS, f"170;1;{cell}"])
    assert "a value outside its values (ja, nein), in row 41" in said
    assert 'data.bad_rows = "leave out"' in said
    assert f"'{cell}'" not in said


def test_a_target_without_a_value_is_not_told_of_other(tmp_path: Path) -> None:
    said = refused(tmp_path, [*ROWS, "170;1;"])
    assert 'data.bad_rows = "leave out"' in said
    assert '"other"' not in said
    number = refused(tmp_path, [*ROWS, ";1;ja"])
    assert "missing" in number
    assert 'data.bad_rows = "leave out"' in number


def test_a_column_that_says_whose_a_row_is_is_said_where_no_unit_is(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    people = [f"{number // 2};{row}" for number, row in enumerate(ROWS)]
    path.write_text("\n".join([f"Patienten_ID;{HEAD}", *people]) + "\n", encoding="cp1252")
    [remark] = TableReader(SCHEMA, GERMAN).remarks(path)
    assert "column 'Patienten_ID' is not read, and its values repeat" in remark
    assert "data.unit = 'Patienten_ID'" in remark
    once = [f"{number};{row}" for number, row in enumerate(ROWS)]
    path.write_text("\n".join([f"Patienten_ID;{HEAD}", *once]) + "\n", encoding="cp1252")
    assert not list(TableReader(SCHEMA, GERMAN).remarks(path))
    of_people = TableSchema(SCHEMA.features, SCHEMA.target, "Patienten_ID")
    assert not list(TableReader(of_people, GERMAN).remarks(path))


@pytest.mark.parametrize(("columns", "rows"), [(3, 12), (64, 20_000)])
def test_a_row_with_a_cell_too_many_is_counted_for_its_owner_alone(
    tmp_path: Path, columns: int, rows: int
) -> None:
    names = [f"c{place}" for place in range(columns)]
    path = tmp_path / "train.csv"
    line = ",".join(["1"] * columns)
    lines = ["# a comment", ",".join(names), *[line] * rows, "", f"{line},7", line]
    path.write_text("\n".join(lines) + "\n")
    schema = TableSchema(
        tuple(Number(name, 0, 1) for name in names[1:]), Category("c0", ("1", "2"))
    )
    with pytest.raises(OwnersError) as error:
        list(TableReader(schema).read(path))
    assert error.value.for_owner == (
        "train.csv: is not a whole table: a row has another number of columns: "
        f"row {rows + 1} of the data has {columns + 1} cells, and not {columns}; a cell that holds "
        "',', or the end of a line, needs quotes"
    )
    assert not any(character.isdigit() for character in f"{error.value}")
