"""[data] target of a table: a class, a number, a count, labels, an event, or the next token."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Self

from pydantic import Discriminator, Field, FiniteFloat, Tag, model_validator

from tacit.config.own_column import ColumnSection
from tacit.config.sections import Section
from tacit.datasets.own.schema import (
    Category,
    CountsGoal,
    EventGoal,
    Goal,
    LabelsGoal,
    NextTokenGoal,
    Number,
    Tokenized,
)
from tacit.datasets.target import MOST_LABELS

MOST_CUTS = 1000


class EventTarget(Section):
    """The time to an event: a column of times, one that says whether the event came, and cuts."""

    time: str = Field(description="the column of times: a number; the first interval begins at low")
    event: str = Field(
        description="the column that says whether the event came at that time: two values, the "
        "second means that it did; else the row was last seen then"
    )
    cuts: tuple[FiniteFloat, ...] = Field(
        strict=False,
        min_length=1,
        max_length=MOST_CUTS,
        description="public: where the intervals of time end, ascending; later nothing counts",
    )

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        for cut, following in pairwise(self.cuts):
            if not cut < following:
                raise ValueError(f"cuts: {following:g} comes after {cut:g}; they ascend")
        if self.time == self.event:
            raise ValueError(f"event={self.event!r}: is the column of times")
        return self


class NextToken(Section):
    """The next token of a text, at each of its places: a language model."""

    next_token: str = Field(description="the column of the text, which is the only feature, too")


def _form(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "labels"
    if isinstance(value, NextToken) or (isinstance(value, dict) and "next_token" in value):
        return "next token"
    if isinstance(value, dict | EventTarget):
        return "event"
    return "column"


TargetKey = Annotated[
    Annotated[str, Tag("column")]
    | Annotated[tuple[str, ...], Field(strict=False), Tag("labels")]
    | Annotated[EventTarget, Tag("event")]
    | Annotated[NextToken, Tag("next token")],
    Discriminator(_form),
]


def names_of(target: TargetKey) -> tuple[str, ...]:
    """Return the columns that a target is made of, and that are no features."""
    if isinstance(target, str):
        return (target,)
    if isinstance(target, EventTarget):
        return (target.time, target.event)
    if isinstance(target, NextToken):
        return ()
    return target


def check(target: TargetKey, columns: Mapping[str, ColumnSection]) -> None:
    """Raise ValueError where the columns of a target do not fit it."""
    if isinstance(target, NextToken):
        name = target.next_token
        if name not in columns or columns[name].text is None:
            raise ValueError(
                f"target.next_token={name!r}: expected a column of [data.columns] with text"
            )
    names = names_of(target)
    for name in names:
        if name not in columns:
            raise ValueError(
                f"target={name!r}: is not in [data.columns], which has "
                f"{', '.join(list(columns)[:20])}"
            )
        _check_column(name, columns[name])
    for name, column in columns.items():
        if column.counts and name != target:
            raise ValueError(f"columns.{name}: counts is for a target that is one column")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"target: {twice!r} stands there twice")
    if isinstance(target, EventTarget):
        _check_event(target, columns[target.time], columns[target.event])
    elif not isinstance(target, str | NextToken):
        _check_labels(names, columns)


def _check_labels(names: tuple[str, ...], columns: Mapping[str, ColumnSection]) -> None:
    if not 2 <= len(names) <= MOST_LABELS:
        raise ValueError(
            f"target: {len(names)} labels; a list has 2 to {MOST_LABELS}, and one column is "
            'target = "…"'
        )
    for name in names:
        if len(columns[name].values or ()) != 2:
            raise ValueError(
                f"columns.{name}: a label has two values, as [0, 1]; the second one means that it "
                "holds"
            )


def _check_event(target: EventTarget, time: ColumnSection, event: ColumnSection) -> None:
    if time.low is None or time.high is None or time.center is not None:
        raise ValueError(f"columns.{target.time}: a time has low and high, and no center or scale")
    if not time.low < target.cuts[0] or target.cuts[-1] > time.high:
        raise ValueError(
            f"target.cuts: {target.cuts[0]:g} to {target.cuts[-1]:g}: expected above low and up to "
            f"high of columns.{target.time}, {time.low:g} to {time.high:g}"
        )
    if len(event.values or ()) != 2:
        raise ValueError(
            f"columns.{target.event}: an event has two values, as [0, 1]; the second one means "
            "that it came"
        )


def _check_column(name: str, column: ColumnSection) -> None:
    if column.hash is not None or column.date is not None or column.text is not None:
        raise ValueError(f"columns.{name}: a target is a number, or has values")
    if column.log:
        raise ValueError(f"columns.{name}: a target has no log")
    if column.values is not None and (len(column.values) < 2 or column.missing == "other"):
        raise ValueError(f"columns.{name}: a target needs two values or more, and has no other")


def goal(target: TargetKey, columns: Mapping[str, ColumnSection], text: Tokenized | None) -> Goal:
    """Return the target of these columns, which were checked. text: the feature, if it is one."""
    if isinstance(target, NextToken):
        assert text is not None
        return NextTokenGoal(text)
    if isinstance(target, str):
        column = columns[target].column(target)
        assert isinstance(column, Number | Category)
        if columns[target].counts:
            assert isinstance(column, Number)
            return CountsGoal(column)
        return column
    if isinstance(target, EventTarget):
        time = columns[target.time].column(target.time)
        assert isinstance(time, Number)
        return EventGoal(time, _category(target.event, columns[target.event]), target.cuts)
    return LabelsGoal(tuple(_category(name, columns[name]) for name in target))


def _category(name: str, section: ColumnSection) -> Category:
    column = section.column(name)
    assert isinstance(column, Category)
    return column
