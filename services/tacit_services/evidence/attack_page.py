"""The page of an attack report, to read and print. It is made of the report alone, to the byte."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from tacit import rounding
from tacit.attacks.attack_report import AttackFigures, AttackReport, AttributeFigures, ShareEstimate
from tacit.attacks.trade_off import TradeOff
from tacit.shown import printable
from tacit_services.evidence.print_style import PRINT_STYLE

_PAGE = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
{style}svg {{ display: block; margin: 2mm 0 }}
</style></head><body>
<h1>{title}</h1>
{stays}<p><strong>{verdict}</strong></p>
<table>
{facts}</table>
<h2>Who was in the training?</h2>
<p>An attack gives each {unit} a score, higher for one that it takes for a member. AUC is the
chance that a member has the higher score: 50 % is a coin. Hits are the members that are called so,
while few others are. Intervals are of 95 %.</p>
{picture}
<table><tr><th>attack</th><th>AUC</th><th>hits at 0.1 % false alarms</th><th>hits at 1 %</th>
<th>the AUC alone shows</th></tr>
{attacks}{most}</table>
<p>With {others} others, a threshold for 0.1 % of false alarms lets {alarms} through in truth.</p>
{attributes}<h2>What this is not</h2>
<ul>
<li>No bound. A better attack may reach more. ε and δ bound every attack, also one that nobody
knows yet.</li>
<li>{target}</li>
<li>No word about people like somebody: what the model shows of others as well is no leak of a
member.</li>
</ul>
</body></html>
"""
_STAYS = "<p><strong>This report is of an owner's own rows. It stays with the owner.</strong></p>\n"
_THIS = (
    "No word about others' rows. The rows of this report are public. What was found is the word of "
    "the one who ran the attack."
)
_TWIN = (
    "No attack on the private rows. A twin of the model was trained by the same definition on "
    "{rows}, and attacked. Private rows may be easier or harder to tell."
)
_OWNERS = "No attack by somebody who trains other models, to compare with: that finds more."
_ATTRIBUTES = """\
<h2>Can a value be guessed?</h2>
<p>The attack knows all of a row but one column. A guess that is right as often of others as of
members tells of the population. Only what members have above others is a leak.</p>
<table><tr><th>column</th><th>right of members</th><th>right of others</th>
<th>allowed of members</th></tr>
{rows}</table>
"""
_ONE = 1.0  # an ε that people know
_WIDTH, _LEFT, _LINE = 480, 130, 22  # of the picture


def page(report: AttackReport) -> str:
    """Return the page, self-contained."""
    facts = [
        ("run", report.run),
        ("attacked", _attacked(report)),
        ("rows", f"{report.rows_of}: {report.members:,} members, {report.others:,} others"),
        ("a member is", f"one {report.unit}"),
        ("shadow runs", _shadows(report.shadows)),
        ("guarantee", _guarantee(report)),
        ("made", f"on {report.at} by tacit {report.tacit_version}"),
    ]
    first = report.attacks[0].rates[0]
    return _PAGE.format(
        style=PRINT_STYLE,
        title=_text(f"Attacks on the model {report.run}"),
        stays=_STAYS if report.rows == "owner" else "",
        verdict=_text(verdict(report)),
        facts="".join(map(_fact, facts)) + _hash("run definition", report.definition)
        + _hash("weights", report.model_sha256),
        unit=_text(report.unit),
        picture=_picture(report),
        attacks="".join(map(_attack, report.attacks)),
        most=_most(report),
        others=f"{report.others:,}",
        alarms=f"{_percent(first.alarms_low)} to {_percent(first.alarms_high)}",
        attributes=_attributes(report.attributes),
        target=_text(_target(report)),
    )  # fmt: skip


def verdict(report: AttackReport) -> str:
    """Return in a sentence what was found, beside what ε and δ allow."""
    best = max(report.attacks, key=lambda each: each.auc.low)
    figures = f"the best attack ({best.name}) has an AUC of {_interval(best.auc)}"
    if report.beyond:
        return (
            f"Something is wrong: {', '.join(report.beyond)}: an attack reaches more than ε and δ "
            "allow. Do not hand this model out before you know why."
        )
    if report.bounds is None:
        refuted = f", which alone excludes every ε below {rounding.down(best.epsilon_shown, 3)}"
        leak = refuted if best.epsilon_shown else ""
        return f"There is no guarantee to compare with: {figures}{leak}."
    allowed = _share(report.bounds.auc)
    return f"No attack reaches what ε and δ allow: {figures}, and {allowed} is allowed."


