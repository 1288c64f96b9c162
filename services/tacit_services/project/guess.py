"""Guesses the public schema of a table from a public sample of it.

All that a guess reads becomes public: bounds, classes, the names of columns. So the sample must be
public, or made up; it is never the training file. Cells are read as training reads them, so the
sample fits what is guessed of it.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.config.learnt import LearntSection
from tacit.datasets.own.cells import by_value, texts
from tacit.datasets.own.cells import numbers as read_numbers
from tacit.datasets.own.table_form import MISSING_WORDS, TableForm
from tacit.datasets.own.unit_ids import named_id
from tacit.datasets.target import MOST_COUNTED
from tacit.errors import ConfigError
from tacit.shown import printable
from tacit_services.project.date_guess import date_guess
from tacit_services.project.draft import PLAIN, UNSTATED, StatedForm, StatedTarget
from tacit_services.project.id_guess import numbers_persons, numbers_rows
from tacit_services.project.number_guess import (
    NumberGuess,
    missing_numbers,
    number_guess,
    outward,
    rounded,
)
from tacit_services.project.sample import Sample, read_sample

MOST_VALUES = 50  # the most values of a category; a text with more is not read
_FEW_NUMBERS = 10  # a whole number with so few different values is a category, or a count
_TEXT_WORDS = 4.0  # of a cell, on average: from here on a column of different cells is a text
_TEXT_DIFFERENT = 0.5  # of a text's cells, at the least
_LENGTHS = tuple(1 << power for power in range(3, 10))  # tokens of a text: the first that suffices
_TOKENS_OF_A_WORD = 1.5
_FEW_WORDS = 5  # that stand for no value among numbers
_NUMBERS = 0.95  # of the cells with a value are numbers, in a column of numbers
_RARE = 0.005  # of the rows: a value that fewer have is not listed
_NO_VALUE = ("?", "#N/A", "-", ".", "nil", "None", "none", "n/a", "<NA>")  # written as no value
_INDEX_NAME = re.compile(r"__index_level_\d+__|Unnamed: \d+")  # as pandas calls an index
_NO_CLASS = ("?", "#N/A", ".", "n/a", "<NA>")  # as a target's value; none and - may be a class
_MOSTLY = 0.5  # of the rows have a value that is listed, or the column has too many
_INTERVALS = 8  # of the time to an event
_MOST_COUNT = 100  # a target of larger whole numbers is not asked about


@dataclass(frozen=True, slots=True)
class Guess:
    """A column of the sample: a number, a category, a date, or none of them, and then why.

    number: its bounds and scale. values: of a category. date: its pattern, first and last day.
    missing: whether the sample has rows without a value. codes: cells that stand for no value.
    rare: how many values are not listed. left_out: why the column is not read; instead: what would
    read it. person: whether it looks like the id of a person who has several rows. text: whether it
    is a text, which can be read alone. asks: what the user is asked about it.
    """

    name: str
    number: NumberGuess | None = None
    values: tuple[str, ...] = ()
    date: tuple[str, str, str] | None = None
    missing: bool = False
    codes: tuple[str, ...] = ()
    rare: int = 0
    left_out: str = ""
    instead: str = ""
    person: bool = False
    text: bool = False
    asks: str = ""

    @property
    def is_number(self) -> bool:
        """Whether it has bounds."""
        return self.number is not None

    @property
    def width(self) -> int:
        """Places of x that the column takes."""
        if self.left_out:
            return 0
        return len(self.values) + 1 if self.values else 1


@dataclass(frozen=True, slots=True)
class Guesses:
    """The guesses of a sample: of its features, of its target; its form, and what to say of it.

    targets: the columns of the target, one but of several labels and of an event. cuts: of an
    event's time. unit_rows: rows of the unit that has most of them, or 0. rows: of all edges
    together, by a noisy count, or 0. sites: the edges that were counted. learnt: of answers, what a
    run file states of them.
    """

    features: list[Guess]
    targets: tuple[Guess, ...]
    form: TableForm
    remarks: tuple[str, ...]
    cuts: tuple[float, ...] = ()
    unit_rows: int = 0
    rows: int = 0
    sites: int = 1
    learnt: LearntSection | None = None

    @property
    def target(self) -> Guess:
        """The target's column, or the first of them."""
        return self.targets[0]


