"""Tables of people and of sensors as float32 columns: Adult, Vehicle, speech, credit, breast
cancer.

No number here is computed from the rows that an edge holds as private. Columns, categories and
constants are what the publishers printed (docs/data.md states which, and what is taken as public).
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from importlib import resources

import numpy as np

from tacit.datasets.benchmarks.sources import RawArray, RowNumbers, Split, Stored, unzipped

_MISSING = "?"  # adult.names: "Convert Unknown to ?"
_ADULT_COLUMNS = 15
_HELD_OUT = 5  # every fifth row of a table without a test set of its own
_SPLIT_SEED = 1860
_RECORDINGS = 3  # of every subject of pd-speech, in consecutive rows
_FAR = 5.0  # the bound on a column of pd-speech, in spreads
_MONEY = math.nan  # marks an amount of money, which is scaled by its logarithm
# What each column is divided by: LIMIT_BAL, SEX, EDUCATION, MARRIAGE, AGE, PAY_0 to PAY_6 (months
# late, -2 to 9), six bills, six payments.
_CREDIT_UNITS = np.array([_MONEY, 2, 4, 3, 100, *[9] * 6, *[_MONEY] * 12])


def adult(names: bytes, table: bytes, files: tuple[str, ...]) -> Stored:
    """Read census income (Becker and Kohavi, doi:10.24432/C5XW20).

    Categories are one-hot (n, 102), and y = 1 above $50K. The eight categorical columns are used.
    Categories and their order are those of adult.names, and a column with missing values has one
    more, last. Every row so has length √8. groups: the 16 educations. Section 8 of DP-PASGD
    (arXiv:2003.12705) uses the categorical columns alone too.
    """
    categories = _categories(unzipped(names, files[0]).decode())
    # The comment and the last line are of another length.
    rows = [row for row in _csv(table, files[1]) if len(row) == _ADULT_COLUMNS]
    blocks = []
    for column, values in categories.items():
        codes = {value: code for code, value in enumerate(values)}
        blocks.append(np.eye(len(values), dtype=np.float32)[[codes[row[column]] for row in rows]])
    y = np.array([row[-1].startswith(">50K") for row in rows], dtype=np.int64)
    # The second block is education.
    return Stored(np.concatenate(blocks, 1), y, groups=blocks[1].argmax(1))


def _categories(names: str) -> dict[int, list[str]]:
    """Return {column: its values} of the categorical columns of adult.names.

    Its lines are "name: value, value.".
    """
    lines = [line for line in names.splitlines() if ":" in line and not line.startswith("|")]
    categories = {}
    for column, line in enumerate(lines):
        name, _, values = line.rstrip(". ").partition(": ")
        if values != "continuous":
            if name in ("workclass", "occupation", "native-country"):
                unknown = [_MISSING]
            else:
                unknown = []
            categories[column] = values.split(", ") + unknown
    return categories


def vehicle(content: bytes, file: str, split: Split) -> Stored:
    """Read SensIT (Duarte and Hu, doi:10.1016/j.jpdc.2004.03.020).

    It has 1,860 rows of 100 features of 23 sensors. The rows are those that Li et al. published
    (2021). The publisher standardised the features over all sensors; that mean and variance are
    taken as public. y is 1 for the label +1. groups: the sensor, 0 to 22. No test set was
    published: of every sensor a fifth of its rows, rounded down, is held out by a permutation that
    never changes.
    """
    published = json.loads(unzipped(content, file))["user_data"]
    tables = [
        (np.array(published[name]["x"]), np.array(published[name]["y"]))
        for name in sorted(published)
    ]
    groups = np.repeat(np.arange(len(tables)), [len(y) for _, y in tables])
    x = np.concatenate([x for x, _ in tables]).astype(np.float32)
    y = (np.concatenate([y.reshape(-1) for _, y in tables]) > 0).astype(np.int64)
    rows = held_out(groups, split)
    return Stored(x[rows], y[rows], groups=groups[rows])


def parkinson(content: bytes, file: str, split: Split) -> Stored:
    """Read speech of 252 subjects (Sakar et al., doi:10.1016/j.asoc.2018.10.022).

    Each has one row; y is 1 for a patient. A row is the mean of the subject's three recordings.
    Every column is (value - centre) / spread of pd_speech.csv, at most 5 in size, before the mean:
    a bound on what one recording says. ids: the subject. Of each class a fifth is held out.
    """
    rows = [row for row in _csv(content, file) if row[0].isdecimal()]  # below two lines of names
    numbers = np.array(rows, dtype=np.float64)
    scales = (
        resources.files("tacit.datasets.benchmarks")
        .joinpath("pd_speech.csv")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    centre, spread = np.array(
        [line.split(",")[1:] for line in scales if line[0] != "#"][1:], dtype=np.float64
    ).T
    features = ((numbers[:, 1:-1] - centre) / spread).clip(-_FAR, _FAR)
    x = features.reshape(-1, _RECORDINGS, len(centre)).mean(1).astype(np.float32)
    subjects = numbers[::_RECORDINGS].astype(np.int64)
    return _one_split(x, subjects[:, -1], split, ids=subjects[:, 0])


def credit(content: bytes, file: str, split: Split) -> Stored:
    """Read default of credit card clients (Yeh and Lien, doi:10.1016/j.eswa.2007.12.020).

    It has 30,000 rows of 23 columns. y is 1 for a default. Amounts of money become sign(v)·log10(1
    + |v|)/6; the other columns are divided by a round number that the published description
    suggests. ids: the published one. Of each class a fifth is held out.
    """
    numbers = np.array(list(_csv(content, file))[1:], dtype=np.float64)
    x = numbers[:, 1:-1] / _CREDIT_UNITS
    money = np.isnan(x[0])
    amounts = numbers[:, 1:-1][:, money]
    x[:, money] = np.sign(amounts) * np.log10(1 + np.abs(amounts)) / 6
    ids, y = numbers[:, [0, -1]].astype(np.int64).T
    return _one_split(x.astype(np.float32), y, split, ids=ids)


def breast(guest: bytes, host: bytes, split: Split) -> Stored:
    """Read breast cancer (Wolberg et al., doi:10.24432/C5DW2B) as FATE cut it for two parties.

    10 columns are the guest's, 20 the host's. FATE standardised the columns over all 569 rows;
    those means and variances are taken as public. y is the guest's. ids: the published one. Of each
    class a fifth is held out.
    """
    guest_rows, host_rows = (
        np.array(list(csv.reader(io.StringIO(side.decode())))[1:], dtype=np.float64)
        for side in (guest, host)
    )
    ids, y = (
        guest_rows[:, :2].astype(np.int64).T
    )  # the host's rows have the same ids in the same order
    return _one_split(
        np.concatenate((guest_rows[:, 2:], host_rows[:, 1:]), 1).astype(np.float32),
        y,
        split,
        ids=ids,
    )


def _one_split(x: RawArray, y: RowNumbers, split: Split, ids: RowNumbers) -> Stored:
    rows = held_out(y, split)
    return Stored(x[rows], y[rows], ids=ids[rows])


def held_out(groups: RowNumbers, split: Split) -> RowNumbers:
    """Return row numbers (ascending) of a fixed split of a table without one.

    Of each group of n rows, n // 5 are for test.
    """
    # RandomState's streams are frozen by numpy's policy: the split is the same on every machine and
    # version.
    order = np.random.RandomState(_SPLIT_SEED).permutation(len(groups))
    chosen = [rows[: len(rows) // _HELD_OUT] for rows in _by_group(groups, order)]
    test = np.sort(np.concatenate(chosen))
    if split == "test":
        return test
    return np.setdiff1d(np.arange(len(groups)), test)


def _by_group(groups: RowNumbers, order: RowNumbers) -> Iterator[RowNumbers]:
    return (order[groups[order] == group] for group in np.unique(groups))


def _csv(content: bytes, file: str) -> Iterator[list[str]]:
    return csv.reader(io.StringIO(unzipped(content, file).decode()), skipinitialspace=True)
