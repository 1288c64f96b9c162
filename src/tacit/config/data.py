"""The [data] section of a run file: one class for each kind of data. Public numbers only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeGuard

from pydantic import Discriminator, Field, Tag, model_validator

from tacit.config.algorithm_contract import Sections
from tacit.config.asked_table import AskedTable
from tacit.config.features import FeaturedData
from tacit.config.own_arrays import ArraysData, ImagesData, PythonData
from tacit.config.own_data import OwnData
from tacit.config.own_table import TableData
from tacit.config.party_columns import ColumnsData
from tacit.datasets import (
    Benchmark,
    Dealing,
    Source,
    Text,
    group_count,
    is_text,
    nominal_size,
    train_size,
)
from tacit.datasets.benchmarks.text import WORDS
from tacit.datasets.own.file_reading import located
from tacit.datasets.own.own_rows import counted
from tacit.known_data.owned import EDGE
from tacit.privacy.policy import Positive


class BenchmarkData(FeaturedData):
    """A published data set, and how the testbed deals it to the edges."""

    kind: Literal["benchmark"] = Field("benchmark", description="a published data set")
    dataset: str = Field(description="one of docs/data.md; digits is bundled")
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
        groups = group_count(self.dataset)
        text = is_text(self.dataset)
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
        """Return the published data set, dealt to the run's edges."""
        dealing = Dealing(
            run.edges.count, self.partition, run.run.seed, self.alpha, self.spare, self.spare_weight
        )
        text = Text(self.vocabulary, self.sequence)
        return Benchmark(self.dataset, self.steps(folder), text, dealing)

    def public_size(self, edges: int, columns: bool) -> int:
        """Return the nominal rows of one edge's part, a function of public numbers only."""
        rows = train_size(self.dataset, Text(self.vocabulary, self.sequence))
        if columns:
            return rows
        return nominal_size(rows, shards=edges, spare=self.spare, spare_weight=self.spare_weight)

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others."""
        super().agree(run)
        name = run.model.name
        if is_text(self.dataset) != (name == "lstm") and name not in ("python", "graph"):
            raise ValueError(
                f"model.name={name}: lstm is for text and text for lstm, "
                f"data.dataset={self.dataset}"
            )
        count = run.edges.count
        groups = group_count(self.dataset)
        if self.partition == "natural" and count > groups:
            raise ValueError(f"edges.count={count} is above the {groups} groups of {self.dataset}")


_ASKED = "asked table"  # a table without a target: nothing is learnt, questions are asked


def _kind_of(value: Any) -> str:
    if isinstance(value, AskedTable):
        return _ASKED
    if not isinstance(value, dict):
        return str(getattr(value, "kind", "benchmark"))
    kind = str(value.get("kind", "benchmark"))
    return _ASKED if kind == "table" and "target" not in value else kind


Data = Annotated[
    Annotated[BenchmarkData, Tag("benchmark")]
    | Annotated[TableData, Tag("table")]
    | Annotated[AskedTable, Tag(_ASKED)]
    | Annotated[ArraysData, Tag("arrays")]
    | Annotated[ImagesData, Tag("images")]
    | Annotated[PythonData, Tag("python")]
    | Annotated[ColumnsData, Tag("columns")],
    Discriminator(_kind_of),
]

_OWN: dict[str, type[OwnData]] = {
    "table": TableData,
    _ASKED: AskedTable,
    "arrays": ArraysData,
    "images": ImagesData,
    "python": PythonData,
}


def is_own_data(content: object) -> TypeGuard[dict[str, Any]]:
    """Check whether `content` is a [data] section of a user's own rows."""
    return isinstance(content, dict) and _kind_of(content) in _OWN


def with_counts(
    content: dict[str, Any], folder: Path, edges: int
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a [data] section with `rows` and `unit_rows` counted, and notes for the user.

    They are counted where they are left out and one training file lies in `folder`. Raises
    ConfigError, DataError, pydantic's ValidationError.
    """
    kind = _OWN.get(_kind_of(content))
    if kind is None or EDGE in str(content.get("train")):
        return content, ()
    section = kind.model_validate(content)
    lacking = [key for key in ("rows", "unit_rows") if getattr(section, key) is None]
    if section.unit is None and "unit_rows" in lacking:
        lacking.remove("unit_rows")
    if not lacking:
        return content, ()
    path = located(section.train, folder, folders=section.plain_reader(folder).folders)
    units = section.everyone(folder, path)
    counts = counted(units, section.unit is not None, edges, path.name)
    numbers = {"rows": counts.units, "unit_rows": counts.largest}
    assignments = ", ".join(f"{key} = {numbers[key]}" for key in lacking)
    note = f"data: {assignments}: counted in {section.train}, and taken as public from now on"
    return content | {key: numbers[key] for key in lacking}, (note,)
