"""Throw damaged messages at everything that decodes: `python -m tacit_lab.bench.fuzz [MINUTES]
[SEED]`, or `make fuzz`.

Three targets take turns: an envelope (decode, then every reader), parts for an assembler, and
parts, questions and whole messages of several edges for the aggregator's `Reassembly`. What goes in
are good messages of every kind, mutated: bits flipped, bytes overwritten, inserted, deleted,
lengths and counts replaced by extreme ones, two messages spliced.

A finding is an exception that is no refusal (WireError, RetryLater), or memory beyond the announced
size. A tensor that differs from the sent one without an announcement is a finding, too. So is an
envelope that differs from the sent one although only its own parts came. Any finding ends the run
with its seed and case number, and exit code 1. Writes out/fuzz.json.
"""

from __future__ import annotations

import functools
import json
import random
import struct
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from tacit_services.aggregator import entries
from tacit_services.aggregator.ingest.reassembly import Reassembly
from tacit_services.aggregator.ingest.receipts import RetryLater
from tacit_services.transport.transfer import MISSING, WINDOW, Download, Transfer

from tacit.errors import WireError
from tacit.protocol import wire, wire_down, wire_up
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import GlobalModel, Halt

SIZE = 37
SCHEMA = bytes(range(32))
LIMIT = 1 << 16
ROOM = 1 << 12
EXTREME = (
    0,
    1,
    2,
    7,
    8,
    63,
    64,
    127,
    128,
    255,
    2**15,
    2**16,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**53,
    2**63,
    2**64 - 1,
)
Seen = Counter[str]


