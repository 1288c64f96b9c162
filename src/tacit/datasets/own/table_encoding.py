"""Turns record batches of an own table into fixed-width rows. One row's result depends on no other.

Errors name the column and its type and never a value. `RowError.where` is for the owner's screen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tacit.datasets.own.cells import (
    Cells,
    Floats64,
    Mask,
    by_value,
    dates,
    each_text,
    numbers,
    texts,
)
from tacit.datasets.own.rows import (
    UNIT,
    EncodedRows,
    Floats,
    Inputs,
    RowError,
    UnitIds,
    each_its_own,
)
from tacit.datasets.own.schema import (
    Category,
    CountsGoal,
    Dated,
    EventGoal,
    Goal,
    Hashed,
    NextTokenGoal,
    Number,
    TableSchema,
    Tokenized,
)
from tacit.datasets.own.table_form import MISSING_WORDS, USUAL, TableForm
from tacit.datasets.own.unit_ids import unit_ids
from tacit.datasets.target import NOT_LEARNT

Places = npt.NDArray[np.int64]
_MISSING = "a missing value"
_LEAVE_OUT = 'leave such rows out: data.bad_rows = "leave out"'
_SAY = (
    'say what one is taken for: missing = "other" of a category, a date or a text, of a number one '
    f"in its bounds; or {_LEAVE_OUT}"
)
_LISTED = 6  # of a target's values that are said; they are public


class MisfitError(RowError):
    """Rows that do not fit the schema: of each column that has some, the first. file: its name."""

    def __init__(self, errors: dict[str, RowError], file: str = "") -> None:
        self.errors = errors
        ordered = list(errors.values())
        place = file and f"{file}: "
        words = "; ".join(error.message for error in ordered)
        super().__init__(f"{place}{words}", ordered[0].row)
        self.for_owner = place + "; ".join(error.for_owner for error in ordered)


@dataclass(slots=True)
class Misfits:
    """The rows of a batch that do not fit. first: the number of its first row."""

    rows: int
    first: int
    bad: Mask = field(init=False)
    errors: dict[str, RowError] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.bad = np.zeros(self.rows, np.bool_)

    def add(self, name: str, kind: str, bad: Mask, what: str, help_: str = "") -> None:
        """Take note of the rows that are `bad`, because of the column called `name`."""
        if not bad.any():
            return
        self.bad |= bad
        if name not in self.errors:
            label = f"column {name!r}{kind and f' ({kind})'}: {what}"
            self.errors[name] = RowError(label, self.first + int(bad.argmax()), help_=help_)

    def refuse(self) -> None:
        """Raise MisfitError where a row does not fit."""
        if self.errors:
            raise MisfitError(self.errors)


def encode(
    schema: TableSchema,
    batch: pa.RecordBatch,
    first: int = 0,
    form: TableForm = USUAL,
    *,
    leave_out: bool = False,
) -> EncodedRows:
    """Return the rows of `batch`, whose first one is row `first` of its file.

    leave_out: rows that do not fit are not among them. Raises MisfitError otherwise.
    """
    misfits = Misfits(batch.num_rows, first)
    x, y = _rows(schema, batch, form, misfits)
    if schema.unit is None:
        units = None
    else:
        units = known_units(schema.unit, batch.column(schema.unit), misfits, leave_out=leave_out)
    if not leave_out:
        misfits.refuse()
    elif misfits.bad.any():
        x, y = x[~misfits.bad], y[~misfits.bad]
        units = None if units is None else units[~misfits.bad]
    return EncodedRows(x, y, each_its_own(x, y) if units is None else units)


def fitting(schema: TableSchema, batch: pa.RecordBatch, form: TableForm) -> Mask:
    """Return which rows of `batch` fit the schema."""
    misfits = Misfits(batch.num_rows, 0)
    _rows(schema, batch, form, misfits)
    if schema.unit is not None:
        known_units(schema.unit, batch.column(schema.unit), misfits, leave_out=True)
    return ~misfits.bad


def everyone(schema: TableSchema, batch: pa.RecordBatch) -> UnitIds:
    """Return whose each row is that says it, also of rows that do not fit the schema.

    Where each row is a unit by itself, only their number means something.
    """
    if schema.unit is None:
        return np.zeros(batch.num_rows, UNIT)
    misfits = Misfits(batch.num_rows, 0)
    ids = known_units(schema.unit, batch.column(schema.unit), misfits, leave_out=True)
    return ids[~misfits.bad]


def inputs_of(
    schema: TableSchema, batch: pa.RecordBatch, first: int = 0, form: TableForm = USUAL
) -> Inputs:
    """Return x (n, width) of the rows of `batch`. Raises MisfitError."""
    misfits = Misfits(batch.num_rows, first)
    x = _inputs(schema, batch, form, misfits)
    misfits.refuse()
    return x


def _rows(
    schema: TableSchema, batch: pa.RecordBatch, form: TableForm, misfits: Misfits
) -> tuple[Inputs, Places | Floats]:
    """Return x and y."""
    if isinstance(schema.target, NextTokenGoal):
        return _next_tokens(schema.target.column, batch, misfits)
    return _inputs(schema, batch, form, misfits), _target(schema.target, batch, form, misfits)


def _next_tokens(
    column: Tokenized, batch: pa.RecordBatch, misfits: Misfits
) -> tuple[Places, Places]:
    """Return the tokens of a text, and at each place the next one, NOT_LEARNT where none comes."""
    table, counts = _tokens(column, column.length + 1, batch.column(column.name), misfits)
    following = np.arange(1, column.length + 1) < counts[:, None]
    return np.ascontiguousarray(table[:, :-1]), np.where(following, table[:, 1:], NOT_LEARNT)


def _tokens(
    column: Tokenized, length: int, values: pa.Array, misfits: Misfits
) -> tuple[Places, Places]:
    """Return the tokens (n, length) of texts, and how many each has (n,)."""
    cells = category_texts(column, values)
    texts_or_none = cells.values.to_pylist()
    table, counts, unread = column.vocabulary.encoded(texts_or_none, length)
    misfits.add(column.name, "", cells.unread, cells.why)
    misfits.add(column.name, column.kind, unread, "a text that its tokenizer cannot read")
    if column.missing == "refuse":
        missing = np.array([text is None for text in texts_or_none], np.bool_)
        misfits.add(column.name, column.kind, missing & ~cells.unread, _MISSING, _SAY)
    return table, counts


def _inputs(
    schema: TableSchema, batch: pa.RecordBatch, form: TableForm, misfits: Misfits
) -> Inputs:
    if schema.text is not None:
        if isinstance(schema.target, NextTokenGoal):
            return _next_tokens(schema.text, batch, misfits)[0]
        text = schema.text
        return _tokens(text, text.length, batch.column(text.name), misfits)[0]
    return _numbers_of_features(schema, batch, form, misfits)


def _numbers_of_features(
    schema: TableSchema, batch: pa.RecordBatch, form: TableForm, misfits: Misfits
) -> Floats:
    x = np.zeros((batch.num_rows, schema.width), dtype=np.float32)
    place = 0
    for column in schema.features:
        values = batch.column(column.name)
        if isinstance(column, Number):
            x[:, place] = _numbers(column, values, form, misfits)
        elif isinstance(column, Dated):
            x[:, place : place + column.width] = _dates(column, values, misfits)
        elif isinstance(column, Tokenized):
            raise AssertionError(f"{column.name} is not the only feature")
        else:
            at = _places(column, values, misfits)
            x[np.arange(len(at)), place + at] = 1.0
        place += column.width
    return x


def _target(
    goal: Goal, batch: pa.RecordBatch, form: TableForm, misfits: Misfits
) -> Places | Floats:
    """Return y, as `tacit.datasets.target` defines it for each kind."""
    if isinstance(goal, Number):
        return _numbers(goal, batch.column(goal.name), form, misfits)
    if isinstance(goal, Category):
        return _class(goal, batch, misfits)
    if isinstance(goal, CountsGoal):
        return _counted(goal.column, batch, form, misfits)
    if isinstance(goal, EventGoal):
        return _event(goal, batch, form, misfits)
    if isinstance(goal, NextTokenGoal):
        return _next_tokens(goal.column, batch, misfits)[1]
    bits = [
        (_class(column, batch, misfits) & 1) << place for place, column in enumerate(goal.columns)
    ]
    codes: Places = np.bitwise_or.reduce(bits)
    return codes


def _counted(column: Number, batch: pa.RecordBatch, form: TableForm, misfits: Misfits) -> Places:
    """Return counts cut at the column's high. What is no count does not fit."""
    read = _read_numbers(column, batch.column(column.name), form, misfits)
    no_count = (read < 0) | ~np.isfinite(read) | (np.floor(read) != read)
    misfits.add(column.name, "counts", no_count, "a number that is no count (0, 1, 2, …)")
    counts: Places = np.clip(np.where(no_count, 0, read), 0, column.high).astype(np.int64)
    return counts


