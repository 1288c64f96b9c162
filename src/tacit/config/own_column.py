"""A column of [data] kind = "table", with its public constants."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, FiniteFloat, field_validator, model_validator

from tacit.config.sections import Section
from tacit.datasets.own.days import iso
from tacit.datasets.own.file_reading import located
from tacit.datasets.own.schema import (
    PARTS,
    Category,
    Column,
    Dated,
    DatePart,
    Hashed,
    Number,
    Tokenized,
    text_of,
)
from tacit.datasets.own.vocabulary import vocabulary
from tacit.datasets.target import MOST_COUNTED

CellValue = str | int | FiniteFloat | bool
_FORMS = "expected low and high (a number), values (a category), hash, date, or text"
_OF_NUMBERS = ("low", "high", "center", "scale")
_OF_DATES = ("since", "until")


class ColumnSection(Section):
    """A column of an own table: a number with public bounds, a category, a date, or a text.

    A number has low and high, a category its values or a hash.
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
    counts: bool = Field(
        False, description="a target that counts something: whole numbers from 0 to high"
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
    text: str | None = Field(
        None,
        min_length=1,
        description="a text: the public file of its tokenizer (tokenizer.json) beside the run file",
    )
    length: int | None = Field(
        None, ge=1, le=65_536, description="of a text: tokens that it is cut, or filled up, to"
    )
    missing: Literal["refuse", "other"] | float = Field(
        "refuse",
        description="what a missing value is: refused, a category's, date's or text's other, or a "
        "number",
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
        others = (self.values, self.hash, self.date, self.text)
        forms = [number, *(other is not None for other in others)]
        if forms.count(True) != 1 or (self.low is None) != (self.high is None):
            raise ValueError(_FORMS)
        if not number and (self.log or any(getattr(self, key) is not None for key in _OF_NUMBERS)):
            raise ValueError("center, scale and log: are for a number, with low and high")
        if (self.text is None) != (self.length is None):
            raise ValueError("text and length: one needs the other")
        dated = self.date is not None
        if not dated and (self.parts != PARTS or any(getattr(self, key) for key in _OF_DATES)):
            raise ValueError("since, until and parts: are for a date")
        if self.counts and not number:
            raise ValueError("counts: is for a number, with low = 0 and high")
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
        if self.counts:
            self._count(low, high)

    def _count(self, low: float, high: float) -> None:
        if low != 0 or high % 1 or high > MOST_COUNTED:
            raise ValueError(
                f"counts: low={low:g}, high={high:g}: expected low = 0 and a whole high, at most "
                f"{MOST_COUNTED:,}, which larger counts count as"
            )
        if self.center is not None or self.log:
            raise ValueError("counts: has no center, scale or log")
        if not isinstance(self.missing, str) and self.missing % 1:
            raise ValueError(f"missing={self.missing:g}: counts are whole numbers")

    def _category(self, values: list[str]) -> None:
        if len(set(values)) < len(values):
            twice = next(value for value in values if values.count(value) > 1)
            raise ValueError(f"values: {twice!r} stands there twice")

    def file(self, name: str, folder: Path) -> Path:
        """Return the file of a text's tokenizer, in the run file's `folder`. Raises ConfigError."""
        assert self.text is not None
        return located(self.text, folder, f"data.columns.{name}.text")

    def tokenized(self, name: str, folder: Path) -> Tokenized:
        """Return the text called `name`, whose tokenizer is in `folder`. Raises ConfigError."""
        assert self.length is not None
        words = vocabulary(self.file(name, folder), f"data.columns.{name}.text", self.length)
        codes = tuple(map(text_of, self.missing_codes))
        missing = "refuse" if not isinstance(self.missing, str) else self.missing
        return Tokenized(name, words, self.length, missing, codes)

    def column(self, name: str) -> Column:
        """Return the column called `name`, which is no text."""
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