def good() -> list[bytes]:
    """Return one envelope of every kind, integers and floats."""
    spent = [
        pb.Spend(sampling_rate=0.1, noise_multiplier=1.0, count=5, mechanism="discrete_gaussian")
    ]
    charged = pb.Charged(count=5, head=bytes(32))
    floats = torch.linspace(-1, 1, SIZE)
    integers = torch.arange(SIZE, dtype=torch.int32)
    meta: dict[str, Any] = {"run": "r", "edge": "e", "seq": 3, "schema_hash": SCHEMA}
    hello = pb.Hello(
        epsilon=2.0,
        delta=1e-5,
        mechanism="gaussian",
        noise_variance=1.0,
        clip_min=0.1,
        clip_max=1.0,
    )
    plain = [
        pb.Meta(hello=hello, **meta),
        pb.Meta(retired=pb.Retired(reason="spent", spent=spent, charged=charged), **meta),
        pb.Meta(receipt=pb.Receipt(status=pb.Receipt.PARTIAL, missing=[1, 2, 3]), **meta),
        pb.Meta(want=pb.Want(head=bytes(32), missing=range(32)), **meta),
        pb.Meta(announcement=pb.Announcement(epoch=1, state="training", version=3), **meta),
    ]
    update = pb.Update(base_version=3, clip=1.0, spent=spent, charged=charged, scale=0.5)
    envelopes = [wire.encode(message) for message in plain]
    envelopes += [
        wire.encode(pb.Meta(update=update, **meta), tensor) for tensor in (floats, integers)
    ]
    integers[SIZE // 2] = 1 << 20  # some of them lie apart
    envelopes.append(wire.encode(pb.Meta(update=update, **meta), integers))
    answer = pb.Receipt(status=pb.Receipt.ACCEPTED, last_seq=3)
    envelopes.append(wire_down.down("r", "e", GlobalModel(4, floats, 1.0), SCHEMA, answer, 3))
    envelopes.append(wire_down.down("r", "e", Halt(4, "over"), SCHEMA))
    return envelopes


def mutated(rng: random.Random, payload: bytes, others: list[bytes]) -> bytes:
    """Return `payload` with one to four kinds of damage."""
    data = bytearray(payload)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(8)
        if kind == 0 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at : at + 1] = rng.randbytes(1)
        elif kind == 2:
            data[at:at] = rng.randbytes(rng.randint(1, 40))
        elif kind == 3:
            del data[at : at + rng.randint(1, 40)]
        elif kind == 4:
            data[at : at + 4] = struct.pack("<I", rng.choice(EXTREME) & 0xFFFFFFFF)
        elif kind == 5:
            data[at : at + 8] = struct.pack("<Q", rng.choice(EXTREME))
        elif kind == 6:
            other = rng.choice(others)
            data[at:] = other[rng.randrange(len(other)) :]
        else:
            start = rng.randrange(len(data) + 1)
            data[at:at] = data[start : start + rng.randint(1, 64)]
    return bytes(data[: LIMIT // 2])


@functools.cache
def _numbers(envelope: bytes) -> bytes:
    tensor = wire.decode(envelope).tensor
    if tensor is None:
        return b""
    return tensor.numpy().tobytes()


def fuzz_envelope(rng: random.Random, seeds: list[bytes], outcomes: Seen) -> None:
    """Decode, and read it as everybody in the system would."""
    payload = mutated(rng, rng.choice(seeds), seeds)
    try:
        received = wire.decode(payload if rng.random() < 0.5 else bytearray(payload))
    except WireError as refusal:
        outcomes[f"envelope:{refusal.reason}"] += 1
        return
    outcomes["envelope:decoded"] += 1
    if received.tensor is not None:
        body = received.tensor.numpy().tobytes()
        assert any(body == _numbers(seed) for seed in seeds), "a tensor that nobody sent"
    for reader in (wire_up.read_up, wire_down.read_down):
        try:
            reader(received, SCHEMA, SIZE)
        except WireError as refusal:
            outcomes[f"read:{refusal.reason}"] += 1
    try:
        entries.read(payload, SCHEMA, SIZE)
    except WireError as refusal:
        outcomes[f"journal:{refusal.reason}"] += 1


def fuzz_assembler(rng: random.Random, seeds: list[bytes], outcomes: Seen) -> None:
    """Assemble parts of one message, some damaged, in any order; and as a download."""
    envelope = rng.choice(seeds)
    chunk = rng.randint(wire.PART_HEADER + 1, 200)
    parts = [*wire.split(envelope, chunk), wire.question(envelope, chunk)]
    order = [rng.choice(parts) for _ in range(3 * len(parts))]
    honest = rng.random() < 0.3
    if not honest:
        order = [mutated(rng, part, seeds) if rng.random() < 0.2 else part for part in order]
    assembler = wire.Assembler(LIMIT)
    wants: list[pb.Want] = []
    download = Download(LIMIT, wants.append)
    for part in order:
        try:
            message = assembler.add(part)
            download.add(part, first=rng.random() < 0.1)
        except WireError as refusal:
            outcomes[f"part:{refusal.reason}"] += 1
            continue
        assert len(assembler.missing(32)) <= 32
        assert assembler.held <= 2 * LIMIT + wire.HELD_BESIDE
        if message is not None:
            outcomes["part:whole"] += 1
            assert not honest or bytes(message) == envelope, "another message than was sent"
    assert all(len(want.missing) <= MISSING for want in wants)
    transfer = Transfer(envelope, chunk)
    numbers = [rng.choice(EXTREME) & 0xFFFFFFFF for _ in range(20)] + [
        rng.randrange(2 * len(parts)) for _ in range(20)
    ]
    assert len(list(transfer.more(numbers))) <= WINDOW


def fuzz_partials(rng: random.Random, seeds: list[bytes], outcomes: Seen) -> None:
    """Let many edges, some of them hostile, send to the aggregator's reassembly."""
    reassembly = Reassembly(LIMIT, 12, ROOM)
    senders = [
        (f"edge-{number}", rng.choice(seeds), rng.randint(wire.PART_HEADER + 1, 100))
        for number in range(12)
    ]
    for _ in range(200):
        edge, envelope, chunk = rng.choice(senders)
        parts = wire.count_parts(len(envelope), chunk)
        payload = wire.part(envelope, chunk, rng.randrange(parts))
        if rng.random() < 0.1:
            payload = wire.question(envelope, chunk)
        hostile = rng.random() < 0.1
        try:
            if hostile:
                payload = mutated(rng, payload, seeds)
            seq = rng.choice(EXTREME) if hostile else 1
            message = reassembly.add(edge, seq, payload)
            answer = reassembly.answer(edge, seq)
        except (WireError, RetryLater) as refusal:
            outcomes[f"partials:{getattr(refusal, 'reason', 'busy')}"] += 1
            continue
        assert answer is None or len(answer.missing) <= MISSING
        assert reassembly.held <= 2 * ROOM
        outcomes["partials:whole" if message is not None else "partials:part"] += 1


def main() -> int:
    """Fuzz for so many minutes; 1 at the first finding."""
    minutes = float(sys.argv[1]) if sys.argv[1:] else 10.0
    seed = int(sys.argv[2]) if sys.argv[2:] else 1
    seeds = good()
    outcomes = Counter[str]()
    cases = 0
    targets = (fuzz_envelope, fuzz_envelope, fuzz_envelope, fuzz_assembler, fuzz_partials)
    began = time.monotonic()
    while time.monotonic() < began + 60 * minutes:
        rng = random.Random(f"{seed} {cases}")
        target = targets[cases % len(targets)]
        found_one = True
        try:
            target(rng, seeds, outcomes)
            found_one = False
        finally:
            if found_one:  # whatever ends it is a finding
                print(f"finding: seed {seed}, case {cases}, {target.__name__}")
        cases += 1
    summary = {
        "minutes": minutes,
        "seed": seed,
        "cases": cases,
        "findings": 0,
        "outcomes": dict(sorted(outcomes.items())),
    }
    Path("out").mkdir(exist_ok=True)
    Path("out/fuzz.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(summary))
    return 0


if __name__ == "__main__":
    sys.exit(main())
