"""[algorithm] of FedAsync (arXiv:1903.03934), FedAvg, FedBuff and SGD. Letters are the paper's."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from tacit.algorithms.base.algorithm import TaskSettings
from tacit.algorithms.base.local_steps import LocalStepsTask
from tacit.algorithms.base.step_settings import local_steps_agree, steps_in_order
from tacit.algorithms.base.step_sizes import StepSizes
from tacit.config.algorithm_contract import RATES, USUAL_CLIP, Sections
from tacit.config.traits import Traits, in_several
from tacit.privacy.policy import Positive
from tacit.privacy.release import NoiseAt

StalenessFunction = Literal["constant", "polynomial", "hinge"]
_MIXES = ("fedasync", "sgd")
_WEIGHS = ("fedasync", "fedbuff", "sgd")
_READ = {
    "mixing": _MIXES,
    "mixing_decay": _MIXES,
    "mixing_decay_at": _MIXES,
    "staleness": _WEIGHS,
    "a": _WEIGHS,
    "b": _WEIGHS,
    "max_staleness": _WEIGHS,
    "buffer": ("fedbuff",),
    "server_rate": ("fedbuff",),
    "clients": ("fedavg",),
    "quorum": ("fedavg",),
}


class FedAsync(StepSizes, TaskSettings):
    """FedAsync, with FedAvg, FedBuff and single-thread SGD.

    `privacy.pushes` counts local steps, all of them paid.
    """

    searched: ClassVar = {"learning_rate": RATES}
    centralised: ClassVar[tuple[str, ...]] = ("sgd",)

    name: Literal["fedasync", "fedavg", "fedbuff", "sgd"] = Field(description="which")
    learning_rate: Positive = Field(0.1, description="γ of a local step")
    steps_min: int = Field(5, gt=0, le=100_000, description="H_min, local steps of one task")
    steps_max: int | None = Field(
        None, gt=0, le=100_000, description="H_max; None: H_min, all tasks alike"
    )
    proximal: float = Field(0.0, ge=0, le=1e6, description="ρ of ρ/2·||x - x_τ||²")
    mixing: float = Field(0.6, gt=0, le=1, description="α, before the staleness weight")
    staleness: StalenessFunction = Field("constant", description="s(t - τ)")
    a: Positive = Field(0.5, description="a of polynomial and hinge")
    b: int = Field(4, ge=0, description="b of hinge")
    mixing_decay: float = Field(
        1.0, gt=0, le=1, description="what α is multiplied with after `mixing_decay_at`"
    )
    mixing_decay_at: float = Field(1.0, gt=0, le=1, description="part of the run's updates")
    max_staleness: int = Field(
        100, gt=0, description="fedasync, fedbuff: older updates are refused as stale"
    )
    concurrency: int | None = Field(
        None, gt=0, description="edges at work at once; None: everybody"
    )
    buffer: int = Field(
        10, gt=0, le=10_000, description="fedbuff: M, updates that make one version"
    )
    server_rate: Positive = Field(1.0, description="fedbuff: η_g")
    clients: int | None = Field(
        None, gt=0, description="fedavg: k edges asked per round; None: all"
    )
    quorum: float = Field(
        0.5, gt=0, le=1, description="fedavg: part of those asked that must have answered in time"
    )
    deadline_s: Positive = Field(
        60.0, description="fedavg: seconds a round waits; else: until a task is given away"
    )

    @model_validator(mode="after")
    def _order(self) -> Self:
        steps_in_order(self.steps_min, self.steps_max)
        return self

    @property
    def steps(self) -> int:
        """Local steps that one update costs, at most."""
        return self.steps_max or self.steps_min

    def traits(self, workers: int) -> Traits:
        """Return the traits: FedAvg in rounds, FedBuff in buffers of M; else each is answered.

        `concurrency` makes a queue of tasks.
        """
        rounds = self.name == "fedavg"
        uploads = {"fedavg": self.clients or workers, "fedbuff": self.buffer}.get(self.name, 1)
        versions = {"fedavg": "rounds", "fedbuff": "buffers"}.get(self.name, "updates")
        return Traits(
            uploads=uploads,
            steps=self.steps,
            counted=in_several(versions, uploads),
            usual_clip=USUAL_CLIP,
            oldest=None if rounds else self.max_staleness,
            in_turn=not rounds and self.concurrency is None,
            watched=True,
            combines=self.name in ("fedavg", "fedbuff"),
        )

    def task(self, noise_at: NoiseAt = "edge") -> LocalStepsTask:
        """Return H local steps, whose distance FedBuff pushes, and everybody for noise here."""
        distance = self.name == "fedbuff" or noise_at == "server"
        return LocalStepsTask(
            learning_rate=self.learning_rate,
            schedule=self.schedule,
            warm_up=self.warm_up,
            steps_min=self.steps_min,
            steps_max=self.steps_max,
            proximal=self.proximal,
            push="distance" if distance else "model",
        )

    def unread(self) -> list[str]:
        """Return the keys that the run file states and this algorithm does not read."""
        return sorted(
            key for key in self.model_fields_set if self.name not in _READ.get(key, (self.name,))
        )

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others."""
        if run.privacy.mechanism.startswith("paper"):
            raise ValueError(
                f"privacy.mechanism={run.privacy.mechanism}: the paper of {self.name} has no noise"
            )
        if self.name == "sgd" and run.edges.count != 1:
            raise ValueError(
                f"edges.count={run.edges.count}: sgd is single-threaded, one edge holds all the "
                f"data"
            )
        if run.privacy.noise_at == "server" and self.name not in ("fedavg", "fedbuff"):
            why = (
                "mixes whole models, whose distance to the model is not bounded; fedbuff and "
                "fedavg send distances"
            )
            raise ValueError(f"privacy.noise_at=server: {self.name} {why}")
        if self.clients is not None and self.clients > run.edges.count:
            raise ValueError(
                f"algorithm.clients={self.clients} is above edges.count={run.edges.count}"
            )
        if run.guard.sums and self.learning_rate * self.proximal > 2:
            raise ValueError(
                f"algorithm.proximal={self.proximal:g}: times learning_rate="
                f"{self.learning_rate:g} it is above 2, so local steps diverge and guard.sums has "
                f"no law of them; lower one of the two"
            )
        local_steps_agree(self.name, run)
