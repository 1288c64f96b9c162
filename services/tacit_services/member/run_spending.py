"""What a member's data has spent, by run and over its life, as its ledger has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tacit import rounding
from tacit.privacy import ledger
from tacit.privacy.accounting import History, epsilon_pld, merged
from tacit_services.identity import own_ledgers
from tacit_services.member.data_account import DataAccount

DELTA = 1e-5  # at which what no run states is read


@dataclass(frozen=True, slots=True)
class RunSpending:
    """The spending of one run: its releases, and their ε at `delta`.

    budget: the run's ε; None: it states none.
    """

    releases: int
    epsilon: float
    delta: float
    budget: float | None = None

    def words(self) -> str:
        """Return it as the owner reads it."""
        of = "" if self.budget is None else f" of {self.budget:g}"
        return f"ε {rounding.epsilon(self.epsilon)}{of}"


def histories(dataset: str, home: Path) -> dict[str, History]:
    """Return what each run has spent of the data that is called so, by its offer's fingerprint.

    What was spent outside of federations is under "". home: the user's data folder. Raises
    PrivacyError.
    """
    return dict(DataAccount.of((dataset,), home).runs)


def remembered(home: Path) -> Counter[str]:
    """Return how many releases of each run the ledgers of all data in `home` remember.

    Raises PrivacyError.
    """
    releases = Counter[str]()
    for account in own_ledgers.accounts(home):
        for path in account.edges.values():
            for run, history in ledger.read_run_histories(path).items():
                releases[run] += sum(spend.count for spend in history)
    return releases


def spending(history: History, delta: float, budget: float | None = None) -> RunSpending:
    """Return what `history` costs."""
    epsilon = epsilon_pld(history, delta) if history else 0.0
    releases = sum(spend.count for spend in history)
    return RunSpending(releases, epsilon, delta, budget)


def memory_lines(dataset: str, spent: Mapping[str, History], names: Mapping[str, str]) -> list[str]:
    """Return what a ledger remembers, as lines: of each run, and of all together.

    names: of the runs, by their offers' fingerprints.
    """
    if not any(spent.values()):
        return [f"the ledger of {dataset} has no release: nothing was spent"]
    lines = [f"the ledger of {dataset} remembers, at δ {DELTA:g}:"]
    for fingerprint, history in spent.items():
        if not fingerprint:
            name = "outside of federations"
        else:
            name = names.get(fingerprint, f"another member's run, {fingerprint[:12]}")
        cost = spending(history, DELTA)
        lines.append(f"  {name}: {cost.words()}, {cost.releases:,} releases")
    every = spending(merged(spend for history in spent.values() for spend in history), DELTA)
    lines.append(f"  over its life: {every.words()}, {every.releases:,} releases")
    return lines
