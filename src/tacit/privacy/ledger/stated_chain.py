"""A ledger's chain as an owner states it to others: every charge, and no name of the data.

    {"first": head_0, "rows": [{"session", "q", "z", "mechanism", "secret", "count", "head"}, …],
     "count": charges of all rows, "head": the head after the last}

Bytes are in hexadecimal, q and z hexadecimal floats. `first` is the SHA-256
of lineage and name. So a reader can recompute every head, and learns neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from tacit.privacy.accounting import History
from tacit.privacy.ledger.chain import (
    HEAD,
    NONCE,
    Chain,
    LedgerRow,
    first_head,
    history_of,
    next_head,
    refuse_unpaid_returns,
    walked,
)
from tacit.privacy.ledger.durable import Charged

MOST_CHARGES = 1 << 22  # a chain that says more is not walked: seconds for each million
_KEYS = {"session", "q", "z", "mechanism", "secret", "count", "head"}


@dataclass(frozen=True, slots=True)
class StatedChain:
    """The chain of one ledger from its beginning. count, head: where it ends."""

    first: bytes
    rows: tuple[LedgerRow, ...]
    count: int
    head: bytes

    @classmethod
    def of(cls, chain: Chain, until: Charged) -> StatedChain:
        """Return `chain` up to `until`: what has begun, without what is charged ahead.

        Raises ValueError where `until` is not on it.
        """
        rows: list[LedgerRow] = []
        count = 0
        for row in chain.rows:
            if count >= until.count:
                break
            part = min(row.count, until.count - count)
            head = rows[-1].head if rows else first_head(chain.lineage, chain.dataset)
            rows.append(replace(row, count=part, head=next_head(head, count, row, part)))
            count += part
        first = first_head(chain.lineage, chain.dataset)
        head = rows[-1].head if rows else first
        if count != until.count or (count and head != until.head):
            raise ValueError(f"the ledger has not come through {until.count} releases")
        return cls(first, tuple(rows), count, head)

    def verify(self) -> None:
        """Recompute every head. Raises ValueError, naming the first row that does not fit."""
        if self.count > MOST_CHARGES:
            raise ValueError(f"{self.count} charges are more than a chain is walked for")
        end = walked("the chain", self.rows, 0, self.first, self.count)
        if end != (self.count, self.head):
            raise ValueError(f"the rows end after {end[0]} charges, the chain after {self.count}")
        refuse_unpaid_returns("the chain", self.rows)

    def heads(self, counts: set[int]) -> dict[int, bytes]:
        """Return the head after each of `counts` charges that the chain has; it is verified."""
        heads = {0: self.first} if 0 in counts else {}
        ends = accumulate((row.count for row in self.rows), initial=0)
        head = self.first
        for start, row in zip(ends, self.rows, strict=False):
            if any(start < count <= start + row.count for count in counts):
                for number in range(row.count):
                    head = next_head(head, start + number, row, 1)
                    if start + number + 1 in counts:
                        heads[start + number + 1] = head
            head = row.head
        return heads

    def history(self, until: int | None = None) -> History:
        """Return what an accountant counts, of the first `until` charges (None: all).

        Raises ValueError or OverflowError for numbers that no charge can have.
        """
        rows: list[LedgerRow] = []
        remaining = self.count if until is None else until
        for row in self.rows:
            part = min(row.count, remaining)
            if part:
                rows.append(replace(row, count=part))
            remaining -= part
        return history_of(rows)

    def document(self) -> dict[str, Any]:
        """Return it as for JSON."""
        rows = [
            {
                "session": row.session.hex(),
                "q": row.sampling_rate,
                "z": row.noise_multiplier,
                "mechanism": row.mechanism,
                "secret": row.secret,
                "count": row.count,
                "head": row.head.hex(),
            }
            for row in self.rows
        ]
        return {
            "first": self.first.hex(),
            "rows": rows,
            "count": self.count,
            "head": self.head.hex(),
        }

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> StatedChain:
        """Return the chain of a document, not verified. Raises ValueError for what is none."""
        try:
            rows = tuple(_row(row) for row in content["rows"])
            first, head = (_bytes(content[key], HEAD) for key in ("first", "head"))
            count = content["count"]
        except (KeyError, TypeError) as error:
            raise ValueError(f"is no chain of a ledger: {error!r}") from error
        if (
            type(count) is not int
            or count < 0
            or set(content) != {"first", "rows", "count", "head"}
        ):
            raise ValueError("is no chain of a ledger: count, or its keys")
        return cls(first, rows, count, head)


def _row(content: Mapping[str, Any]) -> LedgerRow:
    if set(content) != _KEYS:
        raise ValueError(f"a row of the chain has the keys {sorted(content)}")
    q, z, mechanism = (content[key] for key in ("q", "z", "mechanism"))
    secret, count = content["secret"], content["count"]
    kinds = [type(value) for value in (q, z, mechanism, secret, count)]
    if kinds != [str, str, str, bool, int]:
        raise ValueError("a row of the chain has a value of another kind")
    session, head = _bytes(content["session"], NONCE), _bytes(content["head"], HEAD)
    return LedgerRow(session, q, z, mechanism, secret, count, head)


def _bytes(text: object, length: int) -> bytes:
    if not isinstance(text, str) or len(text) != 2 * length or text != text.lower():
        raise ValueError(f"expected {length} bytes in hexadecimal")
    return bytes.fromhex(text)
