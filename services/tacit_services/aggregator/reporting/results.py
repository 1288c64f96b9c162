"""The files of a run's results: summary.json, ledger.json, model.safetensors, plot.png, and
definition.json, which is the run file as the model's user needs it.

metrics.jsonl, in the same folder, grows while the run goes on.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tacit.config import RunFile
from tacit.config.fingerprint import differences
from tacit.datasets import Dataset
from tacit.errors import ServiceError
from tacit.models import Model, best_constant
from tacit_services.aggregator.reporting.run_status import Observer
from tacit_services.journal.weights import weights
from tacit_services.transport.json_numbers import finite

FILES = (
    "summary.json",
    "metrics.jsonl",
    "model.safetensors",
    "ledger.json",
    "plot.png",
    "definition.json",
)
DEFINITION_FORMAT = 1  # of definition.json
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"  # Okabe-Ito: safe for colour-blind readers


def write(
    out: Path, run: RunFile, observer: Observer[Any], model: Model, test: Dataset | None
) -> None:
    """Write the results of a run that has ended. Each file appears whole or not at all.

    test: the public test set, which says how well a constant answer does.

    Raises ServiceError: the journal and the last snapshot have it all, whoever is started again
    there tries again.
    """
    try:
        _write(out, run, observer, model, test)
    except OSError as error:
        raise ServiceError(
            f"results in {out}: {error.strerror or error}; start the aggregator again"
        ) from error


def _write(
    out: Path, run: RunFile, observer: Observer[Any], model: Model, test: Dataset | None
) -> None:
    status = finite(observer.status())
    if test is not None and (constant := best_constant(model, test)):
        status["constant"] = asdict(constant)
    data = weights(model, observer.driver.role.params)
    status["model_sha256"] = hashlib.sha256(data).hexdigest()  # that of model.safetensors
    temporary = out / "model.tmp"
    temporary.write_bytes(data)
    temporary.replace(out / "model.safetensors")
    _dump(out / "ledger.json", status["privacy"])
    where = {"format": DEFINITION_FORMAT, "folder": str(run.folder.absolute())}
    _dump(out / "definition.json", where | {"run": differences(run)})
    plot(out / "plot.png", status, finite(observer.series))
    _dump(out / "summary.json", status)  # last: whoever sees it finds the others too


def plot(path: Path, status: dict[str, Any], series: list[dict[str, Any]]) -> None:
    """Accuracy, clip norm and staleness over applied updates, in one picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    versions = [point["version"] for point in series]
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    if all(point["accuracy"] is not None for point in series):
        right = [100 * point["accuracy"] for point in series]
        _line(axes[0], versions, right, BLUE, "test accuracy, %")
    else:
        _line(axes[0], versions, [point["loss"] for point in series], BLUE, "test loss")
    _line(axes[1], versions, [point["clip"] for point in series], ORANGE, "clip norm C")
    axes[1].set_ylim(bottom=0)
    spent = [point["epsilon"] for point in series]
    if all(value is not None for value in spent):
        _line(axes[2], versions, spent, GREEN, "ε spent, at most: largest edge (PLD)")
        axes[2].set_ylim(bottom=0)
    else:
        _line(axes[2], versions, [point["staleness"] for point in series], GREEN, "staleness, mean")
    figure.suptitle(_title(status))
    temporary = path.with_suffix(".tmp.png")
    figure.savefig(temporary, dpi=120)
    plt.close(figure)
    temporary.replace(path)


def _line(axis: Any, x: list[int], y: list[float], colour: str, label: str) -> None:
    axis.plot(x, y, color=colour, marker="o", markersize=3)
    axis.set(xlabel="updates applied", ylabel=label)
    axis.grid(alpha=0.3)


def _title(status: dict[str, Any]) -> str:
    privacy = status["privacy"]
    epsilon = privacy["epsilon"]
    claim = f"ε = {epsilon:.2f}, δ = {privacy['delta']:g}" if epsilon is not None else "not private"
    shown = on_test(status["test_accuracy"], status["test_loss"])
    what = " · ".join(str(status[key]) for key in ("algorithm", "dataset", "model"))
    return f"{what} · {status['edges']} edges · {shown} · {claim}"


def on_test(accuracy: float | None, loss: float | None) -> str:
    """How good a model is on the test set, in words: its accuracy, its loss where it guesses no
    classes, or that there is no test set.
    """
    if accuracy is not None:
        return f"{100 * accuracy:.2f} %"
    return "not evaluated" if loss is None else f"loss {loss:.4g}"


def _dump(path: Path, content: object) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(path)
