"""Tables as hospitals export them: a public sample becomes a run, and private rows are read by it.

What is read is compared cell by cell; what is not read is refused in one line.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tacit_services.cli.main import main

from tacit import config
from tacit.config.own_column import ColumnSection
from tacit.config.own_table import TableData
from tacit.datasets.own.own_rows import OwnRows
from tacit.errors import DataError, OwnersError

Rows = list[list[Any]]
HEAD = ["age", "bmi", "town", "outcome"]


def people(count: int, seed: int, towns: tuple[str, ...] = ("Bern", "Köln", "Lyon")) -> Rows:
    chance = random.Random(seed)
    return [
        [
            chance.randint(20, 90),
            round(chance.uniform(16, 42), 2),
            chance.choice(towns),
            chance.choice(["ill", "well"]),
        ]
        for _ in range(count)
    ]


SAMPLE, PRIVATE = people(300, 1), people(400, 2)


def text(rows: Rows, separator: str = ",", decimal: str = ".", head: list[str] = HEAD) -> str:
    lines = [separator.join(head)] if head else []
    for row in rows:
        cells = [
            str(cell).replace(".", decimal) if isinstance(cell, float) else str(cell)
            for cell in row
        ]
        lines.append(separator.join(f'"{cell}"' if separator in cell else cell for cell in cells))
    return "\n".join(lines) + "\n"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))


def new(sample: bytes, *options: str, name: str = "public.csv") -> int:
    """Write a run on the sample and return the exit code of `tacit new`."""
    Path(name).write_bytes(sample)
    with pytest.raises(SystemExit) as ended:
        main(["new", "c", "--table", name, *options])
    return int(ended.value.code or 0)


def source(private: bytes, name: str = "train.csv") -> OwnRows:
    """Return the private rows as the run in c/ reads them."""
    (Path("c") / name).write_bytes(private)
    run = config.load(Path("c/run.toml"))
    assert isinstance(run.source, OwnRows)
    return run.source


def columns() -> dict[str, ColumnSection]:
    data = config.load(Path("c/run.toml")).data
    assert isinstance(data, TableData)
    return data.columns


def read(rows: OwnRows) -> tuple[np.ndarray, np.ndarray]:
    parts = list(rows.reader.read(rows.path(0)))
    return np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts])


def expected(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Return what the run of `columns` makes of these rows, computed cell by cell."""
    sections = columns()
    x = []
    for row in rows:
        places: list[float] = []
        for name, cell in zip(HEAD[:3], row[:3], strict=True):
            section = sections[name]
            if section.values is not None:
                places += [float(cell == value) for value in section.values]
                places.append(float(cell not in section.values))
            else:
                assert section.low is not None
                assert section.high is not None
                assert section.center is not None
                assert section.scale is not None
                cut = min(max(float(cell), section.low), section.high)
                places.append((cut - section.center) / section.scale)
        x.append(places)
    values = sections["outcome"].values
    assert values is not None
    return np.array(x, np.float32), np.array([values.index(row[3]) for row in rows])


def assert_read(sample: bytes, private: bytes, *options: str) -> None:
    assert new(sample, *options) == 0
    rows = source(private)
    x, y = read(rows)
    wanted_x, wanted_y = expected(PRIVATE)
    assert x == pytest.approx(wanted_x, abs=1e-6)
    assert y.tolist() == wanted_y.tolist()
    assert rows.remarks() == []


def both(write: Callable[[Rows], bytes]) -> tuple[bytes, bytes]:
    return write(SAMPLE), write(PRIVATE)


