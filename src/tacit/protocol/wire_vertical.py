"""A vertical run's messages, into a Meta and back. Decoding is strict, as in `wire`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tacit.errors import WireError
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.vertical import Feedback, Part, Request, Roster

KINDS = ("roster", "feedback", "request")


def fill_meta(meta: pb.Meta, message: Roster | Feedback | Request) -> Tensor | None:
    """Put a server's message into `meta`; returns the tensor that goes with it."""
    match message:
        case Roster(names, records):
            meta.roster.CopyFrom(pb.Roster(names=names.astype("<u8").tobytes(), records=records))
        case Request(number, rows):
            meta.request.CopyFrom(pb.Request(number=number, rows=_packed(rows)))
        case Feedback(iteration, step, gradient):
            count = 0 if gradient is None else len(gradient)
            meta.feedback.CopyFrom(pb.Feedback(iteration=iteration, step=step, rows=count))
            return None if gradient is None else gradient.flatten()
    return None


def read_server_message(meta: pb.Meta, tensor: Tensor | None) -> Roster | Feedback | Request:
    """The message of one of KINDS in `meta`. Raises WireError (shape, value)."""
    kind = meta.WhichOneof("kind")
    if kind == "feedback":
        said = meta.feedback
        if (tensor is None) != (said.rows == 0) or (
            tensor is not None and tensor.numel() % said.rows
        ):
            raise WireError("shape", f"{meta.numel} elements in {said.rows} rows")
        return Feedback(
            said.iteration, said.step, None if tensor is None else tensor.view(said.rows, -1)
        )
    if tensor is not None:
        raise WireError("shape", f"{kind} carries no tensor")
    if kind == "request":
        return Request(meta.request.number, _rows(meta.request.rows))
    names = meta.roster.names
    if len(names) % 8 or not 0 < meta.roster.records <= len(names) // 8:
        raise WireError(
            "value", f"roster: {meta.roster.records} records of {len(names)} bytes of names"
        )
    return Roster(np.frombuffer(names, dtype="<u8"), meta.roster.records)


def pack_part(message: Part) -> pb.Part:
    """A Part as protobuf, for an Update."""
    return pb.Part(step=message.step, request=message.request, rows=_packed(message.rows))


def read_part(update: pb.Update) -> Part | None:
    """The Part of an Update, or None if it has none. Raises WireError (value)."""
    if not update.HasField("part"):
        return None
    return Part(update.part.step, update.part.request, _rows(update.part.rows))


def _packed(rows: Tensor) -> bytes:
    return rows.numpy().astype("<u4").tobytes()


def _rows(packed: bytes) -> Tensor:
    if len(packed) % 4:
        raise WireError("value", f"rows: {len(packed)} bytes are no whole numbers")
    return torch.from_numpy(np.frombuffer(packed, dtype="<u4").astype(np.int64))
