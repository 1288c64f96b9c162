"""[model] name = "additive": the bins of the columns, by the public constants of [data]."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from tacit.config.algorithm_contract import DataSection
from tacit.config.model import ModelSection
from tacit.config.own_table import TableData
from tacit.datasets import Source
from tacit.datasets.own.schema import Category, Column, Dated, Hashed, Number, Tokenized
from tacit.errors import ConfigError
from tacit.models.additive import ADDITIVE, AdditiveModel
from tacit.models.bins import BinnedColumn, category_column, number_column
from tacit.models.pair_cells import PairCells

Together = Callable[[Sequence[str]], tuple[tuple[int, int], ...]]
_MONTHS = tuple(str(number) for number in range(1, 13))
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def additive_model(
    section: ModelSection, data: DataSection, source: Source, folder: Path, together: Together
) -> AdditiveModel:
    """Return the additive model for the run's data; folder: the run file's.

    together: which of its columns, by their names, may say something in pairs. Raises ConfigError
    for a target or for rows that it cannot learn of.
    """
    kind = source.target.kind
    if kind not in ("classes", "number"):
        raise ConfigError(
            f"model.name={ADDITIVE}: learns classes or a number, and the target is of kind {kind}; "
            "use logistic or mlp"
        )
    shape, classes = source.shape
    if source.integers is not None:
        raise ConfigError(f"model.name={ADDITIVE}: needs columns, not a text; use python")
    columns = tuple(_columns(section.bins, data, shape, folder))
    pairs = tuple(
        PairCells(one, other, columns[one], columns[other])
        for one, other in together([column.name for column in columns])
    )
    return AdditiveModel(
        ADDITIVE,
        shape,
        classes or 1,
        section.regularization,
        columns=columns,
        labels=classes,
        pairs=pairs,
    )


def _columns(
    bins: int, data: DataSection, shape: tuple[int, ...], folder: Path
) -> Iterator[BinnedColumn]:
    """Yield the columns of a table; of other data every number of x is a column from 0 to 1."""
    if not isinstance(data, TableData) or data.features != "none":
        for place in range(math.prod(shape)):
            yield number_column(str(place), place, bins, 0.0, 1.0)
        return
    place = 0
    for column in data.schema_of_rows(folder).features:
        yield from _of_column(bins, column, place)
        place += column.width


def _of_column(bins: int, column: Column, place: int) -> Iterator[BinnedColumn]:
    if isinstance(column, Number):
        yield _of_number(bins, column, place)
    elif isinstance(column, Category):
        yield category_column(column.name, place, column.values, column.width)
    elif isinstance(column, Hashed):
        names = tuple(f"place {number}" for number in range(column.places))
        yield category_column(column.name, place, names, column.width)
    elif isinstance(column, Dated):
        yield from _of_date(bins, column, place)
    else:
        assert isinstance(column, Tokenized)
        raise ConfigError(f"model.name={ADDITIVE}: column {column.name!r} is a text; use python")


def _of_number(bins: int, column: Number, place: int) -> BinnedColumn:
    low, high = column.scaled(np.array([column.low, column.high])).tolist()
    return BinnedColumn(
        column.name,
        place,
        bins,
        low=low,
        high=high,
        file_bounds=(column.low, column.high),
        log=column.log,
    )


def _of_date(bins: int, column: Dated, place: int) -> Iterator[BinnedColumn]:
    for part in column.parts:
        name = f"{column.name} ({part})"
        if part == "month":
            yield category_column(name, place, _MONTHS, 12)
            place += 12
        elif part == "weekday":
            yield category_column(name, place, _DAYS, 7)
            place += 7
        else:
            yield number_column(name, place, bins, 0.0, 1.0)
            place += 1
