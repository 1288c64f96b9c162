"""A bundle, made where a run's results are: by its host, who signs it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from cryptography import x509

from tacit import exported, regular_file
from tacit.attacks.attack_report import AttackReport, read_report
from tacit.config.fingerprint import without
from tacit.config.run_file import THE_AGGREGATORS
from tacit.digests import canonical
from tacit.errors import ConfigError, DataError
from tacit_services.enrollment import certificates
from tacit_services.evidence import bundle, journal_chain, printed_page
from tacit_services.evidence.bundle import BundleFacts, StatedJournal
from tacit_services.evidence.bundle_files import BundleFiles, digests, write_zip
from tacit_services.evidence.journal_chain import JournalChain
from tacit_services.evidence.sbom import sbom
from tacit_services.statements import signing
from tacit_services.statements.running_code import running_code
from tacit_services.statements.statement import SignedStatement
from tacit_services.statements.stating import today

_RESULTS = ("summary.json", "model.safetensors", "averaged.safetensors", "best.safetensors")


class Signer(Protocol):
    """The authority of a bundle."""

    @property
    def certificate(self) -> x509.Certificate:
        """Its own certificate."""

    def certified(self, name: str, key: Any) -> x509.Certificate:
        """Return a certificate of `name` for this public key."""


@dataclass(frozen=True, slots=True)
class BundleSource:
    """What a bundle is made of.

    results: the run's folder of results. statements: of edges, by name. certificates: theirs.
    journal: the journal file, or None. with_journal: whether the journal itself goes in, and not
    its chain alone. names: of edges, as people call them. more: files besides, by their names in
    the bundle. self_stated: whether all keys are of this machine, and made for this bundle.
    """

    results: Path
    statements: Mapping[str, SignedStatement]
    certificates: Mapping[str, x509.Certificate]
    run: str
    which: str = "last"
    code: Path | None = None
    journal: Path | None = None
    with_journal: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, bytes] = field(default_factory=dict)
    self_stated: bool = False


class BundleMaker:
    """The maker of one bundle in a new folder."""

    def __init__(self, source: BundleSource, signer: Signer, folder: Path) -> None:
        self._source = source
        self._signer = signer
        self._folder = folder

    def make(self) -> Path:
        """Make the folder, and the zip beside it, which is returned.

        Raises ConfigError (is there already, or another run's journal), DataError (no such run),
        WireError (a journal that was altered).
        """
        folder = self._folder
        archive = folder.with_name(f"{folder.name}.zip")
        for path in (folder, archive):
            if path.exists():
                raise ConfigError(f"{path}: is there already, and nothing is overwritten")
        draft = folder.with_name(f".{folder.name}.new")
        shutil.rmtree(draft, ignore_errors=True)
        try:
            self._fill(draft)
            write_zip(draft, archive)
            draft.rename(folder)
        except OSError as error:
            raise ConfigError(f"{folder}: {error.strerror or error}") from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return archive

    def _fill(self, draft: Path) -> None:
        source = self._source
        draft.mkdir(parents=True)
        model = draft / bundle.MODEL
        exported.export(source.results, model, source.code, source.which)
        facts = json.loads((model / "model.json").read_bytes())
        summary = json.loads((source.results / "summary.json").read_bytes())
        run = exported.run_of(source.results, source.code)
        stated = run.stated()
        for name in _RESULTS:
            if (source.results / name).is_file():
                _write(draft, f"{bundle.RESULTS}/{name}", (source.results / name).read_bytes())
        _write(draft, bundle.STATED, canonical(stated).encode())
        _write(draft, bundle.AGREED, canonical(without(stated, THE_AGGREGATORS)).encode())
        for edge, statement in source.statements.items():
            _write(draft, bundle.statement_of(edge), statement.file)
        journal = self._journal(draft, run.folder)
        for name, content in source.more.items():
            _write(draft, name, content)
        report = self._attack(draft, facts["trained_sha256"])
        edges = sorted({*source.statements, *_with_updates(journal)}, key=_number)
        self._write_code(draft)
        statements = {edge: signed.statement for edge, signed in source.statements.items()}
        sheet = printed_page.page(
            source.run, facts["trained_sha256"], stated, summary, statements, source.names, report
        )
        _write(draft, bundle.PAGE, sheet.encode())
        self._sign(draft, summary, facts["trained_sha256"], journal, edges)

    def _journal(self, draft: Path, code: Path) -> JournalChain | None:
        source = self._source
        if source.journal is None:
            return None
        chain = journal_chain.chain_of(source.journal, code)
        if chain.run != source.run:
            raise ConfigError(f"--journal {source.journal}: is of run {chain.run!r}")
        _write(draft, bundle.CHAIN, chain.text().encode())
        if source.with_journal:
            shutil.copyfile(source.journal, draft / bundle.JOURNAL)
        return chain

    def _attack(self, draft: Path, model: str) -> AttackReport | None:
        """Copy the attack report that lies beside the results; None: there is none.

        Guarantee: one on an owner's own rows never goes in. Raises ConfigError, DataError.
        """
        folder = self._source.results / bundle.ATTACK
        if not folder.is_dir():
            return None
        contents = {name: regular_file.content(folder / name) for name in bundle.OF_ATTACK}
        report = read_report(contents[bundle.REPORT], str(folder / bundle.REPORT))
        if report.rows == "owner":
            raise ConfigError(
                f"{folder}: is a report on an owner's own rows, which stay with the owner; move it "
                "away, or attack with public rows"
            )
        if (report.model_sha256, report.which) != (model, self._source.which):
            raise ConfigError(
                f"{folder}: is a report on another model; run `tacit attack` again with --which "
                f"{self._source.which}, or move it away"
            )
        for name, content in contents.items():
            _write(draft, bundle.in_attack(name), content)
        return report

    def _write_code(self, draft: Path) -> None:
        host = running_code()
        machines = {"host": host} | {
            edge: signed.statement.code for edge, signed in self._source.statements.items()
        }
        _write(draft, bundle.CODE, (host.model_dump_json(indent=1) + "\n").encode())
        _write(draft, bundle.SBOM, sbom(machines).encode())

    def _sign(
        self,
        draft: Path,
        summary: dict[str, Any],
        model: str,
        journal: JournalChain | None,
        edges: Iterable[str],
    ) -> None:
        source = self._source
        key = certificates.new_key()
        host = self._signer.certified(bundle.HOST_NAME, key.public_key())
        _write(draft, bundle.AUTHORITY, certificates.pem(self._signer.certificate))
        _write(draft, bundle.HOST, certificates.pem(host))
        for edge, certificate in source.certificates.items():
            _write(draft, bundle.certificate_of(edge), certificates.pem(certificate))
        facts = BundleFacts.model_validate(
            {
                "run": source.run,
                "definition": summary["run_file_sha256"],
                "model_sha256": model,
                "which": source.which,
                "edges": list(edges),
                "names": dict(source.names),
                "self_stated": source.self_stated,
                "journal": None if journal is None else _stated(journal),
                "files": dict(digests(BundleFiles(draft), bundle.NAME)),
                "key": certificates.key_digest(key.public_key()),
                "at": today(),
            }
        )
        _write(draft, bundle.NAME, signing.signed(bundle.TITLE, facts.document(), key).encode())


def _stated(chain: JournalChain) -> StatedJournal:
    return StatedJournal(
        begins_after=chain.begins_after,
        state=chain.state,
        records=len(chain.entries),
        head=chain.head(),
    )


def _with_updates(chain: JournalChain | None) -> set[str]:
    """Return the edges whose updates a journal has."""
    if chain is None:
        return set()
    return {entry.edge for entry in chain.entries if entry.kind == "update"}


def _number(edge: str) -> int:
    return int(edge.rpartition("-")[2])


def _write(folder: Path, name: str, content: bytes) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def statement_in(path: Path) -> SignedStatement:
    """Return the statement in a file. Raises DataError."""
    try:
        return SignedStatement.at(path)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error
