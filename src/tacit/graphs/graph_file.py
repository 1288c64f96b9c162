"""The file of a graph, `net.graph.json`: what it may hold, and its canonical text.

It holds numbers, names and constants, and no code. Reading it allocates no more than the file's own
size. That its nodes fit together is `graph_check`'s to say.

    {"format": 1, "example": {"shape": [4], "dtype": "float32", "below": null},
     "weights": [{"name": "fc.weight", "shape": [2, 4], "dtype": "float32", "trained": true}, …],
     "nodes": [{"name": "%linear", "op": "linear.default",
                "args": [{"of": "$x"}, {"of": "fc.weight"}, {"of": "fc.bias"}]}],
     "output": "%linear", "loss": null, "values": "<SHA-256 of net.safetensors>"}

A value is named by where it comes from: `$x` is the example as a batch of one, `%…` a node, all
else a weight. In `loss`, `$output` is what the network gave and `$y` the target.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tacit import regular_file
from tacit.digests import Sha256
from tacit.errors import ConfigError, other_format

GRAPH_FORMAT = 1
MOST_BYTES = 1 << 24  # of the file
MOST_NODES = 20_000
MOST_IN_EXAMPLE = 1 << 28  # numbers
MOST_IN_WEIGHT = 1 << 36  # numbers
_DEEPEST = 8  # objects and lists in each other
_LONGEST = 4096  # entries of a list
_SHOWN = 8  # names in a message
EXAMPLE, OUTPUT, TARGET = "$x", "$output", "$y"

ValueName = Annotated[str, Field(min_length=1, max_length=300, pattern=r"^[A-Za-z0-9_.%$-]+$")]
Extent = Annotated[int, Field(ge=0, le=1 << 40)]
Shape = Annotated[tuple[Extent, ...], Field(max_length=16, strict=False)]
Dtype = Literal["float32", "float64", "int64", "int32", "bool"]


class _GraphPart(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Example(_GraphPart):
    """One example: its shape, and its type. below: whole numbers lie from 0 to below - 1."""

    shape: Shape
    dtype: Literal["float32", "int64"]
    below: Annotated[int, Field(ge=1, le=1 << 31)] | None

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if (self.dtype == "int64") != (self.below is not None):
            raise ValueError("below: is for int64, and int64 needs it")
        if math.prod(self.shape) > MOST_IN_EXAMPLE:
            raise ValueError(f"shape: has over {MOST_IN_EXAMPLE:,} numbers")
        return self


class GraphWeight(_GraphPart):
    """A tensor whose numbers are in the safetensors file: a parameter, a buffer, a constant."""

    name: ValueName
    shape: Shape
    dtype: Dtype
    trained: bool

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.trained and not self.dtype.startswith("float"):
            raise ValueError(f"{self.name}: trained: whole numbers have no gradient")
        if math.prod(self.shape) > MOST_IN_WEIGHT:
            raise ValueError(f"{self.name}: shape: has over {MOST_IN_WEIGHT:,} numbers")
        return self


class Of(_GraphPart):
    """A reference to a value, by its name."""

    of: ValueName


class DtypeName(_GraphPart):
    """A type of numbers, as an argument."""

    dtype: Dtype


class MemoryOrder(_GraphPart):
    """An order of numbers in memory, as an argument."""

    memory: Literal["contiguous", "preserve"]


class FarFloat(_GraphPart):
    """A float that JSON has no word for."""

    float: Literal["inf", "-inf", "nan"]


Single = Of | DtypeName | MemoryOrder | FarFloat | bool | int | float | str | None
Argument = Single | Annotated[tuple[Single, ...], Field(max_length=_LONGEST)]


class Node(_GraphPart):
    """One operation at work. line: where the module asked for it, for people."""

    name: ValueName
    op: Annotated[str, Field(min_length=1, max_length=100)]
    args: Annotated[tuple[Argument, ...], Field(max_length=64, strict=False)]
    kwargs: dict[str, Argument] = {}
    line: Annotated[str, Field(max_length=200)] = ""


class LossPart(_GraphPart):
    """The loss of one example, as nodes of `$output` and `$y`."""

    nodes: Annotated[tuple[Node, ...], Field(max_length=MOST_NODES, strict=False)]
    output: ValueName


class GraphFile(_GraphPart):
    """A network, its weights' shapes, and where their first values are.

    values: SHA-256 of the safetensors file. loss: None: one of tacit's own, by the run file.
    """

    format: Literal[1]
    example: Example
    weights: Annotated[tuple[GraphWeight, ...], Field(max_length=MOST_NODES, strict=False)]
    nodes: Annotated[tuple[Node, ...], Field(max_length=MOST_NODES, strict=False)]
    output: ValueName
    loss: LossPart | None
    values: Sha256

    @model_validator(mode="after")
    def _named_once(self) -> Self:
        names = Counter(weight.name for weight in self.weights)
        if several := [name for name, times in names.items() if times > 1]:
            raise ValueError(f"weights: {several[0]} stands there twice")
        return self

    def text(self) -> str:
        """Return the canonical text: keys sorted, no spaces, one node a line."""
        content = self.model_dump(mode="json", exclude_defaults=True)
        lines = [f"{json.dumps(key)}:{_lines(content[key])}" for key in sorted(content)]
        return "{" + ",\n".join(lines) + "}\n"

    def digest(self) -> str:
        """Return SHA-256 of the canonical text, in hexadecimal."""
        return hashlib.sha256(self.text().encode()).hexdigest()


def is_trainable(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a weight's name fits one of the patterns of model.trainable."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def check_patterns(where: str, names: Iterable[str], patterns: Iterable[str]) -> None:
    """Check that each pattern of model.trainable fits a weight. Raises ConfigError."""
    every = list(names)
    for pattern in patterns:
        if pattern != "*" and not fnmatch.filter(every, pattern):
            shown = ", ".join(every[:_SHOWN]) + ", …" * (len(every) > _SHOWN)
            raise ConfigError(
                f"{where}: trainable={pattern!r} fits no weight of {shown or 'none'}; state a list "
                "of patterns, each of which does"
            )


def _lines(value: object) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(_plain(item) for item in value) + "]"
    return _plain(value)


def _plain(value: object) -> str:
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )


def read_graph(path: Path, field: str = "model.file") -> GraphFile:
    """Return the graph in the file at `path`. Raises ConfigError, naming the key and the value.

    field: names the setting in messages.
    """
    try:
        content = regular_file.content(path, MOST_BYTES)
    except OSError as error:
        raise ConfigError(f"{field}={str(path)!r}: {error.strerror or error}") from error
    return parse_graph(content, f"{field}={path.name}")


def parse_graph(content: bytes, where: str) -> GraphFile:
    """Return the graph that the file's bytes are. Raises ConfigError."""
    if len(content) > MOST_BYTES:
        raise ConfigError(f"{where}: has over {MOST_BYTES:,} bytes")
    try:
        document: Any = json.loads(content, parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: is no JSON ({str(error)[:80]})") from error
    written = document.get("format") if isinstance(document, dict) else None
    if isinstance(written, int) and written != GRAPH_FORMAT:
        raise ConfigError(f"{where}: {other_format(written, GRAPH_FORMAT)}")
    try:
        _check_depth(document, where)
        return GraphFile.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{where}: {place}: {first['msg']}") from error


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is no number of it")
    return number


def _check_depth(document: object, where: str) -> None:
    """Refuse what is nested deeper than a graph is, before it is looked at by recursion."""
    level = [document]
    for _ in range(_DEEPEST):
        level = [inside for value in level for inside in _inside(value, where)]
    if level:
        raise ConfigError(f"{where}: is nested deeper than a graph is")


def _inside(value: object, where: str) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list):
        return value
    return []
