"""The only door out of an edge: clipping, sampling, noise and ledger joined in one function, `release()`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, replace
from functools import partial
from typing import Final, Literal, get_args

import torch
from torch import Tensor

from tacit.errors import BudgetSpent, PrivacyError
from tacit.privacy import mechanisms
from tacit.privacy.accounting import History, calibrate, certified_pushes
from tacit.privacy.clipping import Clipped, clipped_sum
from tacit.privacy.denormals import flushed
from tacit.privacy.ledger import Charged, Ledger
from tacit.privacy.sampling import Random, padded_size

Private = Literal["gaussian", "discrete_gaussian", "knorm"]
Paper = Literal["paper", "paper:mean_clip", "paper:density", "paper:first_layer"]
Mechanism = Literal[Private, Paper, "none"]
NoiseAt = Literal["edge", "server"]
PRIVATE: Final = get_args(Private)
_ROWS_MARGIN = 1.25  # rows_max over n_public, where nothing else is said
_SEAL: Final = object()


@dataclass(frozen=True, slots=True, eq=False)
class Released:
    """A vector that has been paid for. Only `release` makes one; the wire accepts nothing else.

    vector: (d,) float32, or (d,) int32 of which one unit is worth `scale` (a public number; 1 for float32).
    charged: the ledger's count and chain head after this release.
    """

    vector: Tensor
    scale: float
    clip: float
    spent: History
    charged: Charged
    seal: InitVar[object]

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise TypeError(
                "Released is made by privacy.plan.release() only: everything else is private"
            )


@dataclass(frozen=True, slots=True)
class Plan:
    """One edge's own privacy configuration. Public numbers only; no message from a server can change them.

    mechanism: `gaussian`, `discrete_gaussian` or `knorm` (rigorous); `none`; `paper` and its three defects one by
    one, `paper:mean_clip`, `paper:density`, `paper:first_layer` (not private, whatever their own ε says).
    sampling_rate q, batch L = q·n_public (the fixed denominator), noise_multiplier z = noise std / C,
    [clip_min, clip_max]: what C a server may ask for; epsilon, delta: the budget of the dataset's lifetime.
    paper_epsilon: ε per push in the paper's own (wrong) accounting, used by `paper` noise only.
    rows_max: the most rows that this edge may have, a public number, for which the shape of its batches is made; 0:
    a quarter more than the n_public = L/q that q is counted with.
    noise_at: `server` trusts the aggregator with un-noised updates, one vector of norm C each; z and the budget are
    then those of `central()`, and here, at the edge, no guarantee is claimed.
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
    noise_at: NoiseAt = "edge"
    rows_max: int = 0

    @classmethod
    def calibrated(
        cls,
        *,
        epsilon: float,
        delta: float,
        pushes: int,
        sampling_rate: float,
        batch: float,
        clip_min: float,
        clip_max: float,
        mechanism: Mechanism = "gaussian",
        noise_at: NoiseAt = "edge",
    ) -> Plan:
        """The plan with the least noise whose `pushes` releases cost at most (ε, δ) by PLD."""
        z = calibrate(epsilon, delta, pushes, sampling_rate, mechanism)
        return cls(
            mechanism,
            sampling_rate,
            batch,
            z,
            clip_min,
            clip_max,
            epsilon,
            delta,
            noise_at=noise_at,
        )

    @property
    def private(self) -> bool:
        """Whether a guarantee stands behind what is released under this plan, where it is released."""
        return self.mechanism in PRIVATE and self.noise_at == "edge"

    @property
    def clip_is_bounded(self) -> bool:
        """Whether [clip_min, clip_max] binds: wherever the noise is added, it is scaled to C."""
        return self.mechanism in PRIVATE

    @property
    def declared(self) -> str:
        """The mechanism with its place, as Hello and a server's terms name it."""
        return self.mechanism if self.noise_at == "edge" else f"{self.mechanism}@{self.noise_at}"

    @property
    def most_rows(self) -> int:
        """The most rows that this edge may have."""
        return self.rows_max or math.ceil(_ROWS_MARGIN * self.batch / self.sampling_rate)

    @property
    def slots(self) -> int:
        """B: the public size of a batch, which a draw from `most_rows` rows exceeds with probability TAIL at most."""
        return padded_size(self.most_rows, self.sampling_rate)

    def check_rows(self, records: int) -> None:
        """Raise PrivacyError for more records than `most_rows`, or than whose integers 32 bits hold.

        Public shapes are made for `most_rows`; a batch with more would be cut, which nobody has paid for.
        """
        if self.private and records > self.most_rows:
            raise PrivacyError(
                f"rows_max={self.most_rows}: this edge has more rows, and takes no part"
            )
        if self.mechanism == "discrete_gaussian" and self.private:
            units = mechanisms.noise_units(self.noise_multiplier)
            if self.slots * units / self.noise_multiplier + mechanisms.REACH * units >= 2**31:
                raise PrivacyError(
                    f"batch={self.batch}: the sum of {self.slots} rows does not fit 32 bits"
                )

    def central(self) -> Plan:
        """What a trusted aggregator does with one update of this edge: noise zC on one vector of norm C, q = 1.

        The unit is the edge: its update is replaced by zero. When it pushes is known, so nothing is amplified.
        """
        return replace(self, sampling_rate=1.0, batch=1.0, noise_at="edge")

    def noise_variance(self, dims: int) -> float:
        """E||η||²/C² of one push of `dims` parameters: d(z/L)², d(d+1)(z/L)² for `knorm`, or the paper's claim (9)."""
        if self.mechanism.startswith("paper"):
            return 2 * (2 / self.batch) ** 2 / self.paper_epsilon**2  # 2ΔS²/ε², ΔS = 2C/b
        batch = self.batch if self.noise_at == "edge" else 1.0
        return (
            dims
            * (self.noise_multiplier / batch) ** 2
            * (dims + 1 if self.mechanism == "knorm" else 1)
        )

    def pushes_left(self, history: History) -> int | None:
        """Releases that still fit the budget after `history` (None: no guarantee, so no limit)."""
        if not self.private:
            return None
        q, z = self.sampling_rate, self.noise_multiplier
        return certified_pushes(self.epsilon, self.delta, q, z, history, self.mechanism)


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """`count` local steps from the public `start` (d,): params ← advance(params, noisy gradient).

    delta: what is released is how far they led, not where.
    """

    clip: float
    count: int
    start: Tensor
    advance: Callable[[Tensor, Tensor], Tensor]
    delta: bool = False


