"""Sums of gradients over a binary tree: the release of DP-FTRL.

Paper: Kairouz, McMahan, Song, Thakkar, Thakurta, Xu, "Practical and Private (Deep) Learning Without
Sampling or Shuffling" (arXiv:2103.00039), section 3 and appendix B.

Idea. A pass goes over all units in B disjoint batches. Each unit's batch is drawn uniformly, when
the pass begins, and by itself. So a unit more or less moves no other. At step t of a pass the edge
computes the clipped sum G_t of batch t. It releases the noisy sum of the largest node of a binary
tree that ends at t. That is G_{t-2^k+1} + … + G_t, with 2^k the largest power of two in t. Any
sum G_1 + … + G_t is one of few nodes, as many as t has ones in binary. So its noise grows with
log t, where that of independent releases grows with t.

Guarantee. A unit is in one batch of a pass, and each batch is in at most ⌊log2 B⌋ + 1 released
nodes, one on each level. The unit's vector is clipped to the C of the pass, so each of these nodes
moves by at most C. Given the batches of all units, a pass is an adaptive composition of at most
⌊log2 B⌋ + 1 Gaussian mechanisms at noise multiplier z, without sampling. What a later step computes
may depend on earlier releases (Denisov et al., arXiv:2202.08312, Theorem 2.1). The ledger is
charged for all of them, durably, before the first batch is drawn.

| edge case                       | result                                                        |
|---------------------------------|---------------------------------------------------------------|
| the process ends within a pass  | the pass is lost: the next model begins one, which is charged  |
| a step fails after it has drawn | the same: its batch is in no node                              |
| the server changes C            | the pass keeps the C that it began with                        |
| a batch without a unit          | its node is released like any other                            |
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from torch import Tensor

from tacit.privacy.private_sum.clipping import Clipped
from tacit.privacy.private_sum.way import PrivateSum
from tacit.privacy.release.release import Released, Releaser


def levels(batches: int) -> int:
    """Return ⌊log2 B⌋ + 1, the most nodes that a batch of a pass is in.

    >>> [levels(batches) for batches in (1, 2, 3, 4, 7, 8)]
    [1, 2, 2, 3, 3, 4]
    """
    return batches.bit_length()


class TreeReleaser:
    """One edge's passes: it draws, sums up, charges and releases."""

    def __init__(self, releaser: Releaser, private_sum: PrivateSum) -> None:
        """private_sum: over the edge's rows, with the plan and the randomness of `releaser`."""
        self._releaser = releaser
        self._private_sum = private_sum
        self._batches = releaser.plan.passes
        self._at = self._batches  # steps done in this pass; all: the next step begins another
        self._clip = 0.0
        self._sums: list[Clipped | None] = []

    @property
    def begins(self) -> bool:
        """Whether the next step begins a pass, and is charged for the whole of it."""
        return self._at == self._batches

    @property
    def levels(self) -> int:
        """Releases that a pass is charged for."""
        return levels(self._batches)

    def release(self, params: Tensor, clip: float) -> Released:
        """Return the next node of the tree, whose newest batch is computed at `params` (d,).

        Raises BudgetSpent before anything is computed, PrivacyError as `Releaser.release`.
        """
        if self.begins:
            self._releaser.charge_pass(clip, self.levels)
            self._private_sum.begin_pass()
            self._at = 0
            self._clip = clip
            self._sums = [None] * self.levels
        step = self._at + 1
        self._at = self._batches  # what fails from here on ends the pass
        compute = partial(self._private_sum.compute, params, self._clip)
        total = self._node(step, self._releaser.computed(compute))
        released = self._releaser.sealed_sum(total, self._clip)
        self._at = step
        return released

    def _node(self, step: int, batch: Clipped) -> Clipped:
        """Add the batch to all open nodes; return the largest that ends at `step`."""
        self._sums = [batch if open_ is None else _added(open_, batch) for open_ in self._sums]
        level = (step & -step).bit_length() - 1
        node = self._sums[level]
        assert node is not None
        self._sums[: level + 1] = [None] * (level + 1)
        return node


def _added(one: Clipped, other: Clipped) -> Clipped:
    """Return the sum over disjoint units, whose sensitivity is that of each."""
    assert (one.step, one.sensitivity) == (other.step, other.sensitivity)
    return replace(one, total=one.total + other.total)
