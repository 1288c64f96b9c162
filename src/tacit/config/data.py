"""The [data] section of a run file: one class for each kind of data. Public numbers only."""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from tacit.config.contract import DataSection, Sections
from tacit.config.sections import Positive, Section
from tacit.datasets import (
    Benchmark,
    Dealing,
    Features,
    Source,
    Text,
    group_count,
    is_text,
    nominal_size,
    train_size,
)
from tacit.datasets.benchmarks.text import WORDS
from tacit.datasets.own.arrays import ArraysReader, Bounds
from tacit.datasets.own.files import located
from tacit.datasets.own.own_rows import OwnRows, counted
from tacit.datasets.own.rows import Reader
from tacit.datasets.own.rows_file import UnitRows
from tacit.datasets.own.schema import Category, Column, Number, TableSchema, Value, text_of
from tacit.errors import ConfigError

_MARGIN = 1.25  # rows_max over rows, where the file does not say it
EDGE = "{edge}"  # in the name of a file: the number of its edge
_OF_ONE_MACHINE = ("name", "train", "test")


class BenchmarkData(DataSection):
    """A published data set, and how the testbed deals it to the edges."""

    kind: Literal["benchmark"] = Field("benchmark", description="a published data set")
    dataset: str = Field(description="one of docs/data.md; digits is bundled")
    features: Features = Field(
        "none", description="what a linear model sees: pixels, or wavelet scattering of them"
    )
    partition: Literal["iid", "dirichlet", "shards", "natural"] = Field(
        "iid",
        description="how rows are dealt: at random, by label (two ways), by the data's own groups",
    )
    alpha: Positive = Field(
        0.5, description="α of dirichlet: the smaller, the less alike the edges"
    )
    spare: int = Field(0, ge=0, le=1000, description="parts kept for edges that may join later")
    spare_weight: float = Field(
        0.25, gt=0, le=1, description="size of a spare part, relative to a main one"
    )
    vocabulary: int = Field(
        2000, ge=2, le=WORDS, description="words that a text is written in, all others are <unk>"
    )
    sequence: int = Field(32, ge=1, le=1000, description="T: words of an example of text")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        groups, text = group_count(self.dataset), is_text(self.dataset)
        if self.partition == "natural" and not groups:
            raise ValueError(f"partition=natural: {self.dataset} has no natural groups")
        if self.partition == "natural" and self.spare:
            raise ValueError(
                f"spare={self.spare}: partition=natural deals whole groups and keeps none"
            )
        if text and self.partition in ("dirichlet", "shards"):
            raise ValueError(
                f"partition={self.partition}: {self.dataset} has no label for each row; use iid "
                f"or natural"
            )
        for field in (
            "sequence",
            "vocabulary",
        ):  # by value: a journal's header has the defaults written out
            if not text and getattr(self, field) != type(self).model_fields[field].default:
                raise ValueError(f"{field}={getattr(self, field)}: {self.dataset} is not a text")
        return self

    def source(self, run: Sections, folder: Path) -> Source:
        """The published data set, dealt to the run's edges."""
        dealing = Dealing(
            run.edges.count, self.partition, run.run.seed, self.alpha, self.spare, self.spare_weight
        )
        text = Text(self.vocabulary, self.sequence)
        return Benchmark(self.dataset, self.features, text, dealing)

    def public_size(self, edges: int, columns: bool) -> int:
        """The nominal rows of one edge's part, a function of public numbers only."""
        rows = train_size(self.dataset, Text(self.vocabulary, self.sequence))
        if columns:
            return rows
        return nominal_size(rows, shards=edges, spare=self.spare, spare_weight=self.spare_weight)

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others."""
        name = run.model.name
        if self.features != "none" and name not in ("logistic", "svm", "python"):
            raise ValueError(
                f"data.features={self.features}: needs model.name logistic or svm, not {name}"
            )
        if is_text(self.dataset) != (name == "lstm") and name != "python":
            raise ValueError(
                f"model.name={name}: lstm is for text and text for lstm, "
                f"data.dataset={self.dataset}"
            )
        count, groups = run.edges.count, group_count(self.dataset)
        if self.partition == "natural" and count > groups:
            raise ValueError(f"edges.count={count} is above the {groups} groups of {self.dataset}")


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
        """The column called `name`."""
        if self.values is not None:
            missing = "refuse" if not isinstance(self.missing, str) else self.missing
            return Category(name, tuple(map(text_of, self.values)), missing)
        return Number(name, float(self.low or 0), float(self.high or 0), self.missing)


class OwnData(DataSection):
    """What all files of a user's own have in common: whose they are, and how many rows count."""

    name: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="whose ledger this is; left out: the file's absolute path",
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
        None, gt=0, description="public: the most that an edge may have; left out: 1.25 rows"
    )
    unit_rows: int | None = Field(
        None, gt=0, le=10_000, description="public: the most rows of a unit that count in one draw"
    )
    partition: Literal["iid"] = Field("iid", description="by unit, at random")
    spare: int = Field(0, ge=0, le=1000, description="files of edges that may join later")

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
        """All but names of this machine's files; whether one file is dealt to all stays."""
        of_all = {key: value for key, value in different.items() if key not in _OF_ONE_MACHINE}
        return of_all | {"dealt": EDGE not in self.train}

    @property
    def shared(self) -> bool:
        """Where `people` says so."""
        return self.people == "shared"

    def reader(self) -> Reader:
        """What reads its files. Raises ConfigError where a package for that is missing."""
        raise NotImplementedError

    def source(self, run: Sections, folder: Path) -> Source:
        """The rows in `folder`. Raises ConfigError."""
        rows = self.public_size(run.edges.count, columns=False)
        return OwnRows(
            owner=self.name,
            folder=folder,
            train=self.train,
            examples=self.test,
            reader=self.reader(),
            most=self.rows_max or math.ceil(_MARGIN * rows),
            of_unit=UnitRows(self.unit_rows or 1, self.unit_gradient == "mean"),
            edges=run.edges.count,
            seed=run.run.seed,
        )

    def public_size(self, edges: int, columns: bool) -> int:
        """`rows`."""
        assert self.rows is not None  # `with_counts` has seen to it
        return self.rows

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others."""
        if self.rows is None or (self.unit is not None and self.unit_rows is None):
            key = "rows" if self.rows is None else "unit_rows"
            raise ValueError(
                f"data.{key}: say it; it is counted only where one training file lies here"
            )
        if run.privacy.noise_at == "server":
            raise ValueError("privacy.noise_at=server: own data has its noise at the edge")


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
            raise ValueError(f"target={self.target!r}: is not in [data.columns]")
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
        """What a row becomes."""
        features = tuple(
            section.column(name)
            for name, section in self.columns.items()
            if name not in (self.target, self.unit)
        )
        return TableSchema(features, self.columns[self.target].column(self.target), self.unit)

    def reader(self) -> Reader:
        """What reads its tables. Raises ConfigError without pyarrow."""
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


class BoundsSection(Section):
    """Public bounds of a number."""

    low: float = Field(allow_inf_nan=False, description="smaller numbers count as it")
    high: float = Field(allow_inf_nan=False, description="larger numbers count as it")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low={self.low:g} is not below high={self.high:g}")
        return self


class ArraysData(OwnData):
    """Own arrays, npz or safetensors: x, y, and whose a row is."""

    kind: Literal["arrays"] = Field(description="an own npz or safetensors file")
    shape: tuple[Annotated[int, Field(gt=0)], ...] = Field(
        strict=False,
        min_length=1,
        max_length=4,
        description="of one row of x; an image: [1, 28, 28]",
    )
    low: float = Field(allow_inf_nan=False, description="smaller numbers of x count as it")
    high: float = Field(allow_inf_nan=False, description="larger numbers of x count as it")
    classes: int | None = Field(
        None, ge=2, le=65_536, description="of y, which is 0 to classes - 1; or say target"
    )
    target: BoundsSection | None = Field(None, description="of y where it is a number")
    x: str = Field("x", min_length=1, description="the array that is learnt from")
    y: str = Field("y", min_length=1, description="the array that is learnt")

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if (self.classes is None) == (self.target is None):
            raise ValueError("expected classes, or target = { low = …, high = … }")
        if not self.low < self.high:
            raise ValueError(f"low={self.low:g} is not below high={self.high:g}")
        return self

    def reader(self) -> Reader:
        """What reads its arrays."""
        goal = self.classes if self.target is None else Bounds(self.target.low, self.target.high)
        assert goal is not None
        return ArraysReader(
            self.x, self.y, self.unit, self.shape, Bounds(self.low, self.high), goal
        )

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others."""
        super().agree(run)
        name = run.model.name
        image = len(self.shape) == 3
        if name == "lstm" or (name in ("cnn", "resnet", "mobilenet") and not image):
            what = "text" if name == "lstm" else "images of shape [channels, side, side]"
            raise ValueError(f"model.name={name}: is for {what}, data.shape={list(self.shape)}")


