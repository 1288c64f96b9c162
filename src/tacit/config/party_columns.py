"""[data] kind = "columns": parties that hold different columns of the same people."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from tacit.config.algorithm_contract import DataSection, Sections
from tacit.config.own_column import CellValue, ColumnSection
from tacit.config.own_table import TableFiles
from tacit.config.sections import Privacy, Section
from tacit.datasets import Source
from tacit.datasets.own.own_columns import KeyedFiles, OwnColumns
from tacit.datasets.own.schema import Category, Column, TableSchema, text_of
from tacit.privacy.accounting import gdp
from tacit.privacy.report import Promise

if TYPE_CHECKING:
    from collections.abc import Sequence

LABELS = "labels"  # what the holder of labels is called


class PartySection(Section):
    """A party of [data] kind = "columns": its two files, and what is public of its columns."""

    name: str = Field(min_length=1, max_length=200, description="whose ledger this is")
    train: str = Field(
        min_length=1, description="its private file beside the run file: a row is a person"
    )
    test: str = Field(
        min_length=1,
        description="its file of public people, who are tested on; their rows are sent as they are",
    )
    key: str = Field(min_length=1, description="the column of both files with a person's id")
    columns: dict[str, ColumnSection] = Field(
        min_length=1, description="every column that is read, and what is public of it"
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.key in self.columns:
            raise ValueError(f"columns.{self.key}: is the key, and nothing is learnt from an id")
        for name, column in self.columns.items():
            if column.text is not None or column.counts:
                raise ValueError(
                    f"columns.{name}: a party's column is a number, a category, a hash or a date"
                )
        return self


class ColumnsData(DataSection):
    """Own columns of the same people, at parties, and labels where the aggregator is."""

    kind: Literal["columns"] = Field(description="own columns of the same people, at parties")
    labels: str = Field(
        min_length=1,
        description="the label holder's file beside the run file: ids and targets of those who are "
        "learnt from",
    )
    labels_test: str = Field(
        min_length=1, description="the same of public people, who are tested on"
    )
    key: str = Field(min_length=1, description="the column of both with a person's id")
    target: str = Field(min_length=1, description="the column of both that is learnt")
    values: tuple[CellValue, ...] = Field(
        strict=False, min_length=2, max_length=1000, description="all values of the target"
    )
    rows: int = Field(gt=0, description="public: the people in `labels`, about")
    parties: tuple[PartySection, ...] = Field(
        strict=False, min_length=1, max_length=1000, description="who holds columns, below"
    )
    partition: Literal["iid"] = Field("iid", description="leave it alone: no row is dealt")
    spare: int = Field(0, ge=0, le=0, description="leave it alone: no party joins later")

    @model_validator(mode="after")
    def _differ(self) -> Self:
        for what in ("name", "train"):
            values = [getattr(party, what) for party in self.parties]
            if len(set(values)) < len(values):
                twice = next(value for value in values if values.count(value) > 1)
                raise ValueError(f"parties: {what} {twice!r} stands there twice")
        if self.key == self.target:
            raise ValueError(f"target={self.target!r}: is the key")
        return self

    @property
    def rows_called(self) -> str:
        """People."""
        return "people"

    def promised(self, promise: Promise, source: Source) -> Promise:
        """Return the promise for a person, for all runs of the parties' ledgers."""
        return promise.of_person()

    def source(self, run: Sections, folder: Path) -> OwnColumns:
        """Return the holders' files in `folder`. Raises ConfigError without pyarrow."""
        TableFiles.need_pyarrow()
        values = tuple(map(text_of, self.values))
        target = Category(self.target, values, "refuse")
        labels = _files(LABELS, self.key, self.labels, self.labels_test, folder, (target,))
        parties = tuple(
            _files(
                party.name,
                party.key,
                party.train,
                party.test,
                folder,
                [column.column(name) for name, column in party.columns.items()],
            )
            for party in self.parties
        )
        return OwnColumns(labels, parties)

    def public_size(self, edges: int, columns: bool) -> int:
        """Return `rows`."""
        return self.rows

    def of_each_worker(self, privacy: Privacy) -> Privacy:
        """Return [privacy] with one party's ε: M parties with it come to a person's ε together.

        μ of one is μ(ε, δ)/√M (`gdp.compose`).
        """
        if not privacy.private or len(self.parties) == 1:
            return privacy
        share = gdp.mu_within(privacy.epsilon, privacy.delta) / math.sqrt(len(self.parties))
        return privacy.model_copy(update={"epsilon": gdp.epsilon(share, privacy.delta)})

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others."""
        if not run.algorithm.columns:
            raise ValueError(
                f"data.kind=columns: {run.algorithm.name} has edges with rows of their own; "
                "parties with columns are algorithm.name = vafl"
            )
        if run.edges.count != len(self.parties):
            raise ValueError(
                f"edges.count={run.edges.count}: data.parties has {len(self.parties)}; they are "
                "the edges"
            )
        if run.edges.epsilon:
            raise ValueError(
                "edges.epsilon: privacy.epsilon is a person's at all parties, who share it "
                "equally; leave it out"
            )

    def most_places(self) -> int:
        """Return the places of the widest party's row."""
        return max(
            sum(column.column(name).width for name, column in party.columns.items())
            for party in self.parties
        )


def _files(
    name: str, key: str, train: str, test: str, folder: Path, columns: Sequence[Column]
) -> KeyedFiles:
    from tacit.datasets.own.table import TableReader

    # Its target and unit are not read: the key is, by its name.
    schema = TableSchema(tuple(columns), Category(key, ("",)), key)
    return KeyedFiles(name, key, train, test, folder, TableReader(schema))
