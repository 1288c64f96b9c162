"""What questions are asked of in the audit: a table of people, with one person more or without.

The table is a file, which the edge's own reader reads. What that person should add to the sums is
computed here from the sheet's public constants, not by the reader.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from tacit.questions.question import parse
from tacit.questions.row_parts import RawCells, Reals
from tacit.questions.sheet import PublicColumns, QuestionSheet

UNIT_ROWS: Final = 3  # rows of a person that count
PEOPLE: Final = 12  # beside the attacked one
_PUBLIC: Final = PublicColumns(
    {"age": (0.0, 100.0), "income": (-50.0, 50.0)},
    {"sex": ("F", "M"), "job": ("nurse", "cook", "diver")},
)
_RUN = """
[data]
kind = "table"
train = "people.csv"
unit = "who"
unit_rows = {unit_rows}
rows = {people}
[data.columns]
age = {{ low = 0, high = 100 }}
income = {{ low = -50, high = 50 }}
sex = {{ values = ["F", "M"] }}
job = {{ values = ["nurse", "cook", "diver"] }}
[edges]
count = 1
[privacy]
epsilon = 1.0
[ask]
questions = {questions}
weights = {weights}
"""


class PersonRow(NamedTuple):
    """A row of the table. nan and None: no value."""

    age: float
    income: float
    sex: str | None
    job: str | None
    debt: float
    town: str | None = "Ulm"  # whose values are not public


@dataclass(frozen=True, slots=True)
class AttackedPerson:
    """A person whose rows are in the table, or not."""

    name: str
    rows: tuple[PersonRow, ...]


@dataclass(frozen=True, slots=True)
class AskedWorld:
    """Questions, their weights, and a table. persons: who are in it one at a time, others: always.

    others: each has rows that are alike.
    """

    name: str
    questions: tuple[str, ...]
    persons: tuple[AttackedPerson, ...]
    others: tuple[AttackedPerson, ...]
    weights: tuple[float, ...] = ()

    def sheet(self, kind: type[QuestionSheet] = QuestionSheet, unit_rows: int = 1) -> QuestionSheet:
        """Return the questions as one vector, by public constants. unit_rows: it is divided by."""
        return kind([parse(text) for text in self.questions], _PUBLIC, self.weights, unit_rows)

    def added(self, person: AttackedPerson) -> Reals:
        """Return what a person adds to the sums (width,), in units of C.

        The person has rows that are alike, or no more than count.
        """
        rows = person.rows[:UNIT_ROWS]
        cells = RawCells(
            len(rows),
            {name: np.array([getattr(row, name) for row in rows]) for name in _NUMBERS},
            {name: np.array([_text(row, name) for row in rows], object) for name in _ALL},
        )
        added: Reals = self.sheet().vectors(cells).astype(np.float64).sum(axis=0)
        return added / UNIT_ROWS

    def of_others(self) -> Reals:
        """Return what all others add (width,), in units of C."""
        total: Reals = np.sum([*map(self.added, self.others)], axis=0)
        return total

    def write(self, folder: Path, person: AttackedPerson | None) -> Path:
        """Write the table and the run file into a folder; return the run file."""
        people = [*self.others, *([] if person is None else [person])]
        rows = [(each.name, row) for each in people for row in each.rows]
        with (folder / "people.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["who", *_ALL])
            writer.writerows([who, *(_text(row, name) or "" for name in _ALL)] for who, row in rows)
        path = folder / "run.toml"
        text = _RUN.format(
            unit_rows=UNIT_ROWS,
            people=len(self.others),
            questions=list(self.questions),
            weights=list(self.weights),
        )
        path.write_text(text, encoding="utf-8")
        return path


_ALL: Final = PersonRow._fields
_NUMBERS: Final = ("age", "income", "debt")


def _text(row: PersonRow, name: str) -> str | None:
    """Return a cell as the file has it; None: it is empty."""
    cell: float | str | None = getattr(row, name)
    if isinstance(cell, float):
        return None if math.isnan(cell) else repr(cell)
    return cell


def person(name: str, row: PersonRow, rows: int = 2 * UNIT_ROWS) -> AttackedPerson:
    """Return a person with so many rows, all alike; by default more than count."""
    return AttackedPerson(name, (row,) * rows)


# -- whom each kind of question is attacked by -----------------------------------------------------

# The only diver, at the upper bounds of all numbers.
LONE: Final = PersonRow(100.0, 50.0, "M", "diver", 1e12, "Vineta")
ABSENT: Final = PersonRow(math.nan, math.nan, None, None, math.nan, None)
LOWEST: Final = PersonRow(0.0, -50.0, "F", "diver", -1e12)
BEYOND: Final = PersonRow(1e300, -1e300, "X", "astronaut", 1e300, "ü" * 400)
INFINITE: Final = PersonRow(-math.inf, math.inf, "F", "diver", -math.inf)
_ATTACKED: Final = (
    person("has many rows", LONE),
    person("has no value", ABSENT),
    person("lies at the lower bounds", LOWEST),
    person("lies beyond the bounds", BEYOND),
    person("is infinite", INFINITE),
    person("has one row", LONE, 1),
    person("has one row without a value", ABSENT, 1),
)
# They have one to three rows, and nobody is a diver.
_OTHERS: Final = tuple(
    person(
        f"person {number}",
        PersonRow(20.0 + number, 3.0 - number, "FM"[number % 2], "nurse", 10.0 * number),
        1 + number % UNIT_ROWS,
    )
    for number in range(PEOPLE)
)
_EACH: Final = (
    "count",
    "missing age",
    "histogram age 0 100 10",
    "quantile age 0.5",
    "quantile debt 0.5",
    "mean age",
    "std age",
    "counts by job",
    "crosstab sex job",
    "correlation age income",
)
TOGETHER: Final = AskedWorld(
    "all together", _EACH, _ATTACKED, _OTHERS, tuple(1.0 + n % 4 for n in range(len(_EACH)))
)
WORLDS: Final[Sequence[AskedWorld]] = (
    *(AskedWorld(" ".join(text.split()[:2]), (text,), _ATTACKED, _OTHERS) for text in _EACH),
    # Apart from the others, as its answers are 28,000 numbers.
    AskedWorld("counts by values that are not public", ("counts by town",), _ATTACKED, _OTHERS),
    TOGETHER,
)


def crowd(people: int, questions: int) -> AskedWorld:
    """Return a world of people who are all alike, and of so many questions about all of them.

    Each of a row's numbers is then the root of 1/questions.
    """
    alike = tuple(person(f"person {number}", LONE, UNIT_ROWS) for number in range(people))
    texts = tuple(f"histogram age 0 {100 + number} 1" for number in range(questions))
    return AskedWorld("crowd", texts, (), alike)
