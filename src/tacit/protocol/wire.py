"""Messages to bytes and back, as protos/tacit/v1/wire.proto specifies. Decoding is strict.

Only a `Push` (which holds a `Released`) becomes an update on the wire; there is no way to encode a
bare tensor. An envelope is: magic, length of the Meta, the Meta, padding to 64 bytes, the tensor's
bytes. It travels in parts, each an MQTT payload.
"""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from google.protobuf.message import DecodeError
from torch import Tensor

from tacit.errors import WireError
from tacit.privacy.embeddings import ReleasedEmbedding
from tacit.privacy.policy import Terms
from tacit.privacy.release import Released
from tacit.privacy.trained import Shared
from tacit.protocol import wire_vertical
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.envelope import HEAD, MAGIC, Growing, tensor_at
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
    count_parts,
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
    "Received",
    "announcement",
    "count_parts",
    "decode",
    "down",
    "encode",
    "gradient",
    "has_tensor",
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
]

_NUMPY = {"f32": "<f4", "i32": "<i4"}
_TORCH = {"f32": torch.float32, "i32": torch.int32}
MAX_META = 1 << 20
MAX_MESSAGE = 1 << 32
SAFE_SCALE = 1e29  # 2^31 times this is still a float32


@dataclass(frozen=True, slots=True)
class Received:
    """A decoded envelope: its Meta, and its tensor, a view of the bytes.

    tensor: (numel,) float32 or int32; None if the message has none.
    """

    meta: pb.Meta
    tensor: Tensor | None


def encode(meta: pb.Meta, tensor: Tensor | None = None) -> bytes:
    """Return one envelope. Size, digest and dtype of `tensor` are filled into `meta`.

    tensor: (numel,) float32 or int32, on the CPU; the envelope is the only copy of it that is made.

    >>> meta = pb.Meta(run="demo", share=pb.Share(round=3))
    >>> payload = encode(meta, torch.tensor([0.5, -1.0]))
    >>> received = decode(payload)
    >>> received.meta.run, received.meta.share.round, received.tensor
    ('demo', 3, tensor([ 0.5000, -1.0000]))
    >>> try:
    ...     decode(payload[:-1] + b"!")
    ... except WireError as error:
    ...     print(error.reason)
    sha256
    """
    body: bytes | memoryview = b""
    if tensor is not None:
        meta.dtype = "i32" if tensor.dtype == torch.int32 else "f32"
        body = _raw(tensor, _NUMPY[meta.dtype])
        meta.numel, meta.sha256 = tensor.numel(), hashlib.sha256(body).digest()
    head = meta.SerializeToString()
    padding = -(HEAD.size + len(head)) % 64
    return b"".join((HEAD.pack(MAGIC, len(head)), head, bytes(padding), body))


def _raw(tensor: Tensor, dtype: str) -> memoryview:
    """The little-endian bytes of a tensor; no copy where the machine is little endian itself."""
    flat = tensor.detach().contiguous().numpy().astype(dtype, copy=False).reshape(-1)
    return flat.view("u1").data


def decode(payload: bytes | bytearray | memoryview, *, checked: bool = False) -> Received:
    """The envelope in `payload`, without a copy of the tensor. Raises WireError for anything else.

    checked: these very bytes were accepted once, and a checksum says that they are the same; the
    digest of the tensor is not computed again.
    Reasons: magic, length, meta, dtype, numel, sha256, finite.
    """
    view = memoryview(payload)
    if len(view) < HEAD.size or bytes(view[:4]) != MAGIC:
        raise WireError("magic", f"{len(view)} bytes that do not begin with {MAGIC.decode()}")
    length, start = HEAD.unpack_from(view)[1], tensor_at(view)
    if length > MAX_META or start > len(view):
        raise WireError("length", f"meta of {length} bytes in a payload of {len(view)}")
    meta = pb.Meta()
    try:
        meta.ParseFromString(bytes(view[HEAD.size : HEAD.size + length]))
    except DecodeError as error:
        raise WireError("meta", str(error)) from error
    if meta.WhichOneof("kind") is None:
        raise WireError("meta", "no kind that this version knows")
    digest = meta.sha256 if checked else None
    if isinstance(payload, Growing):
        digest = payload.digest()
    return Received(meta, _tensor(meta, view[start:], digest))


def has_tensor(payload: bytes | bytearray) -> bool:
    """Whether an envelope has more bytes than its Meta, by its first eight: nothing is decoded."""
    if len(payload) < HEAD.size:
        return False
    return len(payload) > tensor_at(payload)


