"""One of every message, of fixed values, as the bytes that it is on the wire."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tacit_services.aggregator import entries

from tacit.privacy.accounting import Spend
from tacit.privacy.ledger import Charged
from tacit.privacy.policy import Terms
from tacit.privacy.release import Released, embeddings, release, trained
from tacit.protocol import messages as m
from tacit.protocol import wire, wire_down, wire_gossip, wire_up
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.vertical import Embed, Feedback, Request, Roster, UploadPart

RUN, EDGE, SEQ = "golden", "edge-0", 7
SCHEMA = bytes(range(32))
VECTOR = torch.tensor([-0.5, 0.25, 1.0, -2.0, 0.0])
COUNTS = torch.tensor([-3, 0, 7, 2**31 - 1, -(2**31)], dtype=torch.int32)
ROWS, MATRIX = torch.tensor([0, 2, 5]), torch.arange(6.0).view(3, 2)
SPENT = (Spend(0.0625, 1.5, 3, "discrete_gaussian"), Spend(1.0, 0.75, 1))
CHARGED = Charged(4, bytes(range(100, 132)))
PAID = SPENT, CHARGED
STEPS = {"edge-0": 5}  # of one peer: protobuf writes several in any order
CHUNK = 64  # so that an envelope takes several parts
# Sealed vectors that nobody has paid for.
FLOATS = Released(VECTOR, 1.0, 0.5, *PAID, release._SEAL)
INTEGERS = Released(COUNTS, 0.125, 0.5, *PAID, release._SEAL)
MODEL = trained.Shared(VECTOR, trained._SEAL)
EMBEDDED = embeddings.ReleasedEmbedding(ROWS, MATRIX, *PAID, embeddings._SEAL)
GLOBAL = m.GlobalModel(12, VECTOR, 0.5, Terms("discrete_gaussian", 0.0625, 1.5))
REQUEST = Request(4, ROWS)

UP: dict[str, Any] = {
    "hello": m.Hello(EDGE, 8.0, 1e-5, "discrete_gaussian", 0.5, 0.1, 10.0, *PAID, 2, "clip=nan"),
    "hello of a new ledger": m.Hello(EDGE, 8.0, 1e-5, "gaussian", 0.5, 0.1, 10.0, ()),
    "update f32": m.Push(EDGE, 3, FLOATS),
    "update i32": m.Push(EDGE, 3, INTEGERS),
    "report": m.Report(EDGE, 40, 5, MODEL, *PAID),
    "embeddings": Embed(EDGE, 9, UploadPart(2, 0, ROWS), EMBEDDED, *PAID),
    "embeddings of a request": Embed(EDGE, 9, UploadPart(2, 4, ROWS), EMBEDDED, *PAID),
    "embeddings known already": Embed(EDGE, 9, UploadPart(3, 0, ROWS), None, *PAID),
    "retired": m.Retired(EDGE, "the budget is spent", *PAID),
}
DOWN: dict[str, Any] = {
    "model": GLOBAL,
    "model without terms": m.GlobalModel(12, VECTOR, 0.5),
    "model of calibrated noise": m.GlobalModel(12, VECTOR, 0.5, Terms("gaussian@server", 1.0)),
    "halt": m.Halt(12, "all updates applied"),
    "roster": Roster(np.array([2**64 - 1, 5, 0], dtype=np.uint64), 2),
    "feedback": Feedback(8, 2, MATRIX),
    "feedback without a gradient": Feedback(8, 2, None),
    "request": REQUEST,
}
PEERS: dict[str, Any] = {
    "proposal": m.Proposal(EDGE, 1, 6, MODEL, STEPS),
    "answer": m.Answer(EDGE, 1, 6, MODEL, STEPS),
    "share": m.Share(EDGE, 0, MODEL),
    "missing": m.Missing(EDGE, 0),
}
WANT = pb.Want(head=SCHEMA, missing=[1, 4], lost=True)
ACCEPTED = pb.Receipt(status=pb.Receipt.ACCEPTED, last_seq=SEQ)


def envelopes() -> dict[str, str]:
    """Return the hexadecimal bytes, by message."""
    payloads = {f"up {name}": wire_up.up(RUN, SEQ, it, SCHEMA) for name, it in UP.items()}
    payloads |= {f"down {name}": wire_down.down(RUN, EDGE, it, SCHEMA) for name, it in DOWN.items()}
    for name, message in PEERS.items():
        payloads[f"peer {name}"] = wire_gossip.encode_peer_message(RUN, message, SCHEMA)
    for name in sorted(pb.Receipt.Status.keys()):
        receipt = pb.Receipt(
            status=name, reason="norm", retry_after_s=0.5, last_seq=SEQ, missing=[2, 3]
        )
        meta = pb.Meta(run=RUN, edge=EDGE, seq=SEQ, receipt=receipt)
        payloads[f"receipt {name.lower()}"] = wire.encode(meta)
    for name, room in (("with", 1 << 10), ("without", 0)):
        payloads[f"announcement {name} the model"] = wire_down.announcement(
            RUN, 3, "training", GLOBAL, SCHEMA, inline_below=room
        )
    hello = payloads["up hello"]
    payloads |= {
        "up want": wire.encode(pb.Meta(run=RUN, edge=EDGE, want=WANT)),
        "down model with a receipt": wire_down.down(RUN, EDGE, GLOBAL, SCHEMA, ACCEPTED, SEQ),
        "journal halt": entries.halt(RUN, 12, "operator"),
        "journal deadline": entries.deadline(RUN, 3),
        "journal request": entries.request(RUN, REQUEST),
        "question": wire.question(hello, CHUNK),
    }
    payloads |= {f"part {number}": part for number, part in enumerate(wire.split(hello, CHUNK))}
    return {name: payload.hex() for name, payload in payloads.items()}
