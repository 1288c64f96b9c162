"""Peers' messages to bytes and back (protos/tacit/v1/wire.proto).

Decoding is strict, as in `wire`.
"""

from __future__ import annotations

from torch import Tensor

from tacit.errors import WireError
from tacit.privacy.release.trained import Shared
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import Answer, Missing, PeerMessage, Proposal, Share
from tacit.protocol.wire import Received, encode


def encode_peer_message(run: str, message: PeerMessage, schema: bytes) -> bytes:
    """Return a peer's message as an envelope.

    Raises TypeError for a tensor that no `Trained` has sealed.
    """
    meta = pb.Meta(run=run, edge=message.peer, schema_hash=schema)
    match message:
        case Proposal(model=Shared() as model):
            meta.proposal.CopyFrom(
                pb.Proposal(life=message.life, seq=message.seq, counts=dict(message.counts))
            )
            return encode(meta, model.vector)
        case Answer(delta=Shared() as delta):
            meta.exchanged.CopyFrom(
                pb.Answer(life=message.life, seq=message.seq, counts=dict(message.counts))
            )
            return encode(meta, delta.vector)
        case Share(model=Shared() as model):
            meta.share.round = message.round
            meta.share.SetInParent()
            return encode(meta, model.vector)
        case Missing():
            meta.missing.round = message.round
            meta.missing.SetInParent()
            return encode(meta)
    raise TypeError(
        f"{type(message).__name__} of a bare tensor: only a Shared vector may leave a peer"
    )


def read_peer_message(received: Received, schema: bytes, size: int) -> PeerMessage:
    """Return the message in a peer's envelope. Raises WireError (kind, schema, shape, value)."""
    meta = received.meta
    kind = received.meta.WhichOneof("kind")
    if meta.schema_hash != schema:
        raise WireError("schema", "made for another model")
    if kind == "missing":
        return Missing(meta.edge, meta.missing.round)
    if kind == "share":
        return Share(meta.edge, meta.share.round, _vector(received, size))
    if kind not in ("proposal", "exchanged"):
        raise WireError("kind", f"{kind} does not come from a peer")
    content = meta.proposal if kind == "proposal" else meta.exchanged
    if not (content.life and content.seq):
        raise WireError("value", f"life={content.life}, seq={content.seq}: both begin at 1")
    message_type = Proposal if kind == "proposal" else Answer
    return message_type(
        meta.edge, content.life, content.seq, _vector(received, size), dict(content.counts)
    )


def _vector(received: Received, size: int) -> Tensor:
    if received.tensor is None or received.tensor.numel() != size:
        raise WireError("shape", f"{received.meta.numel} elements, the model has {size}")
    return received.tensor
