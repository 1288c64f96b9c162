"""The account of a member's data, as its ledger has it: by run, and the order of its lifetime."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tacit.privacy import ledger
from tacit.privacy.accounting import History, Lifetime, merged
from tacit_services.identity import dealt_ledgers, own_ledgers
from tacit_services.identity.ledger_loan import LifetimeBound


@dataclass(frozen=True, slots=True)
class DataAccount:
    """The spending of some data, by the fingerprint of the offer that spent it.

    What was spent outside of federations is under "". order: the Rényi order of its lifetime, once
    it is fixed.
    """

    runs: Mapping[str, History] = field(default_factory=dict)
    order: int | None = None

    @classmethod
    def of(cls, names: Iterable[str | None], home: Path) -> DataAccount:
        """Return the account of the data that has the first of these names that a ledger knows.

        It is empty where none does. home: the user's data folder. Raises PrivacyError.
        """
        for name in names:
            account = None if name is None else own_ledgers.account(name, home)
            if account is not None:
                return cls._read(account.edges.values())
        return cls()

    @classmethod
    def _read(cls, paths: Iterable[Path]) -> DataAccount:
        every = list(paths)
        spent: dict[str, History] = {}
        for path in every:
            for run, history in ledger.read_run_histories(path).items():
                spent[run] = merged([*spent.get(run, ()), *history])
        return cls(spent, dealt_ledgers.order(every))

    @property
    def whole(self) -> History:
        """What all runs together have spent."""
        return merged(spend for history in self.runs.values() for spend in history)

    def lifetime(self, bound: LifetimeBound) -> Lifetime | None:
        """Return the owner's bound as the ledger holds it; None: there is none.

        Raises PrivacyError where it pays for nothing at the ledger's order.
        """
        return bound.at(self.order or bound.order)
