"""Predictions of an exported model on new rows, from its folder alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from tacit import regular_file
from tacit.config import RunFile
from tacit.config.own_data import OwnData
from tacit.datasets import features as frozen
from tacit.datasets.own.array_values import Bounds, Values
from tacit.datasets.own.arrays import ArraysReader
from tacit.datasets.own.featured import plain
from tacit.datasets.own.rows import Reader
from tacit.datasets.source import Benchmark
from tacit.errors import ConfigError, DataError
from tacit.exported.model_folder import Exported

RowsKind = Literal["table", "images", "arrays", "python"]
_BATCH = 1024


@dataclass(frozen=True, slots=True)
class RowPrediction:
    """The model's prediction for one row.

    row: its number, from 1, or its file. value: the class, the labels that are more likely than
    not, or the number in the unit of the training file. probabilities: of each of the target's
    `shares`.
    """

    row: str
    value: str | float
    probabilities: dict[str, float]


def predict(model: Exported, kind: RowsKind, path: Path) -> Iterator[RowPrediction]:
    """Yield the model's prediction for every row at `path`.

    Raises ConfigError; DataError, also where there is no row, and where the model's outputs for a
    row are not finite: then they speak for no class.
    """
    _check_place(kind, path)
    reader = _reader(model.run, kind)
    names = _names(reader, path)
    row = 0
    for x in _inputs(model.run, reader, path):
        for value, probabilities in _answers(model, x):
            row += 1
            numbers = probabilities.values() if isinstance(value, str) else [value]
            if not all(map(math.isfinite, numbers)):
                raise DataError(
                    f"--{_OPTION[kind]} {path}: row {row}: the model's outputs are not finite "
                    "numbers, so nothing is predicted"
                )
            yield RowPrediction(names[row - 1] if names else str(row), value, probabilities)
    if not row:
        if kind == "images":
            what = "pictures"
        else:
            what = "rows"
        raise DataError(f"--{_OPTION[kind]} {path}: has no {what}")


def _check_place(kind: RowsKind, path: Path) -> None:
    """Raise DataError for what is neither a file nor a folder."""
    if not path.exists():
        raise DataError(f"--{_OPTION[kind]} {path}: no such file or folder")
    if not path.is_dir():
        try:
            regular_file.check(path)
        except OSError as error:
            raise DataError(f"--{_OPTION[kind]} {path}: {error.strerror}") from error


_OPTION = {"table": "table", "images": "images", "arrays": "arrays", "python": "rows"}


def _reader(run: RunFile, kind: RowsKind) -> Reader:
    if isinstance(run.data, OwnData):
        if run.data.kind != kind:
            option = _OPTION[run.data.kind]
            raise ConfigError(
                f"--{_OPTION[kind]}: the model learnt from {run.data.kind}; use --{option}"
            )
        return run.data.reader(run.folder)
    return _of_benchmark(run, kind)


def _of_benchmark(run: RunFile, kind: RowsKind) -> Reader:
    """Return pictures, or arrays of pixels from 0 to 255, for a model of published pictures."""
    assert isinstance(run.source, Benchmark)
    shape = run.source.raw_shape
    classes = run.source.target.codes
    if len(shape) != 3 or kind not in ("images", "arrays"):
        raise ConfigError(
            f"--{_OPTION[kind]}: the model learnt from {run.source.name}; of published data only "
            "pictures can be predicted, by --images or --arrays"
        )
    if kind == "arrays":
        return ArraysReader("x", "y", None, Values(shape, Bounds(0.0, 255.0), classes))
    if find_spec("PIL") is None:
        raise ConfigError("--images: needs Pillow; pip install 'tacit[images]'")
    from tacit.datasets.own.images import ImagesReader

    names = run.source.target.names
    return ImagesReader((shape[1], shape[2]), shape[0], names, "path", "label", None)


def _names(reader: Reader, path: Path) -> list[str]:
    """Return the pictures' file names, which tell more than their number."""
    read = plain(reader)
    if not hasattr(read, "files"):
        return []
    files: list[Path] = read.files(path)
    folder = (path if path.is_dir() else path.parent).resolve()
    return [str(file.resolve().relative_to(folder)) for file in files]


def _inputs(run: RunFile, reader: Reader, path: Path) -> Iterator[Tensor]:
    source = run.source
    for block in reader.inputs(path):
        for x in torch.split(torch.from_numpy(block), _BATCH):
            yield frozen.apply(source.features, x) if isinstance(source, Benchmark) else x


@torch.no_grad()
def _answers(model: Exported, x: Tensor) -> Iterator[tuple[str | float, dict[str, float]]]:
    target = model.run.source.target
    scores = model.model.logits(model.params, x)
    objective = model.model.objective
    if objective is not None:
        yield from objective.predictions(scores.reshape(len(x), target.outputs))
        return
    if target.kind == "number":
        yield from ((float(value), {}) for value in target.unscaled(scores.flatten()))
        return
    for row in model.model.probabilities(scores).tolist():
        best = max(range(len(row)), key=row.__getitem__)
        yield target.names[best], dict(zip(target.shares, row, strict=True))
