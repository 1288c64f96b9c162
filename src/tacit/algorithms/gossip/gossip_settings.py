"""[algorithm] of A(DP)²SGD (arXiv:2008.09246), ADPSGD and SYNC. Letters are the paper's."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from tacit.algorithms.base.step_settings import local_steps_agree
from tacit.algorithms.base.step_sizes import StepSizes
from tacit.algorithms.gossip.topology import Topology, TopologyKind, build
from tacit.config.algorithm_contract import (
    RATES,
    USUAL_CLIP,
    AlgorithmSection,
    Sections,
    WorkerKind,
)
from tacit.config.traits import Traits
from tacit.errors import ConfigError
from tacit.privacy.policy import Positive


class Gossip(StepSizes, AlgorithmSection):
    """A(DP)²SGD, ADPSGD (the same without noise) and SYNC; none has a server.

    `run.updates` is T, the steps of all peers together.
    """

    worker: ClassVar[WorkerKind] = "peer"

    searched: ClassVar = {"learning_rate": RATES}

    name: Literal["adp2sgd", "adpsgd", "sync"] = Field(description="which")
    learning_rate: Positive = Field(0.1, description="η")
    topology: TopologyKind = Field(
        "ring", description="who averages with whom; sync has no use for it"
    )
    link_probability: float = Field(
        0.5, gt=0, le=1, description="erdos-renyi: of a link between two peers"
    )
    max_staleness: int = Field(
        16, ge=0, description="τ: exchanges between reading a model and applying its step"
    )
    report_every: int = Field(10, gt=0, description="own steps between two reports to the observer")

    def traits(self, workers: int) -> Traits:
        """Return the traits of gossip: a version is a step of any peer; of SYNC, a step of all."""
        return Traits(
            counted="steps" if self.name == "sync" else "updates",
            usual_clip=USUAL_CLIP,
            oldest=self.max_staleness,
        )

    def graph(self, edges: int, seed: int) -> Topology:
        """Return the graph of the run's peers, which is the same for all of them.

        Raises ConfigError where there is none.
        """
        names = [f"edge-{number}" for number in range(edges)]
        return build(self.topology, names, seed=seed, probability=self.link_probability)

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others."""
        mechanism = run.privacy.mechanism
        if mechanism.startswith("paper"):
            raise ValueError(
                f"privacy.mechanism={mechanism}: that is MAPA's paper's, not {self.name}'s"
            )
        if (self.name, run.privacy.private) in (("adp2sgd", False), ("adpsgd", True)):
            raise ValueError(
                f"privacy.mechanism={mechanism}: adp2sgd is with noise, adpsgd without; sync may "
                f"be either"
            )
        if run.privacy.noise_at == "server":
            raise ValueError(f"privacy.noise_at=server: {self.name} has no server")
        if run.data.spare:
            raise ValueError(
                f"data.spare={run.data.spare}: the graph of {self.name} is of edges.count peers"
            )
        local_steps_agree(self.name, run)
        try:
            self.graph(run.edges.count, run.run.seed)
        except ConfigError as error:
            raise ValueError(str(error)) from error
