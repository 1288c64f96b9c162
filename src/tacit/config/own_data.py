"""The part of [data] that all kinds of a user's own data share. Public numbers only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from tacit.config.algorithm_contract import Sections
from tacit.config.features import FeaturedData
from tacit.config.site import MOST_MEMBERS, Site
from tacit.datasets import Source
from tacit.datasets.own.featured import with_features
from tacit.datasets.own.own_rows import OwnRows
from tacit.datasets.own.rows import Reader, UnitIds
from tacit.datasets.own.rows_file import UnitRows
from tacit.errors import ConfigError
from tacit.known_data.owned import EDGE
from tacit.privacy.report import Promise

_MARGIN = 1.25  # rows_max over rows, where the file does not say it
_CHANCE = 6.0  # or so many standard deviations of a number that chance makes, where that is more
_OF_ONE_MACHINE = ("name", "apart_from", "train", "test")
_NOT_COUNTED = "data.{}: say it; it is counted only where one training file lies here"


def _most(rows: int, run: Sections) -> int:
    """Return the most rows of an edge that has `rows` on average.

    576 rows and more are a quarter more at most. What checks the sums of updates counts on a
    quarter, however few there are.
    """
    quarter = math.ceil(_MARGIN * rows)
    if run.guard.sums:
        return quarter
    return max(quarter, math.ceil(rows + _CHANCE * math.sqrt(rows)))


def check_whole_numbers(model: str, what: str, *, language: bool = False) -> None:
    """Raise ValueError for a model that takes no whole numbers, as `what` has them.

    language: whether a number is learnt at each place of a row, as `lstm` does.
    """
    if model in ("python", "graph") or (model == "lstm" and language):
        return
    if language:
        others = "lstm, python or graph"
    else:
        others = "python or graph, with an embedding"
    if model == "lstm":
        raise ValueError(
            f"model.name=lstm: learns a token at each place; of {what} something else is learnt, "
            f"so use {others}"
        )
    raise ValueError(
        f"model.name={model}: takes no whole numbers, as {what} has them; use {others}"
    )


class OwnData(FeaturedData):
    """The keys that all own data has: whose the rows are, and how many of them count."""

    name: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="whose ledger this is; left out: the file's absolute path",
    )
    apart_from: tuple[str, ...] = Field(
        (),
        strict=False,
        description="names of ledgers that are of other people, though ids or rows are alike: the "
        "owner's word",
    )
    train: str = Field(
        min_length=1,
        description="beside the run file: one file that is dealt to the edges, or one an edge, "
        '"site{edge}.csv"',
    )
    test: str | None = Field(
        None, min_length=1, description="public test set, beside the run file, at the aggregator"
    )
    unit: str | None = Field(
        None,
        description="column, or array: whose privacy it is, all rows of a unit together; left out: "
        "a row",
    )
    unit_gradient: Literal["mean", "sum"] = Field(
        "mean", description="a unit's gradient: the mean of its rows', or their sum"
    )
    people: Literal["apart", "shared"] = Field(
        "apart", description="shared: the same units may be at several edges, and their ε adds up"
    )
    rows: int | None = Field(
        None, gt=0, description="public: rows, or units, that one edge is taken to have"
    )
    rows_max: int | None = Field(
        None,
        gt=0,
        description="public: the most that an edge may have; left out: 1.25 rows, or what few rows "
        "that are dealt at random may come to",
    )
    unit_rows: int | None = Field(
        None, gt=0, le=10_000, description="public: the most rows of a unit that count in one draw"
    )
    partition: Literal["iid"] = Field("iid", description="by unit, at random")
    spare: int = Field(0, ge=0, le=MOST_MEMBERS, description="files of edges that may join later")

    @model_validator(mode="after")
    def _own_agrees_with_itself(self) -> Self:
        if self.unit is None:
            self._without_unit()
        if self.rows and self.rows_max and self.rows_max < self.rows:
            raise ValueError(f"rows_max={self.rows_max} is below rows={self.rows}")
        if self.spare and EDGE not in self.train:
            raise ValueError(f'spare={self.spare}: needs a file an edge, train = "site{EDGE}.csv"')
        return self

    def _without_unit(self) -> None:
        for key, default in (("unit_rows", None), ("unit_gradient", "mean"), ("people", "apart")):
            if getattr(self, key) != default:
                raise ValueError(f"{key}={getattr(self, key)}: needs data.unit")

    def stated(self, different: dict[str, Any]) -> dict[str, Any]:
        """Return the stated keys without names of this machine's files.

        Whether one file is dealt to all stays.
        """
        of_all = {key: value for key, value in different.items() if key not in _OF_ONE_MACHINE}
        return of_all | {"dealt": self.dealt}

    @property
    def dealt(self) -> bool:
        """Whether one file is dealt to all edges."""
        return EDGE not in self.train

    @property
    def rows_called(self) -> str:
        """Rows, or units."""
        if self.unit is None:
            return "rows"
        return f"units ({self.unit})"

    def promised(self, promise: Promise, source: Source) -> Promise:
        """Return the promise for the data's unit, which `people` may allow at several edges.

        It states how many ledgers `apart_from` names, and not their names.
        """
        unit_promise = replace(
            promise.for_unit(source.unit),
            apart=len(self.apart_from),
            lasting=True,
            of_members=self.train == EDGE,
        )
        if self.people == "shared":
            return replace(unit_promise, composition="together")
        return unit_promise

    def reader(self, folder: Path) -> Reader:
        """Return the reader of its files, which gives `features` of each row.

        folder: the run file's. Raises ConfigError where a package for that, or a file, is missing.
        """
        return with_features(self.plain_reader(folder), self.steps(folder))

    def plain_reader(self, folder: Path) -> Reader:
        """Return the reader of its files as they are.

        Raises ConfigError where a package for that is missing.
        """
        raise NotImplementedError

    def everyone(self, folder: Path, path: Path) -> Iterator[UnitIds]:
        """Yield whose each row of a file is, for `rows` and `unit_rows`. Raises DataError."""
        return (part.units for part in self.plain_reader(folder).read(path))

    def source(self, run: Sections, folder: Path) -> Source:
        """Return the rows in `folder`. Raises ConfigError."""
        rows = self.public_size(run.edges.count, columns=False)
        return OwnRows(
            owner=self.name,
            folder=folder,
            train=self.train,
            examples=self.test,
            reader=self.reader(folder),
            most=self.rows_max or _most(rows, run),
            of_unit=UnitRows(self.unit_rows or 1, self.unit_gradient == "mean"),
            edges=run.edges.count,
            seed=run.run.seed,
            apart_from=self.apart_from,
        )

    def source_at(self, site: Site, run: Sections, folder: Path) -> Source:
        """Return the rows of a member, which lie where it says. Raises ConfigError."""
        own: dict[str, Any] = {"name": site.name, "apart_from": site.apart_from}
        if site.rows is not None:
            own |= {"rows": site.rows, "rows_max": None}
        source = self.model_copy(update=own).source(run, folder)
        assert isinstance(source, OwnRows)
        if site.reader is not None:
            reader = with_features(self.reader_of_owner(site.reader, site.data), self.steps(folder))
            source = replace(source, reader=reader)
        return replace(source, site=site.data, edges=1)

    def reader_of_owner(self, entry: str, folder: Path) -> Reader:
        """Return the reader that calls a member's own code in `folder`.

        Raises ConfigError where rows of this kind lie in files only.
        """
        raise ConfigError(
            f"--data {entry}: gives arrays, and this run reads data.kind={self.kind}; name a file"
        )

    def public_size(self, edges: int, columns: bool) -> int:
        """Return `rows`.

        Raises ValueError where the file does not say it and it was not counted.
        """
        if self.rows is None:
            raise ValueError(_NOT_COUNTED.format("rows"))
        return self.rows

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others."""
        super().agree(run)
        if self.unit is not None and self.unit_rows is None:
            raise ValueError(_NOT_COUNTED.format("unit_rows"))
        if run.privacy.noise_at == "server":
            raise ValueError("privacy.noise_at=server: own data has its noise at the edge")
