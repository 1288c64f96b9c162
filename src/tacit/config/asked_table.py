"""[data] kind = "table" without a target: an own table that questions are asked of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from tacit.config.algorithm_contract import Sections
from tacit.config.asked import AskSection
from tacit.config.own_column import ColumnSection
from tacit.config.own_table import TableFiles
from tacit.datasets import Source
from tacit.datasets.own.own_rows import OwnRows
from tacit.datasets.own.rows import Reader
from tacit.datasets.own.rows_file import UnitRows
from tacit.datasets.own.schema import Category, Number, text_of
from tacit.errors import ConfigError
from tacit.questions.sheet import PublicColumns, QuestionSheet

if TYPE_CHECKING:
    from tacit.datasets.own.asked_table_reader import AskedTableReader

_UNREAD = (("test", None, "nothing is tested"), ("features", "none", "nothing is learnt"))


class AskedTable(TableFiles):
    """An own table, CSV, Parquet or Excel, and what is public of the columns asked about."""

    columns: dict[str, ColumnSection] = Field(
        {}, description="what is public of columns: low and high of a number, values of a category"
    )

    def public_columns(self) -> PublicColumns:
        """Return the bounds of numbers, and the values of categories."""
        bounds = {
            name: (column.low, column.high)
            for name, column in self.columns.items()
            if column.low is not None and column.high is not None
        }
        values = {
            name: tuple(map(text_of, column.values))
            for name, column in self.columns.items()
            if column.values is not None
        }
        return PublicColumns(bounds, values)

    def question_sheet(self, ask: AskSection) -> QuestionSheet:
        """Return all questions as one vector. Raises ConfigError for one that lacks a bound."""
        unit_rows = self.unit_rows or 1
        return QuestionSheet(ask.parsed(), self.public_columns(), ask.weights, unit_rows)

    def asked_columns(self, ask: AskSection) -> list[str]:
        """Return the columns that the questions read, and the unit's. Raises ConfigError."""
        sheet = self.question_sheet(ask)
        unit = [] if self.unit is None else [self.unit]
        return list(dict.fromkeys([*sheet.numeric, *sheet.textual, *unit]))

    def source(self, run: Sections, folder: Path) -> Source:
        """Return the rows in `folder`, as the run's questions count them. Raises ConfigError."""
        source = super().source(run, folder)
        assert isinstance(source, OwnRows)
        assert run.ask is not None
        return replace(
            source,
            reader=self._reader(self.question_sheet(run.ask)),
            of_unit=UnitRows(self.unit_rows or 1, mean=False),
        )

    def plain_reader(self, folder: Path) -> Reader:
        """Return a reader that reads whose the rows are, and nothing else of them.

        Raises ConfigError without pyarrow.
        """
        return self._reader(QuestionSheet([], self.public_columns()))

    def _reader(self, sheet: QuestionSheet) -> AskedTableReader:
        self.need_pyarrow()
        from tacit.datasets.own.asked_table_reader import AskedTableReader

        names = {*sheet.numeric, *sheet.textual}
        columns = tuple(self._column(name) for name in self.columns if name in names)
        return AskedTableReader(sheet, columns, self.form, self.unit, self.bad_rows)

    def _column(self, name: str) -> Number | Category:
        section = self.columns[name]
        codes = tuple(map(text_of, section.missing_codes))
        if section.low is not None and section.high is not None:
            return Number(name, section.low, section.high, "refuse", missing_codes=codes)
        return Category(name, tuple(map(text_of, section.values or ())), "other", codes)

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others."""
        if run.ask is None:
            raise ValueError("data.target: missing; it is left out where [ask] has questions")
        for key, default, why in _UNREAD:
            if getattr(self, key) != default:
                raise ValueError(f"data.{key}: {why}; leave it out")
        super().agree(run)
        try:
            self.question_sheet(run.ask)
        except ConfigError as error:
            raise ValueError(str(error)) from error
