"""What an edge counts of a row for a question: a vector, which no row makes longer than 1.

A row's vector depends on that row and on public constants alone. All vectors of a row lie one after
the other in what an edge sums up, each times its question's weight.

A vector has thousands of numbers, and few that are not 0. So a row is stored packed, as a few
numbers that its vector follows from, and the vector is its entries: places that ascend, and the
values there. Packed zeros are a row that counts as nothing.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.questions.rank_codes import codes

RowVectors = npt.NDArray[np.float32]
PlaceNumbers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class RawCells:
    """The cells of some rows (n,). numbers: float64 with nan, texts: objects with None.

    nan and None stand for a missing value, and for what cannot be read.
    """

    rows: int
    numbers: Mapping[str, Reals]
    texts: Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Vectors by what is not 0 in them: places (n, S) and values (n, S).

    Places ascend in each row. Of entries at one place, all but the last are 0.
    """

    places: PlaceNumbers
    values: RowVectors

    def dense(self, width: int) -> RowVectors:
        """Return the vectors (n, width)."""
        vectors = np.zeros((len(self.places), width), np.float32)
        np.put_along_axis(vectors, self.places, self.values, axis=1)
        return vectors

    def summed(self, rows: int) -> Entries:
        """Return the sum of each `rows` vectors that follow one another (n / rows, rows · S)."""
        together = (len(self.places) // rows, rows * self.places.shape[1])
        order = np.argsort(self.places.reshape(together), axis=1, kind="stable")
        places = np.take_along_axis(self.places.reshape(together), order, axis=1)
        values = np.take_along_axis(self.values.reshape(together), order, axis=1)
        begins = np.ones(together, np.bool_)
        begins[:, 1:] = places[:, 1:] != places[:, :-1]
        first = np.flatnonzero(begins)
        sums = np.zeros(places.size, np.float32)
        if len(first):
            sums[np.append(first[1:], len(sums)) - 1] = np.add.reduceat(values.ravel(), first)
        return Entries(places, sums.reshape(together))


@dataclass(frozen=True, slots=True)
class Part(ABC):
    """What is counted of a row. Parts that are equal are summed up once."""

    @property
    @abstractmethod
    def width(self) -> int:
        """The numbers of a row's vector."""

    @property
    def stored(self) -> int:
        """The numbers of a packed row."""
        return 1

    @property
    def support(self) -> int:
        """S: the most numbers of a row's vector that are not 0."""
        return 1

    @abstractmethod
    def packed(self, cells: RawCells) -> RowVectors:
        """Return what is stored of each row (n, stored)."""

    @abstractmethod
    def entries(self, packed: RowVectors) -> Entries:
        """Return the vectors of packed rows, none longer than 1; of any numbers, one that fits."""

    def vectors(self, cells: RawCells) -> RowVectors:
        """Return each row's vector (n, width), as an edge makes it of what it stores."""
        return self.entries(self.packed(cells)).dense(self.width)


@dataclass(frozen=True, slots=True)
class OneHot(Part):
    """A row counts as 1 in one place, or nowhere. Its number from 1 is stored."""

    def entries(self, packed: RowVectors) -> Entries:
        """Return 1 at the place, or nothing for a stored 0."""
        numbers = whole_numbers(packed, self.width)
        return Entries(np.maximum(numbers - 1, 0), (numbers > 0).astype(np.float32))


@dataclass(frozen=True, slots=True)
class Everybody(OneHot):
    """Each row counts as 1."""

    @property
    def width(self) -> int:
        """One number."""
        return 1

    def packed(self, cells: RawCells) -> RowVectors:
        """Return ones."""
        return np.ones((cells.rows, 1), np.float32)


@dataclass(frozen=True, slots=True)
class Absent(OneHot):
    """A row counts as 1 where it has no value in `column`."""

    column: str

    @property
    def width(self) -> int:
        """One number."""
        return 1

    def packed(self, cells: RawCells) -> RowVectors:
        """Return 1 or 0."""
        return _absent(cells.texts[self.column])[:, None].astype(np.float32)


@dataclass(frozen=True, slots=True)
class Bins(OneHot):
    """One-hot: the cells of `edges`, and after them smaller numbers, larger ones, and no value."""

    column: str
    edges: tuple[float, ...]

    @property
    def width(self) -> int:
        """A number for each cell, and three."""
        return len(self.edges) + 2

    def packed(self, cells: RawCells) -> RowVectors:
        """Return the places' numbers."""
        numbers = cells.numbers[self.column]
        count = len(self.edges) - 1
        places = cell_of(numbers, self.edges)
        places[numbers < self.edges[0]] = count
        places[numbers > self.edges[-1]] = count + 1
        places[np.isnan(numbers)] = count + 2
        return _numbered(places)


@dataclass(frozen=True, slots=True)
class Ranks(Part):
    """How many rows lie below each of `edges`, less half of all rows: `tacit.questions.rank_codes`.

    Reals outside count as the outermost cells; a row without a value counts as nothing.
    """

    column: str
    edges: tuple[float, ...]

    @property
    def width(self) -> int:
        """A number for each cell."""
        return len(self.edges) - 1

    @property
    def support(self) -> int:
        """All of them."""
        return self.width

    def packed(self, cells: RawCells) -> RowVectors:
        """Return each cell's number from 1, and 0 for no value."""
        numbers = cells.numbers[self.column]
        cell = _numbered(cell_of(numbers, self.edges))
        cell[np.isnan(numbers)] = 0
        return cell

    def entries(self, packed: RowVectors) -> Entries:
        """Return each cell's code."""
        cell = whole_numbers(packed[:, 0], self.width)
        values = codes(self.width)[np.maximum(cell - 1, 0)]
        values[cell == 0] = 0
        return _all_of(values)


@dataclass(frozen=True, slots=True)
class Moments(Part):
    """(1, u) over √2, with u the number, cut at the bounds and scaled to [-1, 1].

    squares: (1, u, u²) over √3. A row without a value counts as nothing. Of two columns:
    (1, u, v, u², v², uv) over √6, where both have a value.
    """

    columns: tuple[str, ...]
    bounds: tuple[tuple[float, float], ...]
    squares: bool = True

    @property
    def width(self) -> int:
        """Two numbers, three, or six."""
        return 6 if len(self.columns) == 2 else 2 + self.squares

    @property
    def stored(self) -> int:
        """All of them."""
        return self.width

    @property
    def support(self) -> int:
        """All of them."""
        return self.width

    def packed(self, cells: RawCells) -> RowVectors:
        """Return the moments."""
        scaled = [
            _scaled(cells.numbers[name], low, high)
            for name, (low, high) in zip(self.columns, self.bounds, strict=True)
        ]
        first, last = scaled[0], scaled[-1]
        moments = [np.ones(cells.rows), *scaled]
        if self.squares:
            moments += [u * u for u in scaled]
        if len(scaled) == 2:
            moments.append(first * last)
        vectors = np.stack(moments, axis=1)
        vectors[np.isnan(first) | np.isnan(last)] = 0
        return (vectors / math.sqrt(self.width)).astype(np.float32)

    def entries(self, packed: RowVectors) -> Entries:
        """Return the moments, as they are stored."""
        return _all_of(packed)


@dataclass(frozen=True, slots=True)
class Pairs(OneHot):
    """One-hot over the values of one category, or of two; each has two more: another value, none.

    Of two, the second's values run fastest.
    """

    columns: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]

    @property
    def width(self) -> int:
        """A number for each value, or pair of values."""
        return math.prod(len(values) + 2 for values in self.values)

    def packed(self, cells: RawCells) -> RowVectors:
        """Return the places' numbers."""
        places = np.zeros(cells.rows, np.int64)
        for name, values in zip(self.columns, self.values, strict=True):
            place = {value: index for index, value in enumerate(values)} | {None: len(values) + 1}
            other = len(values)
            of_column = [place.get(text, other) for text in cells.texts[name]]
            places = places * (len(values) + 2) + np.array(of_column, np.int64)
        return _numbered(places)


