"""The ledger of a member's data, held while runs are under way, for all their workers.

The ledger belongs to the data. The data's file may grow or be replaced between two runs: it is
looked at anew at each run's start, and goes on under the same ledger.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tacit.errors import PrivacyError
from tacit.known_data.owned import Owned
from tacit_services.identity import own_ledgers
from tacit_services.identity.folder import Identity
from tacit_services.identity.ledger_loan import LedgerLoan, LifetimeBound


class DataLedger:
    """The ledger of one member's data."""

    def __init__(self, identity: Identity, home: Path, bound: LifetimeBound) -> None:
        """identity: of the member. home: the user's data folder. bound: the owner's, for life."""
        self._identity = identity
        self._home = home
        self._bound = bound
        self._held = ExitStack()
        self._loan: LedgerLoan | None = None

    def loan(self, owned: Owned) -> LedgerLoan:
        """Return what a worker opens the ledger by. It is held from now on.

        owned: the data as the worker's run reads it. Raises PrivacyError where another member or
        run has the data, or its ledger counts by another unit. Raises ConfigError, DataError.
        """
        if self._loan is None:
            lending = own_ledgers.lent(self._identity, owned, self._home, self._bound)
            _, self._loan = self._held.enter_context(lending)
            return self._loan
        location = own_ledgers.place(replace(owned, dealing=""), 0, self._home)
        if location.path != self._loan.path:
            raise PrivacyError(
                f"data {owned.name}: belongs to another ledger than the one that runs under way "
                "charge; wait for their end"
            )
        return self._loan

    def release(self) -> None:
        """Let others have the data, as nobody works on it here now. Idempotent."""
        self._held.close()
        self._loan = None
