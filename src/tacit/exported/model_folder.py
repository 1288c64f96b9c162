"""A trained model as one folder, to be used or handed on without tacit's run.

    model.safetensors   what the network's own module loads by `load_state_dict`
    model.json          format, run definition (no names of files), SHA-256 of all else, results
    code/               a user's own module, and what reads the rows, where they are own code
    README.md           the model card
    network.svg         of a graph, as an own module is one: its layers
    bins.csv            of an additive model: what each bin of a column adds
    functions.svg       of an additive model: the functions of its columns
    model.onnx          with --onnx: for other servers

model.json names every other file by its SHA-256, so a changed file is refused.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from pydantic import ValidationError
from torch import Tensor

from tacit.config import RunFile, one_line
from tacit.errors import ConfigError, DataError
from tacit.exported import functions_card, model_card, stored
from tacit.exported.additive_files import files_of_functions
from tacit.exported.column_functions import ColumnFunctions, stored_figures
from tacit.exported.judged_rows import JudgedWords
from tacit.exported.onnx_file import ONNX, onnx_file
from tacit.exported.stored import (
    Facts,
    StoredDefinition,
    StoredFunctions,
    StoredModel,
    StoredSummary,
    document,
)
from tacit.exported.trust import entries, refuse_code
from tacit.graphs.graph_facts import GraphFacts, facts_of_checked
from tacit.graphs.graph_picture import picture
from tacit.models import Model
from tacit.models.additive import AdditiveModel
from tacit.models.graph.graph_model import GraphModel
from tacit.shown import as_json
from tacit.user_code import entry_files

FORMAT = 1
WEIGHTS = "model.safetensors"
FACTS = "model.json"
CODE = "code"
FUNCTIONS = "functions.json"  # of a run's results
OFFERED = "offer"  # of results from a federation: what its members were offered, a network among it
CARD = "README.md"


@dataclass(frozen=True, slots=True)
class Exported:
    """A model that was read back. run: its definition; facts: what model.json says."""

    run: RunFile
    model: Model
    params: Tensor
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A model as it lies in a run's results: params (d,), and what summary.json has of it."""

    run: RunFile
    model: Model
    params: Tensor
    chosen: StoredModel
    summary: StoredSummary


def trained(results: Path, code: Path | None = None, which: str = "last") -> TrainedModel:
    """Return a model of the run whose results are in `results`. Parameters as for `export`.

    Raises ConfigError (a vertical run's, no such model, other code than was trained), DataError (no
    such run).
    """
    summary_file = results / "summary.json"
    summary = stored.as_kind(StoredSummary, document(summary_file), summary_file)
    run = run_of(results, code)
    if run.algorithm.worker == "party":
        raise ConfigError(
            f"{results}: a vertical run's model is in parts that stay where they are; use "
            f"`tacit predict {results} --ids`"
        )
    model = run.build_model()
    chosen = _chosen(summary, which, summary_file)
    of_model = model.unflatten(torch.zeros(model.size))
    params = stored.weights(results / chosen.file, chosen.model_sha256, model, of_model)
    return TrainedModel(run, model, params, chosen, summary)


def export(
    results: Path,
    folder: Path,
    code: Path | None = None,
    which: str = "last",
    *,
    with_onnx: bool = False,
) -> list[Path]:
    """Write the model of the run whose results are in `results` to `folder`. Returns its files.

    code: the folder of own code. None is the run file's, else `results` itself, else
    `results`/offer, which has what a federation's members were offered. which: "last", or what lies
    beside it, "averaged" or "best". with_onnx: as an ONNX file, too.

    Raises ConfigError (is there already, other code than was trained), DataError (no such run).
    """
    if folder.exists():
        raise ConfigError(
            f"{folder}: is there already, and nothing is overwritten; name another folder, or move "
            "that one away"
        )
    of_run = trained(results, code, which)
    run, model, params = of_run.run, of_run.model, of_run.params
    chosen, summary = of_run.chosen, of_run.summary
    content = document(results / "summary.json")
    content |= {
        "model_sha256": chosen.model_sha256,
        "metrics": chosen.metrics,
        "calibration": chosen.calibration,
        "constant": summary.constant,
        "judged_words": JudgedWords.of(summary, which),
    }
    functions = _functions(results, run, model, params, of_the_last=which == "last")
    draft = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        _write(draft, run, model, params, functions, content, with_onnx=with_onnx)
        draft.rename(folder)
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return sorted(path for path in folder.rglob("*") if path.is_file())


