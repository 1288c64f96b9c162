"""Noise at a trusted aggregator, for un-noised updates: the unit of privacy is a whole edge.

An edge's update is one vector of l2 norm C; the neighbouring run has zero in its place, so C is the
sensitivity. When an edge pushes is known, so nothing is amplified (q = 1). Client-level noise is
large: it needs many edges.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from tacit.privacy.accounting import History
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.plan import Plan
from tacit.privacy.private_sum.clipping import clipped_sum
from tacit.privacy.release.release import Released, Releaser

OPEN = 200  # lineages held open; each is a few file descriptors


class Trusted:
    """The releasers of all edges at a trusted aggregator, on one ledger file.

    Each edge has its own lineage in it, `{dataset}/{edge}`, and its own plan and budget.
    """

    def __init__(
        self, ledger: Path | str, dataset: str, plan: Callable[[str], Plan], random: Random
    ) -> None:
        """plan: gives an edge's plan as the run file has it; `central()` of it is used here."""
        self.plan = plan
        self._ledger = ledger
        self._dataset = dataset
        self._random = random
        self._open: OrderedDict[str, Releaser] = OrderedDict()

    def release(self, edge: str, gradient: Tensor, clip: float) -> Released:
        """Charge, then return `gradient` (d,) of `edge`, cut to norm `clip`, plus noise.

        The noise is N(0, (z·clip)²·I).

        Guarantee: (ε, δ)-DP for all the updates of one edge together, replaced by zero, in the life
        of its lineage here. It holds against all but this aggregator and those that saw the update
        on its way. The cut is made here, and the sender has no influence on it. Raises BudgetSpent,
        PrivacyError.
        """
        everything = torch.ones(1, dtype=torch.bool)
        return self._releaser(edge).release(
            clip, lambda: clipped_sum(gradient[None], clip, everything)
        )

    def history(self, edge: str) -> History:
        """Return all that was ever released of `edge` here. Raises PrivacyError."""
        return self._releaser(edge).ledger.history()

    def close(self) -> None:
        """Close the ledgers; idempotent."""
        while self._open:
            self._open.popitem()[1].ledger.close()

    def _releaser(self, edge: str) -> Releaser:
        if edge not in self._open:
            ledger = Ledger(self._ledger, f"{self._dataset}/{edge}")
            self._open[edge] = Releaser(self.plan(edge).central(), ledger, self._random)
            if len(self._open) > OPEN:
                self._open.popitem(last=False)[1].ledger.close()
        self._open.move_to_end(edge)
        return self._open[edge]