class Releaser:
    """An edge's plan, ledger and randomness together, with the certified number of pushes left."""

    def __init__(self, plan: Plan, ledger: Ledger, random: Random) -> None:
        """Certify how many pushes the ledger's history leaves (one PLD bisection, about 0.2 s)."""
        self.plan = plan
        self.ledger = ledger
        self.random = random
        self.releases_left = plan.pushes_left(ledger.history())
        if not random.secret:
            self.releases_left = None  # a known seed is no guarantee; the ledger says so, and nothing is left to protect

    def check_clip(self, clip: float) -> None:
        """Raise PrivacyError unless clip_min <= clip <= clip_max (nan, inf and 0 fail too)."""
        if not self._allows(clip):
            raise PrivacyError(
                f"clip={clip}: this edge allows [{self.plan.clip_min}, {self.plan.clip_max}] only"
            )

    def _allows(self, clip: float) -> bool:
        return self.plan.clip_min <= clip <= self.plan.clip_max

    def release(
        self, clip: float, query: Callable[[], Clipped], *, paper_dims: slice | None = None
    ) -> Released:
        """Charge the ledger, then compute `query`, add noise and seal the result: (sum + noise) / L.

        `query` returns the clipped sum over a Poisson(q) batch; its sensitivity must not exceed `clip`.
        Guarantee (a mechanism of PRIVATE): one Poisson-subsampled release at (q, z), add/remove adjacency, unit =
        one record; composed over the dataset's life in `ledger`. The charge is durable before `query` runs, because
        a crash inside it can depend on the data. The denominator is the public constant L, never |batch|.
        Raises BudgetSpent before any work when the certified cap is reached, PrivacyError for a clip outside the
        plan's bounds or a sum whose sensitivity is larger than promised (the charge stands).
        """
        self._charge(clip, 1)
        vector, scale = self._noisy(self._computed(query), clip, paper_dims)
        return self._sealed(vector, scale, clip)

    def release_steps(self, steps: Steps, query: Callable[[Tensor], Clipped]) -> Released:
        """Local DP-SGD: `steps.count` times x ← advance(x, (query(x) + noise) / L) from the public `steps.start` (d,).

        Sealed: the last x (d,), or x - start with `steps.delta`. Guarantee: so many releases as `release` makes them,
        each on a fresh Poisson batch, adaptively composed; x is post-processing of them and of the start, as long as
        `advance` sees nothing private. All are charged, durably, before the first is computed: a crash may overstate,
        never understate. With noise_at = "server" the steps are not noised and x - start is cut to norm `clip`.
        Raises BudgetSpent, before any work, unless the budget pays for all steps; PrivacyError as `release`.
        """
        params = self._begin_steps(steps)
        for _ in range(steps.count):
            params = self._take_step(params, self._computed(partial(query, params)), steps)
        return self._end_steps(params, steps)

    def _computed(self, query: Callable[[], Clipped]) -> Clipped:
        """The query's answer, from fresh randomness, and computed so that no number slows the processor down."""
        self.random.renew()
        with flushed():
            return query()

    def _begin_steps(self, steps: Steps) -> Tensor:
        if self.plan.noise_at == "server" and not steps.delta:
            raise PrivacyError(
                "noise_at=server: only a model's distance to its base is bounded; send that"
            )
        self._charge(steps.clip, steps.count)
        return steps.start

    def _take_step(self, params: Tensor, clipped: Clipped, steps: Steps) -> Tensor:
        vector, scale = self._noisy(clipped, steps.clip, None)
        return steps.advance(params, vector.to(torch.float32) * scale if scale != 1.0 else vector)

    def _end_steps(self, params: Tensor, steps: Steps) -> Released:
        vector = params - steps.start if steps.delta else params
        if self.plan.noise_at == "server":
            vector = clipped_sum(
                vector[None], steps.clip, torch.ones(1, dtype=torch.bool)
            ).total.to(torch.float32)
        return self._sealed(vector, 1.0, steps.clip)

    def can_pay(self, clip: float, count: int = 1) -> bool:
        """Whether `count` releases with this clip would be refused neither for the budget nor for the clip."""
        return (self.releases_left is None or self.releases_left >= count) and (
            self._allows(clip) or not self.plan.clip_is_bounded
        )

    def _charge(self, clip: float, count: int) -> None:
        plan = self.plan
        if plan.clip_is_bounded:
            self.check_clip(clip)
        if self.releases_left is not None and self.releases_left < count:
            raise BudgetSpent(
                f"epsilon={plan.epsilon}: the next push would pass this edge's budget"
            )
        z = plan.noise_multiplier if plan.private else 0.0
        self.ledger.charge(
            plan.sampling_rate, z, plan.mechanism, secret=self.random.secret, count=count
        )
        if self.releases_left is not None:
            self.releases_left -= count

    def _sealed(self, vector: Tensor, scale: float, clip: float) -> Released:
        return Released(vector, scale, clip, self.ledger.history(), self.ledger.charged(), _SEAL)

    def _noisy(
        self, clipped: Clipped, clip: float, paper_dims: slice | None
    ) -> tuple[Tensor, float]:
        plan, z = self.plan, self.plan.noise_multiplier
        if plan.mechanism == "none" or plan.noise_at == "server":
            return clipped.total.to(torch.float32), 1.0
        if not plan.private:
            return self._paper(clipped.total, clip, paper_dims).to(torch.float32), 1.0
        if not clipped.sensitivity <= clip:  # so that nan fails too
            raise PrivacyError(
                f"sensitivity={clipped.sensitivity} is above the promised clip {clip}"
            )
        if plan.mechanism == "discrete_gaussian":
            return self._integers(clipped, clip)
        noise = mechanisms.gaussian if plan.mechanism == "gaussian" else mechanisms.knorm
        return (noise(clipped.total, z * clip, self.random) / plan.batch).to(torch.float32), 1.0

    def _integers(self, clipped: Clipped, clip: float) -> tuple[Tensor, float]:
        z = self.plan.noise_multiplier
        if clipped.step is None or clipped.step < mechanisms.grid_step(
            clip, z
        ):  # finer: noise of too few steps
            raise PrivacyError(
                f"step={clipped.step}: not the grid of clip {clip} and noise multiplier {z}"
            )
        noisy = mechanisms.discrete_gaussian(
            clipped.total, z, self.random
        )  # within 32 bits: `Plan.check_rows`
        return noisy.to(torch.int32), clipped.step / self.plan.batch

    def _paper(self, total: Tensor, clip: float, dims: slice | None) -> Tensor:
        """MAPA Algorithm 1, lines 5 to 7: η of eq. (6) with λ = ΔS/ε_k, ΔS = 2C/b, on `dims` only (P1, P2, P4).

        With one defect named, the rest is right: `density` and `first_layer` divide a per-example clipped sum,
        `mean_clip` and `first_layer` draw the d-dimensional density that (6) was meant to be.
        """
        mechanism, sensitivity = self.plan.mechanism, 2 * clip / self.plan.batch  # ΔS
        noisy = total.to(torch.float64).clone()
        part = noisy[dims or slice(None)] if mechanism in ("paper", "paper:first_layer") else noisy
        scale = sensitivity / self.plan.paper_epsilon
        if mechanism in ("paper", "paper:density"):
            part += mechanisms.paper_noise(part.numel(), scale, self.random)
        else:
            part.copy_(mechanisms.knorm(part, scale, self.random))
        return noisy