def _event(goal: EventGoal, batch: pa.RecordBatch, form: TableForm, misfits: Misfits) -> Places:
    """Return 2s + e: s of the intervals are passed, and e is 1 where the event is in the next one.

    An interval ends with its cut. A row that was last seen within one has not passed it.
    """
    time = goal.time
    read = _read_numbers(time, batch.column(time.name), form, misfits)
    no_time = (read < time.low) | ~np.isfinite(read)
    misfits.add(time.name, "time", no_time, "a time before its low, or without end")
    happened = _class(goal.event, batch, misfits) == 1
    cuts = np.array(goal.cuts)
    # As an event at a cut is in the interval that ends there, those before it are passed.
    passed = np.where(
        happened, np.searchsorted(cuts, read, "left"), np.searchsorted(cuts, read, "right")
    )
    codes: Places = 2 * passed.astype(np.int64) + (happened & (passed < len(cuts)))
    return codes


def _class(column: Category, batch: pa.RecordBatch, misfits: Misfits) -> Places:
    """Return the place of each value among those of the column, which has no other."""
    places = _places(column, batch.column(column.name), misfits, f"as a target, {_LEAVE_OUT}")
    other = places == len(column.values)
    listed = ", ".join(column.values[:_LISTED]) + ", …" * (len(column.values) > _LISTED)
    what = f"a value outside its values ({listed})"
    misfits.add(column.name, column.kind, other, what, f"write one of these, or {_LEAVE_OUT}")
    return places


