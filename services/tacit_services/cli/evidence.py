"""`tacit export --evidence`: the bundle of a run, by what lies at its host."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tacit import regular_file
from tacit.errors import ConfigError, DataError
from tacit.protocol.topics import checked_name
from tacit_services.cli.say import say

if TYPE_CHECKING:
    from tacit_services.evidence.bundle_making import BundleSource, Signer
    from tacit_services.statements.statement import SignedStatement


def of_results(
    results: Path,
    out: Path,
    which: str,
    code: Path | None,
    journal: Path | None,
    *,
    with_journal: bool,
) -> None:
    """Make the bundle of a run of `tacit run` in `out`, and the zip beside it.

    journal: its journal file, which goes in itself where `with_journal`, else its chain alone.
    Raises TacitError.
    """
    from tacit_services.evidence.bundle_making import BundleSource
    from tacit_services.evidence.own_authority import ThrowawayAuthority
    from tacit_services.statements.statement import statement_file

    run = _run_id(results)
    identities = (results / "state" / "identities").glob("*")
    files = (statement_file(identity, run) for identity in identities)
    statements = _statements(file for file in files if file.is_file())
    authority = ThrowawayAuthority()
    source = BundleSource(
        results=results,
        statements=statements,
        certificates={
            edge: authority.certified(edge, signed.statement.public_key)
            for edge, signed in statements.items()
        },
        run=run,
        which=which,
        code=code,
        journal=journal,
        with_journal=with_journal,
        self_stated=True,
    )
    _make(source, authority, out)


def of_federation(
    federation: Path | None, run: str, out: Path, which: str, *, with_journal: bool
) -> None:
    """Make the bundle of a federation's run in `out`, and the zip beside it, at its host.

    Raises TacitError.
    """
    from tacit_services.enrollment.authority import CertificateAuthority
    from tacit_services.evidence import bundle
    from tacit_services.evidence.bundle_making import BundleSource
    from tacit_services.evidence.own_authority import FederationsAuthority
    from tacit_services.federation.members import Members
    from tacit_services.federation.statement_desk import FOLDER
    from tacit_services.offers.offer import OFFER
    from tacit_services.offers.submission import FILES

    if federation is None:
        raise ConfigError("--evidence: is made at the host, whose authority signs it: --federation")
    place = federation / "runs" / checked_name("--run", run)
    authority = FederationsAuthority(CertificateAuthority(federation / "ca"))
    statements = _statements((place / FOLDER).glob("edge-*.json"))
    roll = Members(federation / "members").roll()
    journal = place / "journal"
    source = BundleSource(
        results=place / "out",
        statements=statements,
        certificates={
            edge: authority.issued(edge, signed.statement.public_key)
            for edge, signed in statements.items()
        },
        run=run,
        which=which,
        code=place / FILES,
        journal=journal if journal.is_file() else None,
        with_journal=with_journal,
        names={edge: roll.name(edge) for edge in statements},
        more={bundle.OFFER: regular_file.content(place / OFFER)},
    )
    _make(source, authority, out)


def _make(source: BundleSource, authority: Signer, out: Path) -> None:
    from tacit_services.evidence.bundle_making import BundleMaker

    archive = BundleMaker(source, authority, out).make()
    count = len(source.statements)
    say(f"{out}/ and {archive}: the evidence of run {source.run}, with {count} statements")
    say(f"next: tacit verify {archive}")


def _run_id(results: Path) -> str:
    """Return the run's name at its aggregator. Raises DataError."""
    from tacit.exported.stored import document
    from tacit_services.testbed import output_folder

    marker = results / "state" / output_folder.MARKER
    try:
        return str(json.loads(marker.read_text(encoding="utf-8"))["TACIT_RUN_ID"])
    except (OSError, ValueError, KeyError, TypeError):
        return str(document(results / "summary.json").get("run", ""))


def _statements(paths: Iterable[Path]) -> dict[str, SignedStatement]:
    """Return the statements of a run's edges, by name. Raises DataError."""
    from tacit_services.evidence.bundle_making import statement_in

    statements = [statement_in(path) for path in sorted(paths)]
    if not statements:
        raise DataError(
            "--evidence: no edge has stated what it released; each does at a run's end, since "
            "tacit 0.3"
        )
    return {signed.statement.edge: signed for signed in statements}
