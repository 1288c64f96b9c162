"""Predictions of an exported model on new rows, from its folder alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice, repeat
from pathlib import Path
from typing import Literal, Protocol

import torch
from torch import Tensor

from tacit import regular_file
from tacit.config import RunFile
from tacit.config.own_data import OwnData
from tacit.config.own_table import TableData
from tacit.datasets import features as frozen
from tacit.datasets.own.array_values import Bounds, Values
from tacit.datasets.own.arrays import ArraysReader
from tacit.datasets.own.featured import plain
from tacit.datasets.own.rows import Reader, RowError
from tacit.datasets.source import Benchmark
from tacit.errors import ConfigError, DataError
from tacit.exported.column_functions import ColumnFunctions
from tacit.exported.linear_terms import linear_terms
from tacit.exported.model_folder import Exported
from tacit.models.additive import AdditiveModel

RowsKind = Literal["table", "images", "arrays", "python"]
_BATCH = 1024
_PICTURES = 64  # that are read one by one, and answered together


@dataclass(frozen=True, slots=True)
class RowPrediction:
    """The model's prediction for one row.

    row: its number, from 1, or its file. value: the class, the labels that are more likely than
    not, or the number in the unit of the training file. Of tokens the most likely next one at each
    place, as numbers. probabilities: of each of the target's `shares`. words: of the tokens of a
    text, up to its end; None of another target. reasons: what each column of an additive or a
    linear model adds, where it was asked for.
    """

    row: str
    value: str | float
    probabilities: dict[str, float]
    words: str | None = None
    reasons: dict[str, float] | None = None


_Reasons = dict[str, float] | None
# value, probabilities, words, reasons
_Answer = tuple[str | float, dict[str, float], str | None, _Reasons]
Unread = Callable[[str, RowError], None]


class _Terms(Protocol):
    """What a model sums up for a row. names: of its parts."""

    @property
    def names(self) -> list[str]: ...

    def reasons(self, x: Tensor) -> list[dict[str, float]]: ...


def predict(
    model: Exported,
    kind: RowsKind,
    path: Path,
    unread: Unread | None = None,
    *,
    explain: bool = False,
) -> Iterator[RowPrediction]:
    """Yield the model's prediction for every row at `path`.

    explain: with what each column adds; raises ConfigError for a model that is no sum over columns.
    unread: is told the name of a picture that cannot be read, and why. The others are predicted.
    Without it, such a picture raises DataError. So does a place without a row, and a row for which
    the model's outputs are not finite: they speak for no class. Raises ConfigError, too.
    """
    _check_place(kind, path)
    reader = _reader(model.run, kind)
    option = f"--{_OPTION[kind]} {path}"
    count = 0
    terms = _terms(model) if explain else None
    for name, answer in _answered(model, reader, path, unread, terms):
        count += 1
        row = name or str(count)
        value, probabilities, *_ = answer
        numbers = probabilities.values() if isinstance(value, str) else [value]
        if not all(map(math.isfinite, numbers)):
            raise DataError(
                f"{option}: row {row}: the model's outputs are not finite numbers, so nothing is "
                "predicted"
            )
        yield RowPrediction(row, *answer)
    if not count:
        if kind != "images":
            what = "has no rows"
        elif _pictures(reader, path):
            what = "has no picture that can be read"
        else:
            what = "has no pictures"
        raise DataError(f"{option}: {what}")


def _terms(model: Exported) -> _Terms:
    if isinstance(model.model, AdditiveModel):
        return ColumnFunctions(model.model, model.params, model.run.source.target)
    terms = linear_terms(model.run, model.model, model.params)
    if terms is None:
        raise ConfigError(
            f"--explain: model.name={model.model.name}, of such rows, is no sum over columns; "
            'train a table of classes or a number with algorithm.name = "ebm"'
        )
    return terms


def explaining(model: Exported) -> list[str]:
    """Return the names of what `RowPrediction.reasons` has. Raises ConfigError as `predict`."""
    return _terms(model).names


def strangers(model: Exported, kind: RowsKind, path: Path) -> Iterator[str]:
    """Yield how many rows of a table have cells that the model does not know, for its user.

    A value that is not listed, or a number beyond its bounds, has an answer, too. Raises
    ConfigError, DataError.
    """
    _check_place(kind, path)
    read = plain(_reader(model.run, kind))
    if hasattr(read, "strangers"):
        yield from read.strangers(path)


def gives_words(model: Exported) -> bool:
    """Return whether the predictions have words: of the tokens of a table's text."""
    return isinstance(model.run.data, TableData) and model.run.source.target.kind == "tokens"


