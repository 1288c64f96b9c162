"""Numbers of the wire and their checks, shared by all messages."""

from __future__ import annotations

from collections.abc import Iterable

from tacit.errors import WireError
from tacit.privacy.accounting import History, Spend
from tacit.protocol._pb import wire_pb2 as pb


def finite(name: str, value: float) -> float:
    """`value` if it is a finite number >= 0, else WireError ("value") naming it."""
    if not 0 <= value < float("inf"):
        raise WireError("value", f"{name}={value}")
    return value


def pack_history(rows: History) -> list[pb.Spend]:
    """A ledger's history as protobuf."""
    return [
        pb.Spend(
            sampling_rate=row.sampling_rate,
            noise_multiplier=row.noise_multiplier,
            count=row.count,
            mechanism="" if row.mechanism == "gaussian" else row.mechanism,
        )
        for row in rows
    ]


def read_history(said: Iterable[pb.Spend]) -> History:
    """And back. Raises WireError ("value") for one that no ledger can have."""
    rows = tuple(
        Spend(
            s.sampling_rate,
            finite("noise_multiplier", s.noise_multiplier),
            s.count,
            s.mechanism or "gaussian",
        )
        for s in said
    )
    known = ("gaussian", "discrete_gaussian", "knorm")
    if len(rows) > 1000 or any(
        not 0 < row.sampling_rate <= 1 or row.mechanism not in known for row in rows
    ):
        raise WireError("value", "spent: a history that no ledger can have")
    return rows
