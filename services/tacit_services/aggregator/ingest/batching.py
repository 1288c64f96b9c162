"""What has come, on its way into the store:

judged, and appended in two steps, so that nobody waits while it writes.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tacit.errors import ServiceError
from tacit.protocol._pb import wire_pb2 as pb
from tacit_services.aggregator.entries import Candidate
from tacit_services.aggregator.ingest.admission import Uplink
from tacit_services.journal.store import Appended, NewEntry, Store
from tacit_services.transport.mqtt import Inbound

BATCH = 64  # messages that share one append; more arrive while it is being written
BUSY = pb.Receipt(status=pb.Receipt.BUSY, retry_after_s=1.0)


@dataclass(slots=True)
class Lot:
    """Messages that share one append. `began`: when they were taken in hand;

    `answers` waits for the store.
    """

    candidates: list[Candidate]
    began: float
    answers: Callable[[], list[Appended]] = list


def gather(inbox: queue.SimpleQueue[Inbound], seconds: float = 0.25) -> list[Inbound]:
    """What has come, once anything has; nothing if nothing comes for so long."""
    batch: list[Inbound] = []
    with contextlib.suppress(queue.Empty):
        batch.append(inbox.get(timeout=seconds))
        while len(batch) < BATCH:
            batch.append(inbox.get_nowait())
    return batch


class Intake:
    """From the uplink into the store, for one driver and in its thread;

    the caller ends one lot before the next.
    """

    def __init__(self, uplink: Uplink, store: Store, counts: Counter[str]) -> None:
        self._uplink, self._store, self._counts = uplink, store, counts

    def judge(self, batch: Iterable[Inbound]) -> Lot:
        """What of `batch` is for the journal; the rest has been dealt with."""
        began = time.perf_counter()
        return Lot(
            [candidate for inbound in batch if (candidate := self._uplink.candidate(inbound))],
            began,
        )

    def begin(self, lot: Lot) -> Lot:
        """Send it to the store. Raises ServiceError; then its edges have been told to wait."""
        try:
            lot.answers = self._store.begin(
                [NewEntry(c.edge, c.seq, c.payload, c.anchor) for c in lot.candidates]
            )
        except ServiceError:
            self.put_off(lot)
            raise
        return lot

    def put_off(self, *lots: Lot) -> None:
        """Nothing is lost: the edges keep the bytes and send them again."""
        for candidate in (candidate for lot in lots for candidate in lot.candidates):
            self._uplink.down.receipt(candidate.edge, candidate.seq, BUSY)
            candidate.inbound.done()
            self._counts["busy"] += 1
