"""`tacit verify`: all checks of a bundle, without a network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tacit.errors import DataError
from tacit_services.evidence import attack_checks, bundle, statement_checks
from tacit_services.evidence.anchors import Anchors
from tacit_services.evidence.bundle_files import BundleFiles
from tacit_services.evidence.bundle_verdict import BundleVerdict
from tacit_services.evidence.identity_checks import IdentityChecks, OpenedBundle
from tacit_services.evidence.journal_checks import JournalChecks, JournalFold
from tacit_services.evidence.result_checks import ResultChecks

_CODE_KEYS = {"entry", "front"}  # of a run definition: what they name is imported


def verified(
    root: Path, anchors: Anchors, fold: JournalFold, *, trust_code: bool = False
) -> BundleVerdict:
    """Return what the bundle at `root` proves, a folder or a zip.

    anchors: what is known beforehand. fold: folds a journal. trust_code: whether code in the bundle
    may run on this machine, to fold. Raises DataError for what is no bundle.
    """
    verdict = BundleVerdict()
    files = BundleFiles(root)
    opened = IdentityChecks(files, anchors, verdict).opened()
    if opened is None:
        return verdict
    chains = statement_checks.ledgers(opened, verdict)
    results = ResultChecks(opened, verdict)
    folds = trust_code or not _has_code(opened)
    journal = JournalChecks(opened, verdict, fold, folds)
    folded = journal.check(chains, results.is_told_apart())
    results.check(chains, journal.reached, folded)
    attack_checks.check(opened, verdict)
    verdict.state("code", "which code has run", "the machines it has run on")
    return verdict


def _has_code(opened: OpenedBundle) -> bool:
    """Check whether the run's definition names code, which a fold would run."""
    try:
        return _names_code(json.loads(opened.files.content(bundle.STATED)))
    except (DataError, ValueError, RecursionError):
        return True


def _names_code(section: Any) -> bool:
    if isinstance(section, list):
        return any(map(_names_code, section))
    if not isinstance(section, dict):
        return False
    loss = section.get("loss")
    own_loss = isinstance(loss, str) and ":" in loss
    return own_loss or not _CODE_KEYS.isdisjoint(section) or any(map(_names_code, section.values()))
