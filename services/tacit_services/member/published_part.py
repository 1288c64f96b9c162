"""The ledger of a member without rows of its own: of its part of a published data set.

It is an edge's own, as of `tacit edge`: FOLDER/N/ledger.db, where N is the member's number. The
worker of a run locks FOLDER/N, so this member works in one run at a time; others wait for it.
"""

from __future__ import annotations

from pathlib import Path

from tacit.privacy.accounting import History
from tacit.privacy.ledger import read_chains
from tacit_services.identity import dealt_ledgers


def spent(folder: Path, number: int, dataset: str) -> History:
    """Return what part `number` of a data set has spent; charges nothing. Raises PrivacyError."""
    path = folder / str(number) / "ledger.db"
    if not path.exists():
        return ()
    dealt_ledgers.settle(path)
    chains = read_chains(path)
    return tuple(spend for chain in chains if chain.dataset == dataset for spend in chain.history())
