"""The hash chain of a ledger: every charge hashes all before it, so no row can be changed unseen.

    head_0     = SHA-256("tacit ledger" ‖ lineage ‖ dataset)
    head_{n+1} = SHA-256(head_n ‖ n ‖ session ‖ q ‖ z ‖ mechanism ‖ secret)

`lineage` is drawn once, when the ledger is made; `session` at every opening of the file, so that
two copies of one ledger differ from their first charge on. Charges of one session with equal fields
share a row, which holds their count and the head after the last of them.

The chain shows changes to whoever knows an earlier (count, head). It cannot show that a whole older
file was put back. The aggregator can, as it keeps the last head of every edge.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tacit.privacy.accounting import History, Spend, merged

NONCE = 16  # bytes of a lineage and of a session
HEAD = 32


@dataclass(frozen=True, slots=True)
class Charge:
    """`count` equal releases that are to be charged.

    secret: whether their noise is; from a known seed it counts as none.
    """

    sampling_rate: float
    noise_multiplier: float
    mechanism: str
    secret: bool
    count: int = 1

    def row(self, session: bytes) -> LedgerRow:
        """Return the row that this charge begins in the opening `session`, without its head."""
        q = self.sampling_rate.hex()
        z = self.noise_multiplier.hex()
        return LedgerRow(session, q, z, self.mechanism, self.secret, self.count, b"")

    def spend(self) -> Spend:
        """Return the charge as the accountant counts it; z is 0 where noise is not secret."""
        return self.row(b"").spend()


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """`count` equal charges of one session; `head` is the chain's head after the last of them.

    sampling_rate, noise_multiplier: hexadecimal floats, exact to the last bit.
    """

    session: bytes
    sampling_rate: str
    noise_multiplier: str
    mechanism: str
    secret: bool
    count: int
    head: bytes

    def equal_charges(self, other: LedgerRow) -> bool:
        """Check whether both rows have equal charges, however many."""
        return self._alike() == other._alike()

    def _alike(self) -> tuple[object, ...]:
        """Return all fields but the count and the head."""
        return (
            self.session, self.sampling_rate, self.noise_multiplier, self.mechanism, self.secret,
        )  # fmt: skip

    def spend(self) -> Spend:
        """Return the row as the accountant counts it; z is 0 where noise was not secret."""
        if self.secret:
            z = float.fromhex(self.noise_multiplier)
        else:
            z = 0.0
        if self.mechanism in ("discrete_gaussian", "knorm"):
            mechanism = self.mechanism
        else:
            mechanism = "gaussian"
        return Spend(float.fromhex(self.sampling_rate), z, self.count, mechanism)


@dataclass(frozen=True, slots=True)
class Chain:
    """One dataset's rows in order.

    count: charges in all rows together. head: the chain's head after the last of them.
    """

    dataset: str
    lineage: bytes
    count: int
    head: bytes
    rows: tuple[LedgerRow, ...]

    def verify(self) -> None:
        """Recompute every head from the rows (a second per million charges).

        Raises ValueError, naming the first row that does not fit.
        """
        head = first_head(self.lineage, self.dataset)
        count, head = walked(self.dataset, self.rows, 0, head, self.count)
        if (count, head) != (self.count, self.head):
            raise ValueError(
                f"{self.dataset}: the rows end after {count} charges, the chain after {self.count}"
            )

    def head_after(self, count: int) -> bytes:
        """Return the head after the first `count` charges. Raises ValueError beyond the last."""
        if not 0 <= count <= self.count:
            raise ValueError(f"{self.dataset}: has {self.count} charges, not {count}")
        head = first_head(self.lineage, self.dataset)
        charged = 0
        for entry in self.rows:
            if charged + entry.count > count:
                return next_head(head, charged, entry, count - charged)
            head = entry.head
            charged = charged + entry.count
        return head

    def history(self) -> History:
        """Return all rows for the accountant.

        Raises ValueError or OverflowError for numbers no charge can have.
        """
        history = merged(entry.spend() for entry in self.rows)
        if any(
            not (0 < row.sampling_rate <= 1 and 0 <= row.noise_multiplier < math.inf)
            for row in history
        ):
            raise ValueError("a row that no charge can have written")
        return history


def first_head(lineage: bytes, dataset: str) -> bytes:
    """Return the head of a ledger without charges."""
    return hashlib.sha256(b"tacit ledger" + _fields(lineage, dataset.encode())).digest()


def next_head(head: bytes, number: int, entry: LedgerRow, count: int | None = None) -> bytes:
    """Return the head after `count` charges of `entry` (None: all).

    The first of them is charge `number`, counted from 0.
    """
    fields = _fields(
        entry.session,
        entry.sampling_rate.encode(),
        entry.noise_multiplier.encode(),
        entry.mechanism.encode(),
        b"\1" if entry.secret else b"\0",
    )
    for n in range(number, number + (entry.count if count is None else count)):
        head = hashlib.sha256(head + n.to_bytes(8) + fields).digest()
    return head


def walked(
    dataset: str, rows: Sequence[LedgerRow], count: int, head: bytes, most: int, first: int = 1
) -> tuple[int, bytes]:
    """Recompute the heads of `rows`, which follow the first `count` charges, whose head is `head`.

    most: charges that there may be at their end. first: the number of the first row. Returns the
    count and the head at the end. Raises ValueError, naming the first row that does not fit.
    """
    for number, entry in enumerate(rows, first):
        if type(entry.count) is not int or entry.count < 1 or len(entry.session) != NONCE:
            raise ValueError(f"row {number} of {dataset}: no charge can have written it")
        if count + entry.count > most:  # before the work: a changed count may say 2^60
            raise ValueError(f"row {number} of {dataset}: more charges than the ledger's {most}")
        head = next_head(head, count, entry)
        count += entry.count
        if head != entry.head:
            raise ValueError(
                f"row {number} of {dataset}: the chain is broken, it or one before was changed"
            )
    return count, head


def _fields(*values: bytes) -> bytes:
    return b"".join(len(value).to_bytes(4) + value for value in values)