def _kind_of(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("kind", "benchmark"))
    return str(getattr(value, "kind", "benchmark"))


Data = Annotated[
    Annotated[BenchmarkData, Tag("benchmark")]
    | Annotated[TableData, Tag("table")]
    | Annotated[ArraysData, Tag("arrays")],
    Discriminator(_kind_of),
]

_OWN: dict[str, type[OwnData]] = {"table": TableData, "arrays": ArraysData}


def with_counts(
    content: dict[str, Any], folder: Path, edges: int
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The keys of a [data] section with `rows` and `unit_rows` counted where they are left out and
    one training file lies in `folder`; and what is to be said of that.

    Raises ConfigError, DataError, pydantic's ValidationError.
    """
    kind = _OWN.get(str(content.get("kind")))
    if kind is None or EDGE in str(content.get("train")):
        return content, ()
    own = kind.model_validate(content)
    lacking = [key for key in ("rows", "unit_rows") if getattr(own, key) is None]
    if own.unit is None and "unit_rows" in lacking:
        lacking.remove("unit_rows")
    if not lacking:
        return content, ()
    found = counted(located(own.train, folder), own.reader(), edges)
    numbers = {"rows": found.units, "unit_rows": found.largest}
    said = ", ".join(f"{key} = {numbers[key]}" for key in lacking)
    note = f"data: {said}: counted in {own.train}, and taken as public from now on"
    return content | {key: numbers[key] for key in lacking}, (note,)
