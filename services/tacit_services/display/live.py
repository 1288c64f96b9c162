"""The output of `tacit run`: one line at the start, a progress bar, and a table at the end."""

from __future__ import annotations

import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from tacit.config.definition import Definition
from tacit.models import Constant
from tacit.shown import printable
from tacit_services.aggregator.reporting.run_picture import on_test
from tacit_services.display import judged_lines
from tacit_services.display.progress import clock
from tacit_services.display.text_tables import at_most, cell, epsilon, schedule, state

if TYPE_CHECKING:
    from tacit_client import Status

    from tacit_services.display.notebook import NotebookBar

SHOWN = 40  # edges in the table
_TELLS_APART = 0.6  # the least AUC of which that is said
PLAIN_SECONDS = 10.0  # between two lines when the output is not a terminal


def opening(definition: Definition[Any], broker: str, store: str, http: str) -> str:
    """Return a line with what runs, and on what."""
    return (
        f"{definition.algorithm.name} on {definition.source.name} ({definition.model.name}), "
        f"{definition.edges.count} edges, {definition.run.updates} {definition.traits.counted}; "
        f"broker {broker}, store {store}, REST http://{http}"
    )


def ledgers(definition: Definition[Any], continued: bool) -> str:
    """Return what the reported ε covers and, where the run file states z, how much it pays for."""
    if continued:
        history = "TACIT_LEDGER's, continued"
    else:
        history = "fresh (simulated edges: ε is this run's alone)"
    z = definition.terms.noise_multiplier
    plan = definition.plans.default
    if z is None or not plan.private or definition.algorithm.worker == "party":
        return f"ledgers: {history}"
    return (
        f"ledgers: {history}; with z = {z:g}, ε = {plan.epsilon:g} pays for "
        f"{definition.plans.plan(0).pushes_left(()) or 0} releases an edge"
    )


class RunProgress:
    """The progress bar of a run (applied of T), with one line of changing facts under it."""

    def __init__(self, console: Console, target: int) -> None:
        """target: T, the versions after which the run ends."""
        self._console = console
        self._target = target
        self._printed_at = 0.0
        self._printed_applied = -1
        self._bar = Progress(
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}", markup=False),
            console=console,
        )
        self._task = self._bar.add_task("starting", total=self._target)
        self._live = Live(self._bar, console=console)
        self._notebook = notebook_bar(console, target)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        if self._notebook is not None:
            self._notebook.close()

    def show(self, status: Status) -> None:
        """Draw one status; without a terminal or notebook, print it every PLAIN_SECONDS."""
        if status.edges_needed:
            line = state(status)
        else:
            line = facts(status)
        if self._notebook is not None:
            self._notebook.show(status.applied, line)
            return
        self._bar.update(self._task, completed=status.applied, description=state(status))
        # The facts have lines of their own: in one with the bar, a terminal of 80 columns would
        # break them to pieces.
        self._live.update(Group(self._bar, cell(line)))
        to_say = status.applied or status.edges_needed
        if (
            not self._console.is_terminal
            and to_say
            and time.monotonic() - self._printed_at > PLAIN_SECONDS
        ):
            self._printed_at = time.monotonic()
            self._console.print(f"{status.applied}/{self._target} {line}{self._time_left(status)}")
            self._printed_applied = status.applied

    def _time_left(self, status: Status) -> str:
        remaining = self._target - status.applied
        if status.applied == self._printed_applied:  # budgets may be spent: no pace is known
            return ""
        if status.edges_needed or not status.updates_per_s or remaining <= 0:
            return ""
        return f" · about {clock(remaining / status.updates_per_s)} left"


def notebook_bar(console: Console, target: int) -> NotebookBar | None:
    """Return a bar for the notebook that the console prints to; None: it prints elsewhere."""
    if not console.is_jupyter or console.quiet:
        return None
    from tacit_services.display.notebook import NotebookBar

    return NotebookBar(target)


def facts(status: Status) -> str:
    """Return the changing facts of a status in one line."""
    if status.test_accuracy is not None:
        accuracy = f"accuracy {100 * status.test_accuracy:.1f} %"
    else:
        accuracy = "accuracy -"
    if status.judged is not None and status.test_accuracy is None:
        accuracy = judged_lines.first_figure(status.judged)
    parts = [
        accuracy,
        *schedule(status),
        f"staleness {status.staleness.mean:.1f}",
        f"ε {at_most(status, epsilon(status.privacy.epsilon))}",
    ]
    if status.slowest is not None:
        parts.append(f"slowest {status.slowest.id} ({status.slowest.releases} releases)")
    return " · ".join(parts)


