"""Messages to bytes and back, as protos/tacit/v1/wire.proto specifies. Strict on the way in.

Only a `Push` (which holds a `Released`) becomes an update on the wire; there is no way to encode a bare tensor.
"""

from __future__ import annotations

import contextlib
import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from google.protobuf.message import DecodeError
from torch import Tensor

from tacit.errors import WireError
from tacit.privacy.embeddings import ReleasedEmbedding
from tacit.privacy.ledger import UNCHARGED, Charged
from tacit.privacy.policy import Terms
from tacit.privacy.release import Released
from tacit.privacy.trained import Shared
from tacit.protocol import wire_vertical
from tacit.protocol._pb import wire_pb2 as pb
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
from tacit.protocol.vertical import Embed
from tacit.protocol.wire_values import finite, pack_history, read_history

MAGIC, PART_MAGIC = b"TCT1", b"TCTP"
_HEAD, _PART = struct.Struct("<4sI"), struct.Struct("<4sIIQQ")
PART_HEADER = _PART.size
_NUMPY = {"f32": "<f4", "i32": "<i4"}
_TORCH = {"f32": torch.float32, "i32": torch.int32}
MAX_META = 1 << 20
MAX_REASON, MAX_MECHANISM = 200, 40  # characters kept of a peer's text
MAX_MESSAGE = 1 << 32
SAFE_SCALE = 1e29  # 2^31 times this is a float32


@dataclass(frozen=True, slots=True)
class Received:
    """A decoded envelope: its Meta and its tensor ((numel,) float32 or int32, a view of the bytes; None without)."""

    meta: pb.Meta
    tensor: Tensor | None


def printable(text: str, limit: int) -> str:
    """A peer's words, for logs and terminals: `limit` characters at most, `?` for what does not print."""
    return "".join(character if character.isprintable() else "?" for character in text[:limit])


def encode(meta: pb.Meta, tensor: Tensor | None = None) -> bytes:
    """One envelope. tensor: (numel,) float32 or int32, on the CPU; size, digest and dtype are filled into `meta`."""
    body = b""
    if tensor is not None:
        meta.dtype = "i32" if tensor.dtype == torch.int32 else "f32"
        body = tensor.detach().contiguous().numpy().astype(_NUMPY[meta.dtype], copy=False).tobytes()
        meta.numel, meta.sha256 = tensor.numel(), hashlib.sha256(body).digest()
    head = meta.SerializeToString()
    padding = -(_HEAD.size + len(head)) % 64
    return b"".join((_HEAD.pack(MAGIC, len(head)), head, bytes(padding), body))


def decode(payload: bytes | bytearray | memoryview, *, checked: bool = False) -> Received:
    """The envelope in `payload`; no copy of the tensor. Raises WireError with a reason for anything else.

    `checked`: these very bytes were accepted once, and a checksum says that they are the same; the digest of the
    tensor is not computed again. Reasons: magic, length, meta, dtype, numel, sha256, finite.
    """
    view = memoryview(payload)
    if len(view) < _HEAD.size or bytes(view[:4]) != MAGIC:
        raise WireError("magic", f"{len(view)} bytes that do not begin with {MAGIC.decode()}")
    length = _HEAD.unpack_from(view)[1]
    start = _HEAD.size + length + (-(_HEAD.size + length) % 64)
    if length > MAX_META or start > len(view):
        raise WireError("length", f"meta of {length} bytes in a payload of {len(view)}")
    meta = pb.Meta()
    try:
        meta.ParseFromString(bytes(view[_HEAD.size : _HEAD.size + length]))
    except DecodeError as error:
        raise WireError("meta", str(error)) from error
    if meta.WhichOneof("kind") is None:
        raise WireError("meta", "no kind that this version knows")
    return Received(meta, _tensor(meta, view[start:], checked))


def _tensor(meta: pb.Meta, body: memoryview, checked: bool) -> Tensor | None:
    if meta.dtype == "" and meta.numel == 0 and len(body) == 0:
        return None
    if meta.dtype not in _TORCH or (meta.dtype == "i32" and meta.WhichOneof("kind") != "update"):
        raise WireError("dtype", f"{meta.dtype[:20]!r}: expected f32, or i32 in an update")
    if meta.numel * 4 != len(body) or meta.numel == 0:
        raise WireError("numel", f"{meta.numel} elements in {len(body)} bytes")
    if not checked and hashlib.sha256(body).digest() != meta.sha256:
        raise WireError("sha256", "the tensor bytes do not match their digest")
    tensor = torch.frombuffer(
        body if not body.readonly else bytearray(body), dtype=_TORCH[meta.dtype]
    )
    if meta.dtype == "f32" and not bool(torch.isfinite(tensor).all()):
        raise WireError("finite", "the tensor holds inf or nan")
    return tensor


