"""The way of one message through the aggregator, from the broker to the reply.

    receive → put together → decode → check → append → acknowledge → fold → reply

    pipeline.hear(inbound)  # on the network's thread, as often as the broker delivers
    pipeline.accept()       # in the driver's thread: all of the way, for what has arrived

`Pipeline` names the eight steps, and its methods follow in their order: `_receive`, `_candidate`
with its three steps (`_put_together`, `_decode`, `_check`), `_append`, then acknowledge, fold and
reply. The checks themselves lie in `ingest`, the journal in `journal.store`, the model in the role.

Guarantee: the order. An edge gets the receipt of a message only when the journal has it. If any
process dies in between, the edge sends the same bytes again, and the journal recognises them: so
each message is folded exactly once, in the journal's order.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

import torch

from tacit.errors import ServiceError, WireError
from tacit.protocol import topics, wire, wire_up
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import EVERYONE, Outgoing, Retired, Update
from tacit_services.aggregator.downlink import Downlink
from tacit_services.aggregator.entries import OPERATOR, AppendBatch, Candidate
from tacit_services.aggregator.ingest.checks import Checks, check_numbers
from tacit_services.aggregator.ingest.reassembly import Reassembly
from tacit_services.aggregator.ingest.receipts import Receipts, RetryLater
from tacit_services.aggregator.ingest.staging import Staging
from tacit_services.aggregator.ingest.trusted_noise import TrustedNoise
from tacit_services.aggregator.run import Run
from tacit_services.aggregator.run_journal import BUSY
from tacit_services.journal.store import MAX_SEQ, Appended, Stage, Verdict
from tacit_services.logs import Seldom
from tacit_services.transport.inbox import STRANGERS, Inbox
from tacit_services.transport.mqtt import Inbound

log = logging.getLogger("tacit.pipeline")
ROUND_SECONDS = 0.2  # for which one `accept` goes on taking messages
AwaitAppends = Callable[
    [], list[Appended]
]  # waits for the store, and returns what it made of a batch


def _no_more() -> None:
    """Do nothing after a batch."""


class Pipeline:
    """The way of edges' messages into the model, in the driver's thread, the only writer.

    1. receive: up to a batch of messages, one of each edge in turn (`_receive`),
    2. put together: what is a part of a message waits for the others (`_put_together`),
    3. decode: strictly; its sender is its topic's (`_decode`),
    4. check: by the run's checks, the role and the guard (`_check`),
    5. append: the batch to the journal, in one atomic step, durable when the store answers
       (`_append`, `_appended`),
    6. acknowledge to the broker,
    7. fold into the model, in the journal's order (`_fold`),
    8. reply: receipt and newest model in one message (`_reply`).

    What ends in steps 2 to 4 is answered and acknowledged there: a part, a question, a refusal, or
    "not now". While the store writes one batch, the next goes through steps 1 to 4, and its append
    begins before the written batch is folded.
    """

    def __init__(
        self,
        run: Run,
        inbox: Inbox,
        downlink: Downlink,
        *,
        reassembly: Reassembly,
        staging: Staging,
        checks: Checks,
        noise: TrustedNoise | None,
        receipts: Receipts,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """noise: what the aggregator adds to updates, if it does."""
        self._run = run
        self._inbox = inbox
        self._downlink = downlink
        self._journal = run.journal
        self._role = run.role
        self._counts = run.counts
        self._guard = run.guard
        self._limiter = run.limiter
        self._scheduler = run.scheduler
        self._reassembly = reassembly
        self._staging = staging
        self._checks = checks
        self._noise = noise
        self._receipts = receipts
        self._seldom = Seldom()
        self._clock = clock
        # Integers become real numbers once the journal has them, in the message's own memory;
        # before, where somebody asks for the whole vector.
        self._real = noise is not None or run.guard.bounds_norms

    def hear(self, inbound: Inbound) -> None:
        """Queue what the broker has delivered, for any thread."""
        self._inbox.put(inbound)

    def resume(self) -> None:
        """Continue a run that was taken over, from where the edges' ledgers were last seen."""
        self._staging.begin_anew()
        anchors, folded = self._journal.ledgers()
        self._checks.continuity.load(anchors, self._journal.last_seqs, folded)
        self._scheduler.resume()

    def accept(self, seconds: float = 0.25, folded: Callable[[], None] = _no_more) -> None:
        """Wait for messages, and take them all of the way.

        seconds: how long to wait for the first. Those that come meanwhile follow, for
        ROUND_SECONDS. folded: is called after every batch. It must not use the journal, which may
        be writing the next one.

        Raises ServiceError if the store fails. The edges whose messages were not written have then
        been told to wait.
        """
        until = self._clock() + ROUND_SECONDS
        batch = AppendBatch([], 0.0)
        answers = _nothing
        while True:
            arrived = self._receive(len(batch.candidates), seconds, until)
            began = time.perf_counter()
            following = AppendBatch(
                [c for inbound in arrived if (c := self._candidate(inbound))], began
            )
            appended = self._appended(answers, [*batch.candidates, *following.candidates])
            try:
                answers = self._append(following.candidates)
            finally:
                self._acknowledge_fold_reply(batch, appended)
            if batch.candidates:
                folded()
            if not following.candidates:
                return
            batch = following

    def forget_old(self) -> None:
        """Forget unfinished messages of which nothing has come for long."""
        for edge in self._reassembly.expire():
            self._staging.forget(edge)

    def end_staging(self) -> None:
        """Delete what the store has of unfinished messages, as no update is taken any more."""
        self._staging.close()

    def close(self) -> None:
        """Close what it has opened; idempotent."""
        self._staging.close()
        if self._noise is not None:
            self._noise.close()

    # -- 1. receive --------------------------------------------------------------------------------

    def _receive(self, pending: int, seconds: float, until: float) -> list[Inbound]:
        """Return what has arrived; of the first batch of all, wait for it.

        pending: messages that the store is writing. None more are taken in where the journal is
        full, or where the run ends with those.
        """
        if not pending:
            return self._inbox.gather(seconds)
        ends = self._role.version + pending >= self._role.horizon
        if self._clock() >= until or ends or self._journal.full:
            return []
        return self._inbox.gather(0.0)

    # -- 2. put together, 3. decode, 4. check ------------------------------------------------------

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
        names = self._run.names
        self._limiter.begin(edge if edge in names else STRANGERS)
        try:
            if edge not in names:
                raise WireError("name", f"{edge} is none of this run's {len(names)}")
            envelope = self._put_together(edge, seq, payload)
            if envelope is None:
                received = None
            else:
                received = self._decode(edge, seq, envelope)
            if envelope is not None and received is not None:
                return self._check(edge, seq, envelope, received, inbound)
        except WireError as error:
            self._refuse(edge, seq, error)
        except RetryLater as later:
            self._counts[later.counted] += 1
            self._staging.forget(edge)
            busy = pb.Receipt(status=pb.Receipt.BUSY, retry_after_s=later.retry_after_s)
            self._downlink.receipt(edge, seq, busy)
        # A part is acknowledged too. If it is lost later, a resend follows: only a receipt accepts.
        inbound.done()
        return None

    def _put_together(self, edge: str, seq: int, payload: bytes | memoryview) -> wire.Whole | None:
        """Return the envelope that is whole now; None: it was a part or a question, now answered.

        Raises WireError, RetryLater.
        """
        question = len(payload) == wire.PART_HEADER and wire.read_question(payload)
        if question and not self._is_new(edge, seq):
            self._answer_question(edge, seq)
            return None
        envelope = self._reassembly.add(edge, seq, payload)
        if envelope is None:
            self._part_came(edge, seq)
        return envelope

    def _decode(self, edge: str, seq: int, envelope: wire.Whole) -> wire.Received | None:
        """Return what is in an envelope; None: a wish for parts of the model, now fulfilled.

        Raises WireError, RetryLater, and StoreLost where its sender holds a receipt for a message
        that the store lacks.
        """
        if not wire.has_tensor(envelope):
            self._checks.control_messages.spend(edge, len(envelope))
        received = wire.decode(envelope, most=max(self._journal.size, self._role.largest))
        meta = received.meta
        sender = (meta.run, meta.edge, meta.seq)
        if sender != (self._run.run_id, edge, seq):
            raise WireError("identity", "says {}/{}/{}".format(*sender))
        if meta.HasField("held"):
            self._receipts.check(edge, meta.held, self._journal.last_seqs.get(edge, 0))
        if meta.HasField("want"):
            self._downlink.more(edge, meta.want)
            return None
        return received

    def _check(
        self, edge: str, seq: int, envelope: wire.Whole, received: wire.Received, inbound: Inbound
    ) -> Candidate:
        """Return the message for the journal.

        Raises WireError where it will never be accepted, RetryLater where it may be later.
        """
        checks = self._checks
        guard = self._guard
        new = self._is_new(edge, seq)
        checks.definition.check(received.meta)
        message = wire_up.read_up(
            received, self._journal.schema, self._journal.size, real=self._real
        )
        scale = received.meta.update.scale
        if not isinstance(message, Update) and new:
            checks.control_messages.keep(edge, len(envelope))
        guard.admit(edge, retires=isinstance(message, Retired))
        if isinstance(message, Update):
            reason = self._screened(message, scale, new=new)
        else:
            reason = None
        if reason in ("unknown", "version"):
            raise WireError(reason, "not for the journal")
        # A message after the run's end is checked too: what it reports was released.
        anchor = checks.continuity.check(edge, seq, message.charged)
        if reason is not None:
            raise WireError(reason, "not for the journal")
        if isinstance(message, Update) and guard.bounds_norms and not message.look:
            norm = float(torch.linalg.vector_norm(message.vector, dtype=torch.float64))
            guard.check_norm(edge, norm, message.base_version, message.vector.numel())
        if new:
            self._limiter.succeed(edge, len(envelope))
        guard.throttle(edge, seq)
        payload = memoryview(envelope)
        stage = self._stage(edge, envelope)
        candidate = Candidate(edge, seq, payload, message, anchor, inbound, scale, stage)
        if self._noise is None:
            return candidate
        return self._noise.rewrite(candidate)

    def _is_new(self, edge: str, seq: int) -> bool:
        """Return whether message `seq` comes after all that were accepted of `edge`."""
        return seq > self._journal.last_seqs.get(edge, 0)

    def _stage(self, edge: str, envelope: wire.Whole) -> Stage | None:
        """Return where the store has the beginning of a long message already."""
        short = isinstance(envelope, bytearray)
        if short:
            return None
        return self._staging.take(edge, envelope)

    def _screened(self, update: Update, scale: float, *, new: bool) -> str | None:
        """Return why an update must not enter the journal; None: it may.

        Raises WireError where nothing in the message is to be believed.
        """
        check_numbers(update.vector, scale)
        reason = self._role.screen(update)
        if reason == "halted" and not new:
            return None  # it was accepted before the end: the store says so, and its edge is told
        if reason is None and new and not update.look:
            self._checks.base_versions.check(update.edge, update.base_version)
            self._checks.end_claims.check(
                update.edge, update.base_version, lambda: self._run.edges_with("online")
            )
        return reason

    def _part_came(self, edge: str, seq: int) -> None:
        """Tell the edge which parts are missing, now and then; the store may have the others."""
        if answer := self._reassembly.answer(edge, seq):
            self._downlink.receipt(edge, seq, answer)
        if self._role.halted:
            begun = None
        else:
            begun = self._reassembly.begun(edge, seq)
        if begun is not None and self._is_new(edge, seq):
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
        if reason in ("definition", "format", "name"):
            wording = str(error)
        else:
            wording = reason
        if reason == "halted":  # it was under way when the run ended, so it is no fault
            self._counts["late"] += 1
        else:
            self._counts[f"rejected:{reason}"] += 1
            facts = {"edge": edge, "seq": seq, "version": self._role.version, "reason": wording}
            if count := self._seldom.due(reason):
                many = f"{count} messages were refused, the last:"
                log.warning("a message was refused" if count == 1 else many, extra=facts)
            self._guard.refused(edge, reason)
        self._downlink.receipt(edge, seq, pb.Receipt(status=pb.Receipt.REJECTED, reason=wording))

    # -- 5. append ---------------------------------------------------------------------------------

    def _append(self, candidates: list[Candidate]) -> AwaitAppends:
        """Begin to append. Raises ServiceError; the edges have then been told to wait."""
        try:
            return self._journal.begin(candidates)
        except ServiceError:
            self._ask_to_wait(candidates)
            raise

    def _appended(self, answers: AwaitAppends, candidates: Iterable[Candidate]) -> list[Appended]:
        """Wait for the store's answers to what was appended.

        candidates: all that are on their way. Raises ServiceError; their edges have then been told
        to wait.
        """
        try:
            return answers()
        except ServiceError:
            self._ask_to_wait(candidates)
            raise

    def _ask_to_wait(self, candidates: Iterable[Candidate]) -> None:
        """Answer BUSY: the edges keep the bytes and send them again, so nothing is lost."""
        for candidate in candidates:
            self._downlink.receipt(candidate.edge, candidate.seq, BUSY)
            candidate.inbound.done()
            self._counts["busy"] += 1

    # -- 6. acknowledge, 7. fold, 8. reply ---------------------------------------------------------

    def _acknowledge_fold_reply(self, batch: AppendBatch, answers: list[Appended]) -> None:
        replies: dict[str, Outgoing] = {}
        receipts: dict[str, tuple[int, pb.Receipt]] = {}  # of each edge's latest message
        for candidate, answer in zip(batch.candidates, answers, strict=True):
            candidate.inbound.done()
            receipt, outgoing = self._fold(candidate, answer, batch.began)
            if earlier := receipts.pop(candidate.edge, None):
                self._downlink.receipt(candidate.edge, *earlier)
            receipts[candidate.edge] = (candidate.seq, receipt)
            # An edge needs only the newest model. The driver announces the end, after the last
            # snapshot.
            replies |= {out.to: out for out in outgoing if out.to != EVERYONE}
        self._reply(receipts, replies)

    def _fold(
        self, candidate: Candidate, answer: Appended, began: float
    ) -> tuple[pb.Receipt, list[Outgoing]]:
        """Fold one message, if it is new. Returns its receipt, and what the role replies."""
        edge = candidate.edge
        seq = candidate.seq
        version = self._role.version
        receipt, outgoing = self._journal.fold(candidate, answer)
        receipt = self._receipts.proven(edge, receipt)
        if answer.verdict == Verdict.ACCEPTED:
            update = isinstance(candidate.message, Update) and not candidate.message.look
            self._checks.base_versions.accepted(edge, version)
            self._run.latency.observe(time.perf_counter() - began)
            self._staging.accepted(edge, update=update)
            self._scheduler.heard(edge, update=update)
            facts = {"edge": edge, "seq": seq, "version": self._role.version}
            log.debug("accepted", extra=facts)
        elif answer.verdict == Verdict.DUPLICATE:
            outgoing = self._answer_again(edge, seq)
        return receipt, outgoing

    def _reply(
        self, receipts: dict[str, tuple[int, pb.Receipt]], replies: dict[str, Outgoing]
    ) -> None:
        """Send every edge its receipt and the role's newest message, both in one where they fit."""
        for edge, last in receipts.items():
            if edge not in replies:
                self._downlink.receipt(edge, *last)
        for edge, out in replies.items():
            self._downlink.reply(out, *receipts.get(edge, (0, None)))
        self.serve_waiting()

    def _answer_again(self, edge: str, seq: int) -> list[Outgoing]:
        """Return the role's answer to the sender of the last accepted message once more.

        The first answer may have been lost with a process that died.
        """
        last = self._journal.last_seqs.get(edge, 0)  # 0: of a stranger nothing was accepted
        if seq == last > 0:
            return self._role.work_for(edge)
        return []

    def serve_waiting(self) -> None:
        """Give a task to those that waited for others, and no longer have to."""
        for out in (out for edge in self._scheduler.due() for out in self._role.work_for(edge)):
            self._downlink.reply(out)


def _nothing() -> list[Appended]:
    return []
