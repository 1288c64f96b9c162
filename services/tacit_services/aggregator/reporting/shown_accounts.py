"""What is shown of the accounts while a run goes on: no ε that was shown ever falls.

`Accounts` answers with an upper bound where there is no time for more, and with a finer one, or the
exact ε, where there is. All are true, and a later one may be smaller: ≤ 6.242, then ≤ 6.086. Nobody
can tell that from an account that has lost a charge. So the largest number shown stays until what
was released has passed it. That is true, too. An edge's releases never become fewer, so an upper
bound is one until then. At the end of the run there is time for every ε, and the exact ones are
shown.

An aggregator that is started again has forgotten what was shown. It begins with the roughest bound
of what the run has released. A bound depends on a count alone and grows with it, so that one is no
smaller than any number that was shown before.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

from tacit.algorithms.base.records import EdgeRecord
from tacit_services.aggregator.reporting.accounts import Accounts, Spending, Total


class ShownAccounts:
    """The accounts of a run as they are shown; for any thread."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._lock = threading.Lock()
        self._total = Total(0.0, bound=False, share=0.0, slowest=None, releases=0)
        self._edges: dict[str, Spending] = {}
        self._unshown: set[str] = set()  # edges whose ε an earlier process may have shown

    def resumed(self, records: Mapping[str, EdgeRecord]) -> None:
        """Begin with bounds that are no smaller than what an earlier process has shown."""
        self._unshown = set(records)
        if records:
            self._total = self._accounts.total(records, steady=True)

    def total(self, records: Mapping[str, EdgeRecord]) -> Total:
        """Return ε of these `records` together, or the largest that was shown before."""
        total = self._accounts.total(records)
        if self._accounts.final:
            return total
        with self._lock:
            before = self._total
            if before.epsilon > total.epsilon:
                total = replace(total, epsilon=before.epsilon, bound=True)
            self._total = total = replace(total, share=max(total.share, before.share))
        return total

    def of(self, records: Mapping[str, EdgeRecord]) -> dict[str, Spending]:
        """Return the account of each of `records`, none with a smaller ε than was shown before."""
        spendings = self._accounts.of(records)
        if self._accounts.final:
            return spendings
        for name in sorted(self._unshown & records.keys()):
            self._edges[name] = self._accounts.roughest(name, records[name])
            self._unshown.discard(name)
        with self._lock:
            for name, spending in spendings.items():
                if name in self._edges:
                    spendings[name] = _no_less(spending, self._edges[name])
                self._edges[name] = spendings[name]
        return spendings


def _no_less(spending: Spending, before: Spending) -> Spending:
    """Return `spending` with the numbers of `before` where they are larger."""
    now = spending.spent
    earlier = before.spent
    if now.epsilon_pld is None or (earlier.epsilon_pld or 0.0) <= now.epsilon_pld:
        return spending
    larger = {
        "epsilon_pld": earlier.epsilon_pld,
        "epsilon_rdp": max(now.epsilon_rdp or 0.0, earlier.epsilon_rdp or 0.0),
    }
    return replace(spending, spent=now.model_copy(update=larger), bound=True)
