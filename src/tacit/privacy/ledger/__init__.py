"""A dataset's charges: durable, chained."""

from tacit.privacy.ledger.durable import (
    UNCHARGED,
    Charged,
    Ledger,
    locked_chains,
    read_chains,
    read_lifetime_orders,
    read_run_histories,
)
from tacit.privacy.ledger.shared import SharedLedger

__all__ = [
    "UNCHARGED",
    "Charged",
    "Ledger",
    "SharedLedger",
    "locked_chains",
    "read_chains",
    "read_lifetime_orders",
    "read_run_histories",
]