def closing(summary: dict[str, Any], out: Path, seconds: float) -> RenderableType:
    """Return the table of results, the table of edges, and where the files are."""
    privacy = summary["privacy"]
    staleness = summary["staleness"]
    title = Text(printable(f"{summary['algorithm']} on {summary['dataset']}"), style="table.title")
    table = Table(title=title, show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    if "simulated" in privacy:
        simulated = " (simulated)"
    else:
        simulated = ""
    rows = [
        *_measured(summary),
        *judged_lines.rows(summary),
        (
            "privacy",
            f"ε = {epsilon(privacy['epsilon'])}, δ = {privacy['delta']:g}, per "
            f"{privacy['unit']}{simulated}",
        ),
        ("trusted", privacy["trusted"]),
        ("updates applied", f"{summary['applied']}, {summary['updates_per_s']:.1f}/s"),
        (
            "duplicates / stale / rejected",
            f"{summary['duplicates']} / {summary['stale']} / {summary['rejected']}",
        ),
        (
            "staleness mean / p95 / max",
            f"{staleness['mean']:.2f} / {staleness['p95']} / {staleness['max']}",
        ),
        (
            "clip norm",
            f"{summary['schedule']['clip']:.3g} at the end, after {summary['stages']} stage(s)",
        ),
        ("model SHA-256", textwrap.fill(summary["model_sha256"], 32)),
        ("time", f"{summary['duration_s']:.1f} s training, {seconds:.1f} s in all"),
    ]
    for row in rows:
        table.add_row(*map(cell, row))
    files = cell(
        f"results in {out}/ (summary.json, metrics.jsonl, plot.png, model.safetensors, ledger.json)"
    )
    return Group(
        table,
        _edges(privacy),
        *_stopped(summary),
        *_no_better(summary),
        *judged_lines.warning(summary),
        files,
        *_next(summary, out),
    )


def _next(summary: dict[str, Any], out: Path) -> list[Text]:
    """Return what to do with the model; a vertical run's stays where its parties are."""
    if summary["privacy"].get("mu") is not None:
        return [cell(f"next: tacit predict {out} --ids ID")]
    return [
        cell(f"next: tacit export MODEL --run {out} (its last line says how to predict new rows)")
    ]


def _measured(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the model's accuracy or loss, and the other metrics of the run."""
    score = on_test(summary["test_accuracy"], summary.get("test_loss"))
    constant = summary.get("constant", {}).get("accuracy")
    if summary["test_accuracy"] is not None and constant is not None:
        score += f" (always the same answer: {on_test(constant, None)})"
    if summary["test_accuracy"] is not None:
        first = "test accuracy"
    else:
        first = "test"
    others = {**summary.get("metrics", {})}
    if summary["test_accuracy"] is not None:
        others.pop("accuracy", None)
    return [
        (first, score),
        *((name, _metric(name, value, summary)) for name, value in others.items()),
        *_believed(summary),
        *((f"model {name}", _of_model(model)) for name, model in _other_models(summary)),
    ]


def _metric(name: str, value: float | None, summary: dict[str, Any]) -> str:
    """Return a metric in words, beside that of always the same answer where it is known."""
    if value is None:
        return "none"
    constant = summary.get("constant_errors", {}).get(name)
    if constant is None:
        return f"{value:.4g}"
    return f"{value:.4g} (always the same answer: {constant:.4g})"


def _believed(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what the model's probabilities are worth, beside those of always the same answer."""
    if "calibration" not in summary:
        return []
    calibration = summary["calibration"]
    constant = summary["constant"]
    rows = [
        (words, f"{calibration[key]:.4g} (always the same answer: {constant[key]:.4g})")
        for key, words in (("log_loss", "log loss"), ("brier", "Brier score"))
    ]
    return [*rows, ("calibration error", f"{100 * calibration['error']:.1f} %")]


def _other_models(summary: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(name, model) for name, model in summary.get("models", {}).items() if "loss" in model]


def _of_model(model: dict[str, Any]) -> str:
    """Return how good a model beside the last one is, and where it lies."""
    measured = on_test(model["accuracy"], model["loss"])
    if "calibration" in model:
        measured += f", log loss {model['calibration']['log_loss']:.4g}"
    return f"{measured}: {model['file']}"


def _stopped(summary: dict[str, Any]) -> list[Text]:
    """Return a line with what a run that ended early has left of its edges' budgets."""
    unspent = summary.get("unspent")
    if not unspent:
        return []
    least = min(unspent.values())
    most = max(unspent.values())
    if f"{least:.2f}" == f"{most:.2f}":
        amount = f"{least:.2f}"
    else:
        amount = f"{least:.2f} to {most:.2f}"
    return [
        Text(
            f"the run ended early, as more training showed no gain: each edge keeps ε = {amount} "
            "of its budget for later runs"
        )
    ]


def _no_better(summary: dict[str, Any]) -> list[Text]:
    """Return a line where the model is no better than the best constant answer.

    Accuracy and the probabilities are looked at: a model may be right more often, and be so sure
    that its probabilities are worth less than the classes' shares.
    """
    if "constant" not in summary:
        return []
    constant = Constant(**summary["constant"])
    calibration = summary.get("calibration")
    believed = calibration is None or calibration["log_loss_better"]
    if constant.beaten(summary["test_accuracy"], summary["test_loss"]):
        if believed:
            return []
        return [Text(_too_sure(summary), style="bold")]
    best = on_test(constant.accuracy, constant.loss)
    if calibration is not None and believed:
        return [
            Text(
                f"no more often right than always the same answer ({best}), but its probabilities "
                f"say more (log loss {calibration['log_loss']:.4g}, of the classes' shares "
                f"{constant.log_loss:.4g}): rank by p, or choose a threshold"
            )
        ]
    metrics = summary.get("metrics", {})
    auc = metrics.get("auc")
    ranked = metrics.get("concordance", auc)
    if ranked is not None and ranked > _TELLS_APART and constant.accuracy is None:
        return [
            Text(
                f"its probabilities say no more than always the same answer ({best}), but it tells "
                f"rows apart (AUC or concordance {ranked:.3f}): rank by p, or choose a threshold"
            )
        ]
    if auc is not None and auc > _TELLS_APART:
        return [
            Text(
                f"no more often right than always the same answer ({best}), as one class is rare, "
                f"but it tells the classes apart (AUC {auc:.3f}): rank by p, or choose a threshold"
            )
        ]
    why = (
        "the updates were too few, too small or drowned in noise; `tacit check` says which, and a "
        "smaller model, more rows, a larger batch or a larger learning rate help"
    )
    return [Text(f"no better than always the same answer ({best}): {why}", style="bold")]


def _too_sure(summary: dict[str, Any]) -> str:
    measured = summary["calibration"]["log_loss"]
    constant = summary["constant"]["log_loss"]
    return (
        "more often right than always the same answer, but its probabilities are not to be "
        f"believed: log loss {measured:.4g}, of the classes' shares alone {constant:.4g}; use the "
        "class only, or the averaged model (run.average = 0.5), or a smaller learning rate"
    )


def _edges(privacy: dict[str, Any]) -> Table:
    caption = "PLD is enforced; RDP is a looser bound of the same releases"
    spent = [(edge["epsilon_pld"], edge["budget"]) for edge in privacy["edges"].values()]
    if any(None not in each and each[0] > each[1] for each in spent):
        caption += "; ε counts all that this data told, also questions, whose budget is another"
    table = Table(caption=caption, caption_justify="left")
    for name in ("edge", "releases", "q", "z", "ε (PLD)", "ε (RDP)", "budget"):
        table.add_column(name, justify="left" if name == "edge" else "right")
    for name, edge in sorted(privacy["edges"].items())[:SHOWN]:
        rate = edge["sampling_rate"]
        noise = edge["noise_multiplier"]
        table.add_row(
            cell(name),
            str(edge["pushes"]),
            f"{rate:.4f}" if rate else "-",
            f"{noise:.3f}" if noise else "none",
            epsilon(edge["epsilon_pld"]),
            epsilon(edge["epsilon_rdp"]),
            f"{edge['budget']:g}",
        )
    if len(privacy["edges"]) > SHOWN:
        table.add_row(f"… {len(privacy['edges']) - SHOWN} more")
    return table