def _attacked(report: AttackReport) -> str:
    if report.trained == "this model":
        return f"this model ({report.which})"
    return "a twin of this model, which the simulator has trained on the rows below"


def _guarantee(report: AttackReport) -> str:
    bound = report.bound
    if bound is None:
        return "none that bounds these attacks"
    return f"ε = {rounding.epsilon(bound.epsilon)}, δ = {rounding.decimal(bound.delta)}"


def _shadows(count: int) -> str:
    return f"{count} by the same definition, on other draws of members" if count else "none"


def _target(report: AttackReport) -> str:
    if report.rows == "owner":
        return _OWNERS
    if report.trained == "a twin":
        return _TWIN.format(rows=report.rows_of)
    return _THIS


def _attack(figures: AttackFigures) -> str:
    by_rate = {rate.rate: rate for rate in figures.rates}
    refuted = (
        f"ε ≥ {rounding.down(figures.epsilon_shown, 3)}" if figures.epsilon_shown else "nothing"
    )
    cells = [figures.name, _interval(figures.auc)]
    cells += [_interval(by_rate[rate].share) if rate in by_rate else "" for rate in (0.001, 0.01)]
    return _cells([*cells, refuted])


def _most(report: AttackReport) -> str:
    """Return the rows of what ε and δ allow, and what ε = 1 would."""
    lines = []
    if report.bound is not None:
        lines.append(("allowed by ε and δ", report.bound))
    lines.append(("allowed by ε = 1, to compare", TradeOff(_ONE, report.delta)))
    return "".join(
        _cells(
            [
                name,
                _share(bound.most_auc()),
                *(_share(bound.most_hits(r)) for r in (0.001, 0.01)),
                "",
            ]
        )
        for name, bound in lines
    )


def _attributes(columns: Iterable[AttributeFigures]) -> str:
    rows = "".join(
        _cells(
            [
                each.column,
                _interval(each.members),
                _interval(each.others),
                "no bound" if each.most is None else _share(each.most),
            ]
        )
        for each in columns
    )
    return _ATTRIBUTES.format(rows=rows) if rows else ""


def _picture(report: AttackReport) -> str:
    """Return each attack's AUC as a line from 40 to 100 %, with the bounds across."""
    height = _LINE * (len(report.attacks) + 1)
    marks = "".join(_marks(report, height))
    bars = "".join(
        _bar(each, _LINE * number + _LINE // 2) for number, each in enumerate(report.attacks)
    )
    return (
        f'<svg width="{_WIDTH}" height="{height + 16}" role="img" aria-label="AUC of each attack, '
        f'from 40 to 100 %" font-size="11" font-family="sans-serif">{marks}{bars}</svg>'
    )


def _marks(report: AttackReport, height: int) -> Iterator[str]:
    lines = [("coin", 0.5, "#999"), ("ε = 1", TradeOff(_ONE, report.delta).most_auc(), "#777")]
    if report.bounds is not None:
        lines.append(("allowed", report.bounds.auc, "#b00"))
    for place, (name, value, colour) in enumerate(lines):
        x = _x(value)
        yield (
            f'<path d="M{x} 0V{height - 6}" stroke="{colour}"/>'
            f'<text x="{x}" y="{height + 6 + 8 * (place % 2)}" fill="{colour}" '
            f'text-anchor="middle">{name}</text>'
        )


def _bar(figures: AttackFigures, y: int) -> str:
    auc = figures.auc
    return (
        f'<text x="0" y="{y + 4}">{_text(figures.name)}</text>'
        f'<path d="M{_x(auc.low)} {y}H{_x(auc.high)}" stroke="#06c" stroke-width="3"/>'
        f'<circle cx="{_x(auc.value)}" cy="{y}" r="4" fill="#06c"/>'
    )


def _x(auc: float) -> int:
    """Return the place of an AUC from 40 to 100 %."""
    return round(_LEFT + (max(auc, 0.4) - 0.4) / 0.6 * (_WIDTH - _LEFT - 20))


def _interval(estimate: ShareEstimate) -> str:
    return f"{_share(estimate.value)} ({_share(estimate.low)} to {_share(estimate.high)})"


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _percent(value: float) -> str:
    return f"{100 * value:.2g} %"


def _fact(fact: tuple[str, str]) -> str:
    name, value = fact
    return f"<tr><th>{_text(name)}</th><td>{_text(value)}</td></tr>\n"


def _hash(name: str, digest: str) -> str:
    return f"<tr><th>SHA-256 of the {name}</th><td><code>{_text(digest)}</code></td></tr>\n"


def _cells(cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in cells) + "</tr>\n"


def _text(words: str) -> str:
    return escape(printable(words, 400))
