"""What peers say to one another.

Every message comes back as it was sent, and only sealed tensors leave.
"""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import WireError
from tacit.privacy.accounting import Spend
from tacit.privacy.ledger import Charged
from tacit.privacy.release.trained import Shared, Trained
from tacit.protocol import topics, wire, wire_gossip, wire_up
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import Answer, Missing, PeerMessage, Proposal, Report, Share, Update

SCHEMA = bytes(range(32))
VECTOR = torch.tensor([1.0, -2.5, 3.25])
SEALED = Trained.again(VECTOR)
MESSAGES: tuple[PeerMessage, ...] = (
    Proposal("edge-1", 7, 3, SEALED, {"edge-0": 4, "edge-1": 9}),
    Answer("edge-1", 7, 3, SEALED, {}),
    Share("edge-1", 0, SEALED),
    Missing("edge-1", 0),
)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)


def back(message: PeerMessage, size: int = 3) -> PeerMessage:
    return wire_gossip.read_peer_message(
        wire.decode(bytearray(wire_gossip.encode_peer_message("run", message, SCHEMA))),
        SCHEMA,
        size,
    )


def vector(message: PeerMessage) -> torch.Tensor | None:
    payload = (
        message.delta
        if isinstance(message, Answer)
        else None
        if isinstance(message, Missing)
        else message.model
    )
    return payload.vector if isinstance(payload, Shared) else payload


def plain(message: PeerMessage) -> dict[str, object]:
    return {
        f.name: getattr(message, f.name)
        for f in fields(message)
        if f.name not in ("model", "delta")
    }


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_comes_back_as_it_was_sent(message: PeerMessage) -> None:
    read = back(message)
    assert type(read) is type(message)
    sent, got = vector(message), vector(read)
    assert (sent is None and got is None) or (
        sent is not None and got is not None and torch.equal(sent, got)
    )
    assert plain(read) == plain(message)


def test_the_same_counts_are_the_same_bytes_in_every_process() -> None:
    counts = {f"edge-{number}": number for number in range(10, 30)}
    sent = wire_gossip.encode_peer_message("run", Proposal("a", 1, 1, SEALED, counts), SCHEMA)
    places = [sent.index(name.encode()) for name in counts]
    assert places == sorted(places)  # each process has an order of its own for a map


@pytest.mark.parametrize(
    "message",
    [Proposal("a", 1, 1, VECTOR, {}), Answer("a", 1, 1, VECTOR, {}), Share("a", 1, VECTOR)],
)
def test_a_bare_tensor_cannot_leave(message: PeerMessage) -> None:
    with pytest.raises(TypeError, match="only a Shared vector may leave"):
        wire_gossip.encode_peer_message("run", message, SCHEMA)


def test_a_report_arrives_as_an_update_with_its_steps() -> None:
    spent, charged = (Spend(0.25, 1.5, 3),), Charged(3, bytes(32))
    sent = Report("edge-1", 40, 3, SEALED, spent, charged)
    update = wire_up.read_up(wire.decode(bytearray(wire_up.up("run", 9, sent, SCHEMA))), SCHEMA, 3)
    assert isinstance(update, Update)
    assert (update.edge, update.base_version, update.steps, update.spent) == (
        "edge-1",
        40,
        3,
        spent,
    )
    assert update.charged == charged
    assert torch.equal(update.vector, VECTOR)


@pytest.mark.parametrize(
    ("reason", "schema", "size"),
    [("schema", bytes(32), 3), ("shape", SCHEMA, 4)],
    ids=["schema", "shape"],
)
def test_another_models_message_is_refused(reason: str, schema: bytes, size: int) -> None:
    received = wire.decode(bytearray(wire_gossip.encode_peer_message("run", MESSAGES[0], SCHEMA)))
    with pytest.raises(WireError) as refusal:
        wire_gossip.read_peer_message(received, schema, size)
    assert refusal.value.reason == reason


def test_what_no_peer_says_is_refused() -> None:
    with pytest.raises(WireError) as refusal:
        wire_gossip.read_peer_message(
            wire.Received(pb.Meta(schema_hash=SCHEMA, halt=pb.Halt(version=1)), None), SCHEMA, 3
        )
    assert refusal.value.reason == "kind"


@pytest.mark.parametrize(("life", "seq"), [(0, 1), (1, 0)])
def test_numbers_begin_at_one(life: int, seq: int) -> None:
    with pytest.raises(WireError) as refusal:
        back(Proposal("a", life, seq, SEALED, {}))
    assert refusal.value.reason == "value"


@settings(derandomize=True, deadline=None)
@given(names, names, names, st.integers(0, 10**19 - 1), st.integers(0, 10**15 - 1))
def test_a_peer_topic_is_read_back(run: str, to: str, sender: str, number: int, part: int) -> None:
    assert topics.parse_peer(topics.peer(run, to, sender, number, part)) == (
        to,
        sender,
        number,
        part,
    )


@pytest.mark.parametrize(
    "topic",
    [
        "",
        "tacit/v1/r/peer/a/from/b/1",
        "tacit/v1/r/peer/a/to/b/1/0",
        "tacit/v1/r/up/a/from/b/1/0",
        "tacit/v1/r/peer/+/from/b/1/0",
        "tacit/v1/r/peer/a/from/#/1/0",
        "tacit/v1/r/peer/a/from/b/-1/0",
        "tacit/v1/r/peer/a/from/b/1/0/0",
    ],
)
def test_a_topic_that_is_no_peers_is_refused(topic: str) -> None:
    with pytest.raises(WireError) as refusal:
        topics.parse_peer(topic)
    assert refusal.value.reason == "topic"


def test_a_peer_hears_what_is_for_it() -> None:
    assert topics.peer("r", "a", "b", 1, 0).startswith(topics.peer_all("r", "a").removesuffix("#"))
