"""An additive model changed by hand: bins of a column set to 0, or to the mean of their neighbours.

It is post-processing of a released model: nothing is read but its folder, and ε stays as it is.
model.json and the card list what was changed. All files of the new folder are of the new values.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import safetensors.torch
from torch import Tensor

from tacit import regular_file
from tacit.errors import ConfigError
from tacit.exported import functions_card, stored
from tacit.exported.additive_files import files_of_functions
from tacit.exported.column_functions import ColumnFunctions, stored_figures
from tacit.exported.model_folder import CARD, FACTS, WEIGHTS, Exported, read
from tacit.exported.onnx_file import ONNX, onnx_file
from tacit.exported.stored import Facts, StoredFlattening
from tacit.models.additive import AdditiveModel
from tacit.models.bins import BinnedColumn
from tacit.models.pair_cells import PairCells
from tacit.shown import as_json, printable

FlatValue = Literal["zero", "neighbours"]
_RANGE = re.compile(r"\s*([^:]+?)\s*:\s*([^:]+?)\s*")


def flatten(
    folder: Path, column: str, bins: Sequence[str], out: Path, to: FlatValue = "zero"
) -> str:
    """Write the additive model in `folder` to `out` with bins of a column changed. Returns how.

    bins: of a category its values, of a number one that lies in the bin, or "LOW:HIGH". Without
    any, all of the column change. Raises ConfigError for what is no such bin, or where `out` is
    there already. Raises DataError where the folder is damaged.
    """
    if out.exists():
        raise ConfigError(f"--out {out}: is there already, and nothing is overwritten")
    exported = read(folder)
    model = exported.model
    if not isinstance(model, AdditiveModel):
        raise ConfigError(f"{folder}: model.name={model.name} has no functions of columns")
    place = _place(model, column)
    numbers = sorted(set(_numbers(model.terms[place], bins)))
    params = _changed(model, exported.params, place, numbers, to)
    change = StoredFlattening(column=column, bins=numbers, to=to)
    draft = out.with_name(f".{out.name}.new")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        _write(draft, folder, exported, model, params, change)
        draft.rename(out)
    except OSError as error:
        raise ConfigError(f"--out {out}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return functions_card.words(model, change)


def _place(model: AdditiveModel, name: str) -> int:
    names = [term.name for term in model.terms]
    if name not in names:
        listed = ", ".join(map(printable, names[: len(model.columns)]))
        pairs = ', and pairs as "age × hours"' if model.pairs else ""
        raise ConfigError(
            f"COLUMN={printable(name)}: is no column of the model; it has {listed}{pairs}"
        )
    return names.index(name)


def _numbers(column: BinnedColumn | PairCells, bins: Sequence[str]) -> Iterator[int]:
    """Yield the numbers of the bins that somebody names. Raises ConfigError."""
    if not bins:
        yield from range(column.bins)
    for name in bins:
        chosen = list(_named(column, name))
        if not chosen:
            ends = [str(column.edges(number)) for number in range(column.bins)]
            raise ConfigError(
                f"BIN={printable(name)}: is in no bin of {printable(column.name)}, which are "
                f"{', '.join(map(printable, ends[:8]))}{', …' * (len(ends) > 8)}"
            )
        yield from chosen


def _named(column: BinnedColumn | PairCells, name: str) -> Iterator[int]:
    """Yield the numbers of bins that have a value, or that a number or a range lies in."""
    if not column.numeric:
        yield from (n for n in range(column.bins) if column.edges(n).value == name)
        return
    pair = _RANGE.fullmatch(name)
    low, high = (_number(part) for part in (pair.groups() if pair else (name, name)))
    for number in range(column.bins):
        edges = column.edges(number)
        assert edges.low is not None
        assert edges.high is not None
        last = number == column.bins - 1
        if low == high:
            if edges.low <= low < edges.high or (last and low == edges.high):
                yield number
        elif low < edges.high and edges.low < high:
            yield number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(
            f"BIN={printable(text)}: expected a number, or LOW:HIGH, of a column of numbers"
        ) from None


def _changed(
    model: AdditiveModel, params: Tensor, place: int, numbers: list[int], to: FlatValue
) -> Tensor:
    """Return the parameters (d,) with these bins of a column changed."""
    column, start = model.terms[place], model.starts[place]
    scores = params.reshape(model.classes, model.width).clone()
    values = scores[:, start : start + column.bins]  # a view
    if to == "zero":
        values[:, numbers] = 0.0
        return scores.flatten()
    others = sorted(set(range(column.bins)) - set(numbers))
    if not column.numeric or not others:
        raise ConfigError(
            f"--to neighbours: the bins of {printable(column.name)} have no neighbours that stay; "
            "set them to zero"
        )
    before = values.clone()
    for number in numbers:
        below = [other for other in others if other < number][-1:]
        above = [other for other in others if other > number][:1]
        values[:, number] = before[:, below + above].mean(dim=1)
    return scores.flatten()


def _write(
    draft: Path,
    folder: Path,
    exported: Exported,
    model: AdditiveModel,
    params: Tensor,
    change: StoredFlattening,
) -> None:
    facts = stored.as_kind(Facts, exported.facts, folder / FACTS)
    functions = _functions(model, params, exported, facts, change)
    changes = [*facts.flattened, change]
    weights = safetensors.torch.save(model.state(params))
    files = {WEIGHTS: weights, **files_of_functions(functions)}
    if (folder / ONNX).is_file():
        files[ONNX] = onnx_file(model, params, exported.run.source.target)
    draft.mkdir(parents=True)
    card = _text(folder / CARD)
    for name, content in files.items():
        (draft / name).write_bytes(content)
        if (folder / name).is_file():
            before = hashlib.sha256(regular_file.content(folder / name)).hexdigest()
            card = card.replace(before, hashlib.sha256(content).hexdigest())
    new: dict[str, Any] = exported.facts | {
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
        "functions": functions.document(),
        "flattened": [each.model_dump() for each in changes],
    }
    (draft / FACTS).write_text(as_json(new) + "\n", encoding="utf-8")
    card = functions_card.renewed(card, functions_card.sections(functions, changes))
    (draft / CARD).write_text(card, encoding="utf-8")


def _functions(
    model: AdditiveModel, params: Tensor, exported: Exported, facts: Facts, change: StoredFlattening
) -> ColumnFunctions:
    """Return the new functions. What was set by hand has no noise that anybody knows."""
    figures = None if facts.functions is None else stored_figures(model, facts.functions)
    if figures is not None:
        place = _place(model, change.column)
        figures.deviations[[model.starts[place] + number for number in change.bins]] = np.nan
    return ColumnFunctions(model, params, exported.run.source.target, figures)


def _text(path: Path) -> str:
    """Return a card; "" where there is none."""
    if not path.is_file():
        return ""
    return regular_file.content(path).decode("utf-8", errors="replace")
