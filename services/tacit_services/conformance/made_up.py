"""A run of questions to people who were never born: `ask` reads tables, and none is published."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from tacit import config
from tacit.config import RunFile
from tacit.datasets.source import EdgePart

_ROWS = 60  # of each edge
_RUN = """
data.kind = "table"
data.train = "people{edge}.csv"
data.rows = 60
data.columns.age = { low = 0, high = 100 }
data.columns.sex = { values = ["f", "m"] }
edges.count = 3
privacy.epsilon = 1.0
ask.questions = [
    "count", "missing age", "histogram age 0 100 5", "quantile income 0.5", "std age",
    "counts by sex",
]
"""


def questions(folder: Path) -> RunFile:
    """Return a run of questions, and lay the tables that it asks into `folder`."""
    run = config.parse(_RUN, "ask", folder=folder)
    for number in range(run.edges.count):
        lines = ["age,income,sex", *_people(random.Random(number))]
        (folder / f"people{number}.csv").write_text("\n".join(lines) + "\n")
    return run


def rows_of(run: RunFile, folder: Path) -> list[EdgePart]:
    """Return the rows of each edge, read as an edge reads them, mapped from below `folder`."""
    return [
        run.source.edge(number, None, folder / f"edge-{number}")
        for number in range(run.edges.count)
    ]


def _people(chance: random.Random) -> Iterator[str]:
    for _ in range(_ROWS):
        age = "" if chance.random() < 0.1 else str(chance.randint(0, 100))
        yield f"{age},{chance.lognormvariate(10, 1):.2f},{chance.choice('fm')}"