def run_of(results: Path, code: Path | None = None) -> RunFile:
    """Return the run whose results are in `results`, with its own code. code: as for `export`.

    Raises as `export`.
    """
    of_the_run = results / "definition.json"
    definition = stored.as_kind(StoredDefinition, document(of_the_run), of_the_run)
    summary_file = results / "summary.json"
    summary = stored.as_kind(StoredSummary, document(summary_file), summary_file)
    if code is None:
        places = [Path(definition.folder), results, results / OFFERED]
    else:
        places = [code]
    return _with_its_code(definition.run, places, summary.run_file_sha256, of_the_run)


def _chosen(summary: StoredSummary, which: str, path: Path) -> StoredModel:
    """Return the model that the summary at `path` describes. Raises ConfigError if it has none."""
    last = StoredModel(
        file=WEIGHTS,
        model_sha256=summary.model_sha256,
        metrics=summary.metrics,
        calibration=summary.calibration,
    )
    models = {"last": last, **summary.models}
    if which not in models:
        raise ConfigError(
            f"--which {which}: {path} has {', '.join(models)}; a run has a best model with "
            'run.stop = "no better" or evaluation.at = "edges", and an averaged one with '
            "run.average"
        )
    return models[which]


def read(folder: Path, *, trust_code: bool = False) -> Exported:
    """Return the model in `folder`, which may be anybody's.

    trust_code: whether code that it names may run on this machine, once it has the SHA-256 that
    model.json says. Raises ConfigError where it names code and that is not so; DataError where the
    folder is damaged.
    """
    content = document(folder / FACTS)
    if content.get("format") != FORMAT:
        raise DataError(f"{folder / FACTS}: has another format, this tacit reads {FORMAT}")
    facts = stored.as_kind(Facts, content, folder / FACTS)
    with _folders_fault(folder):
        run = _run(facts.run, folder / CODE, folder / FACTS)
        if run.stated().get("code", {}) != facts.code:
            raise DataError(f"{folder / CODE}: is not the code that the model was trained with")
    if not trust_code:
        refuse_code(run, folder)
    with _folders_fault(folder):
        model = run.build_model()
        params = _params(folder / WEIGHTS, facts.weights_sha256, model)
    return Exported(run, model, params, content)


@contextmanager
def _folders_fault(folder: Path) -> Iterator[None]:
    """Turn what is wrong with a run or its code into what is wrong with `folder`, which is data."""
    try:
        yield
    except ConfigError as error:
        raise DataError(f"{folder}: {error}") from error


def _params(path: Path, sha256: str, model: Model) -> Tensor:
    """Return the parameters in a folder's weights. Raises DataError."""
    if path.is_file() and path.stat().st_size < model.size * torch.float32.itemsize:
        raise DataError(f"{path}: has fewer numbers than the model, {model.size:,}")
    return stored.weights(path, sha256, model, model.state(torch.zeros(model.size)))


def option_of_rows(folder: Path) -> str:
    """Return the options of `tacit predict` for the model in `folder`, which was just exported."""
    facts = stored.as_kind(Facts, document(folder / FACTS), folder / FACTS)
    return model_card.options(_run(facts.run, folder / CODE, folder / FACTS))


def is_exported(folder: Path) -> bool:
    """Check whether `folder` has a model that was exported."""
    return (folder / FACTS).is_file()


