"""True bundles of small runs in one process, without a broker: real roles, ledgers and journals.

run = past_run(folder)                 # two edges, a few updates each
run.bundle(folder / "bundle")          # as the host of a federation makes it
verdict = verdict_of(folder / "bundle", anchors)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from tacit_services.aggregator import entries
from tacit_services.cli import replay
from tacit_services.enrollment import certificates
from tacit_services.evidence import bundle, verification
from tacit_services.evidence.anchors import Anchors
from tacit_services.evidence.bundle import BundleFacts, SignedBundle
from tacit_services.evidence.bundle_files import BundleFiles, digests
from tacit_services.evidence.bundle_making import BundleMaker, BundleSource
from tacit_services.evidence.bundle_verdict import BundleVerdict
from tacit_services.evidence.own_authority import ThrowawayAuthority
from tacit_services.journal.journal_file import Header, Writer
from tacit_services.journal.store import Snapshot
from tacit_services.journal.weights import Weights
from tacit_services.statements import signing, statement
from tacit_services.statements.statement import SignedStatement, StatedConsent
from tacit_services.statements.stating import Stating
from tacit_services.worker.outbox import Outbox

from tacit.algorithms import registry
from tacit.algorithms.base.server import ServerRole
from tacit.config import RunFile
from tacit.config.fingerprint import differences
from tacit.models import Model
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.release import Releaser
from tacit.protocol import wire, wire_up
from tacit.protocol.messages import EVERYONE, Hello, Outgoing, Push, Retired
from tests.golden.harness import make_server
from tests.helpers.run_files import MAPA, definition_text, run_file

DAY = date(2026, 11, 30)


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run that has ended, with the keys of all who took part."""

    run: RunFile
    name: str
    results: Path
    journal: Path
    authority: ThrowawayAuthority
    keys: Mapping[str, certificates.Key]
    statements: Mapping[str, SignedStatement]

    def source(self, **values: Any) -> BundleSource:
        """Return what its bundle is made of; `values` replace parts of it."""
        usual: dict[str, Any] = {
            "results": self.results,
            "statements": self.statements,
            "certificates": {
                edge: self.authority.certified(edge, key.public_key())
                for edge, key in self.keys.items()
            },
            "run": self.name,
            "code": self.results,
            "journal": self.journal,
            "with_journal": True,
        }
        return BundleSource(**usual | values)

    def bundle(self, folder: Path, **values: Any) -> Path:
        """Make the bundle in `folder`; returns the zip beside it."""
        return BundleMaker(self.source(**values), self.authority, folder).make()

    def anchors(self) -> Anchors:
        """Return what a federation and all its owners would give outside of a bundle."""
        return Anchors(
            {certificates.fingerprint(self.authority.certificate)},
            {edge: signed.key for edge, signed in self.statements.items()},
            dict(self.statements),
        )


def verdict_of(root: Path, anchors: Anchors | None = None) -> BundleVerdict:
    """Return what `tacit verify` finds."""
    return verification.verified(root, anchors or Anchors(), _fold)


def _fold(journal: Path, code: Path) -> replay.Replayed:
    return replay.fold(journal, code=code)


class _Conversation:
    """Edges and a server that hear one another at once, each message in a journal."""

    def __init__(self, run: RunFile, name: str, folder: Path, parts: ExitStack) -> None:
        self.model: Model = run.build_model()
        self.server: ServerRole = make_server(run, self.model)
        self._run, self._name = run, name
        self._writer = Writer(folder / "journal")
        self._writer.open(Header(name, run, Snapshot(0, b"")))
        parts.callback(self._writer.close)
        self.edges: dict[str, Any] = {}
        self.outboxes: dict[str, Outbox] = {}
        definition = run.define()
        for number in range(run.edges.count):
            edge = f"edge-{number}"
            part = run.source.edge(number, None, folder)
            plan = run.plan(number, part.most)
            ledger = parts.enter_context(closing(Ledger(folder / f"{edge}.db", run.source.name)))
            releaser = Releaser(plan, ledger, Random())
            self.edges[edge] = registry.edge(definition, edge, part.rows, self.model, releaser)
            self.outboxes[edge] = Outbox(ledger, name)

    def run(self) -> None:
        """Let every edge speak until the run is over."""
        due = [(edge, out) for edge, role in self.edges.items() for out in role.start()]
        while due:
            edge, out = due.pop(0)
            if not isinstance(out.message, Hello | Push | Retired) or self.server.halted:
                continue
            for answer in self._sent(edge, out.message):
                heard = [edge] if answer.to != EVERYONE else list(self.edges)
                for each in heard if answer.to in (edge, EVERYONE) else [answer.to]:
                    due += [(each, more) for more in self.edges[each].on_message(answer.message)]

    def _sent(self, edge: str, message: Any) -> list[Outgoing]:
        outbox = self.outboxes[edge]
        seq = outbox.next_seq()
        schema, definition = self.model.schema_hash(), definition_text(self._run)
        envelope = wire_up.up_in_place(self._name, seq, message, schema, definition, None)
        payload = envelope.whole()
        outbox.put(seq, payload)
        received = entries.understood(wire.decode(payload), schema, self.server.update_size)
        self._writer.append([(self._writer.last + 1, payload)])
        outbox.done(seq, accepted=True)
        return self.server.on_message(received)


