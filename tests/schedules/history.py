"""The history of a run, and what must hold of every history by docs/failures.md.

Nothing here knows how the product does it: it sees what left whom, what was durable then, what the
store has accepted, and how everybody ended.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from pathlib import Path

from tacit_services.aggregator import entries
from tacit_services.journal.journal_file import JournalReader, open_journal
from tacit_services.journal.store import StoredEntry

from tacit.algorithms import registry
from tacit.algorithms.base.server import ServerRole
from tacit.config import RunFile
from tacit.errors import WireError
from tacit.protocol import envelope as envelopes
from tacit.protocol import topics, wire
from tacit.protocol._pb import wire_pb2 as pb
from tests.helpers.simulated_edge import defined
from tests.helpers.simulated_network import Parcel
from tests.schedules.machine import Machine
from tests.schedules.server import NAME, StoreServer

_OFFSET = struct.Struct("<20xQ")  # where a part begins in its envelope, in the part's header
_ACCEPTED = (pb.Receipt.ACCEPTED, pb.Receipt.STALE)
_DURABLE = (pb.Receipt.ACCEPTED, pb.Receipt.STALE, pb.Receipt.DUPLICATE)
Message = tuple[str, int]  # an edge, and its number


class Violation(AssertionError):
    """A promise that was not kept."""


def require(holds: bool, promise: str) -> None:
    """Raise Violation unless it holds."""
    if not holds:
        raise Violation(promise)


@dataclass(slots=True)
class History:
    """What has happened, checked as it happens.

    contents: each message that has left. pushes: numbers of pushes that have left, of each edge.
    accepted: messages that got their one receipt of acceptance. refused: that got a refusal.
    newest: the newest number that a receipt has named, of each edge.
    """

    machines: dict[str, Machine]
    store: StoreServer
    contents: dict[Message, bytes] = field(default_factory=dict)
    pushes: dict[str, set[int]] = field(default_factory=dict)
    accepted: set[Message] = field(default_factory=set)
    refused: dict[Message, str] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)
    models: dict[int, bytes] = field(default_factory=dict)
    _read: int = 0  # entries of the store
    _stored: set[Message] = field(default_factory=set)

    def see(self, parcel: Parcel) -> None:
        """Check a message that leaves its sender."""
        levels = parcel.topic.split("/")
        if parcel.sender in self.machines and levels[3] == "up":
            self._see_up(parcel)
        elif parcel.sender == NAME and levels[3] == "down":
            self._see_down(levels[4], levels[5], parcel.payload)

    # -- what an edge sends ------------------------------------------------------------------------

    def _see_up(self, parcel: Parcel) -> None:
        edge, seq, payload = topics.sender(parcel.topic, parcel.payload)
        if seq == 0:  # a wish for parts, which is no message
            return
        durable = self.machines[edge].durable
        stored = durable.messages.get(seq)
        require(stored is not None, f"{edge}: message {seq} leaves and is not durable")
        assert stored is not None
        if self.contents.setdefault((edge, seq), stored) != stored:
            raise Violation(f"{edge}: message {seq} has two contents")
        begin, body = _OFFSET.unpack_from(payload)[0], bytes(payload[wire.PART_HEADER :])
        if stored[begin : begin + len(body)] != body:
            raise Violation(f"{edge}: message {seq} leaves otherwise than it is stored")
        pushes = self.pushes.setdefault(edge, set())
        if seq not in pushes and kind(stored) == "update":
            pushes.add(seq)
        require(durable.charged >= len(pushes), f"{edge}: a push leaves that is not charged")

    # -- what the aggregator sends -----------------------------------------------------------------

    def _see_down(self, edge: str, level: str, payload: bytes) -> None:
        if level != "receipt":
            if len(payload) < wire.PART_HEADER:
                return
            payload = payload[wire.PART_HEADER :]
        try:
            meta = wire.decode(bytearray(payload)).meta
        except WireError:  # a part of a model
            return
        if meta.WhichOneof("kind") == "receipt":
            self._see_receipt(edge, meta.seq, meta.receipt)
        elif meta.HasField("answer"):
            self._see_receipt(edge, meta.answered, meta.answer)
        if meta.WhichOneof("kind") == "model":
            digest = hashlib.sha256(payload[envelopes.tensor_at(payload) :]).digest()
            require(
                self.models.setdefault(meta.model.version, digest) == digest
                or self.store.starts > 0,
                f"model {meta.model.version} has two contents",
            )

    def _see_receipt(self, edge: str, seq: int, receipt: pb.Receipt) -> None:
        if self.store.lost:
            self._check_witness(edge, seq, receipt)
            return
        message, status = (edge, seq), receipt.status
        anew = self.store.starts > 0  # from an older copy: what it has lost may come again
        if status in _DURABLE:
            stored = self._durable_messages()
            named = (edge, receipt.last_seq)
            require(named in stored, f"{named} is receipted and not in the store")
            newest = self.newest.get(edge, 0)
            require(
                receipt.last_seq >= newest or anew, f"{edge}: a receipt goes back behind {newest}"
            )
            self.newest[edge] = receipt.last_seq
        if status in _ACCEPTED:
            require(message in self._stored, f"{message} is accepted and not in the store")
            require(message not in self.accepted or anew, f"{message} is accepted twice")
            self.accepted.add(message)
        if status == pb.Receipt.REJECTED and seq:
            require(message not in self.accepted, f"{message} is refused and was accepted")
            self.refused[message] = receipt.reason

    def _check_witness(self, edge: str, seq: int, receipt: pb.Receipt) -> None:
        """Check that who shows the receipt of a message that the store has lost is not accepted."""
        content = self.contents.get((edge, seq))
        if receipt.status not in _ACCEPTED or content is None:
            return
        held = wire.decode(bytearray(content)).meta.held.seq
        lost = [entry.seq for entry in self.store.lost if entry.edge == edge]
        require(
            not any(number <= held for number in lost),
            f"{edge} shows a receipt of a message that the store has lost, and goes on",
        )

    def _durable_messages(self) -> set[Message]:
        fresh = self.store.log[self._read :]
        self._read += len(fresh)
        self._stored |= {(entry.edge, entry.seq) for entry in fresh}
        return self._stored


def kind(envelope: bytes) -> str:
    """Return the kind of a message."""
    return str(wire.decode(bytearray(envelope)).meta.WhichOneof("kind"))


def tensor_digest(envelope: bytes) -> bytes:
    """Return the SHA-256 of what the message holds after its head: of an update, its vector."""
    return hashlib.sha256(envelope[envelopes.tensor_at(envelope) :]).digest()


def fold(run: RunFile, stored: list[StoredEntry]) -> ServerRole:
    """Return a new role that has taken in all entries, one after the other."""
    definition, model = defined(run)
    role = registry.server(definition, model)
    for entry in stored:
        role.on_message(entries.read(entry.payload, model.schema_hash(), model.size))
    return role


def check_entries(history: History) -> None:
    """Check that every message is in the store once, as it left, and was not refused."""
    stored = history.store.entries
    require(
        [entry.position for entry in stored] == list(range(1, len(stored) + 1)),
        "the journal has a hole",
    )
    messages = [(entry.edge, entry.seq) for entry in stored]
    require(len(set(messages)) == len(messages), "a message is in the journal twice")
    vectors = set()
    for entry in stored:
        if entry.edge not in history.machines:
            continue
        message = (entry.edge, entry.seq)
        require(
            history.contents.get(message) == entry.payload, f"{message} is not what its edge sent"
        )
        require(message not in history.refused, f"{message} was refused and is in the journal")
        if kind(entry.payload) == "update":
            vector = tensor_digest(entry.payload)
            require(vector not in vectors, f"the vector of {message} is applied twice")
            vectors.add(vector)


def check_file(path: Path, stored: list[StoredEntry]) -> None:
    """Check that the journal file has all that the store has accepted, and nothing else."""
    with open_journal(path) as file:
        reader = JournalReader(file, "the journal file")
        try:
            records = [(record.position, record.payload) for record in reader]
        except WireError as error:
            raise Violation(str(error)) from error
    require(not reader.torn, "the journal file ends in a torn record")
    require(
        records == [(entry.position, entry.payload) for entry in stored],
        "the journal file is not what the store has accepted",
    )


def check_nothing_is_lost(history: History, over: bool) -> None:
    """Check that each push but those under way at the run's end was accepted or refused."""
    stored = {(entry.edge, entry.seq) for entry in history.store.entries}
    for edge, pushes in history.pushes.items():
        for seq in pushes:
            under_way = over and seq >= max(pushes)
            require(
                (edge, seq) in stored or (edge, seq) in history.refused or under_way,
                f"{edge}: push {seq} has left and is lost",
            )


def same_model(one: ServerRole, other: ServerRole) -> bool:
    """Return whether two roles have the same version and the same bits."""
    mine, theirs = one.state(), other.state()
    same = mine[0].keys() == theirs[0].keys() and all(
        tensor.numpy().tobytes() == theirs[0][name].numpy().tobytes()
        for name, tensor in mine[0].items()
    )
    return same and one.version == other.version and one.halted == other.halted
