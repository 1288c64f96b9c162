"""A run, built once from its run file into what its consumers need."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from tacit.config.contract import AlgorithmSection
from tacit.config.model import ModelSection
from tacit.config.plans import Plans
from tacit.config.sections import Guard, Network, Privacy, Share
from tacit.config.traits import Traits
from tacit.datasets import Source
from tacit.models import Model, checked_size
from tacit.models.metrics import Metrics, chosen
from tacit.privacy.policy import Terms
from tacit.privacy.report import Promise

A_co = TypeVar("A_co", bound=AlgorithmSection, covariant=True)
UNCLIPPED: Final = 1.0  # C where none is given: without noise nothing is clipped


def worker_names(count: int) -> tuple[str, ...]:
    """Return the names of the first `count` workers."""
    return tuple(f"edge-{number}" for number in range(count))


@dataclass(frozen=True, slots=True)
class Definition(Generic[A_co]):
    """A run, built by `RunFile.define`. It holds public numbers only."""

    algorithm: A_co  # the [algorithm] section
    run_name: str  # the run's own
    name: str  # the algorithm's
    model: str  # the model's name
    layers: ModelSection  # the [model] section, of which `build_model` makes the model
    source: Source  # the data
    folder: Path  # the run file's, where its own code lies
    written: dict[str, Any]  # what the run file says, without what is a default
    horizon: int  # T: versions after which the run ends
    seed: int  # of the initial model and the division of the data; never of noise
    workers: int  # K
    names: tuple[
        str, ...
    ]  # of the workers that may take part: edges with the spare ones, which no others have
    traits: Traits  # what may be asked of the algorithm without knowing which it is
    batch: float  # L: the expected batch size
    clip: float  # C, where the algorithm has no schedule for it
    privacy: Privacy  # the [privacy] section
    guard: Guard  # the [guard] section
    snapshot_every: int  # versions between two snapshots of the journal
    plans: Plans  # the privacy plan of every worker
    terms: Terms  # what the server assumes of every edge's privacy
    promise: Promise  # the run's statement of privacy
    every: int  # versions between two evaluations
    samples: int  # test rows of an evaluation during training
    shown: tuple[str, ...]  # metrics, by name
    needed: int  # edges with which the run begins
    wait: float  # seconds after the first edge, when it begins with fewer
    share: Share  # what an edge's part of the updates is proportional to
    shared: bool  # whether an edge that is ahead of its part waits for the others
    slowdown: tuple[float, ...]  # how many times slower the first edges compute, where not 1
    network: Network  # the [network] section, which only a simulation reads
    fingerprint: str  # the run's name in the store: a SHA-256
    agreed: dict[str, Any]  # what every edge must agree on (`RunFile.agreed`)

    def build_model(self) -> Model:
        """Return the model of this run; for a vertical run, the server's θ_0.

        Raises ConfigError where its layers do not fit the data or memory.
        """
        shape, classes = self.source.shape
        made = self.algorithm.build_model(self.layers, shape, classes, self.workers, self.folder)
        return checked_size(made)

    def slowdown_of(self, number: int) -> float:
        """Return how many times slower than others worker `number` computes."""
        return self.slowdown[number] if number < len(self.slowdown) else 1.0

    def metrics(self) -> Metrics:
        """Return what is measured on the test set; a user's own metric is loaded.

        Raises ConfigError for a metric that is missing or does not fit the target.
        """
        return chosen(self.shown, self.source.target, self.folder)

    def weight(self, edge: str) -> float:
        """Return the share of the edge called `edge`, where an ordinary one has 1.

        It follows from the run file alone.
        """
        if self.share == "budget":
            return self.plans.budget(edge) / self.plans.default.epsilon
        number = edge.removeprefix("edge-")
        known = number.isdecimal() and len(number) < 10
        return self.source.weight(int(number) if known else None)
