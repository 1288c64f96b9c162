"""A dataset's charges: durable, chained."""

from tacit.privacy.ledger.durable import UNCHARGED, Charged, Ledger
from tacit.privacy.ledger.shared import SharedLedger
from tacit.privacy.ledger.stated_chain import StatedChain
from tacit.privacy.ledger.stored_chains import (
    locked_chains,
    read_chains,
    read_lifetime_orders,
    read_run_histories,
    read_splits,
)

__all__ = [
    "UNCHARGED",
    "Charged",
    "Ledger",
    "SharedLedger",
    "StatedChain",
    "locked_chains",
    "read_chains",
    "read_lifetime_orders",
    "read_run_histories",
    "read_splits",
]
