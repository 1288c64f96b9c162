"""The server's records of its edges, and their form in a snapshot."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tacit.privacy.accounting import History, Spend
from tacit.privacy.ledger import UNCHARGED, Charged
from tacit.protocol.messages import Hello, Retired, Update


@dataclass(frozen=True, slots=True)
class EdgeRecord:
    """One edge as the server knows it: its public privacy configuration, and what it has sent.

    A record is replaced and never changed, so that a copy of the dictionary is a reading of all.
    """

    hello: Hello
    updates: int = 0
    spent: History = ()
    charged: Charged = UNCHARGED
    retired: str = ""

    def account(self, message: Hello | Update | Retired, updates: int = 0) -> EdgeRecord:
        """Return the record with the edge's spending and ledger, as the edge states them.

        updates: that count, and are new.
        """
        updates += self.updates  # not `replace`, which takes twice as long, for every message
        return EdgeRecord(self.hello, updates, message.spent, message.charged, self.retired)

    def retire(self, message: Retired) -> EdgeRecord:
        """Return the record of an edge that has sent its last message."""
        return replace(self.account(message), retired=message.reason)


class Dump(dict[str, Any]):
    """Records as JSON values, by name. text: the members of the JSON object that they make."""

    def __init__(self, values: dict[str, Any], members: Iterable[str]) -> None:
        super().__init__(values)
        self._members = members

    def text(self) -> str:
        """Return what json.dumps writes of the records, between its braces."""
        return ", ".join(self._members)


class Records(dict[str, EdgeRecord]):
    """The records of one fold, by name. It knows which have changed since they were last dumped."""

    def __init__(self, records: Mapping[str, EdgeRecord] | None = None) -> None:
        super().__init__(records or {})
        self._changed = dict.fromkeys(self)  # in their order
        self._values: dict[str, Any] = {}
        self._members: dict[str, str] = {}

    def __setitem__(self, name: str, record: EdgeRecord) -> None:
        super().__setitem__(name, record)
        self._changed[name] = None

    def dump(self) -> Dump:
        """Return all records; only those that have changed are encoded again."""
        for name in self._changed:
            self._values[name] = values = _dump(self[name])
            self._members[name] = f"{json.dumps(name)}: {json.dumps(values)}"
        self._changed = {}
        return Dump(self._values, list(self._members.values()))


def _dump(record: EdgeRecord) -> dict[str, Any]:
    return {
        "hello": _dump_hello(record.hello),
        "updates": record.updates,
        "retired": record.retired,
        "spent": [_dump_spend(spend) for spend in record.spent],
        "charged": [record.charged.count, record.charged.head.hex()],
    }


def _dump_spend(spend: Spend) -> list[Any]:
    listed = [spend.sampling_rate, spend.noise_multiplier, spend.count, spend.mechanism]
    return listed if spend.side == "both" else [*listed, spend.side]


def _read_spend(listed: list[Any]) -> Spend:
    q, z, count, mechanism, *side = listed
    return Spend(q, z, count, mechanism, side=side[0] if side else "both")


def read(values: dict[str, Any]) -> Records:
    """Return the dumped records, in their order."""
    edges = {}
    for name, saved in values.items():
        spent = tuple(_read_spend(row) for row in saved["spent"])
        count, head = saved["charged"]
        hello = _read_hello(name, spent, saved["hello"])
        edges[name] = EdgeRecord(
            hello, saved["updates"], spent, Charged(count, bytes.fromhex(head)), saved["retired"]
        )
    return Records(edges)


def _dump_hello(hello: Hello) -> dict[str, Any]:
    """Return the configuration of `hello`; the edge's record has what it has spent."""
    return {
        "epsilon": hello.epsilon,
        "delta": hello.delta,
        "mechanism": hello.mechanism,
        "noise_variance": hello.noise_variance,
        "clip_min": hello.clip_min,
        "clip_max": hello.clip_max,
        "refusals": hello.refusals,
        "refusal": hello.refusal,
        **({"looked": hello.looked} if hello.looked else {}),
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
        looked=saved.get("looked", 0),
    )
