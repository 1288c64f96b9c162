"""[data] kind = "table": an own table, its columns, and its target."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, field_validator, model_validator

from tacit.config.algorithm_contract import Sections
from tacit.config.learnt import LearntSection
from tacit.config.own_column import ColumnSection
from tacit.config.own_data import OwnData, check_whole_numbers
from tacit.config.own_target import NextToken, TargetKey, check, goal, names_of
from tacit.datasets.own.rows import Reader, UnitIds
from tacit.datasets.own.schema import TableSchema
from tacit.datasets.own.table_form import BadRows, TableForm, encoding_called
from tacit.datasets.own.vocabulary import digest
from tacit.errors import ConfigError
from tacit.models.additive import ADDITIVE

if TYPE_CHECKING:
    from tacit.datasets.own.table import TableReader


_MODELS = ("logistic", "linear", "svm", "mlp", "python", "graph", ADDITIVE)


class TableFiles(OwnData):
    """How the cells of own tables are parted and written: CSV, Parquet or Excel."""

    kind: Literal["table"] = Field(description="an own CSV, Parquet or Excel file")
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
    def _marks_differ(self) -> Self:
        if self.thousands == self.decimal:
            raise ValueError(f"thousands={self.thousands!r}: is the decimal mark, too")
        return self

    @property
    def form(self) -> TableForm:
        """The form of its text tables."""
        return TableForm(
            self.separator, self.decimal, self.thousands, self.encoding, self.header, self.sheet
        )

    @staticmethod
    def need_pyarrow() -> None:
        """Raise ConfigError where the package that reads tables is missing."""
        if find_spec("pyarrow") is None:
            raise ConfigError("data.kind=table: needs pyarrow; pip install 'tacit[table]'")


class TableData(TableFiles):
    """An own table, CSV, Parquet or Excel: its public schema, and whose privacy it is."""

    target: TargetKey = Field(
        description="the column that is learnt: values are classes, or a number; the columns of "
        "several labels; the time to an event, as a table below; or { next_token = the text }"
    )
    columns: dict[str, ColumnSection] = Field(
        min_length=1, description="every column that is read, the target among them"
    )
    learnt: LearntSection | None = Field(
        None, description="the answers that columns and bounds come of, as `tacit new` states them"
    )

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        check(self.target, self.columns)
        if not self._features:
            raise ValueError("columns: nothing is left to learn from beside the target")
        self._check_text()
        if self.unit in names_of(self.target):
            raise ValueError(f"unit={self.unit!r}: is the target")
        return self

    def _check_text(self) -> None:
        """Raise ValueError for a text that is not alone: one network takes one kind of numbers."""
        texts = [name for name in self._features if self.columns[name].text is not None]
        if not texts:
            return
        others = [name for name in self._features if name != texts[0]]
        if others:
            raise ValueError(
                f"columns.{texts[0]}: a text is whole numbers, which are a row's only feature; "
                f"leave out {', '.join(others[:5])}"
            )
        if self.features != "none":
            raise ValueError(f"features: are of numbers, not of the text {texts[0]!r}")

    @property
    def _features(self) -> list[str]:
        return [name for name in self.columns if name not in self._of_no_feature]

    @property
    def _text(self) -> str | None:
        """The column of the text that is the only feature, if it is one."""
        first = self._features[0]
        return first if self.columns[first].text is not None else None

    @property
    def _of_no_feature(self) -> set[str | None]:
        return {*names_of(self.target), self.unit}

    def schema_of_rows(self, folder: Path) -> TableSchema:
        """Return the encoding of a row; folder: the run file's. Raises ConfigError."""
        if self._text is not None:
            text = self.columns[self._text].tokenized(self._text, folder)
            return TableSchema((text,), goal(self.target, self.columns, text), self.unit)
        features = tuple(self.columns[name].column(name) for name in self._features)
        return TableSchema(features, goal(self.target, self.columns, None), self.unit)

    def code(self, folder: Path) -> dict[str, str]:
        """Return SHA-256 of a text's tokenizer, and of what `features` name. Raises ConfigError."""
        text = self._text
        if text is None:
            return super().code(folder)
        path = self.columns[text].file(text, folder)
        return {f"text {text}": digest(path, f"data.columns.{text}.text")}

    def files(self, folder: Path) -> Iterator[Path]:
        """Yield a text's tokenizer and what `features` name, relative to `folder`."""
        text = self._text
        if text is not None:
            yield self.columns[text].file(text, folder).relative_to(folder.resolve())
        yield from super().files(folder)

    def plain_reader(self, folder: Path) -> Reader:
        """Return the reader of its tables. Raises ConfigError without pyarrow."""
        return self.table_reader(folder)

    def table_reader(self, folder: Path) -> TableReader:
        """Return the reader of its tables. Raises ConfigError without pyarrow."""
        self.need_pyarrow()
        from tacit.datasets.own.table import TableReader

        return TableReader(self.schema_of_rows(folder), self.form, self.bad_rows)

    def everyone(self, folder: Path, path: Path) -> Iterator[UnitIds]:
        """Yield whose each row is. Those that are left out count, so nobody learns how many."""
        if self.bad_rows == "refuse":
            return super().everyone(folder, path)
        return self.table_reader(folder).everyone(path)

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others."""
        super().agree(run)
        if self._text is not None:
            language = isinstance(self.target, NextToken)
            check_whole_numbers(run.model.name, f"the text {self._text!r}", language=language)
        elif run.model.name not in _MODELS:
            raise ValueError(
                f"model.name={run.model.name}: is for images or text; a table needs additive, "
                "logistic, svm, mlp or python"
            )
