"""The report on the figures: a self-contained HTML page, and the tables of docs/results.md."""

from __future__ import annotations

import base64
import html
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tacit_lab.papers.figures.draw import TITLES
from tacit_lab.papers.figures.figure_file import Figure
from tacit_lab.papers.figures.verdicts import (
    FAILS,
    HOLDS,
    PAPER_ONLY,
    PAPER_UNTRIED,
    PLAIN_ONLY,
    PLAIN_UNTRIED,
    UNCLEAR,
    Curve,
    JudgedClaim,
    ThreeValued,
)

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62em; margin: 2em auto;
  padding: 0 1em; color: #222; }
img { max-width: 100%; } table { border-collapse: collapse; margin: 1em 0; }
td, th { border: 1px solid #bbb; padding: .3em .6em; text-align: left; vertical-align: top; }
"""
# Of a verdict's cell; each has its own, which is said in words as well.
COLOURS = {
    HOLDS: "#d9f0e6",
    PAPER_ONLY: "#fdf1d0",
    PAPER_UNTRIED: "#fffae8",
    PLAIN_ONLY: "#dbe7f6",
    PLAIN_UNTRIED: "#eef4fb",
    UNCLEAR: "#e8e8e8",
    FAILS: "#f8d9cc",
}

ANSWERS: dict[ThreeValued, str] = {True: "yes", False: "no", None: "cannot tell"}
VERDICTS = (
    "A verdict is about the means over the seeds, which share data, parts and first model: "
    "a claim holds, or does not, where the 95 % confidence interval of what it compares "
    "(Student's t of the seeds' differences, less the tolerance that the figure file states) "
    "leaves no other answer in each of its panels; else we cannot tell. "
    "It is of rigorous noise: what holds with the paper's alone has no privacy behind it. "
    "One seed has no interval: its verdict is of that run only."
)


@dataclass(frozen=True, slots=True)
class Provenance:
    """The origin of a report's numbers."""

    quick: bool
    testbed: bool
    made_by: str

    @property
    def runs(self) -> str:
        """The kind of runs that the numbers come from."""
        if self.testbed:
            return (
                "Trained, not simulated: processes on one machine over MQTT, "
                "as tacit run starts them. Two runs of one seed differ by whose update came first."
            )
        return (
            "All runs are simulations (tacit simulate): "
            "ε is what the same releases would cost with secret noise; "
            "∞ means that no guarantee stands behind the paper's noise, whatever it claims."
        )


@dataclass(frozen=True, slots=True)
class ReportedFigure:
    """A figure with everything that the report has about it."""

    name: str
    figure: Figure
    curves: list[Curve]
    judged: list[JudgedClaim]
    picture: bytes


def page(reports: Sequence[ReportedFigure], provenance: Provenance) -> str:
    """Return the whole report. It needs no other file and no network."""
    if provenance.quick:
        kind = "the quick report: fewer panels and updates"
    else:
        kind = "the full report"
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>tacit: the papers' "
        "figures</title>",
        f"<style>{_STYLE}</style><h1>The papers' figures, with honest ε</h1>",
        f"<p>{html.escape(kind)}; {html.escape(provenance.made_by)}.",
        "Bands are 95 % confidence intervals of the mean over seeds.",
        f"{html.escape(provenance.runs)}</p><p>{html.escape(VERDICTS)}</p>",
        "<table><tr><th>figure<th>the paper's claims</tr>",
        *(_contents(report) for report in reports),
        "</table>",
        *(_section(report) for report in reports),
        "</html>",
    ]
    return "\n".join(parts) + "\n"


def _contents(report: ReportedFigure) -> str:
    """Return a line of the overview: how many of the figure's claims got which verdict."""
    counts = Counter(judged.verdict for judged in report.judged)
    summary = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    title = html.escape(f"{_name(report)}: {report.figure.figure.title}")
    link = f"<a href='#{html.escape(report.name)}'>{title}</a>"
    return f"<tr><td>{link}<td>{html.escape(summary)}</tr>"


