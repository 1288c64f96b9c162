"""A vertical run's messages: they come back as they were sent, and nothing else comes in."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import WireError
from tacit.privacy.ledger import Charged, Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.release.embeddings import EmbeddingPlan, EmbeddingReleaser
from tacit.protocol import wire, wire_down, wire_up
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import ServerOutput, Update
from tacit.protocol.vertical import Embed, Feedback, Request, Roster, UploadPart

SCHEMA = bytes(range(32))
steady = settings(derandomize=True, deadline=None, max_examples=60)
rows_ = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=30).map(
    lambda values: torch.tensor(values)
)


def door() -> EmbeddingReleaser:
    plan = EmbeddingPlan("none", 1.0, 0.0, 1.0, 1e-5)
    return EmbeddingReleaser(plan, Ledger(":memory:", "people"), Random(), 100)


def sent(embed: Embed) -> Update:
    read = wire_up.read_up(wire.decode(bytearray(wire_up.up("r", 3, embed, SCHEMA))), SCHEMA, 7)
    assert isinstance(read, Update)
    return read


def told(message: ServerOutput) -> ServerOutput:
    return wire_down.read_down(
        wire.decode(bytearray(wire_down.down("r", "edge-1", message, SCHEMA))), SCHEMA, 7
    )


@steady
@given(st.integers(1, 30), st.integers(1, 9), st.integers(0, 2**40), st.integers(0, 2**40))
def test_an_upload_arrives_bit_for_bit(count: int, width: int, step: int, request: int) -> None:
    out, rows = door(), torch.randperm(100)[:count]
    released = out.release(rows, lambda: torch.randn(count, width))
    ledger = out.ledger
    part = UploadPart(step, request, rows)
    read = sent(Embed("edge-1", 5, part, released, ledger.history(), ledger.charged()))
    assert read.part is not None
    assert (read.edge, read.base_version, read.part.step, read.part.request) == (
        "edge-1",
        5,
        step,
        request,
    )
    assert torch.equal(read.part.rows, rows)
    assert torch.equal(read.vector, released.vectors.flatten())
    assert (read.spent, read.charged) == (ledger.history(), ledger.charged())


def test_an_upload_without_vectors_repeats_what_was_sent_before() -> None:
    read = sent(Embed("edge-1", 5, UploadPart(3, 0, torch.tensor([1, 2])), None, (), Charged()))
    assert read.vector.numel() == 0
    assert read.part is not None
    assert read.part.rows.tolist() == [1, 2]


def test_a_bare_tensor_cannot_leave_a_party() -> None:
    bare = Embed("edge-1", 5, UploadPart(3, 0, torch.tensor([1])), torch.ones(1, 2), (), Charged())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="sealed"):
        wire_up.up("r", 1, bare, SCHEMA)


@steady
@given(rows_, st.integers(0, 2**40))
def test_a_request_arrives_as_it_was_sent(rows: torch.Tensor, number: int) -> None:
    read = told(Request(number, rows))
    assert isinstance(read, Request)
    assert read.number == number
    assert torch.equal(read.rows, rows)


@steady
@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=40), st.data())
def test_a_roster_arrives_as_it_was_sent(names: list[int], data: st.DataObject) -> None:
    records = data.draw(st.integers(1, len(names)))
    read = told(Roster(np.array(names, dtype=np.uint64), records))
    assert isinstance(read, Roster)
    assert read.names.tolist() == names
    assert read.records == records


@pytest.mark.parametrize("gradient", [None, torch.randn(5, 3), torch.randn(1, 1)])
def test_feedback_arrives_as_it_was_sent(gradient: torch.Tensor | None) -> None:
    read = told(Feedback(4, 9, gradient))
    assert isinstance(read, Feedback)
    assert (read.iteration, read.step) == (4, 9)
    assert (read.gradient is None) == (gradient is None)
    if gradient is not None:
        assert read.gradient is not None
        assert torch.equal(read.gradient, gradient)


@pytest.mark.parametrize(
    ("meta", "tensor", "reason"),
    [
        (pb.Meta(feedback=pb.Feedback(rows=3)), torch.ones(4), "shape"),
        (pb.Meta(feedback=pb.Feedback(rows=3)), None, "shape"),
        (pb.Meta(feedback=pb.Feedback()), torch.ones(4), "shape"),
        (pb.Meta(request=pb.Request(rows=b"12345")), None, "value"),
        (pb.Meta(request=pb.Request()), torch.ones(1), "shape"),
        (pb.Meta(roster=pb.Roster(names=bytes(12), records=1)), None, "value"),
        (pb.Meta(roster=pb.Roster(names=bytes(16), records=3)), None, "value"),
        (pb.Meta(roster=pb.Roster(names=bytes(16), records=0)), None, "value"),
    ],
)
def test_what_is_malformed_is_refused(
    meta: pb.Meta, tensor: torch.Tensor | None, reason: str
) -> None:
    meta.schema_hash = SCHEMA
    with pytest.raises(WireError) as error:
        wire_down.read_down(wire.decode(bytearray(wire.encode(meta, tensor))), SCHEMA, 7)
    assert error.value.reason == reason


def test_an_upload_with_half_a_row_number_is_refused() -> None:
    meta = pb.Meta(
        edge="edge-1", schema_hash=SCHEMA, update=pb.Update(part=pb.Part(step=1, rows=b"123"))
    )
    with pytest.raises(WireError, match="no whole numbers"):
        wire_up.read_up(wire.decode(bytearray(wire.encode(meta))), SCHEMA, 7)


def test_messages_for_another_model_are_refused() -> None:
    envelope = wire_down.down("r", "edge-1", Request(1, torch.tensor([1])), bytes(32))
    with pytest.raises(WireError, match="another model"):
        wire_down.read_down(wire.decode(bytearray(envelope)), SCHEMA, 7)
