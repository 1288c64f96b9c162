"""An edge's or a party's messages, to bytes and back. Decoding is strict.

Only a `Push` (which holds a `Released`) becomes an update on the wire; there is no way to encode a
bare tensor.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from tacit.errors import WireError
from tacit.privacy.accounting import History, Spend
from tacit.privacy.accounting.history import UnitSide
from tacit.privacy.ledger import UNCHARGED, Charged
from tacit.privacy.release import Released
from tacit.privacy.release.embeddings import ReleasedEmbedding
from tacit.privacy.release.trained import Shared
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.envelope import InPlace, Received, encode_in_place
from tacit.protocol.messages import Hello, Push, Report, Retired, Update
from tacit.protocol.vertical import Embed, UploadPart
from tacit.protocol.wire_values import MAX_MECHANISM, MAX_REASON, finite, pack_rows, read_rows
from tacit.shown import printable

SAFE_SCALE = 1e29  # 2^31 times this is still a float32
_SIDES = {"both": pb.Spend.BOTH, "training": pb.Spend.TRAINING, "held_out": pb.Spend.HELD_OUT}
_READ_SIDES: dict[int, UnitSide] = {pb.Spend.TRAINING: "training", pb.Spend.HELD_OUT: "held_out"}
_BLOCK = 1 << 16  # numbers that become real at a time: they stay in a processor's cache


def up(
    run: str,
    seq: int,
    message: Hello | Push | Report | Embed | Retired,
    schema: bytes,
    definition: str = "",
    receipt: pb.Held | None = None,
) -> bytes:
    """Return an edge's message as an envelope; arguments and errors are those of `up_in_place`."""
    return up_in_place(run, seq, message, schema, definition, receipt).whole()


def up_in_place(
    run: str,
    seq: int,
    message: Hello | Push | Report | Embed | Retired,
    schema: bytes,
    definition: str = "",
    receipt: pb.Held | None = None,
) -> InPlace:
    """Return an edge's message as an envelope that has no copy of its tensor.

    definition: the edge's run definition, for Hello. receipt: the newest receipt that the edge has.
    Raises TypeError unless the tensor is sealed: a `Released` in a Push, a `Shared` in a Report, a
    `ReleasedEmbedding` in an Embed.
    """
    if not isinstance(message, Hello | Push | Report | Embed | Retired):
        raise TypeError(f"{type(message).__name__} may not leave an edge")
    meta = pb.Meta(run=run, edge=message.edge, seq=seq, schema_hash=schema, held=receipt)
    tensor = _fill_up(meta, message)
    if isinstance(message, Hello):
        meta.hello.definition = definition
    return encode_in_place(meta, tensor)


def _fill_up(meta: pb.Meta, message: Hello | Push | Report | Embed | Retired) -> Tensor | None:
    """Fill `meta` with an edge's message; return the tensor that goes with it. Raises TypeError."""
    match message:
        case Hello():
            meta.hello.CopyFrom(_pack_hello(message))
            return None
        case Push(released=Released() as released):
            update = pb.Update(
                base_version=message.base_version,
                clip=released.clip,
                spent=_pack_history(released.spent),
                charged=_pack_charged(released.charged),
            )
            if released.vector.dtype == torch.int32:
                update.scale = released.scale
            update.look = message.look
            meta.update.CopyFrom(update)
            return released.vector
        case Report(model=Shared() as model):
            paid = _pack_history(message.spent)
            charged = _pack_charged(message.charged)
            meta.update.CopyFrom(
                pb.Update(
                    base_version=message.version, spent=paid, charged=charged, steps=message.steps
                )
            )
            return model.vector
        case Embed(released=None | ReleasedEmbedding() as embedded):
            paid = _pack_history(message.spent)
            charged = _pack_charged(message.charged)
            where = _pack_part(message.part)
            meta.update.CopyFrom(
                pb.Update(base_version=message.iteration, spent=paid, charged=charged, part=where)
            )
            if embedded is None:
                return None
            return embedded.vectors.flatten()
        case Retired():
            paid = _pack_history(message.spent)
            charged = _pack_charged(message.charged)
            meta.retired.CopyFrom(pb.Retired(reason=message.reason, spent=paid, charged=charged))
            return None
    raise TypeError(
        f"{type(message).__name__} without a seal: only a sealed vector may leave an edge"
    )


