"""A server's messages, to bytes and back. Decoding is strict."""

from __future__ import annotations

import hashlib

import numpy as np
from torch import Tensor

from tacit.errors import WireError
from tacit.privacy.policy import Terms
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.envelope import InPlace, Received, encode, encode_in_place, numbers
from tacit.protocol.messages import EVERYONE, GlobalModel, Halt, ServerOutput
from tacit.protocol.vertical import Feedback, Request, Roster
from tacit.protocol.wire_values import MAX_MECHANISM, MAX_REASON, pack_rows, read_rows
from tacit.shown import printable

_VERTICAL = ("roster", "feedback", "request")


def down(
    run: str,
    edge: str,
    message: ServerOutput,
    schema: bytes,
    answer: pb.Receipt | None = None,
    answered: int = 0,
) -> bytes:
    """Return a server's message as an envelope; arguments are those of `down_in_place`."""
    return down_in_place(run, edge, message, schema, answer, answered).whole()


def down_in_place(
    run: str,
    edge: str,
    message: ServerOutput,
    schema: bytes,
    answer: pb.Receipt | None = None,
    answered: int = 0,
) -> InPlace:
    """Return a server's message as an envelope that has no copy of its tensor.

    answer: the receipt of message `answered`, if it goes with it.
    """
    meta = pb.Meta(run=run, edge=edge, schema_hash=schema, answer=answer, answered=answered)
    if isinstance(message, GlobalModel):
        meta.model.CopyFrom(
            pb.GlobalModel(
                version=message.version,
                clip=message.clip,
                terms=_pack_terms(message.terms),
                look=message.look,
            )
        )
        return encode_in_place(meta, message.params)
    if not isinstance(message, Halt):
        return encode_in_place(meta, fill_vertical(meta, message))
    meta.halt.CopyFrom(pb.Halt(version=message.version, reason=message.reason))
    return encode_in_place(meta)


def fill_vertical(meta: pb.Meta, message: Roster | Feedback | Request) -> Tensor | None:
    """Put a vertical run's message into `meta`; returns the tensor that goes with it."""
    match message:
        case Roster(names, records):
            meta.roster.CopyFrom(pb.Roster(names=names.astype("<u8").tobytes(), records=records))
        case Request(number, rows):
            meta.request.CopyFrom(pb.Request(number=number, rows=pack_rows(rows)))
        case Feedback(iteration, step, gradient):
            if gradient is None:
                count = 0
            else:
                count = len(gradient)
            meta.feedback.CopyFrom(pb.Feedback(iteration=iteration, step=step, rows=count))
            if gradient is None:
                return None
            return gradient.flatten()
    return None


def announcement(
    run: str, epoch: int, state: str, model: GlobalModel, schema: bytes, *, inline_below: int
) -> bytes:
    """Return the retained announcement of a run.

    It holds the model itself if that takes at most `inline_below` bytes.
    """
    raw = numbers(model.params)
    announced = pb.Announcement(
        epoch=epoch,
        state=state,
        version=model.version,
        model_sha256=hashlib.sha256(raw).hexdigest(),
        model_bytes=len(raw),
    )
    meta = pb.Meta(run=run, edge=EVERYONE, schema_hash=schema, announcement=announced)
    return encode(meta, model.params if len(raw) <= inline_below else None)


def read_down(received: Received, schema: bytes, size: int) -> ServerOutput:
    """Return the role message in a server's envelope.

    Raises WireError (kind, schema, shape, value).
    """
    meta = received.meta
    kind = received.meta.WhichOneof("kind")
    if kind == "halt":
        return Halt(meta.halt.version, printable(meta.halt.reason, MAX_REASON))
    if kind != "model" and kind not in _VERTICAL:
        raise WireError("kind", f"{kind} does not come from a server")
    if meta.schema_hash != schema:
        raise WireError("schema", "made for another model")
    if kind != "model":
        return read_vertical(meta, received.tensor)
    if received.tensor is None or received.tensor.numel() != size:
        raise WireError("shape", f"{meta.numel} elements, the model has {size}")
    stated = meta.model.terms
    if stated.HasField("noise_multiplier"):
        z = stated.noise_multiplier
    else:
        z = None
    if meta.model.HasField("terms"):
        terms = Terms(printable(stated.mechanism, MAX_MECHANISM), stated.sampling_rate, z)
    else:
        terms = None
    # C is passed on as it came, nan too: the edge's policy refuses it, and counts the refusal.
    look = meta.model.look
    return GlobalModel(meta.model.version, received.tensor, meta.model.clip, terms, look)


def read_vertical(meta: pb.Meta, tensor: Tensor | None) -> Roster | Feedback | Request:
    """Return the message of a vertical run in `meta`. Raises WireError (shape, value)."""
    kind = meta.WhichOneof("kind")
    if kind == "feedback":
        feedback = meta.feedback
        if (tensor is None) != (feedback.rows == 0) or (
            tensor is not None and tensor.numel() % feedback.rows
        ):
            raise WireError("shape", f"{meta.numel} elements in {feedback.rows} rows")
        return Feedback(
            feedback.iteration,
            feedback.step,
            None if tensor is None else tensor.view(feedback.rows, -1),
        )
    if tensor is not None:
        raise WireError("shape", f"{kind} carries no tensor")
    if kind == "request":
        return Request(meta.request.number, read_rows(meta.request.rows))
    names = meta.roster.names
    if len(names) % 8 or not 0 < meta.roster.records <= len(names) // 8:
        raise WireError(
            "value", f"roster: {meta.roster.records} records of {len(names)} bytes of names"
        )
    return Roster(np.frombuffer(names, dtype="<u8"), meta.roster.records)


def _pack_terms(terms: Terms | None) -> pb.Terms | None:
    """Return a server's terms as protobuf."""
    if terms is None:
        return None
    return pb.Terms(
        mechanism=terms.mechanism,
        sampling_rate=terms.sampling_rate,
        noise_multiplier=terms.noise_multiplier,
    )