def guessed(
    sample: Path,
    target: str | None,
    unit: str | None,
    stated: StatedForm = UNSTATED,
    goal: StatedTarget = PLAIN,
) -> Guesses:
    """Guess every column but the unit's and the target's, and the target.

    target: None stands for the last column, or for the columns of `goal`. Raises ConfigError,
    DataError.
    """
    read = read_sample(sample, stated)
    names = list(read.columns)
    last = next((name for name in reversed(names) if name != unit), "")
    goals = goal.columns or (target or last,)
    for option, name in (*(("--target", name) for name in goals), ("--unit", unit)):
        if name is not None and name not in names:
            raise ConfigError(f"{option} {name!r}: {sample.name} has {', '.join(names[:20])}")
    columns = {
        name: _column(name, column.combine_chunks(), read.form, read.rows)
        for name, column in read.columns.items()
        if name not in (unit, *goals)
    }
    cells = {name: read.columns[name].combine_chunks() for name in goals}
    remarks = list(read.remarks)
    cuts: tuple[float, ...] = ()
    if goal.time:
        targets, cuts = _event(goal, cells, read.form)
    elif goal.labels:
        targets = tuple(_label(name, cells[name]) for name in goals)
    elif goal.counts:
        targets = (_count(goals[0], cells[goals[0]], read.form),)
    else:
        targets = (_target(goals[0], cells[goals[0]], read, stated=target is not None),)
        remarks += _may_count(goals[0], cells[goals[0]], read.form)
    skipped = _passed_over(read)
    if unit is not None:
        columns = {name: replace(guess, person=False) for name, guess in columns.items()}
    unit_rows = 0
    if unit is not None:
        unit_rows = max(_words(read.columns[unit].combine_chunks()).values(), default=0)
    features = [*columns.values(), *skipped]
    return Guesses(features, targets, read.form, tuple(remarks), cuts, unit_rows)


def _passed_over(read: Sample) -> list[Guess]:
    return [Guess(name, left_out=why) for name, why in read.passed_over.items()]


def _target(name: str, values: pa.Array, read: Sample, *, stated: bool) -> Guess:
    """Return the target. stated: whether the user names it; else it is the last column.

    Raises ConfigError for what is no target, and where the last column looks like none.
    """
    if not stated:
        alone = _column(name, values, read.form, read.rows)
        as_target = _of_values(name, values, read.form, rare=0)
        why = alone.left_out or ("is a date" if alone.date else as_target.left_out)
        if why:
            raise ConfigError(
                f"--target: the last column, {printable(name)}, {why}; name the column that is "
                "learnt"
            )
    if date_guess(values, _NO_VALUE) is not None:
        raise ConfigError(f"--target {name}: is a date; a target is a number, or has a few values")
    guess = _of_values(name, values, read.form, rare=0)
    if len(_words(values)) == 1 or len(guess.values) == 1:
        raise ConfigError(
            f"--target {name}: has one value in the sample; there is nothing to learn from it"
        )
    if guess.left_out:
        raise ConfigError(
            f"--target {name}: {guess.left_out}; a target is a number, or has a few values"
        )
    return guess


def _label(name: str, values: pa.Array) -> Guess:
    """Return a label: a category of two values, the second of which means that it holds."""
    counted = _words(values)
    codes = _no_classes(counted)
    listed = sorted(set(counted) - set(codes))
    if len(listed) != 2:
        raise ConfigError(
            f"{name}: has {len(listed)} different values in the sample; a label, as an event, has "
            "two"
        )
    missing = sum(counted[word] for word in listed) < len(values)
    return Guess(name, values=tuple(listed), missing=missing, codes=codes)


def _no_classes(words: Counter[str]) -> tuple[str, ...]:
    """Return which values of a target stand for no value, where two others are left.

    -1 is a class beside 1, or beside 0 and 1.
    """
    codes = [word for word in words if word in _NO_CLASS]
    numbers = [word for word in words if re.fullmatch(r"-?\d+", word)]
    if len(numbers) == len(words) - len(codes):
        codes += [code for code in _codes_among(np.array(numbers, float)) if code != "-1"]
    if len(words) - len(codes) < 2:
        return ()
    return tuple(sorted(codes))


def _count(name: str, values: pa.Array, form: TableForm) -> Guess:
    """Return a target that counts something: a number from 0, with room above the sample's."""
    cells = read_numbers(values, form)
    read = cells.values[~np.isnan(cells.values)]
    codes = missing_numbers(read)
    plain = read[~np.isin(read, codes)]
    if cells.unread.any() or not len(plain) or not (plain >= 0).all() or (plain % 1).any():
        raise ConfigError(
            f"--counts: {name} has cells in the sample that are no counts: 0, 1, 2, …"
        )
    number = number_guess(plain, counts=True)
    return Guess(
        name,
        number=replace(number, high=min(max(1.0, np.ceil(number.high)), MOST_COUNTED)),
        missing=len(plain) < len(values),
        codes=tuple(f"{code:g}" for code in codes),
    )


