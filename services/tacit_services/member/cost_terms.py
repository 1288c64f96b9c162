"""What an offer's costs are counted of, anew whenever its owner reads it."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.privacy.accounting import History
from tacit_services.identity.ledger_loan import UNBOUND, LifetimeBound


@dataclass(frozen=True, slots=True)
class CostTerms:
    """What a look at rows has learnt that their costs are counted of.

    unit: in words. mechanism: of the run. spent: what the data had spent then. ledger: what the
    ledger of the data is called; None: none was there yet. bound: the owner's. part: the published
    data set that the member has a part of, in place of rows.
    """

    unit: str
    mechanism: str
    spent: History = ()
    ledger: str | None = None
    bound: LifetimeBound = UNBOUND
    part: str | None = None
