"""MAPA: multi-stage adjustable private asynchronous SGD, with its relatives AUDP, ASGD and CSGD.

Paper: Li, Yang, Ren, Zhao, "Asynchronous Federated Learning with Differential Privacy
for Edge Intelligence" (arXiv:1912.07902),
Algorithm 1, Table II. MapaServer is its cloud side; the edge's side is `base/gradient_edge`.

| here              | paper   | meaning |
|-------------------|---------|---------|
| params            | x_t     | global model after t updates, float32 (d,) |
| version           | t       | updates applied |
| staleness         | τ(t)    | version now - version computed from: measured, never assumed |
| clip              | C, bΔS/2| bound on one example's gradient; ΔS = 2C/b |
| batch             | b       | expected batch size, and the fixed denominator L of privacy.md |
| noise_variance    | Δ_0/C²  | E||η||² of one push, at C = 1 |
| smoothness        | L       | Lipschitz constant of the gradient |
| deviation         | σ       | standard deviation of one example's gradient |
| reduction         | θ       | reduction ratio of C per stage |

Differs from the paper (why: docs/algorithms.md): every example is clipped, not the batch mean.
Batches are Poisson. Gaussian noise is on all d parameters, calibrated for the total (ε, δ) of the
run, and Δ_b uses that noise's true variance. C never falls below clip_min. ε_0 is the run file's,
never an edge's. τ_max is the largest staleness measured lately. `mechanism = "paper"` keeps the
paper's own clipping and noise, which is not private.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Final

import torch
from torch import Tensor

from tacit.algorithms.base.algorithm import ServerAlgorithm
from tacit.algorithms.base.clip_history import ClipHistory
from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.base.gradient_edge import GradientTask
from tacit.algorithms.base.owner import Owner
from tacit.algorithms.base.server import ServerRole
from tacit.algorithms.mapa.mapa_settings import Mapa
from tacit.config.definition import Definition
from tacit.models import Model
from tacit.privacy.private_sum.choice import Ways
from tacit.privacy.private_sum.clipping import Clipped
from tacit.privacy.private_sum.plain import WholeVector
from tacit.protocol.messages import Outgoing, Update
from tacit.robust.law import Law


def first_clip(deviation: float, failure: float) -> float:
    """Return C = bΔS/2 of eq. (12) at equality: ΔS = 2σ / (b·sqrt(1 - sqrt(1 - δ))).

    A starting point, not a guarantee.
    """
    return deviation / math.sqrt(
        failure / (1 + math.sqrt(1 - failure))
    )  # the same without 1 - (1 - tiny)


def delta_b(deviation: float, batch: float, noise: float) -> float:
    """Return Δ_b = σ²/b + Δ_0, the variance of one noisy update.

    noise: Δ_0 = E||η||² (docs/privacy.md).
    """
    return deviation**2 / batch + noise


def coefficient(variance: float, tau: int, clip: float, theta: float) -> float:
    """Return P of eq. (16), in C = bΔS/2: max(1, 2Δ_b / ((τ+1)·C²·θ²))."""
    return max(1.0, 2 * variance / ((tau + 1) * clip**2 * theta**2))


def stage_rate(p: float, smoothness: float, tau: int) -> float:
    """Return γ = 1 / (2PL(τ+1)), Algorithm 1 line 7; satisfies (13) because P >= 1."""
    return 1 / (2 * p * smoothness * (tau + 1))


def stage_length(p: float, smoothness: float, tau: int, gap: float, variance: float) -> float:
    """Return T_s of eq. (15): 4P²L(τ+1)²(f(x)-f*) / Δ_b updates."""
    return (
        4 * (p * p) * smoothness * (tau + 1) ** 2 * gap / variance
    )  # p * p: inf where p**2 would raise


def audp_rate(t: int, tau: int, variance: float, a: Mapa) -> float:
    """Return γ_t of eq. (10), 1/γ_t = L(τ+1) + sqrt(Δ_b+1)·sqrt(t)/R; the paper's R is 1."""
    return 1 / (a.smoothness * (tau + 1) + math.sqrt(variance + 1) * math.sqrt(t) / a.radius)


def asgd_rate(t: int, tau: int, batch: float, a: Mapa) -> float:
    """Return Table II's γ_t for ASGD: 1/γ_t = L(τ+1)² + sqrt(t+1)·σ/(R·sqrt(b)).

    With τ = 0 it is CSGD's.
    """
    return 1 / (
        a.smoothness * (tau + 1) ** 2
        + math.sqrt(t + 1) * a.deviation / (a.radius * math.sqrt(batch))
    )


