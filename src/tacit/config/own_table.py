"""[data] kind = "table": the columns of an own table, with their public constants."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, FiniteFloat, field_validator, model_validator

from tacit.config.algorithm_contract import Sections
from tacit.config.own_data import OwnData
from tacit.config.sections import Section
from tacit.datasets.own.days import iso
from tacit.datasets.own.rows import Reader
from tacit.datasets.own.schema import (
    PARTS,
    Category,
    Column,
    Dated,
    DatePart,
    Hashed,
    Number,
    TableSchema,
    text_of,
)
from tacit.datasets.own.table_form import BadRows, TableForm, encoding_called
from tacit.errors import ConfigError

CellValue = str | int | FiniteFloat | bool
_FORMS = "expected low and high (a number), values (a category), hash, or date"
_OF_NUMBERS = ("low", "high", "center", "scale")
_OF_DATES = ("since", "until")


class ColumnSection(Section):
    """A column of an own table: a number with public bounds, a category, a hashed one, or a date.

    A number has low and high, a category its values.
    """

    low: float | None = Field(None, allow_inf_nan=False, description="smaller numbers count as it")
    high: float | None = Field(None, allow_inf_nan=False, description="larger numbers count as it")
    center: float | None = Field(
        None, allow_inf_nan=False, description="public: the number that becomes 0, with scale"
    )
    scale: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="public: the difference that becomes 1; with log, of the logarithm; left out: "
        "low to high becomes 0 to 1",
    )
    log: bool = Field(
        False, description="the logarithm counts: ln v, or ln(1 + v - low) where low is not above 0"
    )
    values: tuple[str | int | bool, ...] | None = Field(
        None, strict=False, min_length=1, max_length=65_536, description="all values of a category"
    )
    hash: int | None = Field(
        None, ge=2, le=65_536, description="a category of many values: places that they share"
    )
    date: str | None = Field(
        None, min_length=1, description='a date, and how a text writes it, as "%Y-%m-%d"'
    )
    since: str | None = Field(None, description="the first day of a date; earlier ones count as it")
    until: str | None = Field(None, description="the last day of a date; later ones count as it")
    parts: tuple[DatePart, ...] = Field(
        PARTS, strict=False, min_length=1, description="of a date: what of it is read"
    )
    missing: Literal["refuse", "other"] | float = Field(
        "refuse",
        description="what a missing value is: refused, a category's or date's other, or a number",
    )
    missing_codes: tuple[CellValue, ...] = Field(
        (), strict=False, max_length=1000, description='cells that stand for no value, as [-9, "?"]'
    )

    @field_validator("since", "until", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        """Take a date as TOML writes it, too."""
        return iso(value)

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        number = self.low is not None and self.high is not None
        forms = [number, self.values is not None, self.hash is not None, self.date is not None]
        if forms.count(True) != 1 or (self.low is None) != (self.high is None):
            raise ValueError(_FORMS)
        if not number and (self.log or any(getattr(self, key) is not None for key in _OF_NUMBERS)):
            raise ValueError("center, scale and log: are for a number, with low and high")
        dated = self.date is not None
        if not dated and (self.parts != PARTS or any(getattr(self, key) for key in _OF_DATES)):
            raise ValueError("since, until and parts: are for a date")
        if self.low is not None and self.high is not None:
            self._number(self.low, self.high)
        else:
            if not isinstance(self.missing, str):
                raise ValueError(
                    f'missing={self.missing:g}: is for numbers; say "other" or "refuse"'
                )
            if self.values is not None:
                self._category([text_of(value) for value in self.values])
        if dated and not (self.since and self.until and self.since < self.until):
            raise ValueError('date: needs since = "2000-01-01" and a later until')
        return self

    def _number(self, low: float, high: float) -> None:
        if not low < high:
            raise ValueError(f"low={low:g} is not below high={high:g}")
        if self.missing == "other":
            raise ValueError('missing="other": is for categories; give a number, or refuse')
        if not isinstance(self.missing, str) and not low <= self.missing <= high:
            raise ValueError(f"missing={self.missing:g} is outside [{low:g}, {high:g}]")
        if (self.center is None) != (self.scale is None):
            raise ValueError("center and scale: one needs the other")
        if self.center is not None and not low <= self.center <= high:
            raise ValueError(f"center={self.center:g} is outside [{low:g}, {high:g}]")

    def _category(self, values: list[str]) -> None:
        if len(set(values)) < len(values):
            twice = next(value for value in values if values.count(value) > 1)
            raise ValueError(f"values: {twice!r} stands there twice")

    def column(self, name: str) -> Column:
        """Return the column called `name`."""
        codes = tuple(map(text_of, self.missing_codes))
        missing = "refuse" if not isinstance(self.missing, str) else self.missing
        if self.values is not None:
            return Category(name, tuple(map(text_of, self.values)), missing, codes)
        if self.hash is not None:
            return Hashed(name, self.hash, missing, codes)
        if self.date is not None:
            since, until = self.since or "", self.until or ""
            return Dated(name, self.date, since, until, self.parts, missing, codes)
        low, high = float(self.low or 0), float(self.high or 0)
        return Number(name, low, high, self.missing, self.center, self.scale, self.log, codes)


class TableData(OwnData):
    """An own table, CSV, Parquet or Excel: its public schema, and whose privacy it is."""

    kind: Literal["table"] = Field(description="an own CSV, Parquet or Excel file")
    target: str = Field(description="the column that is learnt: values are classes, or a number")
    columns: dict[str, ColumnSection] = Field(
        min_length=1, description="every column that is read, the target among them"
    )
    separator: str | None = Field(
        None,
        min_length=1,
        max_length=1,
        description="of a CSV's cells; left out: comma, semicolon, tab or bar, by the header",
    )
    decimal: Literal[".", ","] = Field(".", description="of numbers in text: point or comma")
    thousands: Literal["", ",", ".", " ", "'", "’"] = Field(
        "", description="of numbers in text: what parts thousands"
    )
    encoding: str | None = Field(
        None, description='of a CSV, as "cp1252"; left out: UTF-8, or as its byte order mark says'
    )
    header: bool = Field(
        True, description="whether a CSV's first line names its columns; else they are 1, 2, 3, …"
    )
    sheet: str | None = Field(
        None,
        min_length=1,
        max_length=31,
        description="of an Excel workbook; left out: its only one that is shown",
    )
    bad_rows: BadRows = Field(
        "refuse", description="a row that does not fit: refused, or left out, which nobody is told"
    )

    @field_validator("encoding")
    @classmethod
    def _is_known(cls, encoding: str | None) -> str | None:
        if encoding is not None:
            encoding_called(encoding)
        return encoding

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if self.target not in self.columns:
            raise ValueError(
                f"target={self.target!r}: is not in [data.columns], which has "
                f"{', '.join(list(self.columns)[:20])}"
            )
        if len(self.columns) - (self.unit in self.columns) < 2:
            raise ValueError("columns: nothing is left to learn from beside the target")
        if self.thousands == self.decimal:
            raise ValueError(f"thousands={self.thousands!r}: is the decimal mark, too")
        goal = self.columns[self.target]
        if goal.hash is not None or goal.date is not None:
            raise ValueError(f"columns.{self.target}: a target is a number, or has values")
        if goal.log:
            raise ValueError(f"columns.{self.target}: a target has no log")
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
        target = self.columns[self.target].column(self.target)
        assert isinstance(target, Number | Category)
        return TableSchema(features, target, self.unit)

    @property
    def form(self) -> TableForm:
        """The form of its text tables."""
        return TableForm(
            self.separator, self.decimal, self.thousands, self.encoding, self.header, self.sheet
        )

    def plain_reader(self, folder: Path) -> Reader:
        """Return the reader of its tables. Raises ConfigError without pyarrow."""
        if find_spec("pyarrow") is None:
            raise ConfigError("data.kind=table: needs pyarrow; pip install 'tacit[table]'")
        from tacit.datasets.own.table import TableReader

        return TableReader(self.schema_of_rows, self.form, self.bad_rows)

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others."""
        super().agree(run)
        if run.model.name not in ("logistic", "svm", "mlp", "python", "graph"):
            raise ValueError(
                f"model.name={run.model.name}: is for images or text; a table needs logistic, svm, "
                "mlp or python"
            )
