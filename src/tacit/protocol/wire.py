"""Messages to bytes and back, as protos/tacit/v1/wire.proto specifies. Decoding is strict.

Only a `Push` (which holds a `Released`) becomes an update on the wire; there is no way to encode a
bare tensor. An envelope is: magic, length of the Meta, the Meta, padding to 64 bytes, the tensor's
bytes. It travels in parts, each an MQTT payload.
"""

from __future__ import annotations

import contextlib
import hashlib

import numpy as np
import torch
from torch import Tensor

from tacit.errors import WireError
from tacit.privacy.embeddings import ReleasedEmbedding
from tacit.privacy.policy import Terms
from tacit.privacy.release import Released
from tacit.privacy.trained import Shared
from tacit.protocol import wire_vertical
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.envelope import (
    MAGIC,
    MAX_META,
    InPlace,
    Received,
    Whole,
    decode,
    encode,
    encode_in_place,
    has_tensor,
    numbers,
)
from tacit.protocol.messages import (
    EVERYONE,
    GlobalModel,
    Halt,
    Hello,
    Push,
    Report,
    Retired,
    ServerOutput,
    Update,
)
from tacit.protocol.parts import (
    HELD_BESIDE,
    NUMBER_HEADER,
    PART_COST,
    PART_HEADER,
    PART_MAGIC,
    Assembler,
    Envelope,
    count_parts,
    number_front,
    numbered,
    part,
    question,
    read_numbered,
    read_question,
    split,
)
from tacit.protocol.vertical import Embed
from tacit.protocol.wire_hello import pack_hello, read_hello
from tacit.protocol.wire_values import (
    MAX_MECHANISM,
    MAX_REASON,
    finite,
    pack_charged,
    pack_history,
    pack_terms,
    printable,
    read_charged,
    read_history,
)

__all__ = [
    "HELD_BESIDE",
    "MAGIC",
    "MAX_MECHANISM",
    "MAX_MESSAGE",
    "MAX_META",
    "MAX_REASON",
    "NUMBER_HEADER",
    "PART_COST",
    "PART_HEADER",
    "PART_MAGIC",
    "SAFE_SCALE",
    "Assembler",
    "Envelope",
    "InPlace",
    "Received",
    "Whole",
    "announcement",
    "count_parts",
    "decode",
    "down",
    "down_in_place",
    "encode",
    "gradient",
    "gradient_in_place",
    "has_tensor",
    "number_front",
    "numbered",
    "part",
    "printable",
    "question",
    "read_down",
    "read_numbered",
    "read_question",
    "read_up",
    "split",
    "up",
    "up_in_place",
]

MAX_MESSAGE = 1 << 32
SAFE_SCALE = 1e29  # 2^31 times this is still a float32
_BLOCK = 1 << 16  # numbers that become real at a time: they stay in a processor's cache


def up(
    run: str,
    seq: int,
    message: Hello | Push | Report | Embed | Retired,
    schema: bytes,
    definition: str = "",
    held: pb.Held | None = None,
    *,
    xxh3: bool = False,
) -> bytes:
    """An edge's message as an envelope; arguments and errors are those of `up_in_place`."""
    return up_in_place(run, seq, message, schema, definition, held, xxh3=xxh3).whole()


def up_in_place(
    run: str,
    seq: int,
    message: Hello | Push | Report | Embed | Retired,
    schema: bytes,
    definition: str = "",
    held: pb.Held | None = None,
    *,
    xxh3: bool = False,
) -> InPlace:
    """Return an edge's message as an envelope that has no copy of its tensor.

    definition: the edge's run definition, for Hello. held: the newest receipt that the edge has.
    xxh3: the aggregator reads this checksum. Raises TypeError unless the tensor is sealed: a
    `Released` in a Push, a `Shared` in a Report, a `ReleasedEmbedding` in an Embed.
    """
    if not isinstance(message, Hello | Push | Report | Embed | Retired):
        raise TypeError(f"{type(message).__name__} may not leave an edge")
    meta = pb.Meta(run=run, edge=message.edge, seq=seq, schema_hash=schema, held=held)
    tensor = _fill_up(meta, message)
    if isinstance(message, Hello):
        meta.hello.definition = definition
    return encode_in_place(meta, tensor, xxh3=xxh3)


