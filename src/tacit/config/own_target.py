"""[data] target of a table: a class, a number, a count, or several labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from tacit.config.own_column import ColumnSection
from tacit.datasets.own.schema import Category, CountsGoal, Goal, LabelsGoal, Number
from tacit.datasets.target import MOST_LABELS


def _form(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "labels"
    return "column"


TargetKey = Annotated[
    Annotated[str, Tag("column")] | Annotated[tuple[str, ...], Field(strict=False), Tag("labels")],
    Discriminator(_form),
]


def names_of(target: TargetKey) -> tuple[str, ...]:
    """Return the columns that a target is made of."""
    if isinstance(target, str):
        return (target,)
    return target


def check(target: TargetKey, columns: Mapping[str, ColumnSection]) -> None:
    """Raise ValueError where the columns of a target do not fit it."""
    names = names_of(target)
    for name in names:
        if name not in columns:
            raise ValueError(
                f"target={name!r}: is not in [data.columns], which has "
                f"{', '.join(list(columns)[:20])}"
            )
        _check_column(name, columns[name])
    for name, column in columns.items():
        if column.counts and name not in names:
            raise ValueError(f"columns.{name}: counts is for the target")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"target: {twice!r} stands there twice")
    if not isinstance(target, str):
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


def _check_column(name: str, column: ColumnSection) -> None:
    if column.hash is not None or column.date is not None:
        raise ValueError(f"columns.{name}: a target is a number, or has values")
    if column.log:
        raise ValueError(f"columns.{name}: a target has no log")
    if column.values is not None and (len(column.values) < 2 or column.missing == "other"):
        raise ValueError(f"columns.{name}: a target needs two values or more, and has no other")


def goal(target: TargetKey, columns: Mapping[str, ColumnSection]) -> Goal:
    """Return the target of these columns, which were checked."""
    if isinstance(target, str):
        column = columns[target].column(target)
        assert isinstance(column, Number | Category)
        if columns[target].counts:
            assert isinstance(column, Number)
            return CountsGoal(column)
        return column
    return LabelsGoal(tuple(_category(name, columns[name]) for name in target))


def _category(name: str, section: ColumnSection) -> Category:
    column = section.column(name)
    assert isinstance(column, Category)
    return column
