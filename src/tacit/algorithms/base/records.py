"""What a server knows of its edges, and how that is kept in a snapshot."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tacit.privacy.accounting import History, Spend
from tacit.privacy.ledger import UNCHARGED, Charged
from tacit.protocol.messages import Hello, Retired, Update


@dataclass(frozen=True, slots=True)
class EdgeRecord:
    """What the server knows of one edge: its public privacy configuration, and what it has sent.

    A record is replaced and never changed, so that a copy of the dictionary is a reading of all.
    """

    hello: Hello
    updates: int = 0
    spent: History = ()
    charged: Charged = UNCHARGED
    retired: str = ""

    def account(self, message: Hello | Update | Retired, updates: int = 0) -> EdgeRecord:
        """With what the edge has spent, and where its ledger stands, as it says itself.

        updates: that count, and are new.
        """
        updates += self.updates
        return replace(self, spent=message.spent, charged=message.charged, updates=updates)

    def retire(self, message: Retired) -> EdgeRecord:
        """An edge has said its last word."""
        return replace(self.account(message), retired=message.reason)


def dump(edges: dict[str, EdgeRecord]) -> dict[str, Any]:
    """The records as JSON values."""
    return {
        name: {
            "hello": _dump_hello(record.hello),
            "updates": record.updates,
            "retired": record.retired,
            "spent": [
                [s.sampling_rate, s.noise_multiplier, s.count, s.mechanism] for s in record.spent
            ],
            "charged": [record.charged.count, record.charged.head.hex()],
        }
        for name, record in edges.items()
    }


def read(values: dict[str, Any]) -> dict[str, EdgeRecord]:
    """The records that `dump` was given, in their order."""
    edges = {}
    for name, saved in values.items():
        spent = tuple(Spend(*row) for row in saved["spent"])
        count, head = saved["charged"]
        hello = _read_hello(name, spent, saved["hello"])
        edges[name] = EdgeRecord(
            hello, saved["updates"], spent, Charged(count, bytes.fromhex(head)), saved["retired"]
        )
    return edges


def _dump_hello(hello: Hello) -> dict[str, Any]:
    """Its configuration; what it has spent is the record's."""
    return {
        "epsilon": hello.epsilon,
        "delta": hello.delta,
        "mechanism": hello.mechanism,
        "noise_variance": hello.noise_variance,
        "clip_min": hello.clip_min,
        "clip_max": hello.clip_max,
        "refusals": hello.refusals,
        "refusal": hello.refusal,
    }


def _read_hello(edge: str, spent: History, saved: dict[str, Any]) -> Hello:
    return Hello(
        edge,
        epsilon=saved["epsilon"],
        delta=saved["delta"],
        mechanism=saved["mechanism"],
        noise_variance=saved["noise_variance"],
        clip_min=saved["clip_min"],
        clip_max=saved["clip_max"],
        spent=spent,
        refusals=saved["refusals"],
        refusal=saved["refusal"],
    )