def column_of(model: Exported, path: Path, column: str) -> Iterator[str]:
    """Yield the text that a column of a table has in each row, in the order of `predict`.

    Raises ConfigError for a model that learnt from no table, DataError.
    """
    read = plain(_reader(model.run, "table"))
    if not hasattr(read, "named"):
        raise ConfigError("--id: is for the rows of a table")
    yield from read.named(path, column)


def fixed_form(model: Exported) -> str:
    """Return in words how the table of new rows must be written, as the model's run file has it."""
    data = model.run.data
    if not isinstance(data, TableData):
        return ""
    stated = ", ".join(f"{key} = {value!r}" for key, value in data.form.stated().items())
    return stated or "decimal = '.', UTF-8"


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


def _answered(
    model: Exported, reader: Reader, path: Path, unread: Unread | None, terms: _Terms | None
) -> Iterator[tuple[str, _Answer]]:
    """Yield the name of each row, "" where it has none, and the model's answer to it."""
    pictures = _pictures(reader, path)
    if unread is not None and pictures:
        blocks = _singly(reader, pictures, unread)
    else:
        blocks = _blocks(reader, path, [name for name, _ in pictures])
    for names, block in blocks:
        x = _prepared(model.run, block)
        answers = list(_answers(model, x))
        reasons: Iterable[_Reasons] = repeat(None, len(answers))
        if terms is not None:
            reasons = terms.reasons(x)
        words: Iterator[str | None] = repeat(None, len(answers))
        if gives_words(model):
            tokens = [[int(number) for number in str(value).split()] for value, _ in answers]
            words = plain(reader).words(block.numpy(), tokens)  # type: ignore[attr-defined]
        for name, answer, text, why in zip(names, answers, words, reasons, strict=True):
            yield name, (*answer, text, why)


def _pictures(reader: Reader, path: Path) -> list[tuple[str, Path]]:
    """Return the pictures with their files' names, which tell more than a number."""
    read = plain(reader)
    if not hasattr(read, "files"):
        return []
    files: list[Path] = read.files(path)
    folder = (path if path.is_dir() else path.parent).resolve()
    return [(_name(file, folder), file) for file in files]


def _name(file: Path, folder: Path) -> str:
    place = file.resolve()
    if place.is_relative_to(folder):
        return str(place.relative_to(folder))
    return file.name


def _blocks(reader: Reader, path: Path, names: list[str]) -> Iterator[tuple[list[str], Tensor]]:
    first = 0
    for block in reader.inputs(path):
        for x in torch.split(torch.from_numpy(block), _BATCH):
            yield names[first : first + len(x)] or [""] * len(x), x
            first += len(x)


def _singly(
    reader: Reader, pictures: list[tuple[str, Path]], unread: Unread
) -> Iterator[tuple[list[str], Tensor]]:
    """Yield the pictures that can be read, some at a time."""
    remaining = iter(pictures)
    while some := list(islice(remaining, _PICTURES)):
        names = []
        read = []
        for name, file in some:
            try:
                [x] = reader.inputs(file)
            except RowError as error:
                unread(name, error)
            else:
                names.append(name)
                read.append(torch.from_numpy(x))
        if names:
            yield names, torch.cat(read)


def _prepared(run: RunFile, x: Tensor) -> Tensor:
    source = run.source
    if isinstance(source, Benchmark):
        return frozen.apply(source.features, x)
    return x


@torch.no_grad()
def _answers(model: Exported, x: Tensor) -> Iterator[tuple[str | float, dict[str, float]]]:
    target = model.run.source.target
    scores = model.model.logits(model.params, x)
    objective = model.model.objective
    if objective is not None:
        yield from objective.predictions(scores.reshape(len(x), *target.shape, target.outputs))
        return
    if target.kind == "number":
        yield from ((float(value), {}) for value in target.unscaled(scores.flatten()))
        return
    for row in model.model.probabilities(scores).tolist():
        best = max(range(len(row)), key=row.__getitem__)
        yield target.names[best], dict(zip(target.shares, row, strict=True))
