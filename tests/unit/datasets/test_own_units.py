"""A table with a unit column: whose its rows are, where they go, and what is counted."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

from tacit import config
from tacit.config import RunFile
from tacit.config.own_table import TableData
from tacit.datasets.own.rows_file import Dealt, UnitRows, rows_of
from tacit.datasets.own.schema import Category, Number, TableSchema
from tacit.datasets.own.table import TableReader
from tacit.errors import ConfigError
from tacit.privacy.accounting import Spend, epsilon_pld
from tacit.privacy.ledger import Charged

SCHEMA = TableSchema((Number("age", 0, 100),), Category("outcome", ("home", "ward")), "person")
SIZES = {f"person-{number}": 1 + number % 7 for number in range(60)}
RUN = """
run.updates = 10
model.name = "logistic"
algorithm.name = "{algorithm}"
[data]
kind = "table"
train = "site{{edge}}.csv"
target = "outcome"
{data}
[data.columns]
age = {{ low = 0, high = 100 }}
outcome = {{ values = ["home", "ward"] }}
[privacy]
mechanism = "gaussian"
batch = 20
noise_multiplier = 1.5
epsilon = 3.0
clip = 1.0
[edges]
count = 3
"""
UNITS = 'unit = "person"\nrows = 200\nrows_max = 240\nunit_rows = 50'


def table(path: Path, people: list[str]) -> Path:
    """Write a row for each of `people`, whose age is its number in the file."""
    columns = {"person": people, "age": list(range(len(people))), "outcome": ["home"] * len(people)}
    csv.write_csv(pa.table(columns), path)
    return path


def dealt(path: Path, folder: Path, edges: int) -> list[dict[str, list[int]]]:
    """Return, for each edge, the numbers of each person's rows in the file.

    They are grouped by the edge's own units.
    """
    people = [line.split(",")[0].strip('"') for line in path.read_text().splitlines()[1:]]
    by_edge = []
    for number in range(edges):
        rows = rows_of(
            path, TableReader(SCHEMA), folder / str(number), Dealt(number, edges, seed=3)
        )
        assert rows.units is not None
        assert sorted(rows.units.order.tolist()) == list(range(len(rows.y) - 1))
        places = np.rint(rows.x[:-1, 0].numpy() * 100).astype(int)
        by_unit = {}
        for start, end in zip(rows.units.starts, rows.units.starts[1:], strict=False):
            of = [int(places[row]) for row in rows.units.order[start:end]]
            (name,) = {people[place] for place in of}  # all of one person
            assert name not in by_unit
            by_unit[name] = of
        assert len(by_unit) == rows.records
        by_edge.append(by_unit)
    return by_edge


def test_all_rows_of_a_person_go_to_one_edge_and_are_one_unit_there(tmp_path: Path) -> None:
    people = [name for name, size in SIZES.items() for _ in range(size)][:100]
    order = np.random.default_rng(1).permutation(len(people))
    path = table(tmp_path / "t.csv", [people[place] for place in order])
    by_edge = dealt(path, tmp_path, 3)
    assert min(map(len, by_edge)) > 0
    names = [*chain.from_iterable(by_edge)]
    assert sorted(names) == sorted(set(people))  # each at one edge
    rows = chain.from_iterable(of for by_unit in by_edge for of in by_unit.values())
    assert sorted(rows) == list(range(100))


def test_one_more_row_of_a_person_goes_where_its_others_are(tmp_path: Path) -> None:
    people = [name for name, size in SIZES.items() for _ in range(size)][:90]
    before = dealt(table(tmp_path / "a.csv", people), tmp_path / "a", 3)
    after = dealt(table(tmp_path / "b.csv", [*people, "person-5"]), tmp_path / "b", 3)
    changed = [old != new for old, new in zip(before, after, strict=True)]
    assert changed == ["person-5" in units for units in before]
    (old, new), *_ = [(o, n) for o, n in zip(before, after, strict=True) if o != n]
    assert {name for name in new if new[name] != old[name]} == {"person-5"}


def test_what_counts_of_a_unit_is_said_by_the_run_file_alone(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", ["ada", "bob", "ada"])
    for of_unit in (UnitRows(1, False), UnitRows(50, True)):
        units = rows_of(path, TableReader(SCHEMA), tmp_path / "rows", of_unit=of_unit).units
        assert units is not None
        assert (len(units), units.limit, units.mean) == (2, of_unit.most, of_unit.mean)


# -- what a run says -------------------------------------------------------------------------------


def run(data: str = UNITS, algorithm: str = "mapa") -> RunFile:
    return config.parse(RUN.format(data=data, algorithm=algorithm), "test")


def test_batch_rows_and_q_count_units() -> None:
    plan = run().plan(0, dealt=240)
    assert plan.sampling_rate == 20 / 200
    assert (plan.batch, plan.most_rows) == (20, 240)
    assert plan.slots == run(UNITS.replace("50", "7")).plan(0, dealt=240).slots
    with pytest.raises(ConfigError, match=r"privacy\.batch=20 is above the 10 units \(person\)"):
        run(UNITS.replace("rows = 200", "rows = 10"))


@pytest.mark.parametrize(("data", "unit"), [(UNITS, "person"), ("rows = 200", "row")])
def test_the_unit_is_named(data: str, unit: str) -> None:
    document = run(data).define().promise.total({}).document()
    assert document["unit"] == unit
    assert document["guarantee"] == (
        f"(epsilon, delta)-DP per {unit}, at each edge, against everyone else"
    )


@pytest.mark.parametrize("algorithm", ["mapa", "fedasync", "adp2sgd"])
def test_people_at_several_edges_pay_for_all_of_them(algorithm: str) -> None:
    histories = [
        (Spend(0.1, 1.5, 30, "gaussian"),),
        (Spend(0.1, 1.5, 20, "gaussian"),),
        (Spend(0.05, 2.0, 40, "gaussian"), Spend(0.1, 1.5, 10, "gaussian")),
    ]
    epsilons = {}
    for people in ("apart", "shared"):
        promise = run(f'{UNITS}\npeople = "{people}"', algorithm).define().promise
        edges = {
            f"edge-{k}": promise.spent(f"edge-{k}", history, Charged(1, bytes(32)), history)
            for k, history in enumerate(histories)
        }
        epsilons[people] = promise.total(edges).epsilon
        each = [edge.epsilon_pld for edge in edges.values()]
    # By hand: equal rows are one row, whichever edge they are of.
    by_hand = epsilon_pld([Spend(0.1, 1.5, 60, "gaussian"), Spend(0.05, 2.0, 40, "gaussian")], 1e-5)
    assert epsilons["shared"] == pytest.approx(by_hand, abs=1e-9)
    assert epsilons["apart"] == max(epsilon or 0 for epsilon in each)
    assert (epsilons["shared"] or 0) > 1.2 * (epsilons["apart"] or 0)


@pytest.mark.parametrize("line", ['people = "shared"', "unit_rows = 5", 'unit_gradient = "sum"'])
def test_what_is_about_units_needs_their_column(line: str) -> None:
    with pytest.raises(ConfigError, match=r"needs data\.unit"):
        run(f"rows = 200\n{line}")


BAD = """
run.updates = 10
model.name = "logistic"
algorithm.name = "fedasync"
[data]
kind = "table"
train = "train.csv"
bad_rows = "leave out"
target = "outcome"
{unit}
[data.columns]
age = {{ low = 0, high = 100 }}
outcome = {{ values = ["home", "ward"] }}
[edges]
count = 2
"""


@pytest.mark.parametrize("unit", ["", 'unit = "person"'])
def test_counts_tell_nobody_how_many_rows_are_left_out(tmp_path: Path, unit: str) -> None:
    """What is counted becomes public: two files that differ in bad cells alone have one count."""
    public: list[tuple[int | None, int | None]] = []
    for name, bad in (("well", 0), ("ill", 333)):
        folder = tmp_path / name
        folder.mkdir()
        lines = ["person,age,outcome"]
        for row in range(600):
            outcome = "SECRET" if row < bad else "home"
            lines.append(f"p{row // 3},{20 + row % 60},{outcome}")
        (folder / "train.csv").write_text("\n".join(lines) + "\n")
        (folder / "run.toml").write_text(BAD.format(unit=unit))
        data = config.load(folder / "run.toml").data
        assert isinstance(data, TableData)
        public.append((data.rows, data.unit_rows))
    assert public[0] == public[1] == ((100, 3) if unit else (300, None))