def _numbers(column: Number, values: pa.Array, form: TableForm, misfits: Misfits) -> Floats:
    """Return numbers cut at the bounds and scaled."""
    return column.scaled(_read_numbers(column, values, form, misfits))


def _read_numbers(column: Number, values: pa.Array, form: TableForm, misfits: Misfits) -> Floats64:
    """Return numbers as they are read; a missing value becomes the column's own number."""
    cells = numbers(values, form, column.missing_codes)
    misfits.add(column.name, "", cells.unread, cells.why, cells.hint)
    missing = np.isnan(cells.values)
    if column.missing == "refuse":
        misfits.add(column.name, column.kind, missing & ~cells.unread, _MISSING, _SAY)
        read: Floats64 = np.where(missing, column.low, cells.values)
    else:
        read = np.where(missing, float(column.missing), cells.values)
    return read


def _dates(column: Dated, values: pa.Array, misfits: Misfits) -> Floats:
    cells = dates(values, column.format, column.missing_codes)
    misfits.add(column.name, "", cells.unread, cells.why, "date says how they are written")
    missing = np.array([date is None for date in cells.values], np.bool_)
    if column.missing == "refuse":
        misfits.add(column.name, column.kind, missing & ~cells.unread, _MISSING, _SAY)
    x = np.zeros((len(values), column.width), np.float32)
    encoded = {date: column.encoded(date) for date in set(cells.values) if date is not None}
    for row, date in enumerate(cells.values):
        if date is not None:
            x[row] = encoded[date]
    return x


def _places(
    column: Category | Hashed, values: pa.Array, misfits: Misfits, say: str = _SAY
) -> Places:
    """Return the place of each value of the column; its last place for any other.

    say: what to do about a missing value.
    """
    cells = category_texts(column, values)
    misfits.add(column.name, "", cells.unread, cells.why)
    if column.missing == "refuse":
        missing = cells.values.is_null().to_numpy(zero_copy_only=False)
        misfits.add(column.name, column.kind, missing & ~cells.unread, _MISSING, say)
    return places_of(column, cells.values)


def category_texts(column: Category | Hashed | Tokenized, values: pa.Array) -> Cells:
    """Return the texts of a category's cells, or of a text's.

    A word for no value, as NA, is a value where the column has it among its values.
    """
    if isinstance(column, Category):
        own = frozenset(column.values)
    else:
        own = frozenset[str]()
    cells = texts(values, MISSING_WORDS - own)
    if not column.missing_codes:
        return cells
    codes = frozenset(map(by_value, column.missing_codes)) - own
    coded = each_text(cells.values, lambda text: int(by_value(text) in codes), 0)
    present = cells.values.to_pylist()
    replaced = [None if code else text for text, code in zip(present, coded, strict=True)]
    return Cells(pa.array(replaced, pa.string()), cells.unread, cells.why)


def places_of(column: Category | Hashed, text: pa.Array) -> Places:
    """Return the place of each text: of the same text first, then of the same value."""
    if isinstance(column, Hashed):
        hashed = column
        return each_text(text, lambda cell: hashed.place(by_value(cell)), column.places)
    exact = {value: place for place, value in enumerate(column.values)}
    alike: dict[str, int] = {}
    for value, place in exact.items():
        alike[by_value(value)] = len(exact) if by_value(value) in alike else place

    def place_of(cell: str) -> int:
        place = exact.get(cell)
        if place is None:
            return alike.get(by_value(cell), len(exact))
        return place

    return each_text(text, place_of, len(exact))


def known_units(unit: str, values: pa.Array, misfits: Misfits, *, leave_out: bool) -> UnitIds:
    """Return the units of the rows. Raises RowError for the first that has none, or notes all."""
    try:
        return units_of(unit, values, misfits.first)
    except RowError as error:
        if not leave_out:
            misfits.errors.setdefault(unit, error)
            misfits.refuse()
    ids = np.zeros(len(values), UNIT)
    bad = np.zeros(len(values), np.bool_)
    for row in range(len(values)):
        try:
            ids[row : row + 1] = units_of(unit, values.slice(row, 1))
        except RowError:
            bad[row] = True
    misfits.add(unit, "unit", bad, _MISSING)
    return ids


def units_of(unit: str, values: pa.Array, first: int = 0) -> UnitIds:
    """Return 16 bytes of SHA-256 of each row's unit, which the column `unit` has.

    Raises RowError.
    """
    plain: Any = values
    if pa.types.is_dictionary(values.type):
        plain = values.dictionary_decode()
    if not pa.types.is_floating(plain.type) and not pa.types.is_decimal(plain.type):
        cells = texts(plain)
        if cells.unread.any():
            raise RowError(f"column {unit!r}: {cells.why}", first + int(cells.unread.argmax()))
        plain = cells.values
    return unit_ids(plain.to_pylist(), f"column {unit!r} (unit)", first)
