"""privacy.noise_at = "server": what edges send is noised here, before anything of it is kept.

The journal, and so every snapshot, replay and report, has the noised updates only, with this
aggregator's ledger as their history. A message that comes again is not noised again.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

from tacit.config.definition import Definition
from tacit.errors import BudgetSpent, ConfigError, PrivacyError, WireError
from tacit.privacy.accounting import History
from tacit.privacy.noise.randomness import Random
from tacit.privacy.release.trusted import Trusted
from tacit.protocol import wire, wire_up
from tacit.protocol.messages import Hello, Push, Retired, Update
from tacit_services.aggregator.entries import Candidate
from tacit_services.aggregator.run_journal import RunJournal
from tacit_services.identity.ledger_place import LedgerPlace

KEPT = (
    256  # latest noised messages, for those that the store could not take and that will come again
)


class TrustedNoise:
    """The noise of the aggregator: rewrites candidates for one driver, in its thread."""

    def __init__(self, journal: RunJournal, trusted: Trusted) -> None:
        """`journal`: what edges' histories and numbers are compared with."""
        self._journal = journal
        self._trusted = trusted
        self._role = journal.role
        self._newest: dict[str, int] = {}  # the largest number rewritten in this process
        self._cached: OrderedDict[str, Candidate] = OrderedDict()

    def rewrite(self, candidate: Candidate) -> Candidate:
        """Return the message with noise and with this aggregator's history in place of the edge's.

        The journal never gets the original bytes. The ledger is charged before anything is
        computed; a crash before the journal has the message charges twice. Raises WireError
        (budget, order) and PrivacyError (a ledger that is damaged, or has less than the journal).
        """
        edge = candidate.edge
        seq = candidate.seq
        cached = self._cached.get(edge)
        if cached is not None and cached.seq == seq:
            return replace(cached, inbound=candidate.inbound)
        if seq <= self._newest.get(edge, seq) and seq <= self._journal.last_seqs.get(edge, 0):
            return replace(
                candidate, payload=b""
            )  # a duplicate: the store looks at its number only
        if seq < self._newest.get(edge, 0):
            raise WireError("order", f"message {seq} after {self._newest[edge]}")
        rewritten = self._rewritten(candidate)
        self._newest[edge] = seq
        self._cached[edge] = rewritten
        self._cached.move_to_end(edge)
        if len(self._cached) > KEPT:
            self._cached.popitem(last=False)
        return rewritten

    def close(self) -> None:
        """Close the ledgers; idempotent."""
        self._trusted.close()

    def _rewritten(self, candidate: Candidate) -> Candidate:
        journal = self._journal
        message = candidate.message
        edge = candidate.edge
        history = self._history(edge)
        if isinstance(message, Update):
            payload = self._noised(message, candidate.seq)
        else:
            corrected = replace(message, spent=history)
            payload = wire_up.up(journal.run_id, candidate.seq, corrected, journal.schema)
        return replace(candidate, payload=payload, message=self._read(payload))

    def _noised(self, update: Update, seq: int) -> bytes:
        try:
            released = self._trusted.release(update.edge, update.vector, self._role.clip)
        except BudgetSpent as spent:
            raise WireError("budget", str(spent)) from spent
        push = Push(update.edge, update.base_version, released)
        meta = wire.decode(wire_up.up(self._journal.run_id, seq, push, self._journal.schema)).meta
        # Where the edge's own ledger stands stays as it said: what notices one that was rolled
        # back.
        meta.update.charged.count, meta.update.charged.head = (
            update.charged.count,
            update.charged.head,
        )
        return wire.encode(meta, released.vector)

    def _read(self, payload: bytes) -> Hello | Update | Retired:
        return wire_up.read_up(
            wire.decode(bytearray(payload)), self._journal.schema, self._journal.size
        )

    def _history(self, edge: str) -> History:
        history = self._trusted.history(edge)
        record = self._role.edges.get(edge)
        if record:
            journalled = sum(row.count for row in record.spent)
        else:
            journalled = 0
        if sum(row.count for row in history) < journalled:
            raise PrivacyError(
                f"trusted ledger: {edge} has fewer charges than the journal knows of "
                f"({journalled}); it was lost or is an "
                "older copy"
            )
        return history


def opened(journal: RunJournal, definition: Definition[Any], ledger: Path | str) -> TrustedNoise:
    """Return the noise of this run, every update's before it is journalled, paid for by `ledger`.

    Raises ConfigError, PrivacyError (the ledger is on its way elsewhere).
    """
    try:
        Path(ledger).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"TACIT_TRUSTED={str(ledger)!r}: {error.strerror or error}") from error
    LedgerPlace(Path(ledger)).refuse_unfinished()
    return TrustedNoise(
        journal, Trusted(ledger, definition.source.name, definition.plans.named, Random())
    )
