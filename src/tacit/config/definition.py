"""What the roles of a run are built from: made once, of its run file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from tacit.config.contract import AlgorithmSection
from tacit.config.plans import Plans
from tacit.config.sections import Evaluation, Privacy, Share
from tacit.privacy.policy import Terms

A_co = TypeVar("A_co", bound=AlgorithmSection, covariant=True)


@dataclass(frozen=True, slots=True)
class Definition(Generic[A_co]):
    """A run as its roles know it, with the section of its algorithm. Public numbers only.

    horizon: T, the updates after which it ends. workers: K. clip: the first C, where the algorithm has no other.
    terms: what the server takes for granted of every edge. needed, wait: it begins with so many edges, or with fewer so
    many seconds after the first. share: what an edge's part of the updates goes by; spare_weight: the part of one whom
    the run does not count, where an ordinary one has 1.
    """

    algorithm: A_co
    dataset: str
    horizon: int
    seed: int
    workers: int
    batch: float
    clip: float
    privacy: Privacy
    terms: Terms
    plans: Plans
    evaluation: Evaluation
    needed: int
    wait: float
    share: Share
    spare_weight: float

    @property
    def shared(self) -> bool:
        """Whether an edge that is ahead of its share waits for the others."""
        return self.algorithm.in_turn and self.share != "any"

    def weight(self, edge: str) -> float:
        """The share of the edge called `edge`, where an ordinary one has 1: of what the run file says, nothing else."""
        if self.share == "budget":
            return self.plans.budget(edge) / self.plans.like.epsilon
        number = edge.removeprefix("edge-")
        dealt = number.isdecimal() and len(number) < 10 and int(number) < self.workers
        return 1.0 if dealt else self.spare_weight