FORMS: dict[str, Callable[[Rows], bytes]] = {
    "plain": lambda rows: text(rows).encode(),
    "semicolon": lambda rows: text(rows, ";").encode(),
    "tab": lambda rows: text(rows, "\t").encode(),
    "bar": lambda rows: text(rows, "|").encode(),
    "decimal comma": lambda rows: text(rows, ";", ",").encode(),
    "decimal comma, quoted": lambda rows: text(rows, ",", ",").encode(),
    "decimal comma, tab": lambda rows: text(rows, "\t", ",").encode(),
    "latin-1": lambda rows: text(rows, ";", ",").encode("latin-1"),
    "utf-8 mark": lambda rows: text(rows).encode("utf-8-sig"),
    "utf-16": lambda rows: text(rows).encode("utf-16"),
    "utf-16, tab": lambda rows: text(rows, "\t", ",").encode("utf-16"),
    "utf-16 without a mark": lambda rows: text(rows).encode("utf-16-le"),
    "windows": lambda rows: text(rows).replace("\n", "\r\n").encode(),
    "old mac": lambda rows: text(rows).replace("\n", "\r").encode(),
    "no last line end": lambda rows: text(rows).rstrip("\n").encode(),
    "comment": lambda rows: b"# exported 2026\n# by lab\n" + text(rows).encode(),
    "empty lines": lambda rows: b"\n\n" + text(rows).encode() + b"\n\n",
    "sep=": lambda rows: b"sep=;\n" + text(rows, ";", ",").encode(),
    "separator at the end": lambda rows: text(rows).replace("\n", ",\n").encode(),
    "separator at the end of rows": lambda rows: text(rows).replace("\n", ",\n").replace("outcome,", "outcome").encode(),
    "separator at the end of the header": lambda rows: text(rows).replace("outcome\n", "outcome,\n").encode(),
    "blanks": lambda rows: text(rows).replace(",", " , ").encode(),
    "quotes": lambda rows: "\n".join(",".join(f'"{cell}"' for cell in line.split(",")) for line in text(rows).splitlines()).encode() + b"\n",
    "more columns": lambda rows: text([[*row, f"note, {number}\nof two lines"] for number, row in enumerate(rows)], head=[*HEAD, "note"]).replace(",note, ", ',"note, ').replace("lines\n", 'lines"\n').replace('""', '"').encode(),
    "row numbers": lambda rows: text([[number, *row] for number, row in enumerate(rows)], head=["", *HEAD]).encode(),
    "named row numbers": lambda rows: text([[number, *row] for number, row in enumerate(rows)], head=["nr", *HEAD]).encode(),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_form_of_csv_is_found_and_read_value_by_value(form: str) -> None:
    options = ["--target", "outcome"]
    assert_read(*both(FORMS[form]), *options)


@pytest.mark.parametrize(
    "private", ["semicolon", "tab", "bar", "utf-16", "comment", "quotes", "blanks"]
)
def test_private_rows_may_have_another_separator_than_the_sample(private: str) -> None:
    assert_read(FORMS["plain"](SAMPLE), FORMS[private](PRIVATE))


def test_a_table_without_a_header_has_numbered_columns(capsys: pytest.CaptureFixture[str]) -> None:
    sample = text(SAMPLE, head=[]).encode()
    assert new(sample) == 0
    assert "its first line looks like a row" in capsys.readouterr().out
    assert list(columns_of(sample)) == ["1", "2", "3", "4"]
    x, y = read(source(text(PRIVATE, head=[]).encode()))
    assert len(x) == len(y) == len(PRIVATE)


def columns_of(private: bytes) -> dict[str, ColumnSection]:
    """Return the columns of the run in c/, whose private file has to be there."""
    source(private)
    return columns()


REFUSED: dict[str, tuple[Callable[[Rows], bytes], str]] = {
    "decimal comma": (lambda rows: text(rows, ";", ",").encode(), 'data.decimal = ","'),
    "latin-1": (lambda rows: text(rows).encode("latin-1"), "state data.encoding"),
    "utf-16 without a mark": (lambda rows: text(rows).encode("utf-16-le"), "state data.encoding"),
    "no header": (lambda rows: text(rows, head=[]).encode(), "data.header = false"),
    "zip": (lambda rows: b"PK\x03\x04" + text(rows).encode(), "is a zip"),
    "ragged": (lambda rows: text(rows).encode() + b"1,2\n", "another number of columns"),
    "open quote": (lambda rows: text(rows).encode() + b'1,2,"B,ill\n', "is not a whole table"),
    "empty": (lambda rows: b"", "is empty"),
    "words among numbers": (lambda rows: text([*rows, ["old", 20, "Bern", "ill"]]).encode(), "missing_codes"),
    "a date among numbers": (lambda rows: text([*rows, ["2020-01-01", 20, "Bern", "ill"]]).encode(), 'date = "%Y-%m-%d"'),
    "thousands": (lambda rows: text([*rows, ['"1,234,567"', 20, "Bern", "ill"]]).encode().replace(b'""', b'"').replace(b'""', b'"'), 'data.thousands = ","'),
    "no value": (lambda rows: text([*rows, ["", 20, "Bern", "ill"]]).encode(), "say what one is taken for"),
    "another target": (lambda rows: text([*rows, [20, 20, "Bern", "dead"]]).encode(), "a value outside its values"),
    "zeros": (lambda rows: b"\0" * 4000, "is not UTF-8"),
    "damaged parquet": (lambda rows: b"PAR1" + text(rows).encode(), "Parquet table: it is damaged"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_read_is_refused_in_one_line_that_says_what_to_set(case: str) -> None:
    write, message = REFUSED[case]
    assert new(FORMS["plain"](SAMPLE)) == 0
    with pytest.raises(DataError) as refused:
        read(source(write(PRIVATE)))
    words = str(getattr(refused.value, "for_owner", refused.value))
    assert message in words
    assert "\n" not in words
    assert not {"old", "dead", "1,234,567"} & set(words.split())


def test_every_column_that_misfits_is_named_at_once() -> None:
    assert new(FORMS["plain"](SAMPLE)) == 0
    rows = [
        *PRIVATE,
        *PRIVATE,
        ["", 20, "Bern", "ill"],
        *PRIVATE,
        [20, 20, "", "ill"],
        [20, "thin", "Bern", ""],
    ]
    with pytest.raises(OwnersError) as refused:
        read(source(text(rows).encode()))
    for where in (
        "'age' (number): a missing value, in row 801",
        "'town' (category)",
        "'bmi': expected",
        "'outcome' (category)",
    ):
        assert where in refused.value.for_owner


def test_rows_that_misfit_are_left_out_where_the_run_file_says_so() -> None:
    assert new(FORMS["plain"](SAMPLE)) == 0
    file = Path("c/run.toml")
    file.write_text(
        file.read_text().replace("[data.columns]", 'bad_rows = "leave out"\n[data.columns]')
    )
    rows = source(
        text(
            [["old", 20, "Bern", "ill"], *PRIVATE, [20, 20, "", "ill"], [20, 20, "Bern", "dead"]]
        ).encode()
    )
    x, y = read(rows)
    wanted_x, wanted_y = expected(PRIVATE)
    assert x == pytest.approx(wanted_x, abs=1e-6)
    assert y.tolist() == wanted_y.tolist()
    assert sum(len(part.rows) for part in rows.reader.marks(rows.path(0))) == len(PRIVATE)
