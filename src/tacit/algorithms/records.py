"""What a server knows of its edges, and how that is kept in a snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tacit.messages import Hello, Retired
from tacit.privacy.accounting import History, Spend
from tacit.privacy.ledger import UNCHARGED, Charged

_PLAIN_HELLO = ("epsilon", "delta", "mechanism", "noise_variance", "clip_min", "clip_max", "refusals", "refusal")


@dataclass(slots=True)
class EdgeRecord:
    """What the server knows of one edge: its public privacy configuration, and what it has sent."""

    hello: Hello
    updates: int = 0
    spent: History = ()
    charged: Charged = UNCHARGED
    retired: str = ""


def retire(record: EdgeRecord, message: Retired) -> None:
    """An edge has said its last word."""
    record.retired, record.spent, record.charged = message.reason, message.spent, message.charged


def dump(edges: dict[str, EdgeRecord]) -> dict[str, Any]:
    """The records as JSON values."""
    return {
        name: {
            "hello": {field: getattr(record.hello, field) for field in _PLAIN_HELLO},
            "updates": record.updates, "retired": record.retired,
            "spent": [[s.sampling_rate, s.noise_multiplier, s.count, s.mechanism] for s in record.spent],
            "charged": [record.charged.count, record.charged.head.hex()],
        }
        for name, record in edges.items()
    }  # fmt: skip


def read(values: dict[str, Any]) -> dict[str, EdgeRecord]:
    """The records that `dump` was given, in their order."""
    edges = {}
    for name, saved in values.items():
        spent = tuple(Spend(*row) for row in saved["spent"])
        count, head = saved["charged"]
        hello = Hello(name, spent=spent, **saved["hello"])
        edges[name] = EdgeRecord(hello, saved["updates"], spent, Charged(count, bytes.fromhex(head)), saved["retired"])
    return edges
