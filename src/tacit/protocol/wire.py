"""What every message travels in, as protos/tacit/v1/wire.proto specifies: envelopes and parts.

An envelope is: magic, length of the Meta, the Meta, padding to 64 bytes, the tensor's bytes. It
travels in parts, each an MQTT payload. An edge's content of one is in `wire_up`, a server's in
`wire_down`, a peer's in `wire_gossip`.
"""

from __future__ import annotations

from tacit.protocol.envelope import (
    MAGIC,
    MAX_META,
    InPlace,
    Received,
    Whole,
    decode,
    encode,
    has_tensor,
)
from tacit.protocol.parts import (
    HELD_BESIDE,
    PART_COST,
    PART_HEADER,
    PART_MAGIC,
    Assembler,
    Envelope,
    count_parts,
    part,
    question,
    read_question,
    split,
)
from tacit.protocol.wire_values import MAX_REASON
from tacit.shown import printable

__all__ = [
    "HELD_BESIDE",
    "MAGIC",
    "MAX_META",
    "MAX_REASON",
    "PART_COST",
    "PART_HEADER",
    "PART_MAGIC",
    "Assembler",
    "Envelope",
    "InPlace",
    "Received",
    "Whole",
    "count_parts",
    "decode",
    "encode",
    "has_tensor",
    "part",
    "printable",
    "question",
    "read_question",
    "split",
]