def _event(
    goal: StatedTarget, cells: dict[str, pa.Array], form: TableForm
) -> tuple[tuple[Guess, ...], tuple[float, ...]]:
    """Return the columns of the time to an event, and cuts with about as many events between."""
    event = _label(goal.event, cells[goal.event])
    times = read_numbers(cells[goal.time], form)
    codes = missing_numbers(times.values[~np.isnan(times.values)])
    usable = np.isfinite(times.values) & ~np.isin(times.values, codes)
    words = texts(cells[goal.event]).values.to_pylist()
    happened = np.array([word is not None and by_value(word) == event.values[1] for word in words])
    at_event = times.values[usable & happened]
    if times.unread.any() or len(np.unique(at_event)) < 2:
        raise ConfigError(
            f"--time {goal.time}: needs numbers in the sample, and two times at which {goal.event} "
            f"is {event.values[1]}"
        )
    plain = times.values[usable]
    low = min(0.0, outward(float(plain.min()), down=True))
    high = outward(float(plain.max()), down=False)
    quantiles = np.quantile(at_event, np.arange(1, _INTERVALS) / _INTERVALS)
    last = outward(float(at_event.max()), down=False)
    cuts = sorted({*(rounded(float(cut)) for cut in quantiles), last})
    time = Guess(
        goal.time,
        number=NumberGuess(low, high, low, 1.0),
        missing=len(plain) < len(times.values),
        codes=tuple(f"{code:g}" for code in codes),
    )
    return (time, event), tuple(cut for cut in cuts if low < cut <= high)


def _may_count(name: str, values: pa.Array, form: TableForm) -> list[str]:
    """Return a question where the target has few whole numbers from 0 or 1 on, but not two."""
    read = np.unique(_whole_numbers(values, form))
    plain = read[~np.isin(read, missing_numbers(np.repeat(read, 2)))]
    if len(plain) < 3 or plain[0] not in (0, 1) or plain[-1] > _MOST_COUNT:
        return []
    return [
        f"does {name} count something? It has whole numbers from {plain[0]:g} to {plain[-1]:g}; "
        "then say --counts"
    ]


def _column(name: str, values: pa.Array, form: TableForm, rows: int) -> Guess:
    if not name.strip():
        return Guess(name, left_out="has no name")
    if _INDEX_NAME.fullmatch(name):
        return Guess(name, left_out="is a data frame's index, which numbers the rows")
    if pa.types.is_null(values.type):
        return Guess(name, left_out="has no value in the sample")
    dated = _date(name, values)
    if dated is not None:
        return dated
    words = _words(values)
    if not words:
        return Guess(name, left_out="has no value in the sample")
    whole = _whole_numbers(values, form)
    if numbers_rows(whole, rows):
        return Guess(name, left_out="numbers the rows")
    if (text := _text(name, words)) is not None:
        return text
    ids = named_id(name) and len(words) > MOST_VALUES and not _has_fractions(values, form)
    if ids or numbers_persons(name, whole, rows):
        return _id(name, len(words), rows)
    return _of_values(name, values, form, rare=max(2, round(_RARE * rows)))


def _text(name: str, words: Counter[str]) -> Guess | None:
    """Guess a text: cells that mostly differ, of several words each. It is never a category."""
    sizes = np.repeat([len(cell.split()) for cell in words], list(words.values()))
    if sizes.mean() < _TEXT_WORDS or len(words) < _TEXT_DIFFERENT * len(sizes):
        return None
    needed = _TOKENS_OF_A_WORD * float(np.quantile(sizes, 0.95))
    length = next((length for length in _LENGTHS if length >= needed), _LENGTHS[-1])
    return Guess(
        name,
        left_out=f"is a text, of about {sizes.mean():.0f} words a row",
        instead=f'{{ text = "vocabulary.json", length = {length} }}, as the only feature',
        text=True,
    )


def _id(name: str, different: int, rows: int) -> Guess:
    why = f"looks like an id: it has {different} different values in {rows} rows"
    if different > 0.95 * rows:
        return Guess(name, left_out=why)
    return Guess(
        name,
        left_out=f"{why}. A person whose rows belong together is a unit",
        instead=f"tacit new --unit {printable(name)}",
        person=True,
    )


def _whole_numbers(values: pa.Array, form: TableForm) -> Any:
    """Return the column's numbers where all are whole; else none."""
    if pa.types.is_floating(values.type) or pa.types.is_temporal(values.type):
        return np.empty(0)
    cells = read_numbers(values, form)
    read = cells.values[~np.isnan(cells.values)]
    if cells.unread.any() or not np.isfinite(read).all() or (read % 1).any():
        return np.empty(0)
    return read


def _has_fractions(values: pa.Array, form: TableForm) -> bool:
    cells = read_numbers(values, form)
    read = cells.values[np.isfinite(cells.values)]
    return bool((read % 1).any())


