"""Checks and conversions of values that several messages have."""

from __future__ import annotations

from collections.abc import Iterable

from tacit.errors import WireError
from tacit.privacy.accounting import History, Spend
from tacit.privacy.ledger import UNCHARGED, Charged
from tacit.privacy.policy import Terms
from tacit.protocol._pb import wire_pb2 as pb

MAX_REASON, MAX_MECHANISM = 200, 40  # characters kept of a sender's text


def finite(name: str, value: float) -> float:
    """`value` if it is a finite number >= 0; else WireError ("value") with its name."""
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
    """A ledger's history from protobuf.

    Raises WireError ("value") for one that no ledger can have.
    """
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


def pack_charged(charged: Charged) -> pb.Charged | None:
    """Return a ledger's count and chain head as protobuf; None for a new ledger."""
    return None if charged == UNCHARGED else pb.Charged(count=charged.count, head=charged.head)


def read_charged(charged: pb.Charged) -> Charged:
    """Return a ledger's count and chain head. Raises WireError ("value") for a wrong length."""
    if len(charged.head) not in (0, 32):
        raise WireError("value", f"charged: a head of {len(charged.head)} bytes")
    return Charged(charged.count, charged.head)


def pack_terms(terms: Terms | None) -> pb.Terms | None:
    """A server's terms as protobuf."""
    if terms is None:
        return None
    return pb.Terms(
        mechanism=terms.mechanism,
        sampling_rate=terms.sampling_rate,
        noise_multiplier=terms.noise_multiplier,
    )


def printable(text: str, limit: int) -> str:
    """`limit` characters of a sender's text, for logs and terminals.

    What does not print is `?`.
    """
    return "".join(character if character.isprintable() else "?" for character in text[:limit])
