"""What edges say, up to the journal: parts put together, decoded, authenticated, screened;

refusals answered.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable

from tacit.algorithms.base.server import ServerRole
from tacit.errors import WireError
from tacit.models.vectors import LARGEST, learnable
from tacit.privacy.ledger import Charged
from tacit.protocol import topics, wire
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import Outgoing, ServerOutput, Update
from tacit_services.aggregator.downlink import Downlink
from tacit_services.aggregator.entries import OPERATOR, Candidate
from tacit_services.aggregator.ingest import presence
from tacit_services.aggregator.ingest.guard import Guard
from tacit_services.aggregator.ingest.ledger_continuity import Anchors
from tacit_services.aggregator.ingest.reassembly import Crowded, Partials
from tacit_services.journal.store import Anchor, Verdict
from tacit_services.transport.mqtt import Inbound

log = logging.getLogger("tacit.driver")


class Uplink:
    """Judges every message before the journal, for one driver and in its thread."""

    def __init__(
        self, role: ServerRole, down: Downlink, counts: Counter[str], size: int, max_message: int
    ) -> None:
        self._role, self.down, self._counts, self._size = role, down, counts, size
        self.anchors = Anchors(role.dataset)
        # Memory is set aside for what a first part announces: no more than this run's largest
        # message can need.
        self.partials = Partials(
            min(max_message, 4 * max(size, role.largest) + wire.MAX_META + 128)
        )
        self.guard: Guard | None = None  # of the run file, where it has one
        self.rewrite: Callable[[Candidate], Candidate] = lambda candidate: (
            candidate
        )  # before it is journalled
        self.presence: dict[str, str] = {}
        self.last: dict[str, int] = {}  # each edge's last accepted number

    def load(
        self, anchors: Iterable[Anchor], last: dict[str, int], folded: dict[str, Charged]
    ) -> None:
        """Take over what the store knows of the edges."""
        self.last = dict(last)
        self.anchors.load(anchors, self.last, folded)

    def passed(self, edge: str, seq: int) -> tuple[pb.Receipt, list[Outgoing]]:
        """The answer to a message that was accepted before."""
        # The model that answered it may have been lost with whoever died: send the newest.
        last = self.last.get(edge, 0)  # 0: a stranger asks about a number before the first
        again = self._role.answer(edge) if seq == last > 0 else []
        return pb.Receipt(status=pb.Receipt.DUPLICATE, last_seq=last), again

    def candidate(self, inbound: Inbound) -> Candidate | None:
        """The message that this completes, if it is one for the journal;

        whatever else it is has been dealt with.
        """
        if inbound.topic.split("/")[3:4] == ["presence"]:
            presence.note(self.presence, inbound)
            return None
        try:
            edge, seq, _ = topics.parse_up(inbound.topic)
            if edge == OPERATOR:
                raise WireError("topic", f"{OPERATOR} is not an edge")
        except WireError as error:
            self._counts[f"rejected:{error.reason}"] += 1
            inbound.done()
            return None
        try:
            return self._decode(edge, seq, inbound)
        except WireError as error:
            self._refuse(edge, seq, error.reason)
        except Crowded as crowded:
            self._counts[crowded.counted] += 1
            self.down.receipt(
                edge, seq, pb.Receipt(status=pb.Receipt.BUSY, retry_after_s=crowded.retry_after_s)
            )
        inbound.done()
        return None

    def _decode(self, edge: str, seq: int, inbound: Inbound) -> Candidate | None:
        if (envelope := self._whole(edge, seq, inbound)) is None:
            return None
        received = wire.decode(envelope)
        if (received.meta.run, received.meta.edge, received.meta.seq) != (
            self.down.run_id,
            edge,
            seq,
        ):
            raise WireError(
                "identity", f"says {received.meta.run}/{received.meta.edge}/{received.meta.seq}"
            )
        if received.meta.HasField("want"):
            self.down.more(edge, received.meta.want)
            inbound.done()
            return None
        message = wire.read_up(received, self.down.schema, self._size)
        if self.guard is not None:
            self.guard.admit(edge, message)
        if isinstance(message, Update) and not learnable(
            message.vector
        ):  # it could end the model for everybody
            raise WireError("norm", f"a number beyond {LARGEST:g}")
        reason = self._role.screen(message) if isinstance(message, Update) else None
        if reason in ("unknown", "version"):
            raise WireError(reason, "not for the journal")
        anchor = self.anchors.check(
            seq, message
        )  # of one that comes after the end, too: it was released
        if reason is not None:
            raise WireError(reason, "not for the journal")
        if self.guard is not None:
            self.guard.check(edge, seq, message)
        return self.rewrite(Candidate(edge, seq, bytes(envelope), message, anchor, inbound))

    def _whole(self, edge: str, seq: int, inbound: Inbound) -> bytearray | None:
        """The envelope, when its last part has come;

        before that its edge is told which parts are missing.
        """
        envelope = None
        if wire.read_question(inbound.payload) and seq <= self.last.get(
            edge, 0
        ):  # nothing of it is missing
            self._counts[Verdict.DUPLICATE] += 1
            receipt, again = self.passed(edge, seq)
            self.down.receipt(edge, seq, receipt)
            for out in again:
                assert isinstance(out.message, ServerOutput)
                self.down.send(edge, out.message)
        else:
            envelope = self.partials.add(edge, seq, inbound.payload)
            if answer := self.partials.answer(edge, seq):
                self.down.receipt(edge, seq, answer)
        if envelope is None:
            inbound.done()  # a lost part costs a resend, not an update: acceptance is the receipt
        return envelope

    def _refuse(self, edge: str, seq: int, reason: str) -> None:
        if reason == "halted":  # under way when the run ended: nobody's fault
            self._counts["late"] += 1
        else:
            self._counts[f"rejected:{reason}"] += 1
            facts = {"edge": edge, "seq": seq, "version": self._role.version, "reason": reason}
            log.warning("a message was refused", extra=facts)
            if self.guard is not None:
                self.guard.refused(edge, reason)
        self.down.receipt(edge, seq, pb.Receipt(status=pb.Receipt.REJECTED, reason=reason))
