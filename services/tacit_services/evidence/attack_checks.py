"""Whether an attack report is of this bundle's model, and stands beside the bound that it says."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from tacit.attacks.attack_report import AttackReport, read_report
from tacit.errors import DataError
from tacit_services.evidence import attack_page, bundle
from tacit_services.evidence.bundle_verdict import BundleVerdict
from tacit_services.evidence.identity_checks import OpenedBundle

_CODE = "attacks"
_SUMMARY = f"{bundle.RESULTS}/summary.json"
_ADD_OR_REMOVE = "add-or-remove-one"


def check(opened: OpenedBundle, verdict: BundleVerdict) -> None:
    """Check the report of the attacks, if there is one."""
    names = [bundle.in_attack(name) for name in bundle.OF_ATTACK]
    present = [name for name in opened.files.names if name.startswith(f"{bundle.ATTACK}/")]
    if not present:
        verdict.miss(_CODE, "an attack report")
        return
    faults = [f"{name}: is not in the bundle" for name in names if name not in present]
    faults += [f"{name}: is no part of an attack report" for name in present if name not in names]
    try:
        if not faults:
            faults = list(_faults(opened))
    except (DataError, LookupError, TypeError, ValueError, AttributeError) as error:
        faults = [str(error) if isinstance(error, DataError) else f"cannot be read: {error!r}"]
    for words in faults:
        verdict.refuse(_CODE, f"the attack report: {words}")
    if not faults:
        _tell(report_of(opened), opened, verdict)


def report_of(opened: OpenedBundle) -> AttackReport:
    """Return the report in a bundle. Raises DataError."""
    name = bundle.in_attack(bundle.REPORT)
    return read_report(opened.files.content(name), name)


def _faults(opened: OpenedBundle) -> Iterator[str]:
    report = report_of(opened)
    facts, files = opened.facts, opened.files
    if report.rows == "owner":
        yield "is of an owner's own rows, which stay with the owner"
    ours = (facts.definition, facts.model_sha256, facts.which)
    if (report.definition, report.model_sha256, report.which) != ours:
        yield "is of another model"
    privacy = json.loads(files.content(_SUMMARY))["privacy"]
    bounded = privacy["adjacency"] == _ADD_OR_REMOVE
    if not _same(report.epsilon, privacy["epsilon"] if bounded else None) or not _same(
        report.delta, privacy["delta"]
    ):
        yield "has another ε or δ than the results"
    if report.trained == "this model" and not _same(report.trained_epsilon, report.epsilon):
        yield "has two ε of one model"
    yield from report.faults()
    if attack_page.page(report).encode() != files.content(bundle.in_attack(bundle.REPORT_PAGE)):
        yield "its page says something else than the report"
    yield from _of_sacro(report, json.loads(files.content(bundle.in_attack(bundle.SACRO))))


def _of_sacro(report: AttackReport, document: dict[str, Any]) -> Iterator[str]:
    """Yield where SACRO-ML's form has other figures than the report."""
    stated = [
        entry["attack_experiment_logger"]["attack_instance_logger"]["instance_0"]["AUC"]
        for entry in document.values()
    ]
    ours = [each.auc.value for each in report.attacks]
    if len(stated) != len(ours) or not all(map(_same, stated, ours)):
        yield "SACRO-ML's form has other figures than the report"


def _same(first: float | None, second: float | None) -> bool:
    if first is None or second is None:
        return first is second
    return math.isclose(first, second, rel_tol=1e-9, abs_tol=1e-12)


def _tell(report: AttackReport, opened: OpenedBundle, verdict: BundleVerdict) -> None:
    words = "the attack report is about this model, and its bound follows from ε and δ"
    if report.bound is None:
        words = "the attack report is about this model, which has no bound"
    verdict.prove(_CODE, words)
    who = "the exporter" if opened.facts.self_stated else "the host"
    verdict.state(_CODE, f"what attacks found. {attack_page.verdict(report)}", who)