def _fill_up(meta: pb.Meta, message: Hello | Push | Report | Embed | Retired) -> Tensor | None:
    """Say in `meta` what an edge says; return the tensor that goes with it. Raises TypeError."""
    match message:
        case Hello():
            meta.hello.CopyFrom(pack_hello(message))
            return None
        case Push(released=Released() as released):
            update = pb.Update(
                base_version=message.base_version,
                clip=released.clip,
                spent=pack_history(released.spent),
                charged=pack_charged(released.charged),
            )
            if released.vector.dtype == torch.int32:
                update.scale = released.scale
            meta.update.CopyFrom(update)
            return released.vector
        case Report(model=Shared() as model):
            paid, charged = pack_history(message.spent), pack_charged(message.charged)
            meta.update.CopyFrom(
                pb.Update(
                    base_version=message.version, spent=paid, charged=charged, steps=message.steps
                )
            )
            return model.vector
        case Embed(released=None | ReleasedEmbedding() as embedded):
            paid, charged = pack_history(message.spent), pack_charged(message.charged)
            where = wire_vertical.pack_part(message.part)
            meta.update.CopyFrom(
                pb.Update(base_version=message.iteration, spent=paid, charged=charged, part=where)
            )
            return None if embedded is None else embedded.vectors.flatten()
        case Retired():
            paid, charged = pack_history(message.spent), pack_charged(message.charged)
            meta.retired.CopyFrom(pb.Retired(reason=message.reason, spent=paid, charged=charged))
            return None
    raise TypeError(
        f"{type(message).__name__} without a seal: only a sealed vector may leave an edge"
    )


def read_up(
    received: Received, schema: bytes, size: int, *, real: bool = True
) -> Hello | Update | Retired:
    """The role message in an edge's envelope. Raises WireError (kind, schema, shape, value).

    real: False leaves an update's integers as they came.
    """
    meta, kind = received.meta, received.meta.WhichOneof("kind")
    if meta.schema_hash != schema:
        raise WireError("schema", "made for another model")
    if kind == "update":
        update, part = meta.update, wire_vertical.read_part(meta.update)
        tensor = torch.zeros(0) if received.tensor is None else received.tensor
        if part is None and tensor.numel() != size:
            raise WireError("shape", f"{meta.numel} elements, the model has {size}")
        vector = gradient(tensor, update.scale) if real else tensor
        clip = finite("clip", update.clip)
        spent, charged = read_history(update.spent), read_charged(update.charged)
        return Update(
            meta.edge, update.base_version, vector, clip, spent, charged, update.steps, part
        )
    if received.tensor is not None:
        raise WireError("shape", f"{kind} carries no tensor")
    if kind == "retired":
        retired = meta.retired
        reason = printable(retired.reason, MAX_REASON)
        return Retired(
            meta.edge, reason, read_history(retired.spent), read_charged(retired.charged)
        )
    if kind == "hello":
        return read_hello(meta.edge, meta.hello)
    raise WireError("kind", f"{kind} does not come from an edge")


def down(
    run: str,
    edge: str,
    message: ServerOutput,
    schema: bytes,
    answer: pb.Receipt | None = None,
    answered: int = 0,
    *,
    xxh3: bool = False,
) -> bytes:
    """A server's message as an envelope; the other arguments are those of `down_in_place`."""
    return down_in_place(run, edge, message, schema, answer, answered, xxh3=xxh3).whole()


