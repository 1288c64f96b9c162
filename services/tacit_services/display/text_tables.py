"""Tables of the operator's commands: rich on a terminal, plain columns elsewhere."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tacit import rounding
from tacit.shown import lines, printable
from tacit_services.display import judged_lines

if TYPE_CHECKING:
    from tacit_client import Edge, FederationRun, ModelInfo, Status

NO_GUARANTEE = "∞ (not private)"
_ROUGH = "while training is on, ε is that of up to an eighth more releases"
_COLUMNS = (
    "edge",
    "state",
    "releases",
    "q",
    "z",
    "ε (PLD)",
    "ε (RDP)",
    "δ",
    "budget",
    "left",
    "refused",
)
_FULL_WIDTH = 100  # columns that the whole table of `tacit ledger` needs
_YEAR_9999 = 253_370_764_800.0  # its first second; what is later has no date
_PLAIN_WIDTH = 200  # a pipe has no width; wide enough that nothing is folded


def console(*, stderr: bool = False) -> Console:
    """Return a console on standard output or standard error.

    It is as wide as the terminal, or without one as a row needs.

    Text is shown as it is: [brackets] are no markup.
    """
    terminal = _Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not terminal.is_terminal:
        terminal.width = _PLAIN_WIDTH
    return terminal


class _Console(Console):
    """A console that shows as `?` what does not print, and so what a terminal would obey."""

    def print(self, *objects: Any, **how: Any) -> None:
        """Print as rich does, texts line by line."""
        super().print(*(lines(item) if isinstance(item, str) else item for item in objects), **how)


def cell(text: str) -> Text:
    """Return a text of others as it is shown in a table."""
    return Text(lines(text))


def schedule(status: Status) -> list[str]:
    """Return the algorithm's current numbers as phrases.

    MAPA's stage and ΔS, FedAsync's α_t, the answers of a round, or the distance between peers'
    models.
    """
    now = status.schedule
    if now.delta_s is not None:
        return [f"stage {status.stages}", f"ΔS {now.delta_s:.3g}", f"C {now.clip:.3g}"]
    if now.mixing is not None:
        return [f"α {now.mixing:.3g}"]
    if now.disagreement is not None:
        return [f"models apart {now.disagreement:.3g}"]
    if now.asked is None:
        return []
    if now.absent:
        absent = f", {now.absent} absent"
    else:
        absent = ""
    return [f"round {status.applied + 1}: {now.answered} of {now.asked} answered{absent}"]


def epsilon(value: float | None) -> str:
    """Write an ε; None is no guarantee."""
    if value is None:
        return NO_GUARANTEE
    return rounding.epsilon(value)


def at_most(run: Status, text: str) -> str:
    """Return `text`, the run's ε, with ≤ before it while training is on.

    Until the end it is the ε of up to an eighth more releases than there were.
    """
    if run.over or run.privacy.epsilon is None:
        return text
    return f"≤ {text}"


def state(run: Status) -> str:
    """Return the run's state in words; before its beginning, the edges that it waits for."""
    if not run.edges_needed:
        return run.state
    arrived = f"{run.edges_online} of {run.edges_needed}"
    return f"waiting for edges ({arrived} have read their rows and come)"


def status(to: Console, run: Status) -> Table:
    """Return the state of a run, in two columns."""
    staleness = run.staleness
    privacy = run.privacy
    rows = [
        ("state", state(run)),
        *([("ended", run.reason)] if run.reason else []),
        (
            "run",
            f"{run.algorithm} on {run.dataset} ({run.model}, {run.parameters} parameters), seed "
            f"{run.seed}",
        ),
        (
            "applied",
            f"{run.applied} of {run.target} ({run.updates_per_s:g}/s for {run.duration_s:.1f} s)",
        ),
        ("edges", f"{run.edges_online} online of {run.edges}{_refusing(run)}"),
        ("accuracy", "-" if run.test_accuracy is None else f"{100 * run.test_accuracy:.2f} %"),
        ("loss", "-" if run.test_loss is None else f"{run.test_loss:.4f}"),
        *([] if run.judged is None else [("judged", judged_lines.in_full(run.judged))]),
        ("staleness", f"mean {staleness.mean:g}, p95 {staleness.p95:g}, max {staleness.max}"),
        ("schedule", " · ".join(schedule(run))),
        ("refused", f"{run.duplicates} duplicates, {run.rejected} rejected"),
        (
            "privacy",
            f"ε {at_most(run, epsilon(privacy.epsilon))} at δ {privacy.delta:g}"
            f"{_counted(privacy.counts)}: {privacy.guarantee}",
        ),
        ("trusted", privacy.trusted or "-"),
        ("model", f"version {run.model_version}, sha256 {run.model_sha256}"),
    ]
    return pairs(to, rows)


def line(run: Status, as_json: bool) -> str:
    """Return the state of a run in one line, for a log."""
    if as_json:
        return json.dumps(run.to_json())
    if run.test_accuracy is not None:
        measured = f"accuracy {100 * run.test_accuracy:.2f} %"
    elif run.judged is not None:
        measured = judged_lines.first_figure(run.judged)
    else:
        measured = "accuracy -"
    spent = at_most(run, epsilon(run.privacy.epsilon))
    edges = f"{run.edges_online}{_refusing(run)}"
    return f"{state(run)} {run.applied}/{run.target} {measured} edges {edges} ε {spent}"


