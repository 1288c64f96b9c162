"""The run's accepted messages: their chain, each edge's part of it, and the fold to the model."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tacit.errors import DataError, TacitError
from tacit.privacy.ledger import StatedChain
from tacit_services.aggregator.entries import OPERATOR
from tacit_services.evidence import bundle, journal_chain
from tacit_services.evidence.bundle import StatedJournal
from tacit_services.evidence.bundle_verdict import BundleVerdict
from tacit_services.evidence.identity_checks import OpenedBundle
from tacit_services.evidence.journal_chain import ChainEntry, JournalChain
from tacit_services.statements.accepted_messages import accepted
from tacit_services.statements.statement import StatedMessages

UPDATE = "update"


class Folded(Protocol):
    """What a journal folds to."""

    @property
    def model_sha256(self) -> str:
        """SHA-256 of the model's weights."""

    @property
    def version(self) -> int:
        """The model's version."""


# Folds a journal file; code: the folder of own code. Raises TacitError.
JournalFold = Callable[[Path, Path], Folded]


@dataclass(frozen=True, slots=True)
class JournalChecks:
    """The checks of one bundle's journal.

    folds: whether the journal may be folded, if it is there. Code of the bundle may run then.
    reached: for each edge with accepted updates, how far its ledger had come at the last. `check`
    fills it.
    """

    opened: OpenedBundle
    verdict: BundleVerdict
    fold: JournalFold
    folds: bool = True
    reached: dict[str, int] = field(default_factory=dict)

    def check(self, chains: dict[str, StatedChain], one_by_one: bool) -> Folded | None:
        """Check all; returns what the journal folds to, where it is there.

        one_by_one: whether every update needs charges of its own.
        """
        stated = self.opened.facts.journal
        if stated is None:
            self.verdict.miss(
                "journal",
                "the journal and its chain; which messages made the model rests on the host alone",
            )
            return None
        chain = self._chain(stated)
        if chain is None:
            return None
        if stated.begins_after:
            words = f"the run's first {stated.begins_after} messages, before the journal began"
            self.verdict.miss("journal", words)
        for edge in sorted({entry.edge for entry in chain.entries} - {OPERATOR}):
            entries = [entry for entry in chain.entries if entry.edge == edge]
            self._check_edge(edge, entries, chains.get(edge), one_by_one)
        self._check_silent(chain)
        self._tell_withdrawn(chain)
        return self._folded(chain)

    def _chain(self, stated: StatedJournal) -> JournalChain | None:
        try:
            entries = journal_chain.read_entries(self.opened.files.content(bundle.CHAIN).decode())
        except (DataError, UnicodeDecodeError) as error:
            self.verdict.refuse("journal", f"{bundle.CHAIN}: {error}")
            return None
        chain = JournalChain(self.opened.facts.run, stated.begins_after, stated.state, entries)
        first = entries[0].position if entries else stated.begins_after + 1
        fits = first == stated.begins_after + 1 and len(entries) == stated.records
        if not fits or chain.head() != stated.head:
            self.verdict.refuse("journal", f"{bundle.CHAIN}: its chain is broken")
            return None
        return chain

    def _check_edge(
        self, edge: str, entries: list[ChainEntry], ledger: StatedChain | None, one_by_one: bool
    ) -> None:
        updates = [entry for entry in entries if entry.kind == UPDATE]
        if updates:
            self.reached[edge] = updates[-1].charges
        signed = self.opened.statements.get(edge)
        if signed is None or ledger is None:
            if updates:
                words = f"{edge}: {len(updates)} accepted updates are covered by no statement"
                self.verdict.refuse("cover", words)
            return
        fault = self._unheard_of(entries, signed.statement.messages) or _uncharged(
            updates, ledger, one_by_one
        )
        if fault:
            self.verdict.refuse("cover", f"{edge}: {fault}")
            return
        self.verdict.prove(
            "cover",
            f"{edge}: its {len(updates)} accepted updates are those it has sent, has a receipt of, "
            "and has charged",
        )

    def _unheard_of(self, entries: list[ChainEntry], stated: StatedMessages) -> str:
        """Return what is wrong with an edge's messages, as it states them; "": nothing."""
        if self.opened.facts.journal is not None and self.opened.facts.journal.begins_after:
            return ""
        unanswered = stated.unanswered
        heard = [each for each in entries if unanswered.get(str(each.number)) != each.sha256]
        numbers = [entry.number for entry in entries]
        if numbers != sorted(set(numbers)):
            return "a message stands in the journal twice, or in another order"
        chained = accepted((each.number, bytes.fromhex(each.sha256)) for each in heard)
        if (chained.count, chained.last, chained.head.hex()) != (
            stated.count, stated.last, stated.head,
        ):  # fmt: skip
            return (
                f"the journal has {chained.count} messages of it, up to number {chained.last}; it "
                f"has receipts of {stated.count} up to {stated.last}, or of others"
            )
        return ""

    def _check_silent(self, chain: JournalChain) -> None:
        """Refuse a journal in which an edge has nothing that states that it was heard."""
        heard = {entry.edge for entry in chain.entries}
        for edge, signed in self.opened.statements.items():
            if edge not in heard and signed.statement.messages.count and not chain.begins_after:
                words = f"{edge}: its {signed.statement.messages.count} messages are left out"
                self.verdict.refuse("cover", words)

    def _tell_withdrawn(self, chain: JournalChain) -> None:
        """Say of each edge whose owner took its consent back what of it is in the model."""
        for edge, signed in self.opened.statements.items():
            if all(consent.withdrawn is None for consent in signed.statement.consents):
                continue
            own = [each for each in chain.entries if each.edge == edge and each.kind == UPDATE]
            if own:
                self.verdict.state(
                    "withdrawal",
                    f"{edge}: {len(own)} of its updates are in the model, the last at position "
                    f"{own[-1].position} of {chain.entries[-1].position}; none came after",
                    "the host's journal",
                )
            else:
                self.verdict.state(
                    "withdrawal", f"{edge}: no update of it is in the model", "the host's journal"
                )

    def _folded(self, chain: JournalChain) -> Folded | None:
        files = self.opened.files
        if bundle.JOURNAL not in files.names:
            words = "the journal itself, so nobody can fold it again; its chain is there"
            self.verdict.miss("journal", words)
            return None
        with tempfile.TemporaryDirectory(prefix="tacit-") as folder:
            journal = Path(folder) / "journal"
            files.copy(bundle.JOURNAL, journal)
            code = Path(folder) / "code"
            code.mkdir()
            prefix = f"{bundle.MODEL}/code/"
            for name in files.names:
                if name.startswith(prefix):
                    files.copy(name, code / name.removeprefix(prefix))
            try:
                if journal_chain.chain_of(journal, code) != chain:
                    self.verdict.refuse("journal", f"{bundle.JOURNAL}: is not what is chained")
                    return None
                if not self.folds:
                    words = "the fold: the run has own code, which runs with --trust-code alone"
                    self.verdict.miss("fold", words)
                    return None
                return self.fold(journal, code)
            except TacitError as error:
                self.verdict.refuse("journal", f"{bundle.JOURNAL}: {error}")
                return None


def _uncharged(updates: list[ChainEntry], ledger: StatedChain, one_by_one: bool) -> str:
    """Return what is wrong with the charges of an edge's updates; "": nothing."""
    heads = ledger.heads({entry.charges for entry in updates})
    before = 0
    for entry in updates:
        head = heads.get(entry.charges)
        if head is None or (entry.charges and head.hex() != entry.head):
            return f"message {entry.number} names a place that its ledger has not come through"
        if entry.charges < before + one_by_one:
            return f"message {entry.number} was not charged for itself"
        before = entry.charges
    return ""