def _tensor(meta: pb.Meta, body: memoryview, digest: bytes | None) -> Tensor | None:
    if meta.dtype == "" and meta.numel == 0 and len(body) == 0:
        return None
    if meta.dtype not in _TORCH or (meta.dtype == "i32" and meta.WhichOneof("kind") != "update"):
        raise WireError("dtype", f"{meta.dtype[:20]!r}: expected f32, or i32 in an update")
    if meta.numel * 4 != len(body) or meta.numel == 0:
        raise WireError("numel", f"{meta.numel} elements in {len(body)} bytes")
    if (digest or hashlib.sha256(body).digest()) != meta.sha256:
        raise WireError("sha256", "the tensor bytes do not match their digest")
    tensor = torch.frombuffer(
        body if not body.readonly else bytearray(body), dtype=_TORCH[meta.dtype]
    )
    if meta.dtype == "f32" and not _finite(tensor):
        raise WireError("finite", "the tensor holds inf or nan")
    return tensor


def _finite(tensor: Tensor) -> bool:
    """Whether every number is finite: the least and the largest are, and nan would be both."""
    least, largest = torch.aminmax(tensor)
    return bool(torch.isfinite(least) & torch.isfinite(largest))


def up(
    run: str,
    seq: int,
    message: Hello | Push | Report | Embed | Retired,
    schema: bytes,
    definition: str = "",
    held: pb.Held | None = None,
) -> bytes:
    """Return an edge's message as an envelope. definition: the edge's run definition, for Hello.

    held: the newest receipt that the edge has.
    Raises TypeError unless the tensor is sealed: a `Released` in a Push, a `Shared` in a Report, a
    `ReleasedEmbedding` in an Embed.
    """
    if not isinstance(message, Hello | Push | Report | Embed | Retired):
        raise TypeError(f"{type(message).__name__} may not leave an edge")
    meta = pb.Meta(run=run, edge=message.edge, seq=seq, schema_hash=schema, held=held)
    match message:
        case Hello():
            meta.hello.CopyFrom(pack_hello(message))
            meta.hello.definition = definition
            return encode(meta)
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
            return encode(meta, released.vector)
        case Report(model=Shared() as model):
            paid, charged = pack_history(message.spent), pack_charged(message.charged)
            meta.update.CopyFrom(
                pb.Update(
                    base_version=message.version, spent=paid, charged=charged, steps=message.steps
                )
            )
            return encode(meta, model.vector)
        case Embed(released=None | ReleasedEmbedding() as embedded):
            paid, charged = pack_history(message.spent), pack_charged(message.charged)
            where = wire_vertical.pack_part(message.part)
            meta.update.CopyFrom(
                pb.Update(base_version=message.iteration, spent=paid, charged=charged, part=where)
            )
            return encode(meta, None if embedded is None else embedded.vectors.flatten())
        case Retired():
            charged = pack_charged(message.charged)
            meta.retired.CopyFrom(
                pb.Retired(
                    reason=message.reason, spent=pack_history(message.spent), charged=charged
                )
            )
            return encode(meta)
    raise TypeError(
        f"{type(message).__name__} without a seal: only a sealed vector may leave an edge"
    )


def read_up(received: Received, schema: bytes, size: int) -> Hello | Update | Retired:
    """The role message in an edge's envelope. Raises WireError (kind, schema, shape, value)."""
    meta, kind = received.meta, received.meta.WhichOneof("kind")
    if meta.schema_hash != schema:
        raise WireError("schema", "made for another model")
    if kind == "update":
        update, part = meta.update, wire_vertical.read_part(meta.update)
        tensor = torch.zeros(0) if received.tensor is None else received.tensor
        if part is None and tensor.numel() != size:
            raise WireError("shape", f"{meta.numel} elements, the model has {size}")
        vector, clip = gradient(tensor, update.scale), finite("clip", update.clip)
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
) -> bytes:
    """A server's message as an envelope.

    answer: the receipt of message `answered`, if it goes with it.
    """
    meta = pb.Meta(run=run, edge=edge, schema_hash=schema, answer=answer, answered=answered)
    if isinstance(message, GlobalModel):
        meta.model.CopyFrom(
            pb.GlobalModel(
                version=message.version, clip=message.clip, terms=pack_terms(message.terms)
            )
        )
        return encode(meta, message.params)
    if not isinstance(message, Halt):
        return encode(meta, wire_vertical.fill_meta(meta, message))
    meta.halt.CopyFrom(pb.Halt(version=message.version, reason=message.reason))
    return encode(meta)


def announcement(
    run: str, epoch: int, state: str, model: GlobalModel, schema: bytes, *, inline_below: int
) -> bytes:
    """The retained announcement of a run.

    It holds the model itself if that takes at most `inline_below` bytes.
    """
    raw = _raw(model.params, _NUMPY["f32"])
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
