"""[data] kind = "table": the columns of an own CSV or Parquet file, with their public constants."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from tacit.config.algorithm_contract import Sections
from tacit.config.own_data import OwnData
from tacit.config.sections import Section
from tacit.datasets.own.rows import Reader
from tacit.datasets.own.schema import Category, Column, Number, TableSchema, Value, text_of
from tacit.errors import ConfigError


class ColumnSection(Section):
    """A column of an own table: a number with public bounds, or a category with its values."""

    low: float | None = Field(None, allow_inf_nan=False, description="smaller numbers count as it")
    high: float | None = Field(None, allow_inf_nan=False, description="larger numbers count as it")
    values: tuple[Value, ...] | None = Field(
        None, strict=False, min_length=1, max_length=65_536, description="all values of a category"
    )
    missing: Literal["refuse", "other"] | float = Field(
        "refuse", description="what a missing value is: refused, a category's other, or a number"
    )

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        number = self.low is not None and self.high is not None
        if number == (self.values is not None) or (self.low is None) != (self.high is None):
            raise ValueError("expected low and high (a number), or values (a category)")
        if self.low is not None and self.high is not None:
            self._number(self.low, self.high)
        elif self.values is not None:
            self._category([text_of(value) for value in self.values])
        return self

    def _number(self, low: float, high: float) -> None:
        if not low < high:
            raise ValueError(f"low={low:g} is not below high={high:g}")
        if self.missing == "other":
            raise ValueError('missing="other": is for categories; give a number, or refuse')
        if not isinstance(self.missing, str) and not low <= self.missing <= high:
            raise ValueError(f"missing={self.missing:g} is outside [{low:g}, {high:g}]")

    def _category(self, values: list[str]) -> None:
        if len(set(values)) < len(values):
            twice = next(value for value in values if values.count(value) > 1)
            raise ValueError(f"values: {twice!r} stands there twice")
        if not isinstance(self.missing, str):
            raise ValueError(f'missing={self.missing:g}: is for numbers; say "other" or "refuse"')

    def column(self, name: str) -> Column:
        """Return the column called `name`."""
        if self.values is not None:
            missing = "refuse" if not isinstance(self.missing, str) else self.missing
            return Category(name, tuple(map(text_of, self.values)), missing)
        return Number(name, float(self.low or 0), float(self.high or 0), self.missing)


class TableData(OwnData):
    """An own table, CSV or Parquet: its public schema, and whose privacy it is."""

    kind: Literal["table"] = Field(description="an own CSV or Parquet file")
    target: str = Field(description="the column that is learnt: values are classes, or a number")
    columns: dict[str, ColumnSection] = Field(
        min_length=1, description="every column that is read, the target among them"
    )

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if self.target not in self.columns:
            raise ValueError(
                f"target={self.target!r}: is not in [data.columns], which has "
                f"{', '.join(list(self.columns)[:20])}"
            )
        if len(self.columns) - (self.unit in self.columns) < 2:
            raise ValueError("columns: nothing is left to learn from beside the target")
        goal = self.columns[self.target]
        if goal.values is not None and (len(goal.values) < 2 or goal.missing == "other"):
            raise ValueError(
                f"columns.{self.target}: a target needs two values or more, and has no other"
            )
        if self.unit == self.target:
            raise ValueError(f"unit={self.unit!r}: is the target")
        return self

    @property
    def schema_of_rows(self) -> TableSchema:
        """The encoding of a row."""
        features = tuple(
            section.column(name)
            for name, section in self.columns.items()
            if name not in (self.target, self.unit)
        )
        return TableSchema(features, self.columns[self.target].column(self.target), self.unit)

    def plain_reader(self, folder: Path) -> Reader:
        """Return the reader of its tables. Raises ConfigError without pyarrow."""
        if find_spec("pyarrow") is None:
            raise ConfigError("data.kind=table: needs pyarrow; pip install 'tacit[table]'")
        from tacit.datasets.own.table import TableReader

        return TableReader(self.schema_of_rows)

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others."""
        super().agree(run)
        if run.model.name not in ("logistic", "svm", "mlp", "python"):
            raise ValueError(
                f"model.name={run.model.name}: is for images or text; a table needs logistic, svm, "
                "mlp or python"
            )
