"""The files of a run's results.

These are summary.json, ledger.json, model.safetensors, plot.png, and definition.json, which is the
run file as the model's user needs it. metrics.jsonl, in the same folder, grows while the run goes
on.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tacit import regular_file
from tacit.config.definition import Definition
from tacit.datasets import Dataset
from tacit.errors import ServiceError
from tacit.exported.model_folder import FUNCTIONS
from tacit.models import Model, best_constant
from tacit.models.metrics import constant_errors
from tacit_services.aggregator.reporting import run_picture
from tacit_services.aggregator.reporting.best_model import BEST
from tacit_services.aggregator.reporting.end_reasons import NO_BETTER
from tacit_services.aggregator.reporting.other_models import AVERAGED, OtherModels, calibrated
from tacit_services.aggregator.reporting.run_answers import FILE as ANSWERS
from tacit_services.aggregator.reporting.run_events import FILE as EVENTS
from tacit_services.aggregator.reporting.run_looks import FILE as LOOKS
from tacit_services.aggregator.reporting.run_status import RunStatus
from tacit_services.disk import files
from tacit_services.journal.weights import Weights
from tacit_services.tracking.run_trackers import FILE as TRACKERS
from tacit_services.transport.json_numbers import finite

_SUMMARY = "summary.json"
_UNFINISHED = ".results.new"  # a folder
FILES = (
    _SUMMARY,
    "metrics.jsonl",
    EVENTS,
    "model.safetensors",
    "ledger.json",
    "plot.png",
    "definition.json",
    AVERAGED,
    BEST,
    ANSWERS,
    LOOKS,
    FUNCTIONS,
    TRACKERS,
)
DEFINITION_FORMAT = 1  # of definition.json


def run_in(out: Path) -> str | None:
    """Return the name of the run whose results are in `out`; None: there are none."""
    try:
        return str(json.loads(regular_file.content(out / _SUMMARY))["run"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def write(
    out: Path,
    definition: Definition[Any],
    run_status: RunStatus,
    model: Model,
    test: Dataset | None,
    others: OtherModels,
) -> None:
    """Write the results of a run that has ended, so that no reader sees a mixture.

    All files are written into a folder of their own in `out` first. Then what an earlier process
    has written of this run's results ceases to be any, as its summary goes. Each file is renamed
    into its place, and the summary comes last: where it is, all others are of the same moment.
    test: the public test set, which shows how well a constant answer does. others: the models that
    lie beside the last one.

    Raises ServiceError: the journal and the last snapshot have it all, and a process that is
    started again there tries again.
    """
    unfinished = out / _UNFINISHED
    shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed
    try:
        unfinished.mkdir()
        _write(unfinished, definition, run_status, model, test, others)
        _publish(unfinished, out)
    except OSError as error:
        raise ServiceError(
            f"results in {out}: {error.strerror or error}; start the aggregator again"
        ) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _publish(unfinished: Path, out: Path) -> None:
    (out / _SUMMARY).unlink(missing_ok=True)
    for path in sorted(unfinished.iterdir(), key=lambda path: path.name == _SUMMARY):
        path.replace(out / path.name)
    files.sync(out)


def _write(
    folder: Path,
    definition: Definition[Any],
    run_status: RunStatus,
    model: Model,
    test: Dataset | None,
    others: OtherModels,
) -> None:
    reading = run_status.reading()
    status = finite(run_status.summary(reading))
    if test is not None and (constant := best_constant(model, test)):
        status["constant"] = asdict(constant)
    if test is not None and len(test):
        errors = constant_errors(test.y, definition.source.target)
        if errors:
            status["constant_errors"] = finite(errors)
    if test is not None and reading.version and definition.algorithm.worker != "party":
        believed = calibrated(definition, model, reading.params, test)
        if believed is not None:
            status["calibration"] = finite(asdict(believed))
    if models := others.write(folder, definition, model, test):
        status["models"] = finite(models)
    if answers := run_status.answers(reading):
        status["answers"] = answers
        _dump(folder / ANSWERS, answers)
    if looks := run_status.looks(reading):
        status["looks"] = looks
        _dump(folder / LOOKS, looks)
    if reading.reason.startswith(NO_BETTER):
        status["unspent"] = _unspent(status["privacy"])
    file = Weights(model, reading.params)
    _write_functions(folder, run_status.functions.document(reading))
    status["model_sha256"] = file.sha256()  # that of model.safetensors
    files.write_pieces(folder / "model.safetensors", file.pieces, None)
    _dump(folder / "ledger.json", status["privacy"])
    where = {"format": DEFINITION_FORMAT, "folder": str(definition.folder.absolute())}
    _dump(folder / "definition.json", where | {"run": definition.differences})
    classes = definition.source.target.names
    run_picture.plot(folder / "plot.png", status, finite(run_status.series), classes)
    _dump(folder / _SUMMARY, status)


def _write_functions(folder: Path, shapes: dict[str, Any] | None) -> None:
    if shapes is not None:
        _dump(folder / FUNCTIONS, shapes)


def _unspent(privacy: dict[str, Any]) -> dict[str, float]:
    """Return the ε of each edge's budget that the run has left it, where its data has a budget."""
    return {
        name: edge["budget"] - edge["epsilon_pld"]
        for name, edge in privacy["edges"].items()
        if edge["budget"] and edge["epsilon_pld"] is not None and "budget_of" not in edge
    }


def _dump(path: Path, content: object) -> None:
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    files.write(path, text.encode(), None)