def read_up(
    received: Received, schema: bytes, size: int, *, real: bool = True
) -> Hello | Update | Retired:
    """Return the role message in an edge's envelope. Raises WireError (kind, schema, shape, value).

    real: False leaves an update's integers as they came.
    """
    meta = received.meta
    kind = received.meta.WhichOneof("kind")
    if meta.schema_hash != schema:
        raise WireError("schema", "made for another model")
    if kind == "update":
        update = meta.update
        part = _read_part(meta.update)
        if received.tensor is None:
            tensor = torch.zeros(0)
        else:
            tensor = received.tensor
        # Of a look the role knows the length.
        if part is None and not update.look and tensor.numel() != size:
            raise WireError("shape", f"{meta.numel} elements, the model has {size}")
        if real:
            vector = gradient(tensor, update.scale)
        else:
            vector = tensor
        clip = finite("clip", update.clip)
        spent = _read_history(update.spent)
        charged = _read_charged(update.charged)
        return Update(
            meta.edge, update.base_version, vector, clip, spent, charged, update.steps, part,
            look=update.look,
        )  # fmt: skip
    if received.tensor is not None:
        raise WireError("shape", f"{kind} carries no tensor")
    if kind == "retired":
        retired = meta.retired
        reason = printable(retired.reason, MAX_REASON)
        return Retired(
            meta.edge, reason, _read_history(retired.spent), _read_charged(retired.charged)
        )
    if kind == "hello":
        return _read_hello(meta.edge, meta.hello)
    raise WireError("kind", f"{kind} does not come from an edge")


def _pack_hello(message: Hello) -> pb.Hello:
    """Return Hello as protobuf."""
    return pb.Hello(
        epsilon=message.epsilon,
        delta=message.delta,
        mechanism=message.mechanism,
        noise_variance=message.noise_variance,
        clip_min=message.clip_min,
        clip_max=message.clip_max,
        spent=_pack_history(message.spent),
        charged=_pack_charged(message.charged),
        refusals=message.refusals,
        refusal=message.refusal,
        looked=message.looked,
    )


def _read_hello(edge: str, hello: pb.Hello) -> Hello:
    """Return Hello of `edge` from protobuf. Raises WireError ("value")."""
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
        spent=_read_history(hello.spent),
        charged=_read_charged(hello.charged),
        refusals=hello.refusals,
        refusal=printable(hello.refusal, MAX_REASON),
        looked=hello.looked,
        **numbers,
    )


def _pack_history(rows: History) -> list[pb.Spend]:
    """Return a ledger's history as protobuf."""
    return [
        pb.Spend(
            sampling_rate=row.sampling_rate,
            noise_multiplier=row.noise_multiplier,
            count=row.count,
            mechanism="" if row.mechanism == "gaussian" else row.mechanism,
            side=_SIDES[row.side],
        )
        for row in rows
    ]


def _read_history(spends: Iterable[pb.Spend]) -> History:
    """Return a ledger's history from protobuf.

    Raises WireError ("value") for one that no ledger can have.
    """
    rows = tuple(
        Spend(
            s.sampling_rate,
            finite("noise_multiplier", s.noise_multiplier),
            s.count,
            s.mechanism or "gaussian",
            side=_READ_SIDES.get(s.side, "both"),
        )
        for s in spends
    )
    mechanisms = ("gaussian", "discrete_gaussian", "knorm")
    if len(rows) > 1000 or any(
        not 0 < row.sampling_rate <= 1 or row.mechanism not in mechanisms for row in rows
    ):
        raise WireError("value", "spent: a history that no ledger can have")
    return rows


def _pack_charged(charged: Charged) -> pb.Charged | None:
    """Return a ledger's count and chain head as protobuf; None for a new ledger."""
    if charged == UNCHARGED:
        return None
    return pb.Charged(count=charged.count, head=charged.head)


def _read_charged(charged: pb.Charged) -> Charged:
    """Return a ledger's count and chain head. Raises WireError ("value") for a wrong length."""
    if len(charged.head) not in (0, 32):
        raise WireError("value", f"charged: a head of {len(charged.head)} bytes")
    return Charged(charged.count, charged.head)


def _pack_part(message: UploadPart) -> pb.Part:
    """Return a Part as protobuf, for an Update."""
    return pb.Part(step=message.step, request=message.request, rows=pack_rows(message.rows))


def _read_part(update: pb.Update) -> UploadPart | None:
    """Return the Part of an Update; None if it has none. Raises WireError (value)."""
    if not update.HasField("part"):
        return None
    return UploadPart(update.part.step, update.part.request, read_rows(update.part.rows))


def gradient(tensor: Tensor, scale: float) -> Tensor:
    """Return a message's vector in real units, (d,) float32: an integer is worth `scale`.

    It is computed in float64, and here only, so that all programs get the same bits.
    """
    if tensor.dtype == torch.float32:
        return tensor
    real = np.empty(tensor.numel(), np.float32)
    unit = np.float64(finite("scale", scale))
    safe = abs(unit) <= SAFE_SCALE
    with contextlib.nullcontext() if safe else np.errstate(over="ignore"):
        # numpy works block by block, so no float64 vector is ever made.
        np.multiply(tensor.numpy(), unit, out=real, dtype=np.float64, casting="same_kind")
    if not safe and not bool(np.isfinite(real).all()):
        raise WireError("value", f"scale={scale}")
    return torch.from_numpy(real)


def gradient_in_place(tensor: Tensor, scale: float) -> Tensor:
    """Return `gradient` in the memory of `tensor`, which holds no integers any more."""
    if tensor.dtype == torch.float32:
        return tensor
    real = tensor.view(torch.float32)
    for some, real_part in zip(torch.split(tensor, _BLOCK), torch.split(real, _BLOCK), strict=True):
        real_part.copy_(gradient(some, scale))
    return real
