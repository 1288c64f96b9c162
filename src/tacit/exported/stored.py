"""The files of a model's folder, read strictly: every fault, by any author, is one line.

Nothing is taken as it comes: JSON has a schema and a depth, weights have the names, shapes and
types of the model's parameters, and finite numbers. All are DataError.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import safetensors.torch
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from torch import Tensor

from tacit import regular_file, shown
from tacit.digests import Sha256
from tacit.errors import DataError
from tacit.models import Model
from tacit.privacy.report import TotalPrivacy

_DEEPEST = 64  # JSON within JSON; run definitions have 5
_HEADER = 1 << 20  # bytes of a weights file beside its numbers

MetricValues = dict[str, float | None]
_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Positive = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Document(BaseModel):
    """A JSON file of ours. What it has besides is not read."""

    model_config = ConfigDict(strict=True, frozen=True)


class StoredPlace(Document):
    """What is known of a bin: what it adds, its noisy rows, the noise's deviation."""

    added: list[_Finite]
    rows: _Positive | None = None
    deviation: _Positive | None = None


class StoredTerm(Document):
    """A term, of one column or of several together."""

    columns: list[str]
    bins: list[StoredPlace]


class StoredFunctions(Document):
    """All terms, in the order of the model's bins, and the intercept."""

    outputs: list[str]
    terms: list[StoredTerm]
    intercept: StoredPlace


class StoredFlattening(Document):
    """A change by hand: bins of a column, by their numbers from 0, and what they were set to."""

    column: str
    bins: list[int]
    to: Literal["zero", "neighbours"]


class Facts(Document):
    """model.json: format 1."""

    run: dict[str, Any]
    code: dict[str, Sha256]
    weights_sha256: Sha256
    trained_sha256: Sha256
    metrics: MetricValues
    privacy: dict[str, Any]
    tacit_version: str
    functions: StoredFunctions | None = None
    flattened: list[StoredFlattening] = []


class StoredDefinition(Document):
    """definition.json: what a run was, and where its file lay."""

    folder: str
    run: dict[str, Any]


class StoredBin(Document):
    """A bin of a calibration, as far as a card needs it: how many test rows are in it."""

    rows: int


class StoredCalibration(Document):
    """What a classifier's probabilities are worth on the test set; None: no finite number."""

    log_loss: float | None
    brier: float | None
    error: float | None
    bins: list[StoredBin]


class StoredConstant(Document):
    """What always the same answer is worth on the test set; None: it has no such number."""

    accuracy: float | None
    log_loss: float | None = None
    brier: float | None = None


class StoredNoisy(Document):
    """A noisy figure, and the interval that holds the exact one with 95 %."""

    value: float
    low: float
    high: float


class StoredLook(Document):
    """A look at rows that edges hold out. No metric: the noise hides them all."""

    look: int
    looks: int
    version: int
    edges: int
    of: int
    metrics: dict[str, StoredNoisy]
    beyond_constant: StoredNoisy | None = None
    epsilon: float
    held_out: float


class StoredSides(Document):
    """The largest ε of rows trained on, and of rows held out; None: it is not bounded."""

    trained: float | None = Field(alias="training")
    judged: float | None = Field(alias="held_out")


class StoredPrivacy(TotalPrivacy):
    """A run's guarantee. sides: where its edges have judged."""

    sides: StoredSides | None = None


class StoredModel(Document):
    """A model that a run's results have beside the last one. look: by which it was chosen."""

    file: Annotated[str, Field(pattern=r"^[a-z]+\.safetensors$")]
    model_sha256: Sha256
    metrics: MetricValues = {}
    calibration: StoredCalibration | None = None
    look: int | None = None


class StoredSummary(Document):
    """summary.json of a run that has ended, as far as a model needs it."""

    run_file_sha256: Sha256
    model_sha256: Sha256
    metrics: MetricValues
    privacy: StoredPrivacy
    tacit_version: str
    edges: int
    applied: int
    models: dict[str, StoredModel] = {}
    looks: list[StoredLook] = []
    calibration: StoredCalibration | None = None
    constant: StoredConstant | None = None


DocumentType = TypeVar("DocumentType", bound=Document)


def document(path: Path) -> dict[str, Any]:
    """Return the JSON object in the file at `path`. Raises DataError."""
    try:
        content = json.loads(regular_file.content(path))
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}; name a run that has ended") from error
    except RecursionError as error:
        raise DataError(f"{path}: is damaged: lists in lists, too deep") from error
    except ValueError as error:
        raise DataError(f"{path}: is damaged: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: is damaged: no object")
    if _deeper(content):
        raise DataError(f"{path}: is damaged: lists in lists, more than {_DEEPEST} deep")
    return content


def as_kind(kind: type[DocumentType], content: Mapping[str, Any], path: Path) -> DocumentType:
    """Return `content` of the file at `path`, as a `kind` of document. Raises DataError."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        if first["type"] == "missing":
            suffix = ""
        else:
            suffix = f"={shown.quoted(first['input'])}"
        raise DataError(
            f"{path}: is damaged: {field}{suffix}: {first['msg']}; get it again from who wrote it"
        ) from error


def weights(path: Path, sha256: str, model: Model, expected: Mapping[str, Tensor]) -> Tensor:
    """Return the parameters (d,) of `model`, from a file of tensors like `expected`, by name.

    Raises DataError for another SHA-256, other names, shapes or types, or a number that is nan or
    infinite. A file that is larger than these tensors is not read.
    """
    numbers = sum(tensor.numel() * tensor.element_size() for tensor in expected.values())
    try:
        content = regular_file.content(path, numbers + _HEADER)
        if hashlib.sha256(content).hexdigest() != sha256:
            raise DataError(f"{path}: is not the file that was written: another SHA-256")
        tensors = safetensors.torch.load(content)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error
    except SafetensorError as error:
        raise DataError(f"{path}: is damaged: {error}") from error
    for name in sorted(expected.keys() ^ tensors.keys()):
        if name in expected:
            what = f"has no {name!r}"
        else:
            what = f"has {name!r}, which the model has not"
        raise DataError(f"{path}: {what}; it is another model's")
    for name, tensor in expected.items():
        _check(path, name, tensors[name], tensor)
    return torch.cat([tensors[name].flatten() for name, _ in model.layout])


def _check(path: Path, name: str, tensor: Tensor, expected: Tensor) -> None:
    kind, expected_kind = ((each.dtype, list(each.shape)) for each in (tensor, expected))
    if kind != expected_kind:
        raise DataError(
            f"{path}: {name!r}: expected {_words(*expected_kind)}, found {_words(*kind)}; it is "
            "another model's"
        )
    if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
        raise DataError(
            f"{path}: {name!r}: has numbers that are not finite (nan or inf), so the model says "
            "nothing; train it again, with a smaller learning rate"
        )


def _words(dtype: torch.dtype, shape: list[int]) -> str:
    return f"{str(dtype).removeprefix('torch.')} of shape {shape}"


def _deeper(content: Any) -> bool:
    """Check whether lists and objects lie deeper in each other than `_DEEPEST`."""
    level = [content]
    for _ in range(_DEEPEST):
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
    return bool(level)
