"""What models are judged on in the audit: a table of people, with one person more or without.

The table is a file, which the edge's own reader reads and divides. What that person should add to
a look is computed here from public constants, not by the reader.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tacit.datasets.held_out import UnitSplit
from tacit.datasets.own.unit_ids import unit_ids
from tacit.datasets.target import Target
from tacit.judging.look_sheet import LookSheet, NumberBounds
from tacit.questions.row_parts import Reals

HELD_OUT: Final = 0.5
UNIT_ROWS: Final = 3  # rows of a person that count
_PEOPLE: Final = 12  # beside the attacked one, half of them held out
_STEEP: Final = 400.0  # of the attacker's model: its probabilities are 0 and 1 at the bounds of `a`
_REACH: Final = 0.25  # of the number's bounds: the largest error that counts
_NET = '''
from torch import nn


class Line(nn.Module):
    """A line."""

    def __init__(self):
        super().__init__()
        self.map = nn.Linear(2, 1)

    def forward(self, x):
        return self.map(x)
'''
_RUN = """
[run]
updates = 1000000
[data]
kind = "table"
train = "people.csv"
target = "y"
unit = "who"
unit_rows = {unit_rows}
rows = {people}
rows_max = 64
[data.columns]
a = {{ low = 0, high = 1, missing = 0.5 }}
b = {{ low = 0, high = 1, missing = 0.5 }}
y = {target}
[model]
{model}
[algorithm]
name = "mapa"
learning_rate = 1.0
[privacy]
batch = {batch}
clip = 1.0
[edges]
count = 1
[evaluation]
at = "edges"
held_out = {held_out}
looks = 3
"""


class JudgedRow(NamedTuple):
    """A row of the table. nan: no value. y: a class, or a number."""

    a: float
    b: float
    y: str


@dataclass(frozen=True, slots=True)
class JudgedPerson:
    """A person whose rows, all alike, are in the table, or not. held: on which side of the split.

    An attacker who knows the key chooses an id for a side.
    """

    name: str
    row: JudgedRow
    rows: int = 2 * UNIT_ROWS
    held: bool = True

    def id_of(self, split: UnitSplit) -> str:
        """Return an id that is on this person's side."""
        for number in range(200):
            name = f"{self.name} {number}"
            (held,) = split.held(unit.tobytes() for unit in unit_ids([name], "who", 0))
            if held == self.held:
                return name
        raise ValueError(f"{self.name}: 200 ids are on the other side")