def past_run(
    folder: Path,
    name: str = "doses",
    *,
    edges: int = 2,
    updates: int = 6,
    authority: ThrowawayAuthority | None = None,
    consents: Mapping[str, list[StatedConsent]] | None = None,
) -> PastRun:
    """Let a run take place in `folder`, which is made."""
    folder.mkdir(parents=True)
    run = run_file(MAPA, run={"updates": updates, "name": name}, edges={"count": edges})
    authority = authority or ThrowawayAuthority("clinic")
    keys = {f"edge-{number}": certificates.new_key() for number in range(edges)}
    with ExitStack() as parts:
        conversation = _Conversation(run, name, folder, parts)
        conversation.run()
        definition = run.define()
        statements = {}
        for edge, role in conversation.edges.items():
            stating = Stating(
                name, edge, definition, None, (consents or {}).get(edge, ()), lambda: DAY
            )
            outbox = conversation.outboxes[edge]
            ledger = role.releaser.ledger
            stated = stating.statement(
                ledger, outbox.accepted, outbox.unanswered, keys[edge], ended=True
            )
            statement.write(stated, keys[edge], folder / f"{edge}.json")
            statements[edge] = SignedStatement.at(folder / f"{edge}.json")
        _write_results(folder / "results", run, conversation)
    return PastRun(run, name, folder / "results", folder / "journal", authority, keys, statements)


def _write_results(folder: Path, run: RunFile, conversation: _Conversation) -> None:
    folder.mkdir()
    server = conversation.server
    content = Weights(conversation.model, server.params).whole()
    (folder / "model.safetensors").write_bytes(content)
    promise = run.define().promise
    spent = {
        edge: promise.spent(edge, record.spent, record.charged, record.spent)
        for edge, record in server.edges.items()
    }
    summary = {
        "run": run.run.name,
        "run_file_sha256": run.fingerprint(),
        "model_sha256": hashlib.sha256(content).hexdigest(),
        "model_version": server.version,
        "metrics": {"accuracy": 0.75},
        "privacy": promise.total(spent).document(),
        "tacit_version": "0.3.0",
        "edges": run.edges.count,
        "applied": server.version,
    }
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    definition = {"format": 1, "folder": str(folder), "run": differences(run)}
    (folder / "definition.json").write_text(json.dumps(definition), encoding="utf-8")


# -- forgeries ---------------------------------------------------------------------------------

Change = Callable[[Path], None]


def signed_anew(folder: Path, authority: ThrowawayAuthority, **values: Any) -> None:
    """Let whoever has `authority` sign a changed bundle; `values` replace what bundle.json has."""
    text = (folder / bundle.NAME).read_bytes()
    facts = SignedBundle(text).facts
    key = certificates.new_key()
    host = authority.certified(bundle.HOST_NAME, key.public_key())
    put(folder, bundle.AUTHORITY, certificates.pem(authority.certificate))
    put(folder, bundle.HOST, certificates.pem(host))
    content = facts.document() | {"key": certificates.key_digest(key.public_key())} | values
    content["files"] = dict(digests(BundleFiles(folder), bundle.NAME))
    content["at"] = DAY.isoformat()
    stated = BundleFacts.model_validate(content)
    put(folder, bundle.NAME, signing.signed(bundle.TITLE, stated.document(), key).encode())


def put(folder: Path, name: str, content: bytes) -> None:
    """Write a file of a bundle."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def restated(folder: Path, edge: str, by: certificates.Key, /, **changes: Any) -> None:
    """Let whoever has the key `by` sign a statement of `edge` with some keys changed ("privacy.epsilon")."""
    path = folder / bundle.statement_of(edge)
    content = json.loads(json.loads(path.read_bytes())["content"])
    for place, value in changes.items():
        section = content
        *inside, last = place.split(".")
        for name in inside:
            section = section[name]
        section[last] = value
    path.write_text(signing.signed(statement.TITLE, content, by), encoding="utf-8")


def own_certificate(folder: Path, edge: str, key: certificates.Key, by: ThrowawayAuthority) -> None:
    """Put a certificate of `edge` for `key` into a bundle, by another authority or the host's."""
    put(folder, bundle.certificate_of(edge), certificates.pem(by.certified(edge, key.public_key())))
