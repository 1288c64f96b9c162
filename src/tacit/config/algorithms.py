"""The [algorithm] section of a run file: one class per paper, chosen by `name`.

Letters are the paper's.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from tacit.config.contract import AlgorithmSection, DataSection, Sections, Worker
from tacit.config.model import ModelSection
from tacit.config.plans import Plans
from tacit.config.sections import Positive, Privacy
from tacit.config.topology import Kind, Topology, build
from tacit.errors import ConfigError
from tacit.models import Model
from tacit.models.zoo.embeddings import head
from tacit.privacy.embeddings import Mode, declared
from tacit.privacy.release import Mechanism
from tacit.privacy.report import AT_PARTY, Composition, Promise

Staleness = Literal["constant", "polynomial", "hinge"]
CENTRALISED = ("csgd", "sgd")  # one edge holds all the data


class Mapa(AlgorithmSection):
    """MAPA and its three relatives (Table II)."""

    name: Literal["mapa", "audp", "asgd", "csgd"] = Field(description="which")
    smoothness: Positive = Field(10.0, description="L, Lipschitz constant of the gradient")
    deviation: float = Field(30.0, ge=0, le=1e9, description="σ, standard deviation of a gradient")
    radius: Positive = Field(1.0, description="R, radius of the space")
    reduction: float = Field(
        0.5, ge=0.01, lt=1, description="θ, reduction ratio of the clip norm per stage"
    )
    initial_gap: Positive = Field(
        2.3, description="f(x_1) - f(x*), a public guess; ln 10 for ten classes"
    )
    failure: float = Field(
        1e-3, gt=0, lt=1, description="δ of eq. (12), for the first clip norm only"
    )
    max_staleness: int = Field(100, gt=0, description="older updates are refused as stale")

    @property
    def oldest(self) -> int | None:
        """`max_staleness`."""
        return self.max_staleness

    @property
    def in_turn(self) -> bool:
        """Each edge is answered for itself."""
        return True

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others."""
        mechanism = run.privacy.mechanism
        if self.name in ("asgd", "csgd") and mechanism != "none":
            raise ValueError(f"privacy.mechanism={mechanism}: {self.name} is not private; say none")
        if self.name in ("mapa", "audp") and mechanism == "none":
            raise ValueError(
                f"privacy.mechanism=none: {self.name} needs noise; use asgd without it"
            )
        if mechanism.startswith("paper") and self.deviation == 0 and run.privacy.clip is None:
            raise ValueError(
                "algorithm.deviation=0.0: eq. (12) gives no clip norm; set privacy.clip"
            )
        if self.name == "csgd" and run.edges.count != 1:
            raise ValueError(
                f"edges.count={run.edges.count}: csgd is centralised, one edge holds all the data"
            )


_MIXES, _WEIGHS = ("fedasync", "sgd"), ("fedasync", "fedbuff", "sgd")
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


class FedAsync(AlgorithmSection):
    """FedAsync, with FedAvg, FedBuff and single-thread SGD.

    `privacy.pushes` counts local steps, all of them paid.
    """

    name: Literal["fedasync", "fedavg", "fedbuff", "sgd"] = Field(description="which")
    learning_rate: Positive = Field(0.1, description="γ of a local step")
    steps_min: int = Field(5, gt=0, le=100_000, description="H_min, local steps of one task")
    steps_max: int | None = Field(
        None, gt=0, le=100_000, description="H_max; None: H_min, all tasks alike"
    )
    proximal: float = Field(0.0, ge=0, le=1e6, description="ρ of ρ/2·||x - x_τ||²")
    mixing: float = Field(0.6, gt=0, le=1, description="α, before the staleness weight")
    staleness: Staleness = Field("constant", description="s(t - τ)")
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
        if self.steps_max is not None and self.steps_max < self.steps_min:
            raise ValueError(f"steps_max={self.steps_max} is below steps_min={self.steps_min}")
        return self

    @property
    def steps(self) -> int:
        """Local steps that one update costs, at most."""
        return self.steps_max or self.steps_min

    @property
    def oldest(self) -> int | None:
        """`max_staleness`, but for FedAvg, which works in rounds."""
        return None if self.name == "fedavg" else self.max_staleness

    @property
    def in_turn(self) -> bool:
        """But for FedAvg's rounds, and where tasks are given away from a queue."""
        return self.name != "fedavg" and self.concurrency is None

    @property
    def versions(self) -> str:
        """FedAvg's are rounds, FedBuff's buffers."""
        return {"fedavg": "rounds", "fedbuff": "buffers"}.get(self.name, "updates")

    def unread(self) -> list[str]:
        """The keys that the run file gives and this algorithm, of the four, does not read."""
        return sorted(
            key for key in self.model_fields_set if self.name not in _READ.get(key, (self.name,))
        )

    def uploads(self, workers: int) -> int:
        """One; FedAvg: all that are asked in a round; FedBuff: M."""
        if self.name == "fedavg":
            return self.clients or workers
        return self.buffer if self.name == "fedbuff" else 1

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
        _local_steps_agree(self.name, run)


