"""MAPA: multi-stage adjustable private asynchronous SGD, with its relatives AUDP, ASGD and CSGD.

Paper: "Privacy-preserving asynchronous federated learning ... MAPA" (../shared/papers 000), Algorithm 1, Table II.
Server and Edge below are its two sides, top to bottom.

| here              | paper   | meaning                                                                       |
|-------------------|---------|-------------------------------------------------------------------------------|
| params            | x_t     | global model after t updates, float32 (d,)                                     |
| version           | t       | updates applied                                                               |
| staleness         | τ(t)    | version now - version the update was computed from: measured, never assumed   |
| clip              | C, bΔS/2| bound on one example's gradient; ΔS = 2C/b                                     |
| batch             | b       | expected batch size, and the fixed denominator L of privacy.md                 |
| noise_variance    | Δ_0/C²  | E||η||² of one push, at C = 1                                                  |
| smoothness        | L       | Lipschitz constant of the gradient                                            |
| deviation         | σ       | standard deviation of one example's gradient                                  |
| reduction         | θ       | reduction ratio of C per stage                                                |

Differs from the paper (why: docs/algorithms.md): every example is clipped, not the batch mean; Poisson batches;
Gaussian noise on all d parameters, calibrated for the total (ε, δ) of the run; Δ_b uses that noise's true variance;
C never falls below clip_min; τ_max is the largest staleness measured lately. `mechanism = "paper"` keeps the
paper's own clipping and noise, which is not private.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tacit.config import Algorithm, RunFile
from tacit.datasets import Dataset
from tacit.errors import BudgetSpent
from tacit.messages import EVERYONE, SERVER, GlobalModel, Halt, Hello, Outgoing, Push, Retired, Update
from tacit.models import Model
from tacit.privacy.accounting import History, Spend
from tacit.privacy.clipping import Clipped, clipped_sum, integer_sum, outer_sum
from tacit.privacy.ledger import UNCHARGED, Charged
from tacit.privacy.mechanisms import grid_step
from tacit.privacy.plan import Releaser
from tacit.privacy.policy import refusal
from tacit.privacy.sampling import padded_size, poisson
from tacit.vectors import example_gradients, linear_factors, mean_gradient

_PLAIN_HELLO = ("epsilon", "delta", "mechanism", "noise_variance", "clip_min", "clip_max", "refusals", "refusal")
HELD = 2**24  # bytes of per-example gradients (a linear model: of inputs) that an edge holds at a time
STALENESS_WINDOW = 200  # τ_max: the largest staleness among this many latest updates


def first_clip(deviation: float, failure: float) -> float:
    """C = bΔS/2 of eq. (12) at equality: ΔS = 2σ / (b·sqrt(1 - sqrt(1 - δ))). A starting point, not a guarantee."""
    return deviation / math.sqrt(failure / (1 + math.sqrt(1 - failure)))  # the same without 1 - (1 - tiny)


def delta_b(deviation: float, batch: float, noise: float) -> float:
    """Δ_b = σ²/b + Δ_0, the variance of one noisy update; `noise` is Δ_0 = E||η||² (privacy.md §1.5)."""
    return deviation**2 / batch + noise


def coefficient(variance: float, tau: int, clip: float, theta: float) -> float:
    """P of eq. (16), in C = bΔS/2: max(1, 2Δ_b / ((τ+1)·C²·θ²))."""
    return max(1.0, 2 * variance / ((tau + 1) * clip**2 * theta**2))


def stage_rate(p: float, smoothness: float, tau: int) -> float:
    """γ = 1 / (2PL(τ+1)), Algorithm 1 line 7; satisfies (13) because P >= 1."""
    return 1 / (2 * p * smoothness * (tau + 1))


def stage_length(p: float, smoothness: float, tau: int, gap: float, variance: float) -> float:
    """T_s of eq. (15): 4P²L(τ+1)²(f(x)-f*) / Δ_b updates."""
    return 4 * (p * p) * smoothness * (tau + 1) ** 2 * gap / variance  # p * p: inf where p**2 would raise


def audp_rate(t: int, tau: int, variance: float, a: Algorithm) -> float:
    """γ_t of eq. (10), 1/γ_t = L(τ+1) + sqrt(Δ_b+1)·sqrt(t)/R; the paper's R is 1."""
    return 1 / (a.smoothness * (tau + 1) + math.sqrt(variance + 1) * math.sqrt(t) / a.radius)


