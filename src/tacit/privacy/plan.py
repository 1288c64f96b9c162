"""The only door out of an edge: clipping, sampling, noise and ledger joined in one function, `release()`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import InitVar, dataclass
from typing import Final, Literal

import torch
from torch import Tensor

from tacit.errors import BudgetSpent, PrivacyError
from tacit.privacy import mechanisms
from tacit.privacy.accounting import History, calibrate, certified_pushes
from tacit.privacy.clipping import Clipped
from tacit.privacy.ledger import Ledger
from tacit.privacy.sampling import Random

Mechanism = Literal["gaussian", "none", "paper"]
_SEAL: Final = object()


@dataclass(frozen=True, slots=True, eq=False)
class Released:
    """A vector (d,) float32 that has been paid for. Only `release` makes one; the wire accepts nothing else."""

    vector: Tensor
    clip: float
    spent: History
    seal: InitVar[object]

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise TypeError("Released is made by privacy.plan.release() only: everything else is private")


@dataclass(frozen=True, slots=True)
class Plan:
    """One edge's own privacy configuration. Public numbers only; no message from a server can change them.

    mechanism: `gaussian` (rigorous), `none` (not private), `paper` (the paper's noise: not private).
    sampling_rate q, batch L = q·n_public (the fixed denominator), noise_multiplier z = noise std / C,
    [clip_min, clip_max]: what C a server may ask for; epsilon, delta: the budget of the dataset's lifetime.
    paper_epsilon: ε per push in the paper's own (wrong) accounting, used by `paper` noise only.
    """

    mechanism: Mechanism
    sampling_rate: float
    batch: float
    noise_multiplier: float
    clip_min: float
    clip_max: float
    epsilon: float
    delta: float
    paper_epsilon: float = 0.1

    @classmethod
    def calibrated(
        cls, *, epsilon: float, delta: float, pushes: int, sampling_rate: float, batch: float,
        clip_min: float, clip_max: float,
    ) -> Plan:  # fmt: skip
        """The Gaussian plan with the least noise whose `pushes` releases cost at most (ε, δ) by PLD."""
        z = calibrate(epsilon, delta, pushes, sampling_rate)
        return cls("gaussian", sampling_rate, batch, z, clip_min, clip_max, epsilon, delta)

    def noise_variance(self, dims: int) -> float:
        """E||η||²/C² of one push of `dims` parameters: d(z/L)², or what the paper claims for its own noise, (9)."""
        if self.mechanism == "paper":
            return 2 * (2 / self.batch) ** 2 / self.paper_epsilon**2  # 2ΔS²/ε², ΔS = 2C/b
        return dims * (self.noise_multiplier / self.batch) ** 2

    def pushes_left(self, history: History) -> int | None:
        """Releases that still fit the budget after `history` (None: no guarantee, so no limit)."""
        if self.mechanism != "gaussian":
            return None
        return certified_pushes(self.epsilon, self.delta, self.sampling_rate, self.noise_multiplier, history)


class Releaser:
    """An edge's plan, ledger and randomness together, with the certified number of pushes left."""

    def __init__(self, plan: Plan, ledger: Ledger, random: Random) -> None:
        """Certify how many pushes the ledger's history leaves (one PLD bisection, about 0.2 s)."""
        self.plan = plan
        self.ledger = ledger
        self.random = random
        self.left = plan.pushes_left(ledger.history())
        if not random.secret:
            self.left = None  # a known seed is no guarantee; the ledger says so, and nothing is left to protect

    def check_clip(self, clip: float) -> None:
        """Raise PrivacyError unless clip_min <= clip <= clip_max (nan, inf and 0 fail too)."""
        low, high = self.plan.clip_min, self.plan.clip_max
        if not low <= clip <= high:
            raise PrivacyError(f"clip={clip}: this edge allows [{low}, {high}] only")

    def release(self, clip: float, query: Callable[[], Clipped], *, paper_dims: slice | None = None) -> Released:
        """Charge the ledger, then compute `query`, add noise and seal the result: (sum + N(0, (zC)²I)) / L.

        `query` returns the clipped sum over a Poisson(q) batch; its sensitivity must not exceed `clip`.
        Guarantee (mechanism `gaussian`): one Poisson-subsampled Gaussian release at (q, z), add/remove adjacency,
        unit = one record; composed over the dataset's life in `ledger`. The charge is durable before `query` runs,
        because a crash inside it can depend on the data. The denominator is the public constant L, never |batch|.
        Raises BudgetSpent before any work when the certified cap is reached, PrivacyError for a clip outside the
        plan's bounds or a sum whose sensitivity is larger than promised (the charge stands).
        """
        plan = self.plan
        if plan.mechanism == "gaussian":
            self.check_clip(clip)
        if self.left is not None and self.left <= 0:
            raise BudgetSpent(f"epsilon={plan.epsilon}: the next push would pass this edge's budget")
        z = plan.noise_multiplier if plan.mechanism == "gaussian" else 0.0
        self.ledger.charge(plan.sampling_rate, z, plan.mechanism, secret=self.random.secret)
        if self.left is not None:
            self.left -= 1
        vector = self._noisy(query(), clip, paper_dims)
        return Released(vector.to(torch.float32), clip, self.ledger.history(), _SEAL)

    def _noisy(self, clipped: Clipped, clip: float, paper_dims: slice | None) -> Tensor:
        plan = self.plan
        if plan.mechanism == "none":
            return clipped.total
        if plan.mechanism == "paper":
            return self._paper(clipped.total, clip, paper_dims)
        if not clipped.sensitivity <= clip:  # so that nan fails too
            raise PrivacyError(f"sensitivity={clipped.sensitivity} is above the promised clip {clip}")
        return mechanisms.gaussian(clipped.total, plan.noise_multiplier * clip, self.random) / plan.batch

    def _paper(self, mean: Tensor, clip: float, dims: slice | None) -> Tensor:
        """MAPA Algorithm 1, lines 5 to 7: η of eq. (6) with λ = ΔS/ε_k, ΔS = 2C/b, on `dims` only (P4)."""
        noisy = mean.to(torch.float64).clone()
        part = noisy[dims or slice(None)]
        sensitivity = 2 * clip / self.plan.batch  # ΔS
        part += mechanisms.paper_noise(part.numel(), sensitivity / self.plan.paper_epsilon, self.random)
        return noisy