def model(to: Console, info: ModelInfo) -> Table:
    """Return the model in two columns, then its layers."""
    rows = [
        ("model", f"{info.name}, {info.parameters} parameters"),
        ("version", f"{info.version} ({info.state})"),
        ("sha256", info.sha256),
        ("bytes", str(info.bytes)),
        ("clip", f"{info.clip:.4g}"),
    ]
    layers = [(layer.name, "×".join(map(str, layer.shape))) for layer in info.layers]
    return pairs(to, rows + layers)


def ledger(to: Console, edges: Iterable[Edge], *, live: bool = False) -> Table:
    """Return a table of what every edge's data has spent, and what its budget leaves.

    A narrow terminal leaves out RDP's looser bound and a column without refusals. A δ that is the
    same for all goes below the table, and so does what ε means while the run is `live`.
    """
    rows = [_paid(edge) for edge in edges]
    columns = list(_COLUMNS)
    table = Table(box=outline(to), header_style="bold", caption_justify="left")
    below = [_ROUGH] if live else []
    if to.is_terminal and to.width < _FULL_WIDTH:
        columns.remove("ε (RDP)")
        if all(row["refused"] == "-" for row in rows):
            columns.remove("refused")
        if len(deltas := {row["δ"] for row in rows}) == 1:
            columns.remove("δ")
            below.insert(0, f"δ = {deltas.pop()}")
    if below:
        table.caption = Text("; ".join(below))
    else:
        table.caption = None
    for name in columns:
        table.add_column(
            name,
            justify="left" if name in ("edge", "state") else "right",
            no_wrap=name != "refused",
        )
    for row in rows:
        table.add_row(*(cell(row[name]) for name in columns))
    return table


def runs(to: Console, listed: Iterable[FederationRun]) -> Table:
    """Return a federation's runs as a table: one row each, with who refused and why."""
    table = Table(box=outline(to))
    for heading in ("run", "state", "updates", "members", "refused", "by"):
        table.add_column(heading, overflow="fold")
    for run in listed:
        stands = f"{run.state}: {run.why}" if run.why else run.state
        refused = ", ".join(f"{item.member} ({item.reason})" for item in run.refused)
        cells = (
            run.name,
            stands,
            f"{run.applied} of {run.updates}",
            ", ".join(run.members),
            refused,
            run.researcher,
        )
        table.add_row(*(cell(printable(text)) for text in cells))  # a line of a text is no row
    return table


def members(to: Console, content: dict[str, Any]) -> Table:
    """Return a federation's members as a table; then, for its operator, people and open tokens."""
    table = Table(box=outline(to))
    for heading in ("id", "name", "since", "last heard", "version", "certificate until"):
        table.add_column(heading, overflow="fold")
    for member in content["members"]:
        ends = member["certificate_until"]
        cells = (
            member["id"],
            member["name"],
            _minute(member["since"]),
            _heard(member),
            member["version"],
            "" if ends is None else _minute(ends),
        )
        table.add_row(*map(cell, cells))
    for person in content.get("people", []):
        table.add_row(cell(person["right"]), cell(person["name"]))
    for token in content.get("tokens", []):
        left = "any number may join" if token["left"] is None else f"{token['left']} may join"
        until = f"{left}, until {_minute(token['until'])}" if token["until"] else left
        table.add_row(cell("token"), cell(token["name"]), "", cell(until))
    return table


def _heard(member: dict[str, Any]) -> str:
    """Return when a member was heard of, or that it is none any more."""
    if member["revoked"]:
        return "revoked"
    if member["left"]:
        return f"left {_minute(member['left'])}"
    return _minute(member["last_heard"])


def _minute(at: float | None) -> str:
    if at is None:
        return "never"
    if not 0 <= at < _YEAR_9999:
        return "no date"
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def _paid(edge: Edge) -> dict[str, str]:
    """Return an edge's row: from heading to cell."""
    spent = edge.epsilon_pld
    budget = edge.budget
    return {
        "edge": edge.id,
        "state": edge.state,
        "releases": str(edge.pushes),
        "q": _number(edge.sampling_rate),
        "z": _number(edge.noise_multiplier),
        "ε (PLD)": epsilon(spent),
        "ε (RDP)": epsilon(edge.epsilon_rdp),
        "δ": f"{edge.delta:g}",
        "budget": _number(budget),
        "left": _left(edge),
        "refused": f"{edge.refusals} ({edge.refusal})" if edge.refusals else "-",
    }


def _counted(counts: str) -> str:
    return f", over {counts}" if counts else ""


def _left(edge: Edge) -> str:
    """Return what a budget of the data leaves; a run's own part of ε is not known apart."""
    if edge.epsilon_pld is None or edge.budget is None or edge.budget_of != "data":
        return "-"
    return rounding.down(max(0.0, edge.budget - edge.epsilon_pld))


def _refusing(run: Status) -> str:
    if run.vetoes:
        named = "; ".join(f"{veto.id}: its policy's {veto.policy}" for veto in run.vetoes)
        return f", {run.edges_refusing} refusing ({named} does not allow the run)"
    if run.edges_refusing:
        return f", {run.edges_refusing} refusing the model"
    return ""


def pairs(to: Console, rows: Iterable[tuple[str, str]]) -> Table:
    """Return a table of two columns: names in bold, and values that fold where they are long."""
    table = Table(box=outline(to), show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*map(cell, row))
    return table


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}"


def outline(to: Console) -> box.Box | None:
    """Return the lines around a table: none where the output is not a terminal."""
    if to.is_terminal:
        return box.ROUNDED
    return None
