"""An edge's answer to a look: noisy counts of its held-out rows, paid for by a budget of their own.

Guarantee. A look is charged, durably, before anything is computed, and leaves as a `Released` does:
nothing else of a held-out row leaves. There are no more releases than the run file's looks, also
where a server asks for more.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from tacit.config.edge_looks import Judging
from tacit.datasets import PrivateRows
from tacit.models import Model
from tacit.privacy.private_sum.judged_sums import JudgedSums
from tacit.privacy.release import Released, Releaser

CLIP = 1.0  # the length of a row's vector, at most


class EdgeJudge:
    """The held-out rows of one edge, judged at the models that a server sends."""

    def __init__(
        self,
        judging: Judging,
        rows: PrivateRows,
        most: int,
        model: Model,
        training: Releaser,
        device: str = "cpu",
        way: type[JudgedSums] = JudgedSums,
    ) -> None:
        """most: units that the edge may have, a public number. training: has ledger and randomness.

        way: of its sums; an audit's mutant stands in its place.

        Raises PrivacyError for more rows, and for a model whose scores depend on other rows.
        """
        plan = judging.plan(most)
        self.releaser = training.beside(plan, "judging", "held_out")
        held_out = rows.for_edge(model.labels_below)
        self.sums = way(held_out, model, judging.sheet, plan, training.random, device)

    @property
    def width(self) -> int:
        """Numbers of an answer."""
        return self.sums.width

    def answer(self, params: Tensor) -> Released:
        """Return the noisy counts at `params` (d,). Raises BudgetSpent before any work."""
        return self.releaser.release(CLIP, partial(self.sums.compute, params, CLIP))

    def rehearsals(self) -> list[Callable[[], None]]:
        """Return functions that each do a look's work on public rows and drop the result."""
        return [partial(self.releaser.rehearse, CLIP, work) for work in self.sums.rehearsals()]
