"""A dataset's charges: durable, chained."""

from tacit.privacy.ledger.durable import UNCHARGED, Charged, Ledger, locked_chains, read_chains

__all__ = ["UNCHARGED", "Charged", "Ledger", "locked_chains", "read_chains"]
