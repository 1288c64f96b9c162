"""A run, built once from its run file into what its consumers need."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from tacit.config.contract import AlgorithmSection
from tacit.config.model import ModelSection
from tacit.config.plans import Plans
from tacit.config.sections import Guard, Privacy, Share
from tacit.datasets import Source
from tacit.models import Model, checked_size
from tacit.models.metrics import Metrics, chosen
from tacit.privacy.policy import Terms
from tacit.privacy.report import Promise

A_co = TypeVar("A_co", bound=AlgorithmSection, covariant=True)
UNCLIPPED: Final = 1.0  # C where none is given: without noise nothing is clipped


@dataclass(frozen=True, slots=True)
class Definition(Generic[A_co]):
    """A run, with the section of its algorithm. Public numbers only; made by `RunFile.define`.

    name, model: of the algorithm and the model, which has `layers`; folder: the run file's, where
    its code lies. horizon: T, updates after which
    the run ends. workers: K. uploads: updates that make one version. clip: C, where the algorithm
    has no schedule for it. terms: what the server takes for granted of every edge. promise: what
    the run says of its privacy. every, samples: versions between two evaluations, and test rows of
    one while training; shown: metrics, by name. needed, wait: the run begins with so many edges, or
    with fewer so many seconds after the first. share: what an edge's part of the updates goes by;
    shared: whether one that is ahead of its share waits for the others. agreed: what all who take
    part must agree on, of all that differs from the defaults, and the SHA-256 of its code.
    fingerprint, older: the run's name, and what earlier versions of tacit called it.
    """

    algorithm: A_co
    name: str
    model: str
    layers: ModelSection
    source: Source
    folder: Path
    horizon: int
    seed: int
    workers: int
    uploads: int
    batch: float
    clip: float
    privacy: Privacy
    guard: Guard
    plans: Plans
    terms: Terms
    promise: Promise
    every: int
    samples: int
    shown: tuple[str, ...]
    needed: int
    wait: float
    share: Share
    shared: bool
    fingerprint: str
    agreed: dict[str, Any]
    older: tuple[str, ...]

    def build_model(self) -> Model:
        """The model of this run, a vertical one's θ_0.

        Raises ConfigError when its layers do not fit data or memory.
        """
        shape, classes = self.source.shape
        made = self.algorithm.build_model(self.layers, shape, classes, self.workers, self.folder)
        return checked_size(made)

    @property
    def names(self) -> tuple[str, ...]:
        """Who may take part, by name: the edges that the run file counts, and spare ones.

        Peers and parties have no spare ones.
        """
        spare = self.algorithm.worker == "edge"
        count = self.plans.workers if spare else self.workers
        return tuple(f"edge-{number}" for number in range(count))

    def metrics(self) -> Metrics:
        """What is measured on the test set; a user's own metric is loaded.

        Raises ConfigError for one that does not fit, or is not there.
        """
        return chosen(self.shown, self.source.target, self.folder)

    def weight(self, edge: str) -> float:
        """The share of the edge called `edge`, where an ordinary one has 1:

        of what the run file says, nothing else.
        """
        if self.share == "budget":
            return self.plans.budget(edge) / self.plans.like.epsilon
        number = edge.removeprefix("edge-")
        known = number.isdecimal() and len(number) < 10
        return self.source.weight(int(number) if known else None)
