"""An edge's privacy plan: its own configuration, which no message from a server can change."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, Literal, get_args

from tacit.errors import PrivacyError
from tacit.privacy.accounting import TAIL, History, calibrate, certified_pushes
from tacit.privacy.noise.grid import REACH, grid_step, noise_units

Private = Literal["gaussian", "discrete_gaussian", "knorm"]
Paper = Literal["paper", "paper:mean_clip", "paper:density", "paper:first_layer"]
Mechanism = Literal[Private, Paper, "none"]
NoiseAt = Literal["edge", "server"]
PRIVATE: Final = get_args(Private)
_ROWS_MARGIN = 1.25  # rows_max over n_public, if the plan does not give rows_max


@dataclass(frozen=True, slots=True)
class Plan:
    """One edge's privacy plan: public numbers that no message can change.

    mechanism: `gaussian`, `discrete_gaussian` or `knorm` (rigorous). Or `none`, or `paper` and its
    three defects one by one, `paper:mean_clip`, `paper:density`, `paper:first_layer`. These are not
    private, for every ε of their own. sampling_rate: q. batch: L = q·n_public, the fixed
    denominator. noise_multiplier: z = noise std / C. clip_min, clip_max: what C a server may ask
    for. epsilon, delta: the budget of the dataset's lifetime. paper_epsilon: ε per push in the
    paper's own (wrong) accounting, used by `paper` noise only. rows_max: the most rows that this
    edge may have, a public number, for which the shape of its batches is made. 0 is a quarter more
    than the n_public = L/q with which q is counted. noise_at: `server` trusts the aggregator with
    un-noised updates, one vector of norm C each. z and the budget are then those of `central()`,
    and no guarantee is claimed here, at the edge. passes: B disjoint batches of a pass over all
    rows (`release.tree`), whose q = 1/B is then no sampling that amplifies. 0 is Poisson batches.

    >>> plan = Plan.calibrated(
    ...     epsilon=2.0,
    ...     delta=1e-5,
    ...     pushes=100,
    ...     sampling_rate=0.05,
    ...     batch=50.0,
    ...     clip_min=0.1,
    ...     clip_max=1.0,
    ... )
    >>> plan.noise_multiplier
    1.345
    >>> plan.private, plan.pushes_left(history=())
    (True, 100)
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
    passes: int = 0

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
        """Return the plan with the least noise that keeps `pushes` releases in (ε, δ) by PLD."""
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
        """Whether what the edge releases has a guarantee: a private mechanism, at the edge."""
        return self.mechanism in PRIVATE and self.noise_at == "edge"

    @property
    def clip_is_bounded(self) -> bool:
        """Whether [clip_min, clip_max] binds, as it does wherever noise is scaled to C."""
        return self.mechanism in PRIVATE

    @property
    def charged_rate(self) -> float:
        """q of what the ledger is charged: 1 where batches are parts of a pass."""
        if self.passes:
            return 1.0
        return self.sampling_rate

    @property
    def declared(self) -> str:
        """The mechanism and where it adds noise, as Hello and a server's terms name it."""
        if self.noise_at == "edge":
            return self.mechanism
        return f"{self.mechanism}@{self.noise_at}"

    @property
    def most_rows(self) -> int:
        """The most rows that this edge may have."""
        return self.rows_max or math.ceil(_ROWS_MARGIN * self.batch / self.sampling_rate)

    @property
    def slots(self) -> int:
        """B, the public size of a batch.

        A draw from `most_rows` exceeds it with probability <= TAIL.
        """
        return padded_size(self.most_rows, self.sampling_rate)

    def check_rows(self, records: int) -> None:
        """Raise PrivacyError for more records than `most_rows`, or than 32-bit sums hold.

        Public shapes are made for `most_rows`; a larger batch would be cut, and no δ pays for that.
        """
        if self.private and records > self.most_rows:
            raise PrivacyError(
                f"rows_max={self.most_rows}: this edge has more rows, and takes no part"
            )
        if self.mechanism == "discrete_gaussian" and self.private:
            units = noise_units(self.noise_multiplier)
            rows = self.most_rows if self.passes else self.slots
            if rows * units / self.noise_multiplier + REACH * units >= 2**31:
                raise PrivacyError(
                    f"batch={self.batch}: the sum of {rows} rows does not fit 32 bits"
                )

    def central(self) -> Plan:
        """Return the plan by which a trusted aggregator releases one update of this edge.

        It adds noise zC to one vector of norm C, with q = 1. The unit of privacy is the edge: a
        neighbouring run replaces its update by zero. When an edge pushes is public, so sampling
        amplifies nothing.
        """
        return replace(self, sampling_rate=1.0, batch=1.0, noise_at="edge")

    def noise_variance(self, dims: int) -> float:
        """Return E||η||²/C² of one push of `dims` parameters.

        d(z/L)² for Gaussian noise, d(d+1)(z/L)² for `knorm`; for the paper's mechanisms its claim
        (9).
        """
        if self.mechanism.startswith("paper"):
            return 2 * (2 / self.batch) ** 2 / self.paper_epsilon**2  # 2ΔS²/ε² with ΔS = 2C/b
        if self.noise_at == "edge":
            batch = self.batch
        else:
            batch = 1.0
        return (
            dims
            * (self.noise_multiplier / batch) ** 2
            * (dims + 1 if self.mechanism == "knorm" else 1)
        )

    def step(self, clip: float) -> float | None:
        """Return the grid of a sum of integers at this clip; None for a sum of floats."""
        on_grid = self.mechanism == "discrete_gaussian"
        if on_grid:
            return grid_step(clip, self.noise_multiplier)
        return None

    def pushes_left(self, history: History) -> int | None:
        """Return how many releases still fit the budget after `history`.

        None: there is no guarantee, so no limit.
        """
        if not self.private:
            return None
        q = self.charged_rate
        z = self.noise_multiplier
        return certified_pushes(self.epsilon, self.delta, q, z, history, self.mechanism)


@cache
def padded_size(most: int, rate: float, tail: float = TAIL) -> int:
    """Return B slots that a Poisson(rate) batch of at most `most` rows rarely exceeds.

    It does so with probability <= tail. A function of public numbers: `most` is the most rows that
    an edge may have, never how many it has. Rounded up to a multiple of 16, which suits the
    processor's kernels.
    """
    if rate == 1:
        return most
    from scipy.stats import binom  # most processes that read a run file need not wait for it

    # By bisection, because scipy's binom.isf fails for tiny rates.
    bound = bisect_left(range(most), -tail, key=lambda size: -binom.sf(size, most, rate))
    return min(most, -(-bound // 16) * 16)