def asgd_rate(t: int, tau: int, batch: float, a: Algorithm) -> float:
    """Table II, ASGD: 1/γ_t = L(τ+1)² + sqrt(t+1)·σ/(R·sqrt(b)). With τ = 0 it is CSGD's."""
    return 1 / (a.smoothness * (tau + 1) ** 2 + math.sqrt(t + 1) * a.deviation / (a.radius * math.sqrt(batch)))


@dataclass(slots=True)
class EdgeRecord:
    """What the server knows of one edge: its public privacy configuration, and what it has sent."""

    hello: Hello
    updates: int = 0
    spent: History = ()
    charged: Charged = UNCHARGED
    retired: str = ""


class Server:
    """The cloud side of Algorithm 1: a fold over the journal, without I/O, clock or randomness."""

    def __init__(self, run: RunFile, model: Model) -> None:
        a, p = run.algorithm, run.privacy
        self.algorithm, self.batch, self.horizon, self.terms = a, p.batch, run.run.updates, run.terms()
        self.dataset = run.data.dataset  # what the edges' ledgers are of
        self.clip_min = p.clip_min if p.private else 1e-9  # the paper has no floor; C² must not be 0
        self.params = model.init(run.run.seed)  # line 4
        self.version = 0  # t
        self.clip = p.clip or first_clip(a.deviation, a.failure)
        if p.private:
            self.clip = min(max(self.clip, p.clip_min), p.clip_max)
        self.stage, self.stage_step = 1, 0  # s, t_s
        self.edges: dict[str, EdgeRecord] = {}
        self.recent: deque[int] = deque(maxlen=STALENESS_WINDOW)
        self.staleness: Counter[int] = Counter()
        self.stale = 0
        self.halted = ""

    # -- the role interface -------------------------------------------------------------------------------------

    def start(self) -> list[Outgoing]:
        """Nothing: the cloud speaks when spoken to."""
        return []

    def on_message(self, message: Hello | Update | Retired | Halt) -> list[Outgoing]:
        """One step of the fold. Messages must come in journal order."""
        match message:
            case Hello():
                return self._hello(message)
            case Update():
                return self._update(message)
            case Retired():
                return self._retired(message)
            case Halt():
                return self._halt(message.reason)

    def screen(self, update: Update) -> str | None:
        """Why `update` must not enter the journal, if so: halted, unknown (no Hello), version. Pure.

        A stale one enters: it was released, and what it says of its edge's ledger must be known.
        """
        if self.halted:
            return "halted"
        if update.edge not in self.edges:
            return "unknown"
        return "version" if update.base_version > self.version else None

    # -- Algorithm 1, cloud side --------------------------------------------------------------------------------

    def _hello(self, hello: Hello) -> list[Outgoing]:
        record = self.edges.setdefault(hello.edge, EdgeRecord(hello))  # line 1: receive ε_k
        record.hello, record.spent, record.charged, record.retired = hello, hello.spent, hello.charged, ""
        if self.halted:
            return [Outgoing(hello.edge, Halt(self.version, self.halted))]
        return [Outgoing(hello.edge, self.global_model())]

    def _update(self, update: Update) -> list[Outgoing]:
        if self.halted:
            return []
        tau = self.version - update.base_version  # τ(t), measured
        record = self.edges[update.edge]
        record.spent, record.charged = update.spent, update.charged
        if tau > self.algorithm.max_staleness:  # paid for, and too old to apply
            self.stale += 1
            return [Outgoing(update.edge, self.global_model())]
        self.recent.append(tau)
        self.staleness[tau] += 1
        record.updates += 1
        self.params = torch.add(self.params, update.gradient, alpha=-self.learning_rate())  # line 11: x = x - γ·g̃
        self.version, self.stage_step = self.version + 1, self.stage_step + 1  # line 13
        if self.algorithm.name == "mapa" and self.stage_step >= self.stage_length():  # line 10
            self._next_stage()
        if self.version >= self.horizon:  # line 5
            return self._halt("all updates applied")
        return [Outgoing(update.edge, self.global_model())]  # line 12

    def _next_stage(self) -> None:
        lower = max(self.algorithm.reduction * self.clip, self.clip_min)  # line 15, with the floor
        if lower < self.clip:  # at the floor the stage goes on: nothing would change
            self.clip, self.stage, self.stage_step = lower, self.stage + 1, 0

    def _retired(self, message: Retired) -> list[Outgoing]:
        record = self.edges.get(message.edge)
        if record:
            record.retired, record.spent, record.charged = message.reason, message.spent, message.charged
        return []

    def _halt(self, reason: str) -> list[Outgoing]:
        if self.halted:
            return []
        self.halted = reason or "halted"
        return [Outgoing(EVERYONE, Halt(self.version, self.halted))]  # line 18

    def global_model(self) -> GlobalModel:
        """x_t, t and C (ΔS = 2C/b) as sent to an edge."""
        return GlobalModel(self.version, self.params, self.clip, self.terms)

    # -- the schedule -------------------------------------------------------------------------------------------

    @property
    def tau_max(self) -> int:
        """τ_max: the largest staleness among the latest STALENESS_WINDOW updates (0 before any)."""
        return max(self.recent, default=0)

    @property
    def variance(self) -> float:
        """Δ_b at the present C, with the noisiest edge's Δ_0 (line 16; ε_0 = min ε_k gives the largest noise)."""
        loudest = max((record.hello.noise_variance for record in self.edges.values()), default=0.0)
        return delta_b(self.algorithm.deviation, self.batch, loudest * self.clip**2)

    def learning_rate(self) -> float:
        """γ for the next update, by Table II."""
        a, t = self.algorithm, self.version + 1
        if a.name == "mapa":
            p = coefficient(self.variance, self.tau_max, self.clip, a.reduction)  # line 6
            return stage_rate(p, a.smoothness, self.tau_max)  # line 7
        if a.name == "audp":
            return audp_rate(t, self.tau_max, self.variance, a)
        return asgd_rate(t, self.tau_max if a.name == "asgd" else 0, self.batch, a)

    def stage_length(self) -> float:
        """T_s of the present stage (line 8)."""
        a, variance = self.algorithm, self.variance
        p = coefficient(variance, self.tau_max, self.clip, a.reduction)
        return stage_length(p, a.smoothness, self.tau_max, a.initial_gap, variance) if variance else math.inf

    # -- persistence --------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """(tensors, JSON values) from which `restore` continues to the same bits."""
        edges = {
            name: {
                "hello": {field: getattr(record.hello, field) for field in _PLAIN_HELLO},
                "updates": record.updates, "retired": record.retired,
                "spent": [[s.sampling_rate, s.noise_multiplier, s.count, s.mechanism] for s in record.spent],
                "charged": [record.charged.count, record.charged.head.hex()],
            }
            for name, record in self.edges.items()
        }  # fmt: skip
        values = {
            "version": self.version, "clip": self.clip, "stage": self.stage, "stage_step": self.stage_step,
            "recent": list(self.recent), "staleness": sorted(self.staleness.items()), "stale": self.stale,
            "halted": self.halted, "edges": edges,
        }  # fmt: skip
        return {"params": self.params}, values

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.params = tensors["params"]
        for name in ("version", "clip", "stage", "stage_step", "stale", "halted"):
            setattr(self, name, values[name])
        self.recent = deque(values["recent"], maxlen=STALENESS_WINDOW)
        self.staleness = Counter(dict(values["staleness"]))
        self.edges = {}
        for name, saved in values["edges"].items():
            spent = tuple(Spend(*row) for row in saved["spent"])
            count, head = saved["charged"]
            hello = Hello(name, spent=spent, **saved["hello"])
            charged = Charged(count, bytes.fromhex(head))
            self.edges[name] = EdgeRecord(hello, saved["updates"], spent, charged, saved["retired"])