class MapaServer(ServerRole):
    """The cloud side of Algorithm 1."""

    def __init__(self, definition: Definition[Mapa], model: Model) -> None:
        super().__init__(definition, model)  # line 4
        a = definition.algorithm
        plan = definition.plans.default
        self.algorithm = a
        self.max_staleness = a.max_staleness
        self.clip_min = (
            plan.clip_min if plan.clip_is_bounded else 1e-9
        )  # the paper has no floor; C² must not be 0
        self.clip = definition.privacy.clip or first_clip(a.deviation, a.failure)
        if plan.clip_is_bounded:
            self.clip = min(max(self.clip, plan.clip_min), plan.clip_max)
        # s, t_s
        self.stage = 1
        self.stage_step = 0
        self._clips = ClipHistory(self.clip)
        # Δ_0/C² of the noisiest edge that the run file foresees (ε_0 = min ε_k), whatever the edges
        # say of themselves.
        self.noise_variance = max(
            plan.noise_variance(model.size) for plan in definition.plans.different()
        )

    def apply(self, update: Update, tau: int) -> list[Outgoing]:
        """Apply an update by lines 10 to 16; line 5, the end, is the base's."""
        rate = self.learning_rate()
        # line 11: x = x - γ·g̃
        self.params = torch.add(self.params, update.vector, alpha=-rate, out=update.room)
        # line 13
        self.version += 1
        self.stage_step += 1
        if self.algorithm.name == "mapa" and self.stage_step >= self.stage_length():  # line 10
            self._next_stage()
        return [Outgoing(update.edge, self.global_model())]  # line 12

    def _next_stage(self) -> None:
        lower = max(self.algorithm.reduction * self.clip, self.clip_min)  # line 15, with the floor
        if lower < self.clip:  # at the floor the stage goes on: nothing would change
            self.clip = lower
            self.stage += 1
            self.stage_step = 0
            self._clips.change(self.version, lower)

    def clip_at(self, version: int) -> float:
        """Return the C that went out with the model of this version."""
        return self._clips.at(version)

    def base(self, update: Update) -> Tensor:
        """Return 0: an update is a gradient."""
        return torch.zeros_like(self.params)

    def law(self, update: Update) -> Law:
        """Return the law of (sum + noise)/b, at the C that went out with its model."""
        return self.laws.gradient(update.edge, self.clip_at(update.base_version))

    # -- the schedule ------------------------------------------------------------------------------

    def schedule(self) -> dict[str, float]:
        """Return C, ΔS = 2C/b, γ, and the stage with the updates applied in it."""
        return {
            "clip": self.clip,
            "delta_s": 2 * self.clip / self.batch,
            "learning_rate": self.learning_rate(),
            "stage": self.stage,
            "stage_step": self.stage_step,
        }

    @property
    def variance(self) -> float:
        """Δ_b at the present C, with the noisiest edge's Δ_0.

        Line 16: ε_0 = min ε_k gives the largest noise.
        """
        return delta_b(self.algorithm.deviation, self.batch, self.noise_variance * self.clip**2)

    def learning_rate(self) -> float:
        """Return γ for the next update: the run file's, or by Table II; times its schedule."""
        a = self.algorithm
        if a.learning_rate is None:
            rate = self._own_rate()
        else:
            rate = a.learning_rate
        return rate * a.factor(self.version, self.horizon)

    def _own_rate(self) -> float:
        a = self.algorithm
        t = self.version + 1
        if a.name == "mapa":
            p = coefficient(self.variance, self.tau_max, self.clip, a.reduction)  # line 6
            return stage_rate(p, a.smoothness, self.tau_max)  # line 7
        if a.name == "audp":
            return audp_rate(t, self.tau_max, self.variance, a)
        return asgd_rate(t, self.tau_max if a.name == "asgd" else 0, self.batch, a)

    def stage_length(self) -> float:
        """Return T_s of the present stage (line 8)."""
        a = self.algorithm
        variance = self.variance
        p = coefficient(variance, self.tau_max, self.clip, a.reduction)
        if variance:
            return stage_length(p, a.smoothness, self.tau_max, a.initial_gap, variance)
        return math.inf

    # -- persistence -------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the base's state, with the stage."""
        tensors, values = super().state()
        stage: dict[str, Any] = {"stage": self.stage, "stage_step": self.stage_step}
        if self.stage > 1:  # before, there has been one C only
            stage["clips"] = self._clips.state()
        return tensors, values | stage

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        super().restore(tensors, values)
        self.stage = values["stage"]
        self.stage_step = values["stage_step"]
        if self.stage > 1:
            later = values["clips"]
        else:
            later = self._clips.state()[:1]
        self._clips.restore((since, clip) for since, clip in later)


class AsPrinted(WholeVector):
    """Lines 4 and 5 without noise, or with one of the paper's defects: not private."""

    def compute(self, params: Tensor, clip: float) -> Clipped:
        """Return what the plan's mechanism asks for, at `params` (d,)."""
        plan = self.slots.plan
        slots = self.slots
        if plan.mechanism == "none" or plan.noise_at == "server":
            return super().compute(params, clip)
        index = self.with_replacement(round(plan.batch))
        if plan.mechanism in ("paper:density", "paper:first_layer"):
            everyone = torch.ones(len(index), dtype=torch.bool)
            clipped = slots.clipped(params.to(slots.device), clip, index, everyone)
            return Clipped(clipped.total.cpu() / plan.batch, math.inf)
        mean = self.mean(params, index)  # line 4
        if plan.mechanism in ("paper", "paper:mean_clip"):  # line 5, as printed
            mean = mean / max(1.0, float(torch.linalg.vector_norm(mean)) / clip)
        return Clipped(mean, math.inf)


WAYS: Final = Ways(plain=AsPrinted)


class MapaAlgorithm(ServerAlgorithm):
    """MAPA, AUDP, ASGD and CSGD."""

    settings: ClassVar = Mapa
    role: ClassVar = MapaServer

    def edge(self, definition: Definition[Mapa], owner: Owner) -> EdgeRole:
        """Return an edge of one gradient, which may also compute what the paper prints."""
        return GradientTask().role(owner, definition.run.updates, WAYS)
