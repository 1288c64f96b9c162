"""Labels, counts and events as a table's target: its keys, its cells, its digest."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from tacit.config import RunFile
from tacit.config.fingerprint import differences
from tacit.config.own_table import TableData
from tacit.datasets.own.own_rows import together
from tacit.datasets.own.rows import RowError
from tacit.datasets.own.schema import (
    Category,
    CountsGoal,
    EventGoal,
    LabelsGoal,
    Number,
    TableSchema,
)
from tacit.datasets.own.table import TableReader
from tacit.digests import canonical
from tacit.errors import ConfigError, DataError
from tacit.models.objectives import objective_of
from tests.helpers.run_files import run_file

AGE = Number("age", 0.0, 100.0)
FEVER, RASH = Category("fever", ("0", "1")), Category("rash", ("no", "yes"))
SCHEMA = TableSchema((AGE,), LabelsGoal((FEVER, RASH)))
COLUMNS = {
    "age": {"low": 0, "high": 100},
    "fever": {"values": [0, 1]},
    "rash": {"values": ["no", "yes"]},
    "ward": {"values": ["a", "b", "c"]},
    "days": {"low": 0, "high": 90},
    "seen": {"hash": 8},
}
# Cells that a table may have where two values are expected.
STRANGE = (
    *("", " ", "NA", "nan", "None", "?", "-9", "1e0", "0.5", "2", "true", "TRUE", "01", "1,0"),
    *("+1", "1.0", "0.0", "no", "yes", "NO", "\x00", "\u0661", "inf", "-inf", "1 ", " 0", "²"),
)


def run(target: Any, **columns: Any) -> Any:
    data = {"kind": "table", "train": "site{edge}.csv", "rows": 900, "target": target}
    data |= {"columns": COLUMNS | columns, "dataset": None}
    return run_file(data=data, algorithm={"name": "fedasync"}, run={"updates": 9})


def read(path: Path, columns: Mapping[str, Any], schema: TableSchema = SCHEMA) -> list[int]:
    """Return y of these columns, as a file at `path` has them."""
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    if path.suffix == ".csv":
        csv.write_csv(table, path)
    else:
        parquet.write_table(table, path)
    return together(path, TableReader(schema))[1].tolist()


def test_labels_become_bits_in_the_order_of_the_key() -> None:
    data = run(["rash", "fever"]).data
    assert isinstance(data, TableData)
    schema = data.schema_of_rows(Path())
    assert schema.target == LabelsGoal((RASH, FEVER))
    assert [column.name for column in schema.features] == ["age", "ward", "days", "seen"]
    target = TableReader(schema).target
    assert (target.kind, target.names, target.outputs, target.codes) == (
        "labels",
        ("rash", "fever"),
        2,
        4,
    )


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_a_label_holds_at_the_second_of_its_values(tmp_path: Path, name: str) -> None:
    columns = {"age": [1, 2, 3, 4], "fever": [0, 1, 0, 1], "rash": ["no", "no", "yes", "yes"]}
    assert read(tmp_path / name, columns) == [0b00, 0b01, 0b10, 0b11]
    other = TableSchema((AGE,), LabelsGoal((RASH, FEVER)))
    assert read(tmp_path / f"other{name}", columns, other) == [0b00, 0b10, 0b01, 0b11]
    turned = TableSchema((AGE,), LabelsGoal((FEVER, Category("rash", ("yes", "no")))))
    assert read(tmp_path / f"turned{name}", columns, turned) == [0b10, 0b11, 0b00, 0b01]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (["fever"], 'target: 1 labels; a list has 2 to 62, and one column is target = "…"'),
        (["fever", "fever"], "target: 'fever' stands there twice"),
        (["fever", "cold"], "target='cold': is not in [data.columns], which has age"),
        (["fever", "ward"], "columns.ward: a label has two values, as [0, 1]"),
        (["fever", "days"], "columns.days: a label has two values, as [0, 1]"),
        (["fever", "seen"], "columns.seen: a target is a number, or has values"),
        (["fever", 3], "data.target.1=3: Input should be a valid string"),
        ([], "target: 0 labels"),
        (7, "data.target=7: Input should be a valid string"),
        ([*COLUMNS], "target: a target is a number"),
    ],
)
def test_a_target_that_does_not_fit_is_refused_in_one_line(target: Any, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        run(target)
    assert "\n" not in str(refused.value)
    assert message.removeprefix("target: a target") in str(refused.value)


COUNTED = Number("visits", 0.0, 12.0, missing_codes=("-9",))
COUNTS = TableSchema((AGE,), CountsGoal(COUNTED))


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_a_count_is_a_whole_number_that_is_cut_at_its_high(tmp_path: Path, name: str) -> None:
    reader = TableReader(COUNTS)
    assert (reader.target.kind, reader.target.high, reader.target.outputs) == ("counts", 12, 1)
    columns = {"age": [1, 2, 3, 4, 5], "visits": [0, 1, 12, 13, 10**9]}
    assert read(tmp_path / name, columns, COUNTS) == [0, 1, 12, 12, 12]
    floats = {"age": [1, 2, 3], "visits": [0.0, 7.0, 1e300]}
    assert read(tmp_path / f"floats{name}", floats, COUNTS) == [0, 7, 12]


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
@pytest.mark.parametrize("cell", [*STRANGE, "1e400", "-1", "-0", "0x1", "3 visits", "7.", "1e1"])
def test_a_strange_cell_is_a_count_or_is_refused(tmp_path: Path, name: str, cell: str) -> None:
    columns = {"age": [1, 2], "visits": ["1", cell]}
    expected = {
        "1.0": 1,
        "0.0": 0,
        "1 ": 1,
        " 0": 0,
        "2": 2,
        "01": 1,
        "+1": 1,
        "1e0": 1,
        "-0": 0,
        "true": 1,
        "TRUE": 1,
        "7.": 7,
        "1e1": 10,
    }.get(cell)
    if expected is not None:
        assert read(tmp_path / name, columns, COUNTS) == [1, expected]
        return
    with pytest.raises((RowError, DataError)) as refused:
        read(tmp_path / name, columns, COUNTS)
    assert "'visits'" in str(refused.value) or "not UTF-8 text" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_count_that_is_missing_is_refused_left_out_or_a_whole_number(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("age,visits\n1,3\n2,-9\n3,\n4,2.5\n5,0\n")
    with pytest.raises(RowError, match=r"column 'visits' \(number\): a missing value"):
        together(path, TableReader(COUNTS))
    assert together(path, TableReader(COUNTS, bad_rows="leave out"))[1].tolist() == [3, 0]
    path.write_text("age,visits\n1,3\n2,-9\n3,\n")
    zero = CountsGoal(Number("visits", 0.0, 12.0, missing=0.0, missing_codes=("-9",)))
    assert together(path, TableReader(TableSchema((AGE,), zero)))[1].tolist() == [3, 0, 0]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"low": 0, "high": 9.5, "counts": True}, "counts: low=0, high=9.5: expected low = 0"),
        ({"low": 1, "high": 9, "counts": True}, "counts: low=1, high=9: expected low = 0"),
        ({"low": 0, "high": 2_000_000, "counts": True}, "high, at most 1,000,000"),
        ({"low": 0, "high": 9, "counts": True, "log": True}, "counts: has no center, scale or log"),
        ({"low": 0, "high": 9, "center": 1, "scale": 1, "counts": True}, "counts: has no center"),
        ({"low": 0, "high": 9, "counts": True, "missing": 0.5}, "missing=0.5: counts are whole"),
        ({"values": [0, 1], "counts": True}, "counts: is for a number, with low = 0 and high"),
        ({"low": 0, "high": 9, "counts": 1}, "columns.days.counts=1: Input should be a valid bool"),
    ],
)
def test_keys_of_a_count_that_do_not_fit_are_refused_in_one_line(
    keys: dict[str, Any], message: str
) -> None:
    assert run("days", days={"low": 0, "high": 9, "counts": True}).build_model().classes == 1
    with pytest.raises(ConfigError) as refused:
        run("days", days=keys)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_only_a_target_counts() -> None:
    with pytest.raises(ConfigError, match=r"columns\.days: counts is for a target that"):
        run("fever", days={"low": 0, "high": 9, "counts": True})


DIED = Category("died", ("0", "1"))
DAYS = Number("days", 0.0, 400.0)
CUTS = (30.0, 90.0, 365.0)
EVENT = TableSchema((AGE,), EventGoal(DAYS, DIED, CUTS))


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_a_time_is_the_intervals_that_are_passed_and_whether_the_event_came(
    tmp_path: Path, name: str
) -> None:
    reader = TableReader(EVENT)
    assert (reader.target.kind, reader.target.names, reader.target.cuts) == (
        "event",
        ("died",),
        CUTS,
    )
    assert (reader.target.outputs, reader.target.codes) == (3, 7)
    days = [0, 1, 30, 30.5, 90, 365, 366, 1000]
    died = {"age": [1] * 8, "days": days, "died": [1] * 8}
    assert read(tmp_path / name, died, EVENT) == [1, 1, 1, 3, 3, 5, 6, 6]
    seen = {"age": [1] * 8, "days": days, "died": [0] * 8}
    assert read(tmp_path / f"seen{name}", seen, EVENT) == [0, 0, 2, 2, 4, 6, 6, 6]


def test_every_code_is_below_the_targets_and_like_times_are_alike(tmp_path: Path) -> None:
    chance = np.random.default_rng(3)
    days = chance.integers(0, 500, 400)
    died = chance.integers(0, 2, 400)
    columns = {"age": [1] * 400, "days": days.tolist(), "died": died.tolist()}
    codes = read(tmp_path / "t.parquet", columns, EVENT)
    for day, event, code in zip(days, died, codes, strict=True):
        if event:
            passed = sum(cut < day for cut in CUTS)
        else:
            passed = sum(cut <= day for cut in CUTS)
        assert code == 2 * passed + int(event and passed < 3)
    assert max(codes) < 7


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
@pytest.mark.parametrize("cell", [*STRANGE, "1e400", "-1", "-0", "2024-01-31", "3 days", "40,5"])
def test_a_strange_time_is_a_number_from_low_on_or_is_refused(
    tmp_path: Path, name: str, cell: str
) -> None:
    columns = {"age": [1, 2], "days": ["100", cell], "died": [1, 1]}
    try:
        number = {"true": 1.0, "TRUE": 1.0}.get(cell) or float(cell.replace("\u0661", "?"))
    except ValueError:
        number = math.nan
    if math.isfinite(number) and number >= 0:
        assert read(tmp_path / name, columns, EVENT) == [5, 1]
        return
    with pytest.raises((RowError, DataError)) as refused:
        read(tmp_path / name, columns, EVENT)
    assert "'days'" in str(refused.value) or "not UTF-8 text" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "target", [["fever", "rash"], {"time": "days", "event": "fever", "cuts": [30, 90]}]
)
def test_a_definition_is_read_back_as_it_was(target: Any) -> None:
    good = run(target)
    assert good.build_model().classes == 2
    again = RunFile.model_validate(json.loads(canonical(differences(good))))
    assert again.fingerprint() == good.fingerprint()


@pytest.mark.parametrize("changed", [{"cuts": []}, {"cuts": [30, 30]}, {"cuts": [90, 30]}])
def test_cuts_ascend(changed: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"data\.target") as refused:
        run({"time": "days", "event": "fever", "cuts": [30], **changed})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"event": "fever", "cuts": [30]}, "data.target.time: Field required"),
        ({"time": "days", "event": "fever"}, "data.target.cuts: Field required"),
        ({"time": "days", "event": "fever", "cut": [1]}, "data.target.cut=[1]: unknown key"),
        ({"time": "days", "event": "days", "cuts": [30]}, "event='days': is the column of times"),
        ({"time": "days", "event": "ward", "cuts": [30]}, "columns.ward: an event has two values"),
        ({"time": "fever", "event": "rash", "cuts": [1]}, "columns.fever: a time has low and high"),
        ({"time": "days", "event": "fever", "cuts": [0, 9]}, "target.cuts: 0 to 9: expected above"),
        ({"time": "days", "event": "fever", "cuts": [9, 91]}, "9 to 91: expected above low and up"),
        ({"time": "day", "event": "fever", "cuts": [9]}, "target='day': is not in [data.columns]"),
        ({"time": "days", "event": "fever", "cuts": ["x"]}, "data.target.cuts.0='x': Input should"),
    ],
)
def test_an_event_that_does_not_fit_is_refused_in_one_line(target: Any, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        run(target)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_unit_is_no_label_and_something_is_learnt_from() -> None:
    two: dict[str, Any] = {"a": {"values": [0, 1]}, "b": {"values": [0, 1]}}
    data: dict[str, Any] = {
        "kind": "table",
        "train": "t.csv",
        "rows": 900,
        "target": ["a", "b"],
        "dataset": None,
    }
    one: dict[str, Any] = {"algorithm": {"name": "fedasync"}, "run": {"updates": 9}}
    with pytest.raises(ConfigError, match="columns: nothing is left to learn from"):
        run_file(data=data | {"columns": two}, **one)
    more = {"columns": two | {"age": COLUMNS["age"]}, "unit": "b", "unit_rows": 3}
    with pytest.raises(ConfigError, match="unit='b': is the target"):
        run_file(data=data | more, **one)


def test_what_one_target_is_keeps_its_fingerprint_and_digest() -> None:
    """As the commit before there were labels had them."""
    assert TableSchema((AGE,), FEVER).digest().hex()[:16] == "eea7d34d3b5c523a"
    assert TableSchema((FEVER,), AGE).digest().hex()[:16] == "4b1a63be9f61332d"
    assert run("fever").fingerprint()[:16] == "25f1638de220c498"
    digests = [
        TableSchema((AGE,), goal).digest()
        for goal in (
            FEVER,
            LabelsGoal((FEVER, RASH)),
            LabelsGoal((RASH, FEVER)),
            CountsGoal(DAYS),
            DAYS,
            EventGoal(DAYS, DIED, CUTS),
            EventGoal(DAYS, DIED, CUTS[:2]),
            EventGoal(DAYS, RASH, CUTS),
        )
    ]
    assert len(set(digests)) == len(digests)


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
@pytest.mark.parametrize("cell", STRANGE)
def test_a_strange_cell_is_one_of_the_values_or_is_refused(
    tmp_path: Path, name: str, cell: str
) -> None:
    columns = {"age": [1, 2], "fever": ["1", cell], "rash": ["no", "no"]}
    expected = {"1.0": 1, "0.0": 0, "1 ": 1, " 0": 0}.get(cell)
    if expected is not None:
        assert read(tmp_path / name, columns) == [1, expected]
        return
    with pytest.raises((RowError, DataError)) as refused:
        read(tmp_path / name, columns)
    assert "'fever'" in str(refused.value) or "not UTF-8 text" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([True, False]), None),
        (pa.array([1.0, 0.0]), [1, 0]),
        (pa.array([1, 0], pa.int8()), [1, 0]),
        (pa.array(["1", "0"]).dictionary_encode(), [1, 0]),
        (pa.array([b"1", b"0"]), [1, 0]),
        (pa.array([math.nan, 1.0]), None),
        (pa.array([1, None]), None),
    ],
)
def test_every_type_of_a_parquet_is_read_by_its_value(
    tmp_path: Path, values: pa.Array, expected: list[int] | None
) -> None:
    table = pa.table({"age": [1, 2], "fever": values, "rash": ["no", "no"]})
    parquet.write_table(table, tmp_path / "t.parquet")
    reader = TableReader(SCHEMA)
    if expected is None:
        with pytest.raises(RowError, match="column 'fever'"):
            together(tmp_path / "t.parquet", reader)
        return
    assert together(tmp_path / "t.parquet", reader)[1].tolist() == expected


def test_rows_whose_label_is_missing_may_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("age,fever,rash\n1,1,yes\n2,,no\n3,0,maybe\n4,0,no\n")
    reader = TableReader(SCHEMA, bad_rows="leave out")
    x, y = together(path, reader)
    assert y.tolist() == [3, 0]
    assert x.flatten().tolist() == pytest.approx([0.01, 0.04])
    assert sum(len(marks.rows) for marks in reader.marks(path)) == 2


def test_random_tables_are_read_as_a_slow_twin_reads_them(tmp_path: Path) -> None:
    chance = np.random.default_rng(7)
    columns = tuple(Category(f"l{place}", ("0", "1")) for place in range(40))
    bits = chance.integers(0, 2, (50, 40))
    content: dict[str, Any] = {"age": [1] * 50}
    content |= {column.name: bits[:, place].tolist() for place, column in enumerate(columns)}
    schema = TableSchema((AGE,), LabelsGoal(columns))
    codes = read(tmp_path / "t.parquet", content, schema)
    assert codes == [sum(int(bit) << place for place, bit in enumerate(row)) for row in bits]
    goal = objective_of(TableReader(schema).target)
    assert goal is not None
