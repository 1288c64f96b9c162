"""The only way out of an edge: what is released was charged, clipped and noised.

Idea. A push is a sum over rows, each clipped to C, plus noise that is scaled to zC. One row moves
the sum by C at most, so the noise hides whether the row is there. The `Ledger` counts every such
release of a dataset's life. From its history the accountant computes ε.

Order of the steps. `Releaser.release(clip, query)` goes through them from top to bottom:

1. Check C against the plan's bounds, and the budget. Either may refuse; nothing is spent then.
2. Charge the ledger, durably. A crash from here on refunds nothing, as it may depend on a row.
3. Renew the randomness, so that a copied machine repeats no batch and no noise.
4. Compute `query`: a private sum over a fresh Poisson batch, with denormal numbers flushed.
5. Check the sum's sensitivity against the promised C, add the mechanism's noise, divide by L.
6. Seal: only this module makes a `Released`, and the wire encodes nothing else.

What composes. Each release is one Poisson-subsampled mechanism at (q, z), add/remove adjacency. The
unit is one record, or all rows of a person if the data has units. Releases of one ledger compose
adaptively, for all models and clips that a server chose in between, as q and z are fixed by the
plan. `release_steps` is as many releases as it takes steps. An algorithm's later work on noisy
vectors is post-processing. Ledgers of disjoint people compose in parallel: a run's ε is the
largest. A retry sends the same bytes and costs nothing.

>>> import torch
>>> from tacit.privacy.private_sum.clipping import clipped_sum
>>> plan = Plan("gaussian", 0.5, 4.0, 1.0, 0.1, 1.0, epsilon=5.0, delta=1e-5, rows_max=8)
>>> releaser = Releaser(plan, Ledger(":memory:", "digits"), Random())
>>> gradients, drawn = torch.randn(8, 3), torch.tensor([True, False] * 4)
>>> released = releaser.release(1.0, lambda: clipped_sum(gradients, 1.0, drawn))
>>> released.vector.shape, released.charged.count, released.spent[0].noise_multiplier
(torch.Size([3]), 1, 1.0)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, replace
from functools import partial
from typing import Final, Self

import torch
from torch import Tensor

from tacit.errors import BudgetSpent, PrivacyError
from tacit.privacy.accounting import History, certified_pushes
from tacit.privacy.accounting.history import SIDES, Purpose, UnitSide, of_side
from tacit.privacy.ledger import Charged, Ledger
from tacit.privacy.ledger.chain import Charge
from tacit.privacy.noise import mechanisms
from tacit.privacy.noise.grid import grid_step
from tacit.privacy.noise.randomness import Random
from tacit.privacy.plan import Plan
from tacit.privacy.private_sum.clipping import Clipped, clipped_sum
from tacit.privacy.private_sum.denormals import flushed

_SEAL: Final = object()


@dataclass(frozen=True, slots=True, eq=False)
class Released:
    """A vector that the ledger was charged for.

    Only a `Releaser` makes one, and the wire accepts nothing else.

    vector: (d,) float32, or (d,) int32 of which one unit is worth `scale`, a public number (1 for
    float32). charged: the ledger's count and chain head after this release.
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
                "Released is made by Releaser.release() only: everything else is private"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """A task of `count` local steps from the public `start` (d,).

    A step is params ← advance(params, noisy gradient). delta: release the distance that the steps
    led, params - start, instead of params.
    """

    clip: float
    count: int
    start: Tensor
    advance: Callable[[Tensor, Tensor], Tensor]
    delta: bool = False