def _section(report: ReportedFigure) -> str:
    head = report.figure.figure
    title = html.escape(f"{head.paper}, {head.name}: {head.title}")
    image = base64.b64encode(report.picture).decode("ascii")
    return "\n".join(
        [
            f"<h2 id='{html.escape(report.name)}'>{title}</h2>",
            f"<img alt='{html.escape(head.title)}' src='data:image/png;base64,{image}'>",
            f"<p>The paper: {html.escape(head.setting)}<br>",
            f"Here: {html.escape(head.scaled)}; {_seeds(report)}</p>",
            "<table><tr><th>the paper claims<th>measured<th>verdict</tr>",
            *(_row(judged) for judged in report.judged),
            "</table><table><tr><th>panel<th>noise<th>ε claimed<th>true ε of the runs</tr>",
            *(f"<tr><td>{'<td>'.join(map(html.escape, row))}</tr>" for row in _epsilons(report)),
            "</table>",
        ]
    )


def _row(judged: JudgedClaim) -> str:
    measured = "<br>".join(map(html.escape, _measured(judged)))
    colour = COLOURS[judged.verdict]
    text = html.escape(judged.claim.text)
    verdict = html.escape(judged.verdict)
    return f"<tr><td>{text}<td>{measured}<td style='background: {colour}'>{verdict}</tr>"


def _measured(judged: JudgedClaim) -> list[str]:
    """Return one line for each kind of noise that was tried."""
    return [
        f"{TITLES[noise]}, {ANSWERS[judged.holds[noise]]}: {text}"
        for noise, text in judged.measured.items()
    ]


def _seeds(report: ReportedFigure) -> str:
    count = len(report.figure.figure.seeds)
    return f"{count} seed{'s' if count > 1 else ''}"


def _epsilons(report: ReportedFigure) -> list[tuple[str, str, str, str]]:
    rows = []
    for number, panel in enumerate(report.figure.panel):
        mine = [curve for curve in report.curves if curve.panel == number]
        spent = (f"{curve.name} {_range(curve.epsilons)}" for curve in mine)
        if mine:
            rows.append((panel.title, TITLES[panel.noise], panel.claimed, ", ".join(spent)))
    return rows


def _range(epsilons: Sequence[float | None]) -> str:
    finite = [value for value in epsilons if value is not None]
    if not finite:
        return "∞"
    if finite[0] == finite[-1]:
        text = f"{finite[0]:.3g}"
    else:
        text = f"{finite[0]:.3g} to {finite[-1]:.3g}"
    if len(finite) == len(epsilons):
        return text
    return f"{text}, or ∞"


def results(reports: Sequence[ReportedFigure], provenance: Provenance) -> str:
    """Return the text of docs/results.md: the claims, what the figures show, and ε."""
    options = {"--testbed": provenance.testbed, "--quick": provenance.quick}
    command = " ".join(["tacit figures", *(name for name, enabled in options.items() if enabled)])
    lines = [
        "# The papers' claims",
        "",
        f"Generated from the data of `{command}` ({provenance.made_by}). {provenance.runs}",
    ]
    lines += ["", VERDICTS, "", "| figure | claim | measured | verdict |", "|---|---|---|---|"]
    for report in reports:
        for judged in report.judged:
            measured = "<br>".join(_measured(judged))
            lines.append(
                f"| {_name(report)} | {judged.claim.text} | {measured} | {judged.verdict} |"
            )
    lines += [
        "",
        "| figure | shows | the paper's setting | here | seeds |",
        "|---|---|---|---|---|",
    ]
    for report in reports:
        head = report.figure.figure
        setting = f"{head.setting} | {head.scaled} | {len(head.seeds)}"
        lines.append(f"| {_name(report)} | {head.label} v {head.x} | {setting} |")
    lines += ["", "| figure | panel | noise | ε claimed | true ε |", "|---|---|---|---|---|"]
    lines += [
        f"| {_name(report)} | {' | '.join(row)} |"
        for report in reports
        for row in _epsilons(report)
    ]
    return "\n".join(lines) + "\n"


def _name(report: ReportedFigure) -> str:
    return f"{report.figure.figure.paper} {report.figure.figure.name}"