class Edge:
    """The edge side of Algorithm 1. Holds the private rows; everything it says has passed `Releaser.release`."""

    def __init__(self, edge: str, data: Dataset, model: Model, releaser: Releaser, device: str = "cpu") -> None:
        self.edge, self.model, self.releaser, self.device = edge, model, releaser, device
        self.x, self.y = data.x.to(device), data.y.to(device)
        self.size = padded_size(len(data), releaser.plan.sampling_rate)
        outer = model.linear and not model.regularization  # what the gradient of every example is
        self._ghost = outer and releaser.plan.mechanism in ("gaussian", "knorm")
        self.halted = ""
        self.refusals, self.refusal = 0, ""  # models refused, and why the latest one was

    def start(self) -> list[Outgoing]:
        """Line 1: send ε_k, with what else the server needs to plan. Sent again whenever a model is wanted."""
        plan, ledger = self.releaser.plan, self.releaser.ledger
        hello = Hello(
            self.edge, plan.epsilon, plan.delta, plan.declared, plan.noise_variance(self.model.size),
            plan.clip_min, plan.clip_max, ledger.history(), ledger.charged(), self.refusals, self.refusal,
        )  # fmt: skip
        return [Outgoing(SERVER, hello)]

    def on_message(self, message: GlobalModel | Halt) -> list[Outgoing]:
        """Lines 3 to 8 for a model; the end of the loop for Halt (line 2).

        A model that the edge's plan does not allow is counted and nothing else: nothing is charged or released.
        """
        if isinstance(message, Halt):
            self.halted = message.reason or "halted"
            return []
        if self.halted:  # a model that was under way
            return []
        if why := refusal(self.releaser.plan, message):
            self.refusals, self.refusal = self.refusals + 1, why
            return []
        try:
            released = self.releaser.release(
                message.clip,
                lambda: self._query(message.params.to(self.device), message.clip),
                paper_dims=self.model.first_layer,
            )
        except BudgetSpent as spent:
            return self.retire(str(spent))
        return [Outgoing(SERVER, Push(self.edge, message.version, released))]  # line 8

    def retire(self, reason: str) -> list[Outgoing]:
        """The last word of an edge whose budget is spent."""
        ledger = self.releaser.ledger
        return [Outgoing(SERVER, Retired(self.edge, reason, ledger.history(), ledger.charged()))]

    def _query(self, params: Tensor, clip: float) -> Clipped:
        plan = self.releaser.plan
        if plan.private:  # lines 4 and 5, rigorous: a clipped sum over a Poisson batch
            batch = poisson(len(self.y), plan.sampling_rate, self.size, self.releaser.random)
            clipped = self._clipped(params, clip, batch.index, batch.mask)
            return Clipped(clipped.total.cpu(), clipped.sensitivity, clipped.step)
        index = self._with_replacement(round(plan.batch)).to(self.device)
        if plan.mechanism in ("paper:density", "paper:first_layer"):
            everyone = torch.ones(len(index), dtype=torch.bool)
            return Clipped(self._clipped(params, clip, index, everyone).total.cpu() / plan.batch, math.inf)
        mean = mean_gradient(self.model, params, self.x[index], self.y[index]).cpu()  # line 4
        if plan.noise_at == "server":  # the whole vector, clipped to C: the edge is the unit
            return Clipped(clipped_sum(mean[None], clip, torch.ones(1, dtype=torch.bool)).total, math.inf)
        if plan.mechanism in ("paper", "paper:mean_clip"):
            mean = mean / max(1.0, float(torch.linalg.vector_norm(mean)) / clip)  # line 5, as printed
        return Clipped(mean, math.inf)

    def _clipped(self, params: Tensor, clip: float, index: Tensor, mask: Tensor) -> Clipped:
        index, mask = index.to(self.device), mask.to(self.device)
        # The padded batch in parts of a public size, so that no batch needs much more memory than HELD.
        rows = max(1, HELD // (4 * (self.model.size // self.model.classes if self._ghost else self.model.size)))
        parts = zip(torch.split(index, rows), torch.split(mask, rows), strict=True)
        sums = [self._clipped_part(params, clip, *part) for part in parts]
        return replace(sums[0], total=torch.stack([part.total for part in sums]).sum(0)) if sums[1:] else sums[0]

    def _clipped_part(self, params: Tensor, clip: float, index: Tensor, mask: Tensor) -> Clipped:
        plan = self.releaser.plan
        if self._ghost:
            return outer_sum(*linear_factors(self.model, params, self.x[index], self.y[index]), clip, mask)
        gradients = example_gradients(self.model, params, self.x[index], self.y[index])
        if plan.mechanism == "discrete_gaussian":
            return integer_sum(gradients, clip, mask, grid_step(clip, plan.noise_multiplier))
        return clipped_sum(gradients, clip, mask)

    def _with_replacement(self, count: int) -> Tensor:
        # Assumption 2 of the paper: independent samples. The modulo bias is below n/2^64.
        words = self.releaser.random.words(count) % len(self.y)
        return torch.from_numpy(words.astype("int64"))