def down_in_place(
    run: str,
    edge: str,
    message: ServerOutput,
    schema: bytes,
    answer: pb.Receipt | None = None,
    answered: int = 0,
    *,
    xxh3: bool = False,
) -> InPlace:
    """A server's message as an envelope that has no copy of its tensor.

    answer: the receipt of message `answered`, if it goes with it. xxh3: the edge reads this
    checksum.
    """
    meta = pb.Meta(run=run, edge=edge, schema_hash=schema, answer=answer, answered=answered)
    if isinstance(message, GlobalModel):
        meta.model.CopyFrom(
            pb.GlobalModel(
                version=message.version, clip=message.clip, terms=pack_terms(message.terms)
            )
        )
        return encode_in_place(meta, message.params, xxh3=xxh3)
    if not isinstance(message, Halt):
        return encode_in_place(meta, wire_vertical.fill_meta(meta, message), xxh3=xxh3)
    meta.halt.CopyFrom(pb.Halt(version=message.version, reason=message.reason))
    return encode_in_place(meta)


def announcement(
    run: str, epoch: int, state: str, model: GlobalModel, schema: bytes, *, inline_below: int
) -> bytes:
    """The retained announcement of a run.

    It holds the model itself if that takes at most `inline_below` bytes.
    """
    raw = numbers(model.params)
    said = pb.Announcement(
        epoch=epoch,
        state=state,
        version=model.version,
        model_sha256=hashlib.sha256(raw).hexdigest(),
        model_bytes=len(raw),
    )
    meta = pb.Meta(run=run, edge=EVERYONE, schema_hash=schema, announcement=said)
    return encode(meta, model.params if len(raw) <= inline_below else None)


def read_down(received: Received, schema: bytes, size: int) -> ServerOutput:
    """The role message in a server's envelope. Raises WireError (kind, schema, shape, value)."""
    meta, kind = received.meta, received.meta.WhichOneof("kind")
    if kind == "halt":
        return Halt(meta.halt.version, printable(meta.halt.reason, MAX_REASON))
    if kind != "model" and kind not in wire_vertical.KINDS:
        raise WireError("kind", f"{kind} does not come from a server")
    if meta.schema_hash != schema:
        raise WireError("schema", "made for another model")
    if kind != "model":
        return wire_vertical.read_server_message(meta, received.tensor)
    if received.tensor is None or received.tensor.numel() != size:
        raise WireError("shape", f"{meta.numel} elements, the model has {size}")
    said = meta.model.terms
    z = said.noise_multiplier if said.HasField("noise_multiplier") else None
    terms = (
        Terms(printable(said.mechanism, MAX_MECHANISM), said.sampling_rate, z)
        if meta.model.HasField("terms")
        else None
    )
    # C is passed on as it came, nan too: the edge's policy refuses it, and counts the refusal.
    return GlobalModel(meta.model.version, received.tensor, meta.model.clip, terms)


def gradient(tensor: Tensor, scale: float) -> Tensor:
    """Return a message's vector in real units, (d,) float32: an integer is worth `scale`.

    It is computed in float64, and here only, so that all programs get the same bits.
    """
    if tensor.dtype == torch.float32:
        return tensor
    found, unit = np.empty(tensor.numel(), np.float32), np.float64(finite("scale", scale))
    safe = abs(unit) <= SAFE_SCALE
    with contextlib.nullcontext() if safe else np.errstate(over="ignore"):
        # numpy works block by block, so no float64 vector is ever made.
        np.multiply(tensor.numpy(), unit, out=found, dtype=np.float64, casting="same_kind")
    if not safe and not bool(np.isfinite(found).all()):
        raise WireError("value", f"scale={scale}")
    return torch.from_numpy(found)


def gradient_in_place(tensor: Tensor, scale: float) -> Tensor:
    """As `gradient`, in the memory of `tensor`, which holds no integers any more."""
    if tensor.dtype == torch.float32:
        return tensor
    real = tensor.view(torch.float32)
    for some, found in zip(torch.split(tensor, _BLOCK), torch.split(real, _BLOCK), strict=True):
        found.copy_(gradient(some, scale))
    return real
