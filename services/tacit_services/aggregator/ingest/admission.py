"""The path of one message: decode → screen → append → acknowledge → fold → reply.

One thread does it all, the journal's only writer. The order is the guarantee: an edge gets the
receipt of a message only when the journal has it. If any process dies in between, the edge sends
the same bytes again, and the journal recognises them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Set

import torch

from tacit.errors import ServiceError, WireError
from tacit.models.vectors import LARGEST, learnable
from tacit.protocol import topics, wire, wire_up
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import EVERYONE, Outgoing, Retired, Update
from tacit_services.aggregator.downlink import Downlink
from tacit_services.aggregator.entries import OPERATOR, Batch, Candidate
from tacit_services.aggregator.ingest.checks import Checks
from tacit_services.aggregator.ingest.guard import Guard
from tacit_services.aggregator.ingest.reassembly import Reassembly
from tacit_services.aggregator.ingest.receipts import Receipts, RetryLater
from tacit_services.aggregator.ingest.staging import Staging
from tacit_services.aggregator.ingest.trusted import TrustedNoise
from tacit_services.aggregator.reporting.histogram import Histogram
from tacit_services.aggregator.run_journal import BUSY, RunJournal
from tacit_services.aggregator.task_scheduler import TaskScheduler
from tacit_services.journal.store import MAX_SEQ, Appended, NewEntry, Stage, Verdict
from tacit_services.logs import Seldom
from tacit_services.transport.inbox import STRANGERS, Inbox
from tacit_services.transport.mqtt import Inbound
from tacit_services.transport.rate_limit import RateLimiter

log = logging.getLogger("tacit.driver")
ROUND_SECONDS = 0.2  # for which one `accept` goes on taking messages


def _nothing_written() -> list[Appended]:
    return []


class Admission:
    """Accepts edges' messages, in the driver's thread.

    Each of its collaborators answers one question (is the message whole? is its sender within its
    rate?), or is the journal, or the downlink.
    """

    def __init__(
        self,
        inbox: Inbox,
        journal: RunJournal,
        downlink: Downlink,
        *,
        limiter: RateLimiter,
        reassembly: Reassembly,
        staging: Staging,
        guard: Guard,
        checks: Checks,
        noise: TrustedNoise | None,
        scheduler: TaskScheduler,
        presence: dict[str, str],
        names: Set[str],
        receipts: Receipts,
    ) -> None:
        """`presence`: what edges say of themselves. names: of the run's edges."""
        self._receipts, self._seldom = receipts, Seldom()
        self._inbox, self._journal, self._downlink = inbox, journal, downlink
        self._role, self._counts = journal.role, journal.counts
        self._limiter, self._reassembly, self._staging = limiter, reassembly, staging
        self._guard, self._checks = guard, checks
        self._noise, self._scheduler, self._presence = noise, scheduler, presence
        self._names = names
        # Integers become real numbers once the journal has them, in the message's own memory;
        # before, where somebody asks for the whole vector.
        self._real = noise is not None or guard.bounds_norms
        self.latency = Histogram()  # from taking a message in hand to having it in the model

    def resume(self) -> None:
        """Continue a run that was taken over, from where the edges' ledgers were last seen."""
        self._staging.begin_anew()
        anchors, folded = self._journal.ledgers()
        self._checks.continuity.load(anchors, self._journal.last_seqs, folded)

    def accept(self, seconds: float = 0.25) -> None:
        """Wait for messages, and take them from decoding to reply.

        seconds: how long to wait for the first; those that come meanwhile follow, for
        ROUND_SECONDS. While the store writes one batch, the next is decoded and screened; its
        append begins before the written batch is folded. Raises ServiceError where the store
        fails; the edges whose messages were not written have then been told to wait.
        """
        until = time.monotonic() + ROUND_SECONDS
        batch, answers = Batch([], 0.0), _nothing_written
        while True:
            first = not batch.candidates
            more = first or self._may_go_on(len(batch.candidates), until)
            arrived = self._inbox.gather(seconds if first else 0.0) if more else []
            began = time.perf_counter()
            following = Batch([found for one in arrived if (found := self._candidate(one))], began)
            try:
                answered = answers()
            except ServiceError:
                self._ask_to_wait([*batch.candidates, *following.candidates])
                raise
            try:
                entries = [
                    NewEntry(c.edge, c.seq, c.payload, c.anchor, c.stage)
                    for c in following.candidates
                ]
                answers = self._journal.store.begin(entries)
            except ServiceError:
                self._ask_to_wait(following.candidates)
                raise
            finally:
                self._acknowledge_fold_reply(batch, answered)
            if not following.candidates:
                return
            batch = following

    # -- decode and screen -------------------------------------------------------------------------

    def _candidate(self, inbound: Inbound) -> Candidate | None:
        """Return the message that this one completes, if it is for the journal.

        None: it was for something else and has been handled.
        """
        try:
            edge, seq, payload = topics.sender(inbound.topic, inbound.payload)
            if edge == OPERATOR or seq > MAX_SEQ:
                raise WireError("topic", f"message {seq} of {edge}")
        except WireError as error:
            self._counts[f"rejected:{error.reason}"] += 1
            inbound.done()
            return None
        known = edge in self._names
        self._limiter.begin(edge if known else STRANGERS)
        try:
            if not known:
                raise WireError("name", f"{edge} is none of this run's {len(self._names)}")
            if (found := self._decode_and_screen(edge, seq, payload, inbound)) is not None:
                return found
        except WireError as error:
            self._refuse(edge, seq, error)
        except RetryLater as later:
            self._counts[later.counted] += 1
            self._staging.forget(edge)
            self._downlink.receipt(
                edge, seq, pb.Receipt(status=pb.Receipt.BUSY, retry_after_s=later.retry_after_s)
            )
        # A part is acknowledged too. If it is lost later, a resend follows: only a receipt accepts.
        inbound.done()
        return None

    def _decode_and_screen(
        self, edge: str, seq: int, payload: bytes | memoryview, inbound: Inbound
    ) -> Candidate | None:
        """Return the message for the journal; None: it was a part or a question, now answered.

        Raises WireError where it will never be accepted, RetryLater where it may be later, and
        StoreLost.
        """
        journal = self._journal
        if (
            len(payload) == wire.PART_HEADER
            and wire.read_question(payload)
            and seq <= journal.last_seqs.get(edge, 0)
        ):
            self._answer_question(edge, seq)
            return None
        envelope = self._reassembly.add(edge, seq, payload)
        if envelope is None:
            self._part_came(edge, seq)
            return None
        if not wire.has_tensor(envelope):
            self._checks.control_messages.spend(edge, len(envelope))
        received = wire.decode(envelope, most=max(journal.size, self._role.largest))
        self._check_sender(received.meta, edge, seq)
        if received.meta.HasField("want"):
            self._downlink.more(edge, received.meta.want)
            return None
        self._checks.definition.check(received.meta)
        message = wire_up.read_up(received, journal.schema, journal.size, real=self._real)
        scale = received.meta.update.scale
        if not isinstance(message, Update) and seq > journal.last_seqs.get(edge, 0):
            self._checks.control_messages.keep(edge, len(envelope))
        self._guard.admit(edge, retires=isinstance(message, Retired))
        reason = self._screened(seq, message, scale) if isinstance(message, Update) else None
        if reason in ("unknown", "version"):
            raise WireError(reason, "not for the journal")
        # A message after the run's end is checked too: what it reports was released.
        anchor = self._checks.continuity.check(edge, seq, message.charged)
        if reason is not None:
            raise WireError(reason, "not for the journal")
        if isinstance(message, Update) and self._guard.bounds_norms:
            norm = float(torch.linalg.vector_norm(message.vector, dtype=torch.float64))
            self._guard.check_norm(edge, norm, message.base_version, message.vector.numel())
        if seq > journal.last_seqs.get(edge, 0):
            self._limiter.succeed(edge, len(envelope))
        self._guard.throttle(edge, seq)
        whole, stage = memoryview(envelope), self._stage(edge, envelope)
        candidate = Candidate(edge, seq, whole, message, anchor, inbound, scale, stage)
        return candidate if self._noise is None else self._noise.rewrite(candidate)

    def _stage(self, edge: str, envelope: wire.Whole) -> Stage | None:
        """Return where the store has the beginning of a long message already."""
        short = isinstance(envelope, bytearray)
        return None if short else self._staging.take(edge, envelope)

    def _screened(self, seq: int, update: Update, scale: float) -> str | None:
        """Return why an update must not enter the journal; None: it may.

        Raises WireError where nothing in the message is to be believed.
        """
        vector = update.vector
        if vector.dtype == torch.int32:  # its extremes say as much as all of its numbers
            vector = wire_up.gradient(torch.stack(torch.aminmax(vector)), scale)
        if not learnable(vector):  # it could ruin the model
            raise WireError("norm", f"a number beyond {LARGEST:g}")
        reason = self._role.screen(update)
        if reason is None and seq > self._journal.last_seqs.get(update.edge, 0):
            self._checks.base_versions.check(update.edge, update.base_version)
            self._checks.end_claims.check(update.edge, update.base_version, self._here)
        return reason

    def _here(self) -> Set[str]:
        """Return the edges that are connected and have sent Hello."""
        return {name for name in self._role.edges if self._presence.get(name) == "online"}

    def _check_sender(self, meta: pb.Meta, edge: str, seq: int) -> None:
        """Raise WireError where the message names another sender than its topic.

        Raises StoreLost where its sender holds a receipt for a message that the store lacks.
        """
        journal, said = self._journal, (meta.run, meta.edge, meta.seq)
        if said != (journal.run_id, edge, seq):
            raise WireError("identity", "says {}/{}/{}".format(*said))
        if meta.HasField("held"):
            self._receipts.check(edge, meta.held, journal.last_seqs.get(edge, 0))

    def _part_came(self, edge: str, seq: int) -> None:
        """Tell the edge which parts are missing, now and then; the store may have the others."""
        if answer := self._reassembly.answer(edge, seq):
            self._downlink.receipt(edge, seq, answer)
        begun = None if self._role.halted else self._reassembly.begun(edge, seq)
        if begun is not None and seq > self._journal.last_seqs.get(edge, 0):
            self._staging.more(edge, begun)

    def _answer_question(self, edge: str, seq: int) -> None:
        """Tell the edge that no part is missing of a message that was accepted before."""
        self._counts["asked"] += 1
        last = self._journal.last_seqs.get(edge, 0)
        receipt = pb.Receipt(status=pb.Receipt.DUPLICATE, last_seq=last)
        self._downlink.receipt(edge, seq, self._receipts.proven(edge, receipt))
        for out in self._answer_again(edge, seq):
            self._downlink.reply(out)

    def _refuse(self, edge: str, seq: int, error: WireError) -> None:
        reason = error.reason
        self._staging.refused(edge)
        said = str(error) if reason in ("definition", "format", "name") else reason
        if reason == "halted":  # it was under way when the run ended, so it is no fault
            self._counts["late"] += 1
        else:
            self._counts[f"rejected:{reason}"] += 1
            facts = {"edge": edge, "seq": seq, "version": self._role.version, "reason": said}
            if count := self._seldom.due(reason):
                many = f"{count} messages were refused, the last:"
                log.warning("a message was refused" if count == 1 else many, extra=facts)
            self._guard.refused(edge, reason)
        self._downlink.receipt(edge, seq, pb.Receipt(status=pb.Receipt.REJECTED, reason=said))

    # -- append ------------------------------------------------------------------------------------

    def _may_go_on(self, count: int, until: float) -> bool:
        """Whether more messages may be screened before `count` messages are folded.

        Not where the journal is full, or where the run ends with those messages.
        """
        ends = self._role.version + count >= self._role.horizon
        return time.monotonic() < until and not ends and not self._journal.full

    def _ask_to_wait(self, candidates: Iterable[Candidate]) -> None:
        """Answer BUSY: the edges keep the bytes and send them again, so nothing is lost."""
        for candidate in candidates:
            self._downlink.receipt(candidate.edge, candidate.seq, BUSY)
            candidate.inbound.done()
            self._counts["busy"] += 1

    # -- acknowledge, fold, reply ------------------------------------------------------------------

    def _acknowledge_fold_reply(self, batch: Batch, answers: list[Appended]) -> None:
        """Acknowledge to the broker, fold into the model, and reply to the edges.

        Every edge is sent its receipts and the role's newest message.
        """
        replies: dict[str, Outgoing] = {}
        receipts: dict[str, tuple[int, pb.Receipt]] = {}  # of each edge's latest message
        for candidate, answer in zip(batch.candidates, answers, strict=True):
            edge, seq = candidate.edge, candidate.seq
            candidate.inbound.done()
            version = self._role.version
            receipt, outgoing = self._journal.fold(candidate, answer)
            receipt = self._receipts.proven(edge, receipt)
            if answer.verdict == Verdict.ACCEPTED:
                self._checks.base_versions.accepted(edge, version)
                self.latency.observe(time.perf_counter() - batch.began)
                update = isinstance(candidate.message, Update)
                self._staging.accepted(edge, update=update)
                self._scheduler.heard(edge, update=update)
                facts = {"edge": edge, "seq": seq, "version": self._role.version}
                log.debug("accepted", extra=facts)
            elif answer.verdict == Verdict.DUPLICATE:
                outgoing = self._answer_again(edge, seq)
            if earlier := receipts.pop(edge, None):
                self._downlink.receipt(edge, *earlier)
            receipts[edge] = (seq, receipt)
            # An edge needs only the newest model. The driver announces the end, after the last
            # snapshot.
            replies |= {out.to: out for out in outgoing if out.to != EVERYONE}
        for edge, last in receipts.items():
            if edge not in replies:
                self._downlink.receipt(edge, *last)
        for edge, out in replies.items():  # receipt and model in one message
            self._downlink.reply(out, *receipts.get(edge, (0, None)))
        self.serve_waiting()

    def _answer_again(self, edge: str, seq: int) -> list[Outgoing]:
        """Return the role's answer to the sender of the last accepted message once more.

        The first answer may have been lost with a process that died.
        """
        last = self._journal.last_seqs.get(edge, 0)  # 0: of a stranger nothing was accepted
        return self._role.answer(edge) if seq == last > 0 else []

    def serve_waiting(self) -> None:
        """Give a task to those that waited for others, and no longer have to."""
        for out in (out for edge in self._scheduler.due() for out in self._role.answer(edge)):
            self._downlink.reply(out)
