"""The answers to messages: receipts with a proof, and "not now", which is no refusal.

By the proof edges can show what the store has accepted and since lost.

A store that was emptied, cut or rolled back does not know what it has lost, and neither does an
aggregator that starts on it. The edges know: each keeps its newest receipt and sends it with every
message. A proof is a keyed digest (HMAC), which no edge can forge, so a dishonest one cannot stop a
run. The key is in a file beside the aggregator, not in the store.
"""

from __future__ import annotations

import hashlib
import hmac
import logging

from tacit.errors import StoreLost
from tacit.protocol._pb import wire_pb2 as pb

log = logging.getLogger("tacit.receipts")
_PROVEN = (pb.Receipt.ACCEPTED, pb.Receipt.DUPLICATE, pb.Receipt.STALE)


class RetryLater(Exception):  # noqa: N818  (a state: there is room again later)
    """A message cannot be accepted now; the same bytes may come again.

    counted: the counter's name for the reason. retry_after_s: seconds to wait.
    """

    def __init__(self, counted: str, retry_after_s: float) -> None:
        super().__init__(f"{counted}: again in {retry_after_s:.3g} s")
        self.counted = counted
        self.retry_after_s = retry_after_s


class Receipts:
    """The maker and checker of one run's proofs."""

    def __init__(self, key: bytes, run_id: str) -> None:
        self._key = key
        self._run = run_id
        self._doubted = False

    def proven(self, edge: str, receipt: pb.Receipt) -> pb.Receipt:
        """Return the receipt, with a proof of its `last_seq` if that was accepted."""
        if receipt.status in _PROVEN and receipt.last_seq:
            receipt.proof = self._proof(edge, receipt.last_seq)
        return receipt

    def check(self, edge: str, receipt: pb.Held, last: int) -> None:
        """Raise StoreLost if this edge holds a receipt for a later message than the store's `last`.

        A proof that this aggregator's key did not make is only logged: it is forged, or the key was
        lost.
        """
        if receipt.seq <= last:
            return
        if hmac.compare_digest(self._proof(edge, receipt.seq), receipt.proof):
            raise StoreLost(
                f"store: run {self._run!r} has lost messages: {edge} holds a receipt for its "
                f"message {receipt.seq}, the store ends at its {last}. Nothing was written. Put "
                "them back (tacit recover --from JOURNAL), or begin anew under another TACIT_RUN_ID"
            )
        if not self._doubted:
            log.warning(
                "%s shows a receipt for its message %d, the store ends at its %d; not one of this "
                "aggregator's, which go by the key of TACIT_RECEIPTS",
                edge,
                receipt.seq,
                last,
            )
        self._doubted = True

    def _proof(self, edge: str, seq: int) -> bytes:
        content = f"tacit receipt/{self._run}/{edge}/{seq}".encode()  # no name has a slash
        return hmac.digest(self._key, content, hashlib.sha256)