def cell_of(numbers: Reals, edges: tuple[float, ...]) -> npt.NDArray[np.int64]:
    """Return each number's cell, from 0. The last cell has its upper edge, and nan is in cell 0."""
    finite = np.nan_to_num(numbers, nan=edges[0], posinf=edges[-1], neginf=edges[0])
    places = np.searchsorted(np.array(edges), finite, side="right") - 1
    return np.clip(places, 0, len(edges) - 2)


def _scaled(numbers: Reals, low: float, high: float) -> Reals:
    cut = np.clip(numbers, low, high)
    scaled: Reals = (2 * cut - (low + high)) / (high - low)
    return scaled


def _absent(texts: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    return np.array([text is None for text in texts], np.bool_)


def _numbered(places: PlaceNumbers) -> RowVectors:
    """Return each place's number from 1, exact below 2^24."""
    return (places[:, None] + 1).astype(np.float32)


def whole_numbers(numbers: RowVectors, most: int) -> PlaceNumbers:
    """Return numbers that were stored as whole ones, from 0 to `most`."""
    return np.clip(np.nan_to_num(numbers), 0, most).astype(np.int64)


def _all_of(vectors: RowVectors) -> Entries:
    """Return vectors of which all numbers are entries."""
    return Entries(np.broadcast_to(np.arange(vectors.shape[1]), vectors.shape), vectors)
