"""The hash chain of a ledger: every charge hashes all before it, so no row can be changed unseen.

    head_0     = SHA-256("tacit ledger" ‖ lineage ‖ dataset)
    head_{n+1} = SHA-256(head_n ‖ n ‖ session ‖ q ‖ z ‖ mechanism ‖ secret)

`lineage` is drawn once, when the ledger is made; `session` at every opening of the file, so that
two copies of one ledger differ from their first charge on. Charges of one session with equal fields
share a row, which holds their count and the head after the last of them. A charge that has begun no
release may be given back by a row of its own: nothing is taken out of the chain.

The chain shows changes to every reader that knows an earlier (count, head). It cannot show that a
whole older file was put back. The aggregator can, as it keeps the last head of every edge.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tacit.privacy.accounting import History, Spend, merged
from tacit.privacy.accounting.history import Purpose, UnitSide

# What stands after the mechanism of a row, so that the chain hashes it: the purpose of its charges,
# and of which side's rows they are. tacit 0.2 reads a Gaussian of all rows, which costs no less.
_KINDS: dict[tuple[Purpose, UnitSide], str] = {
    ("training", "both"): "",
    ("question", "both"): ":question",
    ("training", "training"): ":training",
    ("judging", "held_out"): ":judging",
    ("judging", "both"): ":judging-all",
}
_SUFFIXES = {suffix.removeprefix(":"): kind for kind, suffix in _KINDS.items()}
# At the end of a mechanism: these charges are given back. An earlier tacit reads as many more.
_RETURNED = ":returned"
NONCE = 16  # bytes of a lineage and of a session
HEAD = 32


@dataclass(frozen=True, slots=True)
class Charge:
    """`count` equal releases that are to be charged.

    secret: whether their noise is; from a known seed it counts as none. purpose: whose budget they
    count against. side: the rows that they are of.
    """

    sampling_rate: float
    noise_multiplier: float
    mechanism: str
    secret: bool
    count: int = 1
    purpose: Purpose = "training"
    side: UnitSide = "both"

    def row(self, session: bytes) -> LedgerRow:
        """Return the row that this charge begins in the opening `session`, without its head."""
        q = self.sampling_rate.hex()
        z = self.noise_multiplier.hex()
        mechanism = self.mechanism + _KINDS[self.purpose, self.side]
        return LedgerRow(session, q, z, mechanism, self.secret, self.count, b"")

    def spend(self) -> Spend:
        """Return the charge as the accountant counts it; z is 0 where noise is not secret."""
        return self.row(b"").spend()


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """`count` equal charges of one session. `head` is the chain's head after the last of them.

    sampling_rate, noise_multiplier: hexadecimal floats, exact to the last bit. mechanism: its name,
    and after it purpose and side, where they are not training and both, and whether the charges are
    given back. The chain hashes all.
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

    @property
    def returned(self) -> bool:
        """Whether its charges are given back."""
        return self.mechanism.endswith(_RETURNED)

    def given_back(self) -> LedgerRow:
        """Return the row that gives these charges back, without its head."""
        return replace(self, mechanism=self.mechanism + _RETURNED, head=b"")

    def spend(self) -> Spend:
        """Return the row as the accountant counts it; z is 0 where noise was not secret.

        Of charges that are given back the count is below 0.
        """
        if self.secret:
            z = float.fromhex(self.noise_multiplier)
        else:
            z = 0.0
        name = self.mechanism.removesuffix(_RETURNED)
        base, _, kind = name.rpartition(":")
        if kind not in _SUFFIXES or not base:  # a mechanism's own name may have a colon
            base, kind = name, ""
        mechanism = base if base in ("discrete_gaussian", "knorm") else "gaussian"
        purpose, side = _SUFFIXES[kind]
        count = -self.count if self.returned else self.count
        return Spend(float.fromhex(self.sampling_rate), z, count, mechanism, purpose, side)


@dataclass(frozen=True, slots=True)
class Chain:
    """One dataset's rows in order.

    count: entries of all rows together, which is a position in the chain. head: its head after the
    last of them.
    """

    dataset: str
    lineage: bytes
    count: int
    head: bytes
    rows: tuple[LedgerRow, ...]

    @property
    def releases(self) -> int:
        """Charges of all rows, without those that were given back."""
        return sum(-row.count if row.returned else row.count for row in self.rows)

    def verify(self) -> None:
        """Recompute every head from the rows (a second per million charges).

        Raises ValueError, naming the first row that does not fit, or that gives back more than its
        opening had charged.
        """
        head = first_head(self.lineage, self.dataset)
        count, head = walked(self.dataset, self.rows, 0, head, self.count)
        if (count, head) != (self.count, self.head):
            raise ValueError(
                f"{self.dataset}: the rows end after {count} charges, the chain after {self.count}"
            )
        refuse_unpaid_returns(self.dataset, self.rows)

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
        return history_of(self.rows)


def history_of(rows: Iterable[LedgerRow]) -> History:
    """Return `rows` for the accountant.

    Raises ValueError or OverflowError for numbers no charge can have.
    """
    history = merged(entry.spend() for entry in rows)
    if any(
        not (0 < row.sampling_rate <= 1 and 0 <= row.noise_multiplier < math.inf) or row.count < 0
        for row in history
    ):
        raise ValueError("a row that no charge can have written")
    return history


def refuse_unpaid_returns(dataset: str, rows: Iterable[LedgerRow]) -> None:
    """Raise ValueError, naming the first of `rows` that gives back more than was charged before."""
    charged: Counter[LedgerRow] = Counter()
    for number, row in enumerate(rows, 1):
        paid = replace(row, mechanism=row.mechanism.removesuffix(_RETURNED), count=0, head=b"")
        charged[paid] += -row.count if row.returned else row.count
        if charged[paid] < 0:
            raise ValueError(f"row {number} of {dataset}: gives back more than was charged before")


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
