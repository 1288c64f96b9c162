"""The check that an edge's ledger continues from where it was last seen: no rollback, no fork.

A ledger's own chain cannot show that an older copy of the file was put back, or that two copies are
in use. The aggregator, which keeps the furthest (count, head), can. Every message of an edge
reports its ledger's position. The furthest is kept in the store with the message, over all runs,
and a message from before it is refused. The edge then stops.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tacit.errors import WireError
from tacit.privacy.ledger import UNCHARGED, Charged
from tacit_services.journal.store import MAX_SEQ, Anchor
from tacit_services.logs import Seldom

ROLLED_BACK = (
    "rollback",
    "clone",
)  # reasons of a rejected receipt after which an edge must not go on
log = logging.getLogger("tacit.ledger_continuity")


@dataclass(frozen=True, slots=True)
class _LedgerRecord:
    charged: Charged
    seq: int  # of the message that showed it; 0: in another run


class LedgerContinuity:
    """The furthest position seen of every edge's ledger of one dataset."""

    def __init__(self, dataset: str) -> None:
        self._dataset = dataset
        self._records: dict[str, _LedgerRecord] = {}
        self._seldom = Seldom()

    def load(
        self, anchors: Iterable[Anchor], last_seqs: Mapping[str, int], folded: Mapping[str, Charged]
    ) -> None:
        """Take over what the store has kept of the edges' ledgers.

        What this run's fold knows counts where the store has kept nothing yet.
        """
        charges = dict(folded)
        for anchor in anchors:
            dataset, _, edge = anchor.lineage.partition("/")
            if dataset == self._dataset and anchor.count >= charges.get(edge, UNCHARGED).count:
                charges[edge] = Charged(anchor.count, anchor.head)
        for edge, charged in charges.items():
            if edge not in self._records or charged.count > self._records[edge].charged.count:
                self._records[edge] = _LedgerRecord(charged, last_seqs.get(edge, 0))

    def check(self, edge: str, seq: int, charged: Charged) -> Anchor:
        """Return the anchor to keep with message `seq`, whose edge's ledger stands at `charged`.

        Raises WireError (rollback, clone, value). A message older than the edge's newest is not
        judged: it is a late copy, and the journal knows its number.
        """
        record = self._records.get(edge, _LedgerRecord(UNCHARGED, 0))
        if charged.count > MAX_SEQ:
            raise WireError("value", f"charged: {charged.count} releases")
        if seq >= record.seq and charged != record.charged:
            self._judge(edge, seq, charged, record)
            self._records[edge] = _LedgerRecord(charged, seq)
        elif seq > record.seq and edge in self._records:
            self._records[edge] = _LedgerRecord(charged, seq)
        return Anchor(f"{self._dataset}/{edge}", charged.count, charged.head)

    def _judge(self, edge: str, seq: int, charged: Charged, record: _LedgerRecord) -> None:
        reason = None
        if charged.count < record.charged.count:
            reason = "rollback"
        elif charged.count == record.charged.count or (seq == record.seq and record.charged.head):
            reason = "clone"  # other bytes under the number, or another history of the same length
        if reason is None:
            return
        if count := self._seldom.due(reason):
            self._say(edge, charged, record.charged, count)
        raise WireError(reason, f"{charged.count} releases, seen {record.charged.count}")

    def _say(self, edge: str, charged: Charged, recorded: Charged, count: int) -> None:
        log.warning(
            "%s: its ledger says %d releases (%s), but was seen at %d (%s)%s",
            edge,
            charged.count,
            charged.head.hex()[:12],
            recorded.count,
            recorded.head.hex()[:12],
            "" if count == 1 else f", and {count - 1} such since the last line",
        )
