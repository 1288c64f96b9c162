"""Hello, an edge's public configuration, as protobuf and back."""

from __future__ import annotations

from tacit.errors import WireError
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import Hello
from tacit.protocol.wire_values import (
    MAX_MECHANISM,
    MAX_REASON,
    finite,
    pack_charged,
    pack_history,
    printable,
    read_charged,
    read_history,
)


def pack_hello(message: Hello) -> pb.Hello:
    """Hello as protobuf."""
    return pb.Hello(
        epsilon=message.epsilon,
        delta=message.delta,
        mechanism=message.mechanism,
        noise_variance=message.noise_variance,
        clip_min=message.clip_min,
        clip_max=message.clip_max,
        spent=pack_history(message.spent),
        charged=pack_charged(message.charged),
        refusals=message.refusals,
        refusal=message.refusal,
    )


def read_hello(edge: str, hello: pb.Hello) -> Hello:
    """Hello of `edge` from protobuf. Raises WireError ("value")."""
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
        charged=read_charged(hello.charged),
        refusals=hello.refusals,
        refusal=printable(hello.refusal, MAX_REASON),
        **numbers,
    )
