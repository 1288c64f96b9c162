"""The printed page of a bundle: one sheet that a person can sign.

It is made of the bundle's other files alone, so `tacit verify` makes it again, to the byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from tacit import rounding
from tacit.attacks.attack_report import AttackReport
from tacit.shown import printable
from tacit_services.evidence import attack_page
from tacit_services.evidence.print_style import PRINT_STYLE
from tacit_services.statements.statement import Statement

_SHEET = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
{style}.sign td {{ height: 14mm; width: 33% }}
</style></head><body>
<h1>{title}</h1>
<table>
{facts}</table>
<h2>What it can tell of one {unit}</h2>
{privacy}
<h2>Who took part</h2>
<table><tr><th>owner</th><th>ε</th><th>releases</th><th>consent</th></tr>
{owners}</table>
{attacks}<h2>What is not promised</h2>
<ul>
<li>That the model says nothing about people <em>like</em> somebody, or that it is right.</li>
<li>Anything about what was released by other means than tacit.</li>
<li>That an owner's rows, ledger and code were as the owner states. Each statement is its owner's
signed word.</li>
<li>How well the model does on others' data. The results are the host's.</li>
</ul>
<h2>Checks</h2>
<p>Run <code>tacit verify</code> with this bundle and the owners' anchors. It must say that nothing
is refused. Result, version, day: ______________________________________</p>
<table class="sign"><tr><td>name, role</td><td>day</td><td>signature</td></tr></table>
</body></html>
"""
_NO_BOUND = "<p><strong>There is no bound.</strong> Whoever has the model may be able to tell.</p>"


def page(
    run: str,
    model_sha256: str,
    stated: Mapping[str, Any],
    summary: Mapping[str, Any],
    statements: Mapping[str, Statement],
    names: Mapping[str, str],
    report: AttackReport | None = None,
) -> str:
    """Return the sheet.

    stated: the run definition. names: of edges, as people call them. report: of attacks on the
    model. None: there is none.
    """
    privacy = summary["privacy"]
    facts = [
        ("run", run),
        ("learns", _learns(stated)),
        ("columns that were read", ", ".join(_columns(stated)) or "of the definition's data"),
        ("trained by", _at(stated, "algorithm", "name")),
        ("against whom", f"{privacy['guarantee']}; trusted: {privacy['trusted']}"),
        ("results on the public test set", _results(summary.get("metrics", {}))),
    ]
    hashes = "".join(
        f"<tr><th>SHA-256 of the {name}</th><td><code>{_text(digest)}</code></td></tr>\n"
        for name, digest in (
            ("run definition", summary["run_file_sha256"]), ("weights", model_sha256),
        )
    )  # fmt: skip
    return _SHEET.format(
        style=PRINT_STYLE,
        title=_text(f"Evidence of the model {run}"),
        facts="".join(_row(*fact) for fact in facts) + hashes,
        unit=_text(privacy["unit"]),
        privacy=_in_words(privacy),
        owners="".join(_owner(edge, statements[edge], names) for edge in sorted(statements)),
        attacks="" if report is None else _attacks(report),
    )


def _attacks(report: AttackReport) -> str:
    words = attack_page.verdict(report)
    return (
        f"<h2>What attacks found</h2>\n<p>{_text(words)} Attacked: {_text(report.rows_of)}.</p>\n"
    )


def _in_words(privacy: Mapping[str, Any]) -> str:
    epsilon, delta, unit = privacy["epsilon"], privacy["delta"], _text(privacy["unit"])
    if epsilon is None:
        return _NO_BOUND
    guess = rounding.guess(epsilon)
    right = "as good as always" if guess is None else f"at most {guess} of the time"
    return (
        f"<p>ε = {rounding.epsilon(epsilon)}, δ = {rounding.decimal(delta)}. An attacker who knows "
        f"everything about one {unit} but whether it is in the data, and everything about all "
        f"others, can be right {right} instead of 50 %, but for a chance of about δ. No answer "
        f"becomes more than {rounding.odds(epsilon)} times as likely because of that {unit}. This "
        "counts all that the same ledgers have released, in other runs as well.</p>"
    )


def _owner(edge: str, stated: Statement, names: Mapping[str, str]) -> str:
    epsilon = stated.privacy.epsilon
    spent = "no bound" if epsilon is None else rounding.epsilon(epsilon)
    consents = [
        f"{each.answer} {each.at}" + (f", taken back {each.withdrawn}" if each.withdrawn else "")
        for each in stated.consents
    ]
    name = f"{names[edge]} ({edge})" if edge in names else edge
    cells = (name, spent, str(stated.chain["count"]), "; ".join(consents) or "not asked")
    return "<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in cells) + "</tr>\n"


def _learns(stated: Mapping[str, Any]) -> str:
    data = stated.get("data", {})
    return str(data.get("target") or data.get("dataset") or data.get("name") or "its data's target")


def _columns(stated: Mapping[str, Any]) -> Iterable[str]:
    columns = stated.get("data", {}).get("columns", {})
    return sorted(columns) if isinstance(columns, dict) else ()


def _results(metrics: Mapping[str, Any]) -> str:
    measured = [f"{name} {value:.4g}" for name, value in metrics.items() if value is not None]
    return ", ".join(measured) or "nothing was measured"


def _at(stated: Mapping[str, Any], section: str, key: str) -> str:
    return str(stated.get(section, {}).get(key, "its definition's default"))


def _row(name: str, value: str) -> str:
    return f"<tr><th>{_text(name)}</th><td>{_text(value)}</td></tr>\n"


def _text(words: str) -> str:
    return escape(printable(str(words), 400))
