"""DP-FTRL: follow the regularised leader, by gradients whose sums have the noise of a tree.

Paper: Kairouz et al., "Practical and Private (Deep) Learning Without Sampling or Shuffling"
(arXiv:2103.00039), Algorithm 1. Each edge has a tree; each update is applied when it comes.

Here nodes are T (noisy sums of 2^k gradients), first is θ_0, past the sum of passes that are over.
"""

from itertools import compress
from typing import ClassVar

import torch

from tacit.algorithms import (
    RATES,
    AlgorithmServer,
    AlgorithmSettings,
    Field,
    Positive,
    ServerAlgorithm,
    TreeSumsTask,
    Update,
)


class FtrlSettings(AlgorithmSettings):
    """The keys of [algorithm]."""

    searched: ClassVar = {"learning_rate": RATES}

    learning_rate: Positive = Field(0.5, description="η = 1/λ")
    batches: int = Field(8, gt=0, description="batches of a pass over an edge's rows")
    max_staleness: int = Field(10**9, gt=0, description="a node counts however late it comes")

    def computes(self) -> TreeSumsTask:
        """Return the nodes of a tree over the batches of each pass."""
        return TreeSumsTask(batches=self.batches)


class FtrlServer(AlgorithmServer[FtrlSettings]):
    """Holds the newest nodes of every edge's tree; their sum is that of all its gradients."""

    saved = ("first", "past", "nodes", "places", "at")

    def begin(self) -> None:
        """Begin without a gradient."""
        self.first = self.params
        self.past = torch.zeros_like(self.params)
        self.nodes: list[torch.Tensor] = []
        self.places: list[list[str | int]] = []  # of each node: its edge, and k
        self.at: dict[str, list[int]] = {}  # of each edge: its pass, and its step

    def step(self, update: Update, tau: int) -> None:
        """Put the new node in the place of those that it has in it; x ← θ_0 - η·Σ."""
        count, step = self.at.get(update.edge, [0, 0])
        if update.charged.count != count:  # a pass begins
            self.past = self.past + self._drop(update.edge, 64)
            step = 0
        step += 1
        self.at = self.at | {update.edge: [update.charged.count, step]}
        level = (step & -step).bit_length() - 1
        self._drop(update.edge, level)
        self.nodes = [*self.nodes, update.vector]
        self.places = [*self.places, [update.edge, level]]
        self.move(self.first - self.settings.learning_rate * sum(self.nodes, self.past))

    def _drop(self, edge: str, level: int) -> torch.Tensor:
        """Drop the edge's nodes of k < `level`; return their sum."""
        kept = [place[0] != edge or int(place[1]) >= level for place in self.places]
        total = sum(self.nodes, torch.zeros_like(self.params))
        self.nodes = list(compress(self.nodes, kept))
        self.places = list(compress(self.places, kept))
        return total - sum(self.nodes, torch.zeros_like(self.params))


class DpFtrl(ServerAlgorithm):
    """DP-FTRL over edges that push nodes of their trees."""

    settings = FtrlSettings
    role = FtrlServer