@dataclass(frozen=True, slots=True)
class JudgedWorld:
    """A target, a model that the attacker has sent, and a table.

    weights, bias: of the model, by output. persons: who are in the table one at a time, others:
    always.
    """

    name: str
    target: Target
    column: str
    model: str
    weights: tuple[tuple[float, float], ...]
    bias: tuple[float, ...]
    persons: tuple[JudgedPerson, ...]
    others: tuple[JudgedPerson, ...]

    @property
    def sheet(self) -> LookSheet:
        """What is counted of a row, by public constants."""
        bounds = NumberBounds(0.0, 1.0, _REACH) if self.target.kind == "number" else None
        return LookSheet.of(self.target, bounds)

    @property
    def params(self) -> Tensor:
        """The model (d,) that the attacker sends."""
        return torch.tensor([*(w for row in self.weights for w in row), *self.bias])

    def added(self, person: JudgedPerson) -> Reals:
        """Return what a person adds to a look (width,), in units of C: one row's, or nothing."""
        x = torch.tensor([[_scaled(person.row.a), _scaled(person.row.b)]])
        outputs = x @ torch.tensor(self.weights).T + torch.tensor(self.bias)
        if self.target.kind == "number":
            y = torch.tensor([_scaled(float(person.row.y) / self.target.span)])
            vectors = self.sheet.vectors(outputs[:, 0], y)
        else:
            label = torch.tensor([self.target.names.index(person.row.y)])
            vectors = self.sheet.vectors(outputs.softmax(1), label)
        added: Reals = vectors[0].astype(np.float64) * person.held
        return added

    def of_others(self) -> Reals:
        """Return what all others add to a look (width,), in units of C."""
        total: Reals = np.sum([*map(self.added, self.others)], axis=0)
        return total

    def write(self, folder: Path, split: UnitSplit, person: JudgedPerson | None) -> Path:
        """Write the table, the attacked person first, and the run file; return the run file."""
        people = [*([] if person is None else [person]), *self.others]
        with (folder / "people.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["who", *JudgedRow._fields])
            for each in people:
                cells = [_text(each.row.a), _text(each.row.b), each.row.y]
                writer.writerows([[each.id_of(split), *cells]] * each.rows)
        (folder / "judged_net.py").write_text(_NET, encoding="utf-8")
        path = folder / "run.toml"
        text = _RUN.format(
            unit_rows=UNIT_ROWS,
            people=_PEOPLE,
            batch=_PEOPLE // 2,
            target=self.column,
            model=self.model,
            held_out=HELD_OUT,
        )
        path.write_text(text, encoding="utf-8")
        return path


def _scaled(number: float) -> float:
    """Return a number as a column of bounds 0 and 1 has it; one without a value is in the midst."""
    return 0.5 if math.isnan(number) else min(1.0, max(0.0, number))


def _text(number: float) -> str:
    return "" if math.isnan(number) else repr(number)


def _attacked(low: str, high: str, beyond: str) -> tuple[JudgedPerson, ...]:
    """Return who is attacked, where the model is surest of `high` at the upper bound of `a`."""
    wrong, right = JudgedRow(1.0, 0.0, low), JudgedRow(1.0, 1.0, high)
    return (
        JudgedPerson("has many rows", wrong),
        JudgedPerson("has one row", wrong, 1),
        JudgedPerson("is judged right", right),
        JudgedPerson("lies at the lower bounds", JudgedRow(0.0, 0.0, low)),
        JudgedPerson("is wrong at the lower bounds", JudgedRow(0.0, 0.0, high)),
        JudgedPerson("lies beyond the bounds", JudgedRow(1e300, -1e300, beyond)),
        JudgedPerson("has no value", JudgedRow(math.nan, math.nan, high)),
        JudgedPerson("is trained on", wrong, held=False),
    )


def _others(*answers: str) -> tuple[JudgedPerson, ...]:
    """Return people with one to three rows, of whom the model is more or less sure."""
    return tuple(
        JudgedPerson(
            f"person {number}",
            JudgedRow(0.5 + (number - 5.3) / _STEEP, 0.1, answers[number % len(answers)]),
            1 + number % UNIT_ROWS,
            number % 4 < 2,
        )
        for number in range(_PEOPLE)
    )


def _of_classes(name: str, names: tuple[str, ...]) -> JudgedWorld:
    """Return a world of classes, of which the first two are told apart by `a`."""
    more = len(names) - 2
    return JudgedWorld(
        name,
        Target("classes", names),
        f"{{ values = {list(names)} }}",
        'name = "logistic"',
        ((-_STEEP / 2, 0.0), (_STEEP / 2, 0.0), *more * ((0.0, 0.0),)),
        (_STEEP / 4, -_STEEP / 4, *more * (1.0,)),
        _attacked(names[0], names[1], names[-1]),
        _others(*names),
    )


TWO: Final = _of_classes("look, two classes", ("no", "yes"))
THREE: Final = _of_classes("look, three classes", ("no", "yes", "who knows"))
# At the bounds of `a` the errors are ten times the largest that counts.
NUMBER: Final = JudgedWorld(
    "look, number",
    Target("number", low=0.0, span=40.0),
    "{ low = 0, high = 40 }",
    'name = "python"\nentry = "judged_net:Line"',
    ((4.0, 0.0),),
    (-1.5,),
    _attacked("0", "40", "1e9"),
    _others("3", "20", "33"),
)
JUDGED_WORLDS: Final = (TWO, THREE, NUMBER)
