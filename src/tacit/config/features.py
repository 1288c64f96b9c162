"""`features` of [data]: what a model sees of a record, step by step, by public constants alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat, field_validator, model_validator

from tacit.config.algorithm_contract import DataSection, Sections
from tacit.config.sections import Section
from tacit.datasets import Features
from tacit.datasets.features.front import Front
from tacit.datasets.features.graph_front import FIELD, GraphFront
from tacit.datasets.features.public_basis import SHIPPED, Projection, digest
from tacit.datasets.features.public_basis import shipped as shipped_basis
from tacit.datasets.features.standardise import Standardise
from tacit.datasets.own.file_reading import located
from tacit.graphs.graph_file import read_graph
from tacit.graphs.graph_values import GRAPH_SUFFIX, values_beside
from tacit.user_code import entry_digest, entry_files

_ANY_SHAPE = (
    "logistic",
    "linear",
    "svm",
    "mlp",
    "python",
    "graph",
    "additive",
)  # models that take records of any shape


_Bounds = FiniteFloat | Annotated[tuple[FiniteFloat, ...], Field(strict=False)]


class StandardiseSection(Section):
    """A step of `features`: numbers between public bounds are brought to -1 … 1."""

    low: _Bounds = Field(description="the least that a number can be; or a list, one for each")
    high: _Bounds = Field(description="the most that it can be; what lies beyond counts as this")

    @model_validator(mode="after")
    def _low_is_below_high(self) -> StandardiseSection:
        low = _each(self.low)
        high = _each(self.high)
        if not (low and high) or (1 not in (len(low), len(high)) and len(low) != len(high)):
            raise ValueError(f"low and high: expected as many of each, not {len(low)}, {len(high)}")
        wide = max(len(low), len(high))
        pairs = zip(low * (wide // len(low)), high * (wide // len(high)), strict=True)
        for lower, upper in pairs:
            if not lower < upper:
                raise ValueError(f"low={lower:g}: expected below high={upper:g}")
        return self

    def step(self, _folder: Path) -> Standardise:
        """Return the step."""
        return Standardise(_each(self.low), _each(self.high))

    def code(self, _folder: Path) -> dict[str, str]:
        """Return no digest: the section names no file."""
        return {}

    def files(self, _folder: Path) -> Iterator[Path]:
        """Yield no file."""
        return iter(())


def _each(bounds: float | tuple[float, ...]) -> tuple[float, ...]:
    if isinstance(bounds, tuple):
        return bounds
    return (bounds,)


class ProjectionSection(Section):
    """A step of `features`: a projection on a public basis, with whitening."""

    basis: str = Field(
        min_length=1, description='"strokes", or a file of `tacit basis` beside the run file'
    )
    axes: int = Field(512, gt=0, le=65_536, description="how many of its axes")
    whiten: float = Field(
        0.5, ge=0, le=1, description="each axis is divided by its standard deviation to this power"
    )

    def step(self, folder: Path) -> Projection:
        """Return the step. Raises ConfigError where its file is not there."""
        if self._shipped:
            path = shipped_basis(self.basis)
        else:
            path = self._located(folder)
        return Projection(path, digest(path), self.axes, self.whiten)

    def code(self, folder: Path) -> dict[str, str]:
        """Return SHA-256 of its file. Raises ConfigError."""
        return {f"basis {self.basis}": self.step(folder).sha256}

    def files(self, folder: Path) -> Iterator[Path]:
        """Yield its file, if it is the user's, relative to `folder`. Raises ConfigError."""
        if not self._shipped:
            yield self._located(folder).relative_to(folder.resolve())

    @property
    def _shipped(self) -> bool:
        return self.basis in SHIPPED

    def _located(self, folder: Path) -> Path:
        return located(self.basis, folder, "data.features")