class Releaser:
    """An edge's plan, ledger and randomness together, the one maker of `Released`.

    It knows how many releases the budget still pays for (`releases_left`, None for no limit), those
    that are charged ahead among them. The budget is the plan's. On a ledger that several runs share
    it counts what this run has spent, and the data's lifetime, which the ledger holds, all.
    """

    def __init__(
        self,
        plan: Plan,
        ledger: Ledger,
        random: Random,
        purpose: Purpose | None = None,
        side: UnitSide = "both",
    ) -> None:
        """Compute how many releases the ledger's history leaves, which takes about 0.2 s.

        purpose: what the releases are for; None: what the ledger was opened for. side: of whose
        rows they are.
        """
        self.plan = plan
        self._purpose = purpose
        self._side = side
        self.ledger = ledger
        self.random = random
        self._left = plan.pushes_left(ledger.run_history(purpose or "training"))
        if not random.secret:
            # Noise from a known seed has no guarantee; the ledger says so, and no budget binds.
            self._left = None

    def beside(self, plan: Plan, purpose: Purpose, side: UnitSide) -> Self:
        """Return a releaser by another plan, with the same ledger and randomness."""
        return type(self)(plan, self.ledger, self.random, purpose, side)

    @property
    def releases_left(self) -> int | None:
        """Releases that the run's budget and the data's lifetime pay for; None: no limit."""
        limits = (self._left, self.ledger.lifetime_left(self._cost()))
        return min((limit for limit in limits if limit is not None), default=None)

    @releases_left.setter
    def releases_left(self, releases: int | None) -> None:
        self._left = releases

    @property
    def has_begun(self) -> bool:
        """Whether anything was charged that counts against the run's budget."""
        return bool(self.ledger.run_history(self._purpose or "training"))

    def bound(self, epsilon: float, delta: float) -> None:
        """Make no more releases than keep all that the ledger ever charged within (epsilon, delta).

        Of each side of its units, by PLD. A ledger that several runs charge at once has a filter.
        """
        if self._left is None:
            return
        cost = self._cost()
        history = self.ledger.history()
        for side in SIDES if self._side == "both" else (self._side,):
            limit = certified_pushes(
                epsilon, delta, cost.sampling_rate, cost.noise_multiplier,
                of_side(history, side), cost.mechanism,
            )  # fmt: skip
            self._left = min(self._left, limit)

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
        """Charge the ledger, then compute `query`, add noise and seal (sum + noise) / L.

        `query` returns the clipped sum over a Poisson(q) batch. Its sensitivity must not exceed
        `clip`.

        Guarantee (a mechanism of PRIVATE): one Poisson-subsampled release at (q, z), add/remove
        adjacency, unit = one record, composed over the dataset's life in `ledger`. The charge is
        durable before `query` runs, because a crash inside it can depend on the data. The
        denominator is the public constant L, never |batch|.

        Raises BudgetSpent before any work when the certified cap is reached, or the data's lifetime
        does not pay for it.

        Raises PrivacyError for a clip outside the plan's bounds or a sum whose sensitivity is
        larger than promised (the charge stands).
        """
        self._charge(clip, 1)
        vector, scale = self._noisy(self.computed(query), clip, paper_dims)
        return self._sealed(vector, scale, clip)

    def release_steps(self, steps: Steps, query: Callable[[Tensor], Clipped]) -> Released:
        """Take `steps.count` steps x ← advance(x, (query(x) + noise) / L) of local DP-SGD.

        They begin at `steps.start` (d,). Sealed is the last x (d,), or x - start with
        `steps.delta`.

        Guarantee: as many releases as steps, each as `release` makes it on a fresh Poisson batch,
        adaptively composed. x is post-processing of them and of the public start, as long as
        `advance` sees nothing private. All are charged, durably, before the first is computed. So a
        crash may overstate, never understate. With noise_at = "server" the steps are not noised and
        x - start is cut to norm `clip`.

        Raises BudgetSpent, before any work, unless the budget pays for all steps.

        Raises PrivacyError as `release`.
        """
        params = self._begin_steps(steps)
        for _ in range(steps.count):
            params = self._take_step(params, self.computed(partial(query, params)), steps)
        return self._end_steps(params, steps)

    def charge_pass(self, clip: float, count: int) -> None:
        """Charge the ledger for a pass of `count` releases that no sampling amplifies.

        For `release.tree` alone. Raises BudgetSpent, and PrivacyError for a clip outside the plan's
        bounds.
        """
        assert self.plan.passes
        self._charge(clip, count)

    def sealed_sum(self, total: Clipped, clip: float) -> Released:
        """Return a node of a pass that `charge_pass` has paid for, with noise, sealed.

        For `release.tree` alone. Raises PrivacyError as `release`.
        """
        assert self.plan.passes
        vector, scale = self._noisy(total, clip, None)
        return self._sealed(vector, scale, clip)

    def computed(self, query: Callable[[], Clipped]) -> Clipped:
        """Return the query's answer, from fresh randomness.

        It is computed so that no number slows the processor down.
        """
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
        if steps.delta:
            vector = params - steps.start
        else:
            vector = params
        if self.plan.noise_at == "server":
            vector = clipped_sum(
                vector[None], steps.clip, torch.ones(1, dtype=torch.bool)
            ).total.to(torch.float32)
        return self._sealed(vector, 1.0, steps.clip)

    def rehearse(self, clip: float, query: Callable[[], Clipped]) -> None:
        """Do the work of `release` on public rows, and forget the result: to measure its time.

        Nothing is charged, so `query` must not touch a private row.
        """
        self._noisy(self.computed(query), clip, None)

    def can_pay(self, clip: float, count: int = 1) -> bool:
        """Check whether budget and clip allow `count` releases with this clip."""
        return (self.releases_left is None or self.releases_left >= count) and (
            self._allows(clip) or not self.plan.clip_is_bounded
        )

    def next_charge(self, count: int) -> Charge | None:
        """Return what `Ledger.transaction` must charge to pay ahead for the next `count` releases.

        It is no more than the budget pays for; None: nothing is to be charged.
        """
        if self._left is None:
            pays = count
        else:
            pays = min(count, self._left)
        missing = pays - self.ledger.ahead
        if missing > 0:
            return replace(self._cost(), count=missing)
        return None

    def _cost(self) -> Charge:
        """Return the charge of one release."""
        plan = self.plan
        if plan.private:
            z = plan.noise_multiplier
        else:
            z = 0.0
        secret = self.random.secret
        purpose = self._purpose or "training"
        return Charge(plan.charged_rate, z, plan.mechanism, secret, 1, purpose, self._side)

    def _charge(self, clip: float, count: int) -> None:
        plan = self.plan
        if plan.clip_is_bounded:
            self.check_clip(clip)
        if self._left is not None and self._left < count:
            raise BudgetSpent(
                f"epsilon={plan.epsilon}: the next push would pass this edge's budget"
            )
        cost = self._cost()
        self.ledger.charge(
            cost.sampling_rate,
            cost.noise_multiplier,
            cost.mechanism,
            secret=cost.secret,
            count=count,
            purpose=self._purpose,
            side=self._side,
        )
        if self._left is not None:
            self._left -= count

    def _sealed(self, vector: Tensor, scale: float, clip: float) -> Released:
        return Released(vector, scale, clip, self.ledger.history(), self.ledger.charged(), _SEAL)

    def _noisy(
        self, clipped: Clipped, clip: float, paper_dims: slice | None
    ) -> tuple[Tensor, float]:
        plan = self.plan
        z = self.plan.noise_multiplier
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
        noisy = noise(clipped.total, z * clip, self.random)
        return noisy.div_(plan.batch).to(torch.float32), 1.0

    def _integers(self, clipped: Clipped, clip: float) -> tuple[Tensor, float]:
        z = self.plan.noise_multiplier
        # On a finer grid the noise would have too few steps.
        if clipped.step is None or clipped.step < grid_step(clip, z):
            raise PrivacyError(
                f"step={clipped.step}: not the grid of clip {clip} and noise multiplier {z}"
            )
        # The result fits 32 bits: `Plan.check_rows` has seen to it.
        noisy = mechanisms.discrete_gaussian(clipped.total, z, self.random)
        return noisy.to(torch.int32), clipped.step / self.plan.batch

    def _paper(self, total: Tensor, clip: float, dims: slice | None) -> Tensor:
        """Return η of MAPA's eq. (6), with λ = ΔS/ε_k and ΔS = 2C/b, on `dims` only.

        It is Algorithm 1, lines 5 to 7. With one defect named, the rest is right. `density` and
        `first_layer` divide a per-example clipped sum. `mean_clip` and `first_layer` draw the
        d-dimensional density that (6) was meant to be.
        """
        # ΔS
        mechanism = self.plan.mechanism
        sensitivity = 2 * clip / self.plan.batch
        noisy = total.to(torch.float64).clone()
        if mechanism in ("paper", "paper:first_layer"):
            part = noisy[dims or slice(None)]
        else:
            part = noisy
        scale = sensitivity / self.plan.paper_epsilon
        if mechanism in ("paper", "paper:density"):
            part += mechanisms.paper_noise(part.numel(), scale, self.random)
        else:
            part.copy_(mechanisms.knorm(part, scale, self.random))
        return noisy


def release_together(
    releasers: Sequence[Releaser], clips: Sequence[float], query: Callable[[], list[Clipped]]
) -> list[Released]:
    """Make the `release` of several edges whose sums one `query` computes, for the simulator.

    Guarantee: for each edge that of `release`. Every ledger is charged before `query` runs.
    Raises as `release`.
    """
    for releaser, clip in zip(releasers, clips, strict=True):
        releaser._charge(clip, 1)
        releaser.random.renew()
    with flushed():
        sums = query()
    released = []
    for releaser, clip, clipped in zip(releasers, clips, sums, strict=True):
        vector, scale = releaser._noisy(clipped, clip, None)
        released.append(releaser._sealed(vector, scale, clip))
    return released


def release_steps_together(
    releasers: Sequence[Releaser],
    tasks: Sequence[Steps],
    query: Callable[[list[int], list[Tensor]], list[Clipped]],
) -> list[Released]:
    """Make the `release_steps` of several edges in one process, for the simulator.

    `query(which, params)` is the next sum of each task whose number is in `which`.

    Guarantee: for each edge that of `release_steps`. All is charged before `query` first runs.

    Raises as `release_steps`.
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
