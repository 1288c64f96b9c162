"""One of every message, of fixed values, as the bytes that it is on the wire."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from golden.layout import (
    Answer,
    Charged,
    Embed,
    Feedback,
    GlobalModel,
    Halt,
    Hello,
    Missing,
    Part,
    Proposal,
    Push,
    Report,
    Request,
    Retired,
    Roster,
    Share,
    Spend,
    Terms,
    embedded,
    entries,
    pb,
    released,
    shared,
    wire,
    wire_peers,
)

RUN, EDGE, SEQ = "golden", "edge-0", 7
SCHEMA = bytes(range(32))
VECTOR = torch.tensor([-0.5, 0.25, 1.0, -2.0, 0.0])
COUNTS = torch.tensor([-3, 0, 7, 2**31 - 1, -(2**31)], dtype=torch.int32)
ROWS = torch.tensor([0, 2, 5])
SPENT = (Spend(0.0625, 1.5, 3, "discrete_gaussian"), Spend(1.0, 0.75, 1))
CHARGED = Charged(4, bytes(range(100, 132)))
STEPS = {"edge-0": 5}  # one: protobuf does not say in which order it writes several
CHUNK = 64  # so that an envelope takes several parts


def envelopes() -> dict[str, str]:
    """Hexadecimal bytes, by message."""
    found = dict([*_up(), *_down(), *_peers(), *_journal(), *_receipts()])
    whole = found["up hello"]
    parts = {f"part {number}": part for number, part in enumerate(wire.split(whole, CHUNK))}
    return {
        name: payload.hex()
        for name, payload in (found | parts | {"question": wire.question(whole, CHUNK)}).items()
    }


def _up() -> Iterator[tuple[str, bytes]]:
    def up(message: Hello | Push | Report | Embed | Retired) -> bytes:
        return wire.up(RUN, SEQ, message, SCHEMA)

    hello = Hello(
        EDGE, 8.0, 1e-5, "discrete_gaussian", 0.5, 0.1, 10.0, SPENT, CHARGED, 2, "clip=nan"
    )
    yield "up hello", up(hello)
    yield "up hello of a new ledger", up(Hello(EDGE, 8.0, 1e-5, "gaussian", 0.5, 0.1, 10.0, ()))
    yield "up update f32", up(Push(EDGE, 3, released(VECTOR, 1.0, 0.5, SPENT, CHARGED)))
    yield "up update i32", up(Push(EDGE, 3, released(COUNTS, 0.125, 0.5, SPENT, CHARGED)))
    yield "up report", up(Report(EDGE, 40, 5, shared(VECTOR), SPENT, CHARGED))
    vectors = embedded(ROWS, torch.arange(6.0).view(3, 2), SPENT, CHARGED)
    yield "up embeddings", up(Embed(EDGE, 9, Part(2, 0, ROWS), vectors, SPENT, CHARGED))
    yield (
        "up embeddings of a request",
        up(Embed(EDGE, 9, Part(2, 4, ROWS), vectors, SPENT, CHARGED)),
    )
    yield "up embeddings known already", up(Embed(EDGE, 9, Part(3, 0, ROWS), None, SPENT, CHARGED))
    yield "up retired", up(Retired(EDGE, "the budget is spent", SPENT, CHARGED))
    want = pb.Want(head=bytes(range(32)), missing=[1, 4], lost=True)
    yield "up want", wire.encode(pb.Meta(run=RUN, edge=EDGE, want=want))


def _down() -> Iterator[tuple[str, bytes]]:
    def down(message: GlobalModel | Halt | Roster | Feedback | Request) -> bytes:
        return wire.down(RUN, EDGE, message, SCHEMA)

    model = GlobalModel(12, VECTOR, 0.5, Terms("discrete_gaussian", 0.0625, 1.5))
    yield "down model", down(model)
    yield "down model without terms", down(GlobalModel(12, VECTOR, 0.5))
    yield (
        "down model of calibrated noise",
        down(GlobalModel(12, VECTOR, 0.5, Terms("gaussian@server", 1.0))),
    )
    receipt = pb.Receipt(status=pb.Receipt.ACCEPTED, last_seq=SEQ)
    yield "down model with a receipt", wire.down(RUN, EDGE, model, SCHEMA, receipt, SEQ)
    yield "down halt", down(Halt(12, "all updates applied"))
    yield "down roster", down(Roster(np.array([2**64 - 1, 5, 0], dtype=np.uint64), 2))
    yield "down feedback", down(Feedback(8, 2, torch.arange(6.0).view(3, 2)))
    yield "down feedback without a gradient", down(Feedback(8, 2, None))
    yield "down request", down(Request(4, ROWS))
    for name, room in (("with", 1 << 10), ("without", 0)):
        yield (
            f"announcement {name} the model",
            wire.announcement(RUN, 3, "training", model, SCHEMA, inline_below=room),
        )


def _peers() -> Iterator[tuple[str, bytes]]:
    vector = shared(VECTOR)
    for name, message in (
        ("proposal", Proposal(EDGE, 1, 6, vector, STEPS)),
        ("answer", Answer(EDGE, 1, 6, vector, STEPS)),
        ("share", Share(EDGE, 0, vector)),
        ("missing", Missing(EDGE, 0)),
    ):
        yield f"peer {name}", wire_peers.encoded(RUN, message, SCHEMA)


def _journal() -> Iterator[tuple[str, bytes]]:
    yield "journal halt", entries.halt(RUN, 12, "operator")
    yield "journal deadline", entries.deadline(RUN, 3)
    yield "journal request", entries.request(RUN, Request(4, ROWS))


def _receipts() -> Iterator[tuple[str, bytes]]:
    for name in sorted(pb.Receipt.Status.keys()):
        receipt = pb.Receipt(
            status=name, reason="norm", retry_after_s=0.5, last_seq=SEQ, missing=[2, 3]
        )
        yield (
            f"receipt {name.lower()}",
            wire.encode(pb.Meta(run=RUN, edge=EDGE, seq=SEQ, receipt=receipt)),
        )
