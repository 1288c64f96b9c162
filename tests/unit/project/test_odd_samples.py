"""`tacit new` on samples as people have them: what it writes fits the sample, and it says what it took."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tacit_services.cli.main import main

from tacit import config
from tacit.config.own_column import ColumnSection
from tacit.config.own_table import TableData
from tacit.datasets.own.own_rows import OwnRows
from tacit.datasets.own.schema import Number

ROWS = 400
Cell = Callable[[random.Random, int], Any]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))


def written(cell: Cell, goal: Cell, name: str = "v") -> str:
    chance = random.Random(1)
    lines = [f"age,{name},t"]
    for row in range(ROWS):
        lines.append(f"{chance.randint(20, 90)},{cell(chance, row)},{goal(chance, row)}")
    return "\n".join(lines) + "\n"


def letters(chance: random.Random, row: int) -> str:
    return chance.choice("ab")


def answers(chance: random.Random, row: int) -> str:
    return chance.choice(["yes", "no"])


def new(sample: str = "public.csv") -> int:
    """Write a run on the sample, with the sample as private rows; return the exit code."""
    with pytest.raises(SystemExit) as ended:
        main(["new", "c", "--table", sample])
    code = int(ended.value.code or 0)
    if code == 0:
        (Path("c") / f"train{Path(sample).suffix}").write_bytes(Path(sample).read_bytes())
    return code


def data_of_the_run() -> TableData:
    data = config.load(Path("c/run.toml")).data
    assert isinstance(data, TableData)
    return data


def fits_its_own_sample() -> OwnRows:
    """Read the sample by the run file as private rows would be, and look at its columns."""
    rows = config.load(Path("c/run.toml")).source
    assert isinstance(rows, OwnRows)
    for part in rows.reader.read(rows.path(0)):
        assert np.isfinite(part.x).all()
    rows.remarks()
    return rows


def column(name: str = "v") -> ColumnSection | None:
    return data_of_the_run().columns.get(name)


# -- targets -------------------------------------------------------------------------------------

GOALS: dict[str, tuple[list[Any], list[str]]] = {
    "empty": (["yes", "no", ""], ["no", "yes"]),
    "NA": (["1", "0", "NA"], ["0", "1"]),
    "question mark": (["yes", "no", "?"], ["no", "yes"]),
    "n/a": (["yes", "no", "n/a"], ["no", "yes"]),
    "-9": ([0, 1, -9], ["0", "1"]),
    "999": ([1, 2, 999], ["1", "2"]),
    "boolean, empty": (["TRUE", "False", ""], ["false", "true"]),
    "-1 and 1 are classes": ([-1, 1], ["-1", "1"]),
    "-1, 0 and 1 are classes": ([-1, 0, 1], ["-1", "0", "1"]),
    "- and + are classes": (["+", "-"], ["+", "-"]),
    "none is a class": (["none", "mild", "severe"], ["mild", "none", "severe"]),
}


@pytest.mark.parametrize("name", GOALS)
def test_a_class_that_is_missing_is_no_class(name: str) -> None:
    """Rows without a label are left out: nobody learns from a label that was made up."""
    values, classes = GOALS[name]
    Path("public.csv").write_text(written(letters, lambda chance, row: chance.choice(values)))
    assert new() == 0
    read = column("t")
    assert read is not None
    assert [str(value) for value in read.values or ()] == classes
    assert (data_of_the_run().bad_rows == "leave out") == (len(classes) < len(values))
    rows = fits_its_own_sample()
    count = sum(len(part.y) for part in rows.reader.read(rows.path(0)))
    assert (count < ROWS) == (len(classes) < len(values))


@pytest.mark.parametrize("absent", ["", "-9", "?"])
def test_a_number_to_learn_is_never_made_up(absent: str) -> None:
    Path("public.csv").write_text(
        written(
            letters, lambda chance, row: chance.choice([f"{chance.uniform(5, 90):.3f}", absent])
        )
    )
    assert new() == 0
    target = data_of_the_run().schema_of_rows(Path()).target
    assert isinstance(target, Number)
    assert target.missing == "refuse"
    assert target.low >= 0
    rows = fits_its_own_sample()
    assert 0 < sum(len(part.y) for part in rows.reader.read(rows.path(0))) < ROWS


def test_a_skewed_number_to_learn_is_read() -> None:
    Path("public.csv").write_text(
        written(letters, lambda chance, row: f"{chance.lognormvariate(5, 1.5):.2f}")
    )
    assert new() == 0
    fits_its_own_sample()


@pytest.mark.parametrize(
    ("goal", "why"),
    [
        (lambda chance, row: "yes", "has one value in the sample"),
        (lambda chance, row: chance.choice(["yes", "?", ""]), None),
        (lambda chance, row: chance.choice(["yes", ""]), "has one value in the sample"),
        (lambda chance, row: 3.5, "has one value in the sample"),
        (lambda chance, row: f"2020-01-{1 + row % 28:02d}", "is a date"),
        (lambda chance, row: "no" if row < 4 else "", "has one value in the sample"),
        (lambda chance, row: ["no", "yes"][row % 2] if row < 6 else "", "nearly no row"),
    ],
)
def test_a_target_that_says_nothing_is_one_line(
    goal: Cell, why: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("public.csv").write_text(written(letters, goal))
    code = new()
    told = capsys.readouterr().err
    assert "Traceback" not in told
    if why is not None:
        assert code == 2
        assert why in told


def test_values_that_are_alike_are_asked_about(capsys: pytest.CaptureFixture[str]) -> None:
    Path("public.csv").write_text(
        written(
            lambda chance, row: chance.choice(["Zürich", "ZÜRICH", "Zu\u0308rich", "Bern"]),
            lambda chance, row: chance.choice(["yes", "Yes", "no"]),
        ),
        encoding="utf-8",
    )
    assert new() == 0
    told = capsys.readouterr().out
    assert "t: Yes, yes are 2 values" in told
    assert told.count("are 2 values") == 2
    read = column()
    assert read is not None
    assert read.values == ("Bern", "ZÜRICH", "Zürich")  # an accent of its own is no other value
    fits_its_own_sample()


# -- dates ---------------------------------------------------------------------------------------

DATES = {
    "%Y-%m-%d": "%Y-%m-%d",
    "%d.%m.%Y": "%d.%m.%Y",
    "%d.%m.%y": "%d.%m.%y",
    "%Y-%m-%dT%H:%M:%S": "%Y-%m-%dT%H:%M:%S",
    "%Y-%m-%dT%H:%M:%SZ": "%Y-%m-%dT%H:%M:%SZ",
    "%Y-%m-%d %H:%M": "%Y-%m-%d %H:%M",
    "%d.%m.%Y %H:%M": "%d.%m.%Y %H:%M",
    "%d-%b-%Y": "%d-%b-%Y",
    "%Y%m%d": "%Y%m%d",
}


@pytest.mark.parametrize("written_as", DATES)
def test_a_date_is_read_as_it_is_written(written_as: str) -> None:
    first = datetime.datetime(2020, 1, 1, 13, 5)

    def cell(chance: random.Random, row: int) -> str:
        return (first + datetime.timedelta(days=row)).strftime(written_as)

    Path("public.csv").write_text(written(cell, answers))
    assert new() == 0
    read = column()
    assert read is not None
    assert read.date == DATES[written_as]
    rows = fits_its_own_sample()
    x = np.concatenate([part.x for part in rows.reader.read(rows.path(0))])
    days = (datetime.date(2022, 12, 31) - datetime.date(2020, 1, 1)).days
    assert x[:, 1] == pytest.approx(np.arange(ROWS) / days, abs=1e-6)


def test_whole_numbers_that_are_days_are_dates_in_a_parquet_too() -> None:
    days = [datetime.date(2020, 1, 1) + datetime.timedelta(days=row) for row in range(ROWS)]
    table = {
        "v": pa.array([int(f"{day:%Y%m%d}") for day in days]),
        "t": pa.array(["yes", "no"] * (ROWS // 2)),
    }
    parquet.write_table(pa.table(table), "public.parquet")
    assert new(sample="public.parquet") == 0
    read = column()
    assert read is not None
    assert read.date == "%Y%m%d"
    fits_its_own_sample()


def test_a_day_that_may_be_a_month_is_asked_about(capsys: pytest.CaptureFixture[str]) -> None:
    def cell(chance: random.Random, row: int) -> str:
        return f"{chance.randint(1, 12):02d}/{chance.randint(1, 12):02d}/2020"

    Path("public.csv").write_text(written(cell, answers))
    assert new() == 0
    assert "%d/%m/%Y would fit as well" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("never", ["9999-12-31", "0000-00-00"])
def test_a_date_that_stands_for_none_sets_no_bound(kind: str, never: str) -> None:
    days = [f"2020-0{1 + row % 9}-11" for row in range(ROWS - 40)] + [never] * 40
    if kind == "csv":
        chance = random.Random(1)
        rows = [f"{day},{answers(chance, 0)}" for day in days]
        Path("public.csv").write_text("v,t\n" + "\n".join(rows) + "\n")
    else:
        if never.startswith("0"):
            values = pa.array(days)
        else:
            values = pa.array(days).cast(pa.date32())
        table = {"v": values, "t": pa.array(["yes", "no"] * (ROWS // 2))}
        parquet.write_table(pa.table(table), "public.parquet")
    assert new(sample=f"public.{kind}") == 0
    read = column()
    assert read is not None
    assert (read.date, read.until, read.missing_codes) == ("%Y-%m-%d", "2021-12-31", (never,))
    fits_its_own_sample()


# -- numbers, codes and ids ----------------------------------------------------------------------


@pytest.mark.parametrize("code", ["-99.9", "-9", "999", "99", "-9999.99", "999.9"])
def test_a_code_among_numbers_sets_no_bound_and_is_said(
    code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("public.csv").write_text(
        written(
            lambda chance, row: chance.choice([f"{chance.uniform(1, 5):.2f}"] * 4 + [code]), answers
        )
    )
    assert new() == 0
    read = column()
    assert read is not None
    assert (read.low, read.high) == (1, 5)
    assert f"are taken for no value (missing_codes): v {code}" in capsys.readouterr().out
    fits_its_own_sample()


def test_a_code_of_too_many_values_is_not_read_in_part() -> None:
    """Where most rows have a rare value, the few listed ones would say nothing of the column."""
    Path("public.csv").write_text(
        written(lambda chance, row: f"{chance.choice('ABC')}{chance.randint(10, 399)}", answers)
    )
    assert new() == 0
    assert column() is None
    fits_its_own_sample()


def test_a_column_that_check_would_refuse_is_not_written() -> None:
    Path("public.csv").write_text(
        written(lambda chance, row: "7.5" if row % 100 == 0 else "", answers)
    )
    assert new() == 0
    assert column() is None
    fits_its_own_sample()


def test_a_column_with_a_cell_that_is_not_read_is_not_written() -> None:
    far = [18_000 + row for row in range(ROWS - 1)] + [4_000_000]
    table = {
        "bytes": pa.array([b"a", b"b"] * (ROWS // 2 - 1) + [b"a", b"\xff"], pa.binary()),
        "day": pa.array(far, pa.date32()),
        "age": pa.array([20 + row % 60 for row in range(ROWS)]),
        "t": pa.array(["yes", "no"] * (ROWS // 2)),
    }
    parquet.write_table(pa.table(table), "public.parquet")
    assert new(sample="public.parquet") == 0
    assert list(data_of_the_run().columns) == ["age", "t"]
    fits_its_own_sample()


def test_numbers_of_any_size_are_scaled() -> None:
    Path("public.csv").write_text(
        written(lambda chance, row: f"{chance.choice('-+')}{chance.random()}e307", answers)
    )
    assert new() == 0
    read = column()
    assert read is not None
    assert read.scale is not None
    assert np.isfinite(read.scale)
    fits_its_own_sample()


IDS: dict[str, tuple[str, Cell]] = {
    "in lower case": ("patientid", lambda chance, row: chance.randint(1, 130) * 7919 % 100_003),
    "in humps": ("PatientId", lambda chance, row: chance.randint(1, 130) * 7919 % 100_003),
    "of a stay": ("patientunitstayid", lambda chance, row: chance.randint(1, 130) + 141_000),
    "side by side": ("v", lambda chance, row: row // 3 * 7919 % 100_003),
    "side by side, dense": ("v", lambda chance, row: row // 3 + 1000),
}


@pytest.mark.parametrize("case", IDS)
def test_an_id_never_becomes_a_feature(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, cell = IDS[case]
    Path("public.csv").write_text(written(cell, answers, name))
    assert new() == 0
    assert column(name) is None
    assert f"is {name} a person" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["patient_weight", "no_of_visits", "age_at_visit", "covid_titer"])
def test_a_number_of_a_patient_is_no_id(name: str) -> None:
    Path("public.csv").write_text(
        written(lambda chance, row: chance.randint(40, 130), answers, name)
    )
    assert new() == 0
    assert column(name) is not None