class FrontSection(Section):
    """A step of `features`: a public module, frozen, that a record goes through once."""

    front: str = Field(
        description='"module:name", a class or function that gives a torch module; or '
        '"NAME.graph.json", which tacit freeze --front has written'
    )
    arguments: dict[str, Any] = Field({}, description="module: what it is called with")
    weights: str | None = Field(
        None,
        min_length=1,
        description="its public weights, a safetensors file; a graph has NAME.safetensors",
    )
    control_flow: Literal["refused", "trusted"] = Field(
        "refused",
        description="module: code that cannot become a graph; trusted: it is run on rows, and that "
        "it keeps them apart is tried, not known",
    )

    @model_validator(mode="after")
    def _graph_has_no_code(self) -> FrontSection:
        if self.graph and (self.arguments or self.control_flow != "refused"):
            key = "arguments" if self.arguments else "control_flow"
            raise ValueError(f"{key}: is for a module, and front={self.front!r} is a graph")
        return self

    @property
    def graph(self) -> bool:
        """Whether it names a graph's file, and not a module."""
        return self.front.endswith(GRAPH_SUFFIX)

    def step(self, folder: Path) -> Front | GraphFront:
        """Return the step. Executes nothing. Raises ConfigError where its files are not there."""
        if self.graph:
            path = self._graph_path(folder)
            graph = read_graph(path, FIELD)
            values = self._values_path(folder)
            sha256 = graph.values if self.weights is None else digest(values)
            return GraphFront(self.front, graph.digest(), path, values, sha256)
        return self._module(folder)

    def _module(self, folder: Path) -> Front:
        if self.weights is None:
            path = None
        else:
            path = self._located(self.weights, folder)
        return Front(
            self.front,
            json.dumps(self.arguments, sort_keys=True),
            entry_digest(self.front, folder, FIELD),
            path,
            "" if path is None else digest(path),
            folder,
            self.control_flow == "trusted",
        )

    def code(self, folder: Path) -> dict[str, str]:
        """Return SHA-256 of its code, or graph, and of its weights. Raises ConfigError."""
        step = self.step(folder)
        if isinstance(step, GraphFront):
            code, weights_sha256 = step.digest, step.values_sha256
        else:
            code, weights_sha256 = step.code, step.weights_sha256
        weights = {} if self.weights is None else {f"front {self.weights}": weights_sha256}
        return {f"front {self.front}": code, **weights}

    def files(self, folder: Path) -> Iterator[Path]:
        """Yield its own code, or graph, and its weights, relative to `folder`.

        Raises ConfigError.
        """
        root = folder.resolve()
        if self.graph:
            yield self._graph_path(folder).relative_to(root)
            yield self._values_path(folder).relative_to(root)
            return
        yield from entry_files(self.front, folder, FIELD)
        if self.weights is not None:
            yield self._located(self.weights, folder).relative_to(root)

    def _graph_path(self, folder: Path) -> Path:
        return located(self.front, folder, FIELD)

    def _values_path(self, folder: Path) -> Path:
        if self.weights is None:
            return located(values_beside(self.front, FIELD), folder, FIELD)
        return self._located(self.weights, folder)

    def _located(self, weights: str, folder: Path) -> Path:
        return located(weights, folder, "data.features.weights")


FeatureList = Annotated[
    tuple[
        Literal["upright", "scattering"] | StandardiseSection | ProjectionSection | FrontSection,
        ...,
    ],
    Field(strict=False, min_length=1, max_length=8),
]


class FeaturedData(DataSection):
    """Data of which a model sees `features`."""

    features: Literal["none", "scattering"] | FeatureList = Field(
        "none",
        description="what a model sees: the record, or steps, each of one record alone, as "
        '["upright", "scattering", { basis = "strokes" }]',
    )

    @field_validator("features", mode="before")
    @classmethod
    def _one_or_a_list(cls, value: Any) -> Any:
        if isinstance(value, str) and value not in ("none", "scattering"):
            raise ValueError('expected none, scattering, or a list of steps, as ["upright"]')
        return value

    def steps(self, folder: Path) -> Features:
        """Return `features`, with the files that they name. Raises ConfigError."""
        if isinstance(self.features, str):
            return self.features
        return tuple(step if isinstance(step, str) else step.step(folder) for step in self.features)

    def code(self, folder: Path) -> dict[str, str]:
        """Return SHA-256 of each file that `features` name, by what it is."""
        digests: dict[str, str] = {}
        for section in self._sections():
            digests |= section.code(folder)
        return digests

    def files(self, folder: Path) -> Iterator[Path]:
        """Yield the user's files that `features` name, relative to the run file's `folder`."""
        for section in self._sections():
            yield from section.files(folder)

    @property
    def fronts(self) -> tuple[str, ...]:
        """The modules ("module:name") among `features`."""
        return tuple(section.front for section in self._modules())

    @property
    def trusted_fronts(self) -> tuple[str, ...]:
        """Those of `fronts` whose code may run on rows as it is."""
        return tuple(
            section.front for section in self._modules() if section.control_flow == "trusted"
        )

    def _modules(self) -> Iterator[FrontSection]:
        for section in self._sections():
            if isinstance(section, FrontSection) and not section.graph:
                yield section

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others."""
        name = run.model.name
        if self.features != "none" and name not in _ANY_SHAPE:
            what = self.features if isinstance(self.features, str) else "a list"
            raise ValueError(
                f"data.features={what}: needs model.name {' or '.join(_ANY_SHAPE)}, not {name}"
            )

    def _sections(self) -> Iterator[StandardiseSection | ProjectionSection | FrontSection]:
        return (step for step in self.features if not isinstance(step, str))