def release_together(
    releasers: Sequence[Releaser], clips: Sequence[float], query: Callable[[], list[Clipped]]
) -> list[Released]:
    """`release` of several edges in one process, whose sums `query` computes in one go: for the simulator.

    Guarantee: that of `release`, for each. Every ledger is charged before `query` runs. Raises as `release`.
    """
    for releaser, clip in zip(releasers, clips, strict=True):
        releaser._charge(clip, 1)
        releaser.random.renew()
    with flushed():
        sums = query()
    done = []
    for releaser, clip, clipped in zip(releasers, clips, sums, strict=True):
        vector, scale = releaser._noisy(clipped, clip, None)
        done.append(releaser._sealed(vector, scale, clip))
    return done


def release_steps_together(
    releasers: Sequence[Releaser],
    tasks: Sequence[Steps],
    query: Callable[[list[int], list[Tensor]], list[Clipped]],
) -> list[Released]:
    """`release_steps` of several edges in one process: `query(which, params)` is the next sum of each task in `which`.

    Guarantee: that of `release_steps`, for each. All is charged before `query` first runs. Raises as `release_steps`.
    """
    params = [
        releaser._begin_steps(steps) for releaser, steps in zip(releasers, tasks, strict=True)
    ]
    for step in range(max(steps.count for steps in tasks)):
        which = [number for number, steps in enumerate(tasks) if step < steps.count]
        for number in which:
            releasers[number].random.renew()
        with flushed():
            sums = query(which, [params[number] for number in which])
        for number, clipped in zip(which, sums, strict=True):
            params[number] = releasers[number]._take_step(params[number], clipped, tasks[number])
    return [
        releaser._end_steps(end, steps)
        for releaser, end, steps in zip(releasers, params, tasks, strict=True)
    ]