def _own_words(values: pa.Array) -> frozenset[str]:
    """Return the words for no value that are a value here: NA among codes of two capitals."""
    others = _words(values)
    if len(others) > 1 and all(re.fullmatch(r"[A-Z]{2}", word) for word in others):
        return frozenset(("NA",))
    return frozenset()


def _words(values: pa.Array, own: frozenset[str] = frozenset()) -> Counter[str]:
    """Return the texts of the column's cells, by value, and how many rows have each.

    own: words for no value that are values here.
    """
    counted = pc.value_counts(texts(values, MISSING_WORDS - own).values.drop_null()).to_pylist()
    words: Counter[str] = Counter()
    for each in counted:
        words[by_value(each["values"])] += each["counts"]
    return words


def _of_values(name: str, values: pa.Array, form: TableForm, rare: int) -> Guess:
    """Guess a number or a category. rare: rows that a value needs to be listed; 0: a target."""
    words = _words(values, _own_words(values))
    cells = read_numbers(values, form)
    if not words:
        if cells.unread.any():
            return Guess(name, left_out=f"is of {values.type}")
        return Guess(name, left_out="has no value in the sample")
    numeric = not pa.types.is_boolean(values.type) and not {"true", "false"} >= set(words)
    no_numbers = [word for word in words if form.number(word) is None]
    share = sum(words[word] for word in no_numbers) / sum(words.values())
    usable = len(no_numbers) <= _FEW_WORDS and share <= 1 - _NUMBERS
    if pa.types.is_temporal(values.type):
        no_numbers, usable = [], True
    if numeric and usable:
        codes = tuple(no_numbers)
        finite = cells.values[np.isfinite(cells.values)]
        as_number = _number(name, values, finite, cells.values, codes)
        if as_number is not None:
            return as_number
    return _category(name, words, values, rare)


def _number(
    name: str, values: pa.Array, finite: Any, every: Any, words: tuple[str, ...]
) -> Guess | None:
    """Guess a number; None where it has few whole values, which are no counts."""
    codes = missing_numbers(finite)
    plain = finite[~np.isin(finite, codes)]
    if not len(plain):
        return None
    whole = not pa.types.is_floating(values.type) and not (plain % 1).any()
    different = np.unique(plain)
    if whole and len(different) <= _FEW_NUMBERS and not _counts(different):
        return None
    missing = bool(len(codes) or words or np.isnan(every).any())
    code_texts = (*(f"{code:g}" for code in codes), *words)
    guess = number_guess(plain, counts=whole and len(different) <= _FEW_NUMBERS)
    return Guess(name, number=guess, missing=missing, codes=code_texts)


def _counts(different: Any) -> bool:
    """Check whether so few whole numbers count something: five or more from 0 or 1 on."""
    return len(different) >= 5 and different[0] in (0, 1) and different[-1] <= 4 * len(different)


def _codes_among(numbers: Any) -> list[str]:
    """Return the codes for no value among different numbers, each of which several rows have."""
    return [f"{code:g}" for code in missing_numbers(np.repeat(numbers, 2))]


def _category(name: str, words: Counter[str], values: pa.Array, rare: int) -> Guess:
    if rare:
        absent = [word for word in words if word in _NO_VALUE]
        numbers = np.array([float(word) for word in words if re.fullmatch(r"-?\d+", word)])
        if len(numbers) == len(words) - len(absent):
            absent += _codes_among(numbers)
    else:
        absent = list(_no_classes(words))
    listed = [word for word in words if word not in absent and words[word] >= rare]
    covered = sum(words[word] for word in listed)
    present = sum(words[word] for word in words if word not in absent)
    if len(listed) > MOST_VALUES or covered < _MOSTLY * present or not listed:
        different = len(words)
        if not present:
            return Guess(name, left_out="has no value in the sample")
        instead = '{ hash = 64, missing = "other" }' if different < sum(words.values()) else ""
        return Guess(
            name, left_out=f"has {different} different values in the sample", instead=instead
        )
    missing = present < len(values)
    others = len(words) - len(listed) - len(absent)
    codes = tuple(sorted(absent))
    return Guess(name, values=tuple(sorted(listed)), missing=missing, codes=codes, rare=others)


def _date(name: str, values: pa.Array) -> Guess | None:
    read = date_guess(values, _NO_VALUE)
    if read is None:
        return None
    asks = ""
    if read.mirrored:
        asks = (
            f"{printable(name)} is read as {read.pattern}, and {read.mirrored} would fit as well: "
            "which is it? Its line in run.toml says it"
        )
    date = (read.pattern, read.since, read.until)
    return Guess(name, date=date, missing=read.missing, codes=read.codes, asks=asks)