def count_parts(envelope: bytes, chunk: int) -> int:
    """How many MQTT payloads of at most `chunk` bytes, header included, an envelope takes."""
    return max(1, -(-len(envelope) // (chunk - PART_HEADER)))


def part(envelope: bytes, chunk: int, number: int) -> bytes:
    """The MQTT payload that holds part `number` of an envelope."""
    room = chunk - PART_HEADER
    body = envelope[number * room : (number + 1) * room]
    return (
        _PART.pack(PART_MAGIC, number, count_parts(envelope, chunk), len(envelope), number * room)
        + body
    )


def split(envelope: bytes, chunk: int) -> Iterator[bytes]:
    """Cut an envelope into MQTT payloads of at most `chunk` bytes, header included."""
    return (part(envelope, chunk, number) for number in range(count_parts(envelope, chunk)))


def question(envelope: bytes, chunk: int) -> bytes:
    """The payload that asks a receiver what it has not got of an envelope: a part without bytes."""
    return _PART.pack(PART_MAGIC, 0, count_parts(envelope, chunk), len(envelope), 0)


def read_question(payload: bytes) -> tuple[int, int] | None:
    """(parts, total bytes) of the message that a question is about; None for any other payload."""
    if len(payload) != _PART.size:
        return None
    magic, _, parts, total, _ = _PART.unpack(payload)
    return (parts, total) if magic == PART_MAGIC and total else None


class Assembler:
    """Puts one message together from its parts, in any order, with duplicates; bounded by `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._buffer = bytearray()
        self._seen = (
            bytearray()
        )  # one byte per part: a set of numbers would be 60 times what was announced
        self._missing = 0
        self.shape: tuple[int, int] | None = None  # parts, total bytes; None before the first part

    @property
    def received(self) -> int:
        """How many parts have come, each counted once."""
        return len(self._seen) - self._missing

    def missing(self, limit: int) -> list[int]:
        """The numbers of the first parts that have not come, `limit` at most."""
        found: list[int] = []
        at = self._seen.find(0)
        while at >= 0 and len(found) < limit:
            found.append(at)
            at = self._seen.find(0, at + 1)
        return found

    def add(self, payload: bytes) -> bytearray | None:
        """The whole envelope once its last part has come, else None; of equal parts the first counts.

        A question announces the message and adds nothing to it. Raises WireError (magic, length, size).
        """
        if len(payload) < _PART.size or payload[:4] != PART_MAGIC:
            raise WireError(
                "magic",
                f"a part of {len(payload)} bytes that does not begin with {PART_MAGIC.decode()}",
            )
        _, number, parts, total, offset = _PART.unpack_from(payload)
        if total > self._max:
            raise WireError("size", f"{total} bytes announced, {self._max} allowed")
        body = memoryview(payload)[_PART.size :]
        if not 1 <= parts <= total + 1 or number >= parts or offset + len(body) > total:
            raise WireError(
                "length", f"part {number} of {parts} at {offset} does not fit {total} bytes"
            )
        if self.shape is None:
            self.shape, self._missing = (parts, total), parts
            self._buffer, self._seen = bytearray(total), bytearray(parts)
        if self.shape != (parts, total):
            raise WireError("length", "the parts of one message disagree on its size")
        if not self._seen[number] and (body or not total):
            self._seen[number], self._missing = 1, self._missing - 1
            self._buffer[offset : offset + len(body)] = body
        return None if self._missing else self._buffer


def up(
    run: str, seq: int, message: Hello | Push | Report | Embed | Retired, schema: bytes
) -> bytes:
    """An edge's message as an envelope. Tensors: `Released` in a Push, `Shared` in a Report, `ReleasedEmbedding`."""
    if not isinstance(message, Hello | Push | Report | Embed | Retired):
        raise TypeError(f"{type(message).__name__} may not leave an edge")
    meta = pb.Meta(run=run, edge=message.edge, seq=seq, schema_hash=schema)
    match message:
        case Hello():
            meta.hello.CopyFrom(
                pb.Hello(
                    epsilon=message.epsilon,
                    delta=message.delta,
                    mechanism=message.mechanism,
                    noise_variance=message.noise_variance,
                    clip_min=message.clip_min,
                    clip_max=message.clip_max,
                    spent=pack_history(message.spent),
                    charged=_charged(message.charged),
                    refusals=message.refusals,
                    refusal=message.refusal,
                )
            )
            return encode(meta)
        case Push(released=Released() as released):
            update = pb.Update(
                base_version=message.base_version,
                clip=released.clip,
                spent=pack_history(released.spent),
                charged=_charged(released.charged),
            )
            if released.vector.dtype == torch.int32:
                update.scale = released.scale
            meta.update.CopyFrom(update)
            return encode(meta, released.vector)
        case Report(model=Shared() as model):
            paid, charged = pack_history(message.spent), _charged(message.charged)
            meta.update.CopyFrom(
                pb.Update(
                    base_version=message.version, spent=paid, charged=charged, steps=message.steps
                )
            )
            return encode(meta, model.vector)
        case Embed(released=None | ReleasedEmbedding() as embedded):
            paid, charged = pack_history(message.spent), _charged(message.charged)
            where = wire_vertical.pack_part(message.part)
            meta.update.CopyFrom(
                pb.Update(base_version=message.iteration, spent=paid, charged=charged, part=where)
            )
            return encode(meta, None if embedded is None else embedded.vectors.flatten())
        case Retired():
            charged = _charged(message.charged)
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
        spent, charged = read_history(update.spent), _read_charged(update.charged)
        return Update(
            meta.edge, update.base_version, vector, clip, spent, charged, update.steps, part
        )
    if received.tensor is not None:
        raise WireError("shape", f"{kind} carries no tensor")
    if kind == "retired":
        retired = meta.retired
        reason = printable(retired.reason, MAX_REASON)
        return Retired(
            meta.edge, reason, read_history(retired.spent), _read_charged(retired.charged)
        )
    if kind == "hello":
        return _hello(meta.edge, meta.hello)
    raise WireError("kind", f"{kind} does not come from an edge")


def down(
    run: str,
    edge: str,
    message: ServerOutput,
    schema: bytes,
    answer: pb.Receipt | None = None,
    answered: int = 0,
) -> bytes:
    """A server's message as an envelope; `answer` is the receipt of message `answered`, if it goes with it."""
    meta = pb.Meta(run=run, edge=edge, schema_hash=schema, answer=answer, answered=answered)
    if isinstance(message, GlobalModel):
        meta.model.CopyFrom(
            pb.GlobalModel(version=message.version, clip=message.clip, terms=_terms(message.terms))
        )
        return encode(meta, message.params)
    if not isinstance(message, Halt):
        return encode(meta, wire_vertical.fill_meta(meta, message))
    meta.halt.CopyFrom(pb.Halt(version=message.version, reason=message.reason))
    return encode(meta)


def announcement(
    run: str, epoch: int, state: str, model: GlobalModel, schema: bytes, *, inline_below: int
) -> bytes:
    """The retained word on a run; holds the model itself if that takes at most `inline_below` bytes."""
    raw = model.params.numpy().tobytes()
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
    # C as it was said, nan too: whether to work with it is the edge's policy to decide, and to count.
    return GlobalModel(meta.model.version, received.tensor, meta.model.clip, terms)


def _hello(edge: str, hello: pb.Hello) -> Hello:
    numbers = {
        name: finite(name, getattr(hello, name))
        for name in ("delta", "noise_variance", "clip_min", "clip_max")
    }
    if not hello.epsilon > 0 or not 0 < hello.delta < 1:
        raise WireError("value", f"epsilon={hello.epsilon}, delta={hello.delta}")
    return Hello(
        edge,
        hello.epsilon,
        mechanism=printable(hello.mechanism, MAX_MECHANISM),
        spent=read_history(hello.spent),
        charged=_read_charged(hello.charged),
        refusals=hello.refusals,
        refusal=printable(hello.refusal, MAX_REASON),
        **numbers,
    )


def gradient(tensor: Tensor, scale: float) -> Tensor:
    """(d,) float32: an integer message is worth `scale` a unit, computed once, in float64, here for everybody."""
    if tensor.dtype == torch.float32:
        return tensor
    found, unit = np.empty(tensor.numel(), np.float32), np.float64(finite("scale", scale))
    safe = abs(unit) <= SAFE_SCALE
    with contextlib.nullcontext() if safe else np.errstate(over="ignore"):
        # Block by block: no float64 vector is ever made.
        np.multiply(tensor.numpy(), unit, out=found, dtype=np.float64, casting="same_kind")
    if not safe and not bool(np.isfinite(found).all()):
        raise WireError("value", f"scale={scale}")
    return torch.from_numpy(found)


def _charged(charged: Charged) -> pb.Charged | None:
    return None if charged == UNCHARGED else pb.Charged(count=charged.count, head=charged.head)


def _read_charged(charged: pb.Charged) -> Charged:
    if len(charged.head) not in (0, 32):
        raise WireError("value", f"charged: a head of {len(charged.head)} bytes")
    return Charged(charged.count, charged.head)


def _terms(terms: Terms | None) -> pb.Terms | None:
    if terms is None:
        return None
    return pb.Terms(
        mechanism=terms.mechanism,
        sampling_rate=terms.sampling_rate,
        noise_multiplier=terms.noise_multiplier,
    )