def _write(
    folder: Path,
    run: RunFile,
    model: Model,
    params: Tensor,
    functions: ColumnFunctions | None,
    summary: dict[str, Any],
    *,
    with_onnx: bool,
) -> None:
    folder.mkdir(parents=True)
    weights = safetensors.torch.save(model.state(params))
    (folder / WEIGHTS).write_bytes(weights)
    digests = {WEIGHTS: hashlib.sha256(weights).hexdigest()}
    for name in _code(run):
        place = folder / CODE / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(run.folder / name, place)
        digests[f"{CODE}/{name}"] = hashlib.sha256(place.read_bytes()).hexdigest()
    layers = _layers(run, model)
    more = {} if layers is None else {model_card.PICTURE: picture(layers).encode()}
    if functions is not None:
        more |= files_of_functions(functions)
    if with_onnx:
        more[ONNX] = onnx_file(model, params, run.source.target)
    for file, content in more.items():
        (folder / file).write_bytes(content)
        digests[file] = hashlib.sha256(content).hexdigest()
    facts = {
        "format": FORMAT,
        "run": _without_files(run),
        "code": run.stated().get("code", {}),
        "weights_sha256": digests[WEIGHTS],
        "trained_sha256": summary["model_sha256"],
        "metrics": summary["metrics"],
        "privacy": {key: summary["privacy"][key] for key in model_card.OF_PRIVACY},
        "tacit_version": summary["tacit_version"],
    }
    if functions is not None:
        facts["functions"] = functions.document()
    (folder / FACTS).write_text(as_json(facts) + "\n", encoding="utf-8")
    drives = "" if functions is None else functions_card.sections(functions, [])
    card = model_card.text(folder, run, model, summary, digests, layers, drives)
    (folder / CARD).write_text(card, encoding="utf-8")


def _functions(
    results: Path, run: RunFile, model: Model, params: Tensor, *, of_the_last: bool
) -> ColumnFunctions | None:
    """Return the functions of an additive model; None: of another. The noise is of the last one."""
    if not isinstance(model, AdditiveModel):
        return None
    figures = None
    path = results / FUNCTIONS
    if of_the_last and path.is_file():
        read_back = stored.as_kind(StoredFunctions, document(path), path)
        figures = stored_figures(model, read_back)
    return ColumnFunctions(model, params, run.source.target, figures)


def _layers(run: RunFile, model: Model) -> GraphFacts | None:
    if isinstance(model, GraphModel):
        return facts_of_checked(model.checked, run.stated().get("code", {}).get("graph"))
    return None


def _code(run: RunFile) -> Iterator[Path]:
    """Yield all files of own code, graphs and public weights, relative to the run's folder."""
    for field, entry in entries(run):
        yield from entry_files(entry, run.folder, field)
    if (parts := run.model.parts(run.folder)) is not None:
        yield from parts.files()
    yield from run.data.files(run.folder)


def _without_files(run: RunFile) -> dict[str, Any]:
    """Return the run definition, as it is stated, with no name of a file or an owner."""
    stated = run.stated()
    stated.pop("code", None)
    dealt = stated["data"].pop("dealt", None)
    if dealt is not None:
        stated["data"]["train"] = "rows" if dealt else "rows{edge}"
    stated.get("evaluation", {}).pop("metrics", None)
    return stated


def _with_its_code(
    content: dict[str, Any], places: list[Path], fingerprint: str, where: Path
) -> RunFile:
    """Return the run whose code lies in the first of `places` that has what was trained.

    Raises ConfigError where none has; DataError for what is no run.
    """
    for place in places:
        with suppress(ConfigError, DataError):
            run = _run(content, place, where)
            if run.fingerprint() == fingerprint:
                return run
    if not places[0].is_dir():
        raise ConfigError(
            f"{places[0]}: the run file's folder is not on this machine; bring a copy, with the "
            "code of the run, and name it by --code"
        )
    _run(content, places[0], where)  # its own complaint goes first
    raise ConfigError(f"{places[0]}: its code is not what was trained; name the folder by --code")


def _run(content: dict[str, Any], folder: Path, where: Path) -> RunFile:
    try:
        return RunFile.model_validate(content, context={"folder": folder})
    except ValidationError as error:
        complaint = one_line(error, RunFile)
        raise DataError(f"{where}: is not a run of this tacit: {complaint}") from error