class DpPasgd(AlgorithmSection):
    """DP-PASGD: τ local noisy steps, then an average of every device. DP-SGD is tau = 1."""

    name: Literal["dp-pasgd"] = Field(description="which")
    learning_rate: Positive = Field(0.1, description="η of a local step")
    tau: int = Field(10, gt=0, le=100_000, description="τ, local steps between two averages")
    quorum: float = Field(
        0.5, gt=0, le=1, description="part of the devices that must have answered in time"
    )
    deadline_s: Positive = Field(60.0, description="seconds that a round waits for all devices")

    @property
    def steps(self) -> int:
        """Local steps that one update costs."""
        return self.tau

    @property
    def versions(self) -> str:
        """Rounds."""
        return "rounds"

    def uploads(self, workers: int) -> int:
        """One of every device."""
        return workers

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others."""
        if run.privacy.mechanism.startswith("paper"):
            raise ValueError(
                f"privacy.mechanism={run.privacy.mechanism}: for the paper's noise, set "
                f"privacy.noise_multiplier to "
                "what `tacit plan dp-pasgd --planner paper` finds"
            )
        if run.privacy.noise_at == "server":
            raise ValueError(
                "privacy.noise_at=server: dp-pasgd's devices add their noise themselves"
            )
        _local_steps_agree(self.name, run)


class Gossip(AlgorithmSection):
    """A(DP)²SGD, ADPSGD (the same without noise) and SYNC; no server. `run.updates` is T:

    steps of all peers.
    """

    worker: ClassVar[Worker] = "peer"

    name: Literal["adp2sgd", "adpsgd", "sync"] = Field(description="which")
    learning_rate: Positive = Field(0.1, description="η")
    topology: Kind = Field("ring", description="who averages with whom; sync has no use for it")
    link_probability: float = Field(
        0.5, gt=0, le=1, description="erdos-renyi: of a link between two peers"
    )
    max_staleness: int = Field(
        16, ge=0, description="τ: exchanges between reading a model and applying its step"
    )
    report_every: int = Field(10, gt=0, description="own steps between two reports to the observer")

    @property
    def oldest(self) -> int | None:
        """`max_staleness`."""
        return self.max_staleness

    @property
    def versions(self) -> str:
        """SYNC's are called steps."""
        return "steps" if self.name == "sync" else "updates"

    def graph(self, edges: int, seed: int) -> Topology:
        """The graph of the run's peers, the same for everybody.

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
        _local_steps_agree(self.name, run)
        try:
            self.graph(run.edges.count, run.run.seed)
        except ConfigError as error:
            raise ValueError(str(error)) from error


class Vafl(AlgorithmSection):
    """VAFL: parties hold different features of the same people. [model] is θ_0's; `privacy.clip` is
    B.

    `privacy.pushes`: releases of one record that the budget must cover (`trained`: vectors of a
    party in all); `privacy.noise_multiplier`: z = c/(2B), so that one release is (1/z)-GDP. [edges]
    are the parties.
    """

    worker: ClassVar[Worker] = "party"
    columns: ClassVar[bool] = True
    composition: ClassVar[Composition] = "sum"

    name: Literal["vafl"] = Field(description="which")
    t: int = Field(1, gt=0, description="parties waited for in an iteration; 1: Algorithm 1")
    synchronous: bool = Field(
        False, description="all parties, on common batches: synchronous block-wise SGD"
    )
    max_delay: int | None = Field(
        None, gt=0, description="D: older embeddings are asked for anew; None: unbounded"
    )
    steps_rule: Literal["constant", "theorem_1", "theorem_2", "theorem_3", "theorem_4"] = Field(
        "constant", description="step sizes: fixed, or by the paper's theorem"
    )
    learning_rate: Positive = Field(0.1, description="η of `constant`")
    server_share: Positive = Field(1.0, description="η_0/η_m of `constant`; appendix G.3: 1/M")
    smoothness: Positive = Field(1.0, description="L, Lipschitz constant of the gradient")
    convexity: Positive = Field(1e-3, description="μ of theorems 2 and 4")
    delay_bound: int = Field(
        0, ge=0, description="D of theorems 1 and 2, where max_delay does not say it"
    )
    tail: Positive = Field(1.0, description="p̄ of Assumption 5")
    ratio: float = Field(0.5, gt=0, lt=1, description="ρ of Assumption 5")
    rarest: float | None = Field(None, gt=0, le=1, description="min q_m; None: 1/M")
    scale: Positive = Field(1.0, description="c_η of theorems 1 and 3")
    embedding: Literal["linear", "mlp", "cnn", "lstm"] = Field(
        "linear", description="a party's model θ_m"
    )
    width: int = Field(10, gt=0, le=4096, description="numbers in an embedding")
    hidden: tuple[Annotated[int, Field(gt=0)], ...] = Field(
        (), strict=False, description="units inside, mlp and lstm"
    )
    channels: tuple[Annotated[int, Field(gt=0)], ...] = Field(
        (10, 20), strict=False, description="convolutions, cnn"
    )
    kernel: int = Field(3, ge=1, le=15, description="side of a convolution's window, cnn")
    activation: Literal["relu", "tanh"] = Field("relu", description="inside embeddings")
    smoothing: float = Field(
        0.0, ge=0, le=1e3, description="c_l of (11b): uniform noise before inner activations"
    )
    combine: Literal["sum", "concat"] = Field(
        "sum", description="how θ_0's model takes the embeddings"
    )
    quadrants: bool = Field(False, description="four parties hold a quarter of an image each")
    regularization: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...] = Field(
        (0.0,),
        strict=False,
        description="λ of r(θ_m) = λ/2·||θ_m||²: one for all, or one for each party",
    )
    mode: Literal["cached", "fresh", "dp_sgd", "trained"] = Field(
        "cached",
        description="what θ_m may learn, and how often a record is released (docs/privacy.md)",
    )
    step_clip: Positive = Field(1.0, description="dp_sgd: C of one record's gradient of θ_m")
    label_epsilon: Positive | None = Field(
        None, description="ε_y of one randomised response; None: labels in clear"
    )

    def uploads(self, workers: int) -> int:
        """Activations that make one iteration, of so many parties."""
        return workers if self.synchronous else self.t

    def counted(self, workers: int) -> str:
        """Iterations, whatever they are made of."""
        return self.versions

    def capacity(self, privacy: Privacy, workers: int) -> int | None:
        """As of others in mode `trained`;

        else a record is released once, or as often as it is asked for.
        """
        return super().capacity(privacy, workers) if self.mode == "trained" else None

    def promise(self, plans: Plans, clip: float) -> Promise:
        """Of a record's features at one party; embeddings are cut to B, which nobody changes."""
        return replace(
            super().promise(plans, clip),
            guarantee=AT_PARTY,
            clip=(clip, clip),
            mechanism=declared(self.release_mode(plans.like.mechanism)),
            labels_epsilon=self.label_epsilon,
        )

    def release_mode(self, mechanism: Mechanism) -> Mode:
        """How embeddings are released: in `mode` where the noise is Gaussian."""
        if mechanism == "gaussian":
            return self.mode
        return "paper" if mechanism == "paper" else "none"

    def build_model(
        self,
        section: ModelSection,
        shape: tuple[int, ...],
        classes: int,
        workers: int,
        folder: Path,
    ) -> Model:
        """θ_0's, of everybody's embeddings. Raises ConfigError."""
        hidden = section.hidden if section.name == "mlp" else ()
        return head(self.combine, workers, self.width, classes, hidden)

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others."""
        parties, privacy = run.edges.count, run.privacy
        if privacy.mechanism not in ("gaussian", "none", "paper") or privacy.noise_at != "edge":
            raise ValueError(
                f"privacy.mechanism={privacy.mechanism}: vafl knows gaussian, none and paper, at "
                f"the party (noise_at)"
            )
        if privacy.mechanism == "paper" and privacy.noise_multiplier is None:
            raise ValueError(
                "privacy.noise_multiplier: the paper's noise has no calibration; set c/(2·clip)"
            )
        if self.t > parties:
            raise ValueError(f"algorithm.t={self.t} is above edges.count={parties}")
        if self.synchronous and self.t not in (1, parties):
            raise ValueError(
                f"algorithm.t={self.t}: synchronous waits for all {parties} parties; leave t alone"
            )
        if len(self.regularization) not in (1, parties):
            raise ValueError(
                f"algorithm.regularization: {len(self.regularization)} numbers for {parties} "
                f"parties"
            )
        if self.quadrants and parties != 4:
            raise ValueError(f"edges.count={parties}: quadrants are four")
        _columns_agree(run.data)
        if run.guard.norm_factor is not None:
            raise ValueError(
                f"guard.norm_factor={run.guard.norm_factor:g}: vafl's uploads are no gradients"
            )
        if run.model.name != "logistic" and self.combine == "sum":
            raise ValueError(
                f"model.name={run.model.name}: a sum of embeddings needs logistic; or combine = "
                f"concat"
            )


def _columns_agree(data: DataSection) -> None:
    if data.kind != "benchmark":
        raise ValueError(
            f"data.kind={data.kind}: vafl's parties hold columns of a published data set"
        )
    if data.partition != "iid" or data.spare:
        key, given = ("spare", data.spare) if data.spare else ("partition", data.partition)
        raise ValueError(f"data.{key}={given}: vafl divides columns; leave it alone")


def _local_steps_agree(name: str, run: Sections) -> None:
    if run.guard.norm_factor is not None:
        raise ValueError(
            f"guard.norm_factor: {name} sends models, not gradients; no bound is known"
        )
    if run.privacy.clip is None and run.privacy.private:
        raise ValueError(f"privacy.clip: {name} has no schedule for it; set it")


Algorithm = Annotated[Mapa | FedAsync | DpPasgd | Gossip | Vafl, Field(discriminator="name")]
