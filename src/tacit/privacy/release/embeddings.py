"""The only way out of a vertical party: clipping, noise and ledger of embeddings in one class.

One record's embedding is one vector, with a visible record number: the server must know n to join
the parties' embeddings with the label. So nothing is amplified by sampling, against Theorem 6 of
VAFL (arXiv:2007.06081). The guarantee is per record and party: replacing record n's features at one
party moves each released vector of n by at most 2B.

| mode      | θ_m, and what is released                   | μ of one record at one party         |
|-----------|---------------------------------------------|--------------------------------------|
| `cached`  | frozen, public; once, then the same bytes   | 2B/c, for any number of epochs       |
| `fresh`   | frozen, public; anew at every use           | sqrt(R)·2B/c                         |
| `dp_sgd`  | trained by local DP-SGD; anew at every use  | sqrt(R·(2B/c)² + S·(2C/σ)²)          |
| `trained` | trained unprotected; anew at every use      | sqrt(1 + K)·2B/c: all depend on n    |
| `paper`   | trained; anew, of unclipped embeddings      | infinite: no bound on the sensitivity |
| `none`    | trained; anew, without noise                | infinite                             |

R: the most releases of any one record. S: the most gradient steps with any one record. K: vectors
released after the first step on raw data. (docs/privacy.md, "Vertical runs")
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import InitVar, dataclass
from typing import ClassVar, Final, Literal, Protocol

import torch
from torch import Tensor

from tacit.errors import BudgetSpent, PrivacyError
from tacit.privacy.accounting import History, Spend, gdp
from tacit.privacy.ledger import Charged, Ledger
from tacit.privacy.ledger.simulated import SimulatedLedger
from tacit.privacy.noise.mechanisms import gaussian
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.clipping import clipped_sum
from tacit.privacy.private_sum.denormals import flushed

Mode = Literal["cached", "fresh", "dp_sgd", "trained", "paper", "none"]
FROZEN: Final = ("cached", "fresh")  # θ_m never learns from private rows
# Float32 rounding of norm, factor and product is smaller than this, so ||h|| <= B.
_SLACK = 1.0 - 2.0**-16
_TINY = 2.0**-60
_SEAL: Final = object()


@dataclass(frozen=True, slots=True, eq=False)
class ReleasedEmbedding:
    """Embeddings that have been paid for.

    Only `EmbeddingReleaser` makes one; the wire takes nothing else. vectors: (b, e) float32, row i
    of record rows[i]. charged: the ledger's count and chain head after this release.
    """

    rows: Tensor
    vectors: Tensor
    spent: History
    charged: Charged
    seal: InitVar[object]

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise TypeError(
                "ReleasedEmbedding is made by EmbeddingReleaser only: everything else is private"
            )


@dataclass(frozen=True, slots=True)
class EmbeddingPlan:
    """One party's own privacy plan: public numbers that no message can change.

    bound: B, the norm that an embedding is cut to. noise_multiplier: z = c/(2B), so that one
    release is (1/z)-GDP. It is 2B, not B, because a record is replaced and not removed: its number
    stays visible. step_clip, step_multiplier: C and σ/(2C) of a gradient step on θ_m (`dp_sgd`).
    epsilon, delta: the budget of a record at this party, for the data's lifetime.
    """

    mode: Mode
    bound: float
    noise_multiplier: float
    epsilon: float
    delta: float
    step_clip: float = 1.0
    step_multiplier: float = 0.0
    noise_at: ClassVar[str] = "edge"  # a party trusts nobody with its embeddings

    @property
    def private(self) -> bool:
        """Whether a guarantee stands behind what is released."""
        return self.mode not in ("paper", "none")

    @property
    def std(self) -> float:
        """c of (11a), the standard deviation of every coordinate's noise.

        `paper`: on an unclipped vector.
        """
        return 2 * self.bound * self.noise_multiplier

    def noise_variance(self, width: int) -> float:
        """Return E||η||² of the noise on one embedding of `width` numbers."""
        return width * self.std**2

    def releases_left(self, history: History) -> int | None:
        """Return how many releases of each record the budget pays for after `history`.

        None: it has no guarantee.
        """
        if not self.private:
            return None
        left = gdp.mu_within(self.epsilon, self.delta) ** 2 - gdp.mu(history) ** 2
        return max(0, math.floor(left * self.noise_multiplier**2 * (1 + 1e-9)))

    @property
    def declared(self) -> str:
        """The mechanism as Hello names it."""
        return declared(self.mode)


def declared(mode: Mode) -> str:
    """Return the name of a `mode`'s mechanism in Hello and reports."""
    return f"embedding:{mode}"


class EmbeddingStore(Protocol):
    """A store of releases that are made only once; they are durable when `put` returns."""

    def get(self, name: str) -> Tensor | None:
        """Return what was released under `name`, or None."""

    def put(self, name: str, vectors: Tensor) -> None:
        """Store `vectors`, before anybody sees them."""


def clip_rows(embeddings: Tensor, bound: float) -> Tensor:
    """Return every row h·min(1, B/||h||₂), zero if it is not finite.

    It is differentiable, for the gradient through it. embeddings: (b, e) float32.

    Guarantee: each returned row has l2 norm at most `bound`, and depends on its own row alone.

    Raises ValueError unless 0 < bound < inf.
    """
    if not 0 < bound < math.inf:
        raise ValueError(f"bound={bound}: expected a finite number > 0")
    # Without branches, so that it can be mapped over examples; in float64, where the square of a
    # finite float32 row cannot overflow.
    finite = torch.isfinite(embeddings.detach().to(torch.float64).square().sum(1))
    embeddings = torch.where(finite[:, None], embeddings, 0.0)
    norms = embeddings.to(torch.float64).square().sum(1).clamp_min(_TINY).sqrt()
    factors = (bound * _SLACK / norms).clamp(max=1.0).to(embeddings.dtype)
    return embeddings * factors[:, None]


class EmbeddingReleaser:
    """A party's plan, ledger and randomness together; counts how often each record was released.

    Guarantee: the ledger holds the worst case over the records. It is charged, durably, before a
    release that takes some record's count above every count before. Counts live in memory only: a
    restarted process counts from zero *on top of* what the ledger says, so a crash can overstate
    and never refund.
    """

    def __init__(
        self,
        plan: EmbeddingPlan,
        ledger: Ledger,
        random: Random,
        records: int,
        store: EmbeddingStore | None = None,
    ) -> None:
        """Hold `records` aligned records, numbered from 0.

        store: where `release_once` stores its releases; None: nothing outlives this process.
        Raises PrivacyError for a ledger with releases of sampled batches: their adjacency is
        another one.
        """
        if any(row.sampling_rate < 1 for row in ledger.history() if row.count):
            raise PrivacyError(
                "ledger: this data has been released in sampled batches, whose cost is of one row "
                "more or less; a vertical party's is of one row replaced, and the two do not add up"
            )
        self._store = store
        self.plan = plan
        self.ledger = ledger
        self.random = random
        self._released = torch.zeros(records, dtype=torch.int64)
        self._stepped = torch.zeros(records, dtype=torch.int64)
        # Whether θ_m may depend on every record; after a restart it must be assumed.
        self._learned = plan.mode == "trained" and ledger.charged().count > 0

    def hold(self, records: int) -> None:
        """Count releases of records up to `records`, as a roster numbers them; no count falls."""
        more = torch.zeros(max(0, records - len(self._released)), dtype=torch.int64)
        self._released = torch.cat([self._released, more])
        self._stepped = torch.cat([self._stepped, more])

    def release(
        self, rows: Tensor, embed: Callable[[], Tensor], public: int = 0
    ) -> ReleasedEmbedding:
        """Charge the ledger, then compute `embed`, clip, add noise (11a) and seal the result.

        rows: int64 (b,) record numbers. `embed` returns their embeddings (b, e), row by row a
        function of that record's features (and of θ_m). public: the last so many rows are of people
        whose features are public by the party's own word. They are cut to B, and get no noise and
        no charge. That needs a frozen θ_m, or they would tell of other records.

        Guarantee: by mode, in the table above, (1/z)-GDP for each count of a record. The charge is
        durable before `embed` runs, because a crash inside it can depend on the data.

        Raises BudgetSpent before any work when the budget does not pay for it.

        Raises PrivacyError for a record number that is not one of this party's and for embeddings
        that do not match `rows`.
        """
        self._check(rows)
        if public and self.plan.mode not in FROZEN and self.plan.private:
            raise PrivacyError(f"mode={self.plan.mode}: public rows need a frozen θ_m")
        private = len(rows) - public
        if private:
            self._pay(rows[:private])
        self.random.renew()
        with flushed():
            embeddings = embed()
        if len(embeddings) != len(rows):
            raise PrivacyError(f"{len(embeddings)} embeddings for {len(rows)} records")
        noisy = self._noisy(embeddings[:private], private)
        if public:
            noisy = torch.cat([noisy, self._clear(embeddings[private:])])
        return ReleasedEmbedding(rows, noisy, self.ledger.history(), self.ledger.charged(), _SEAL)

    def release_once(
        self, name: str, rows: Tensor, embed: Callable[[], Tensor], public: int = 0
    ) -> ReleasedEmbedding:
        """Release the first time, and return the same bytes again later, at no further cost.

        `name` must stand for everything that the embeddings are a function of: records, features,
        θ_m and plan. A crash after the charge and before the bytes are stored has paid for what
        nobody will see.
        Raises as `release`.
        """
        if self._store is None:
            stored = None
        else:
            stored = self._store.get(name)
        if stored is None:
            released = self.release(rows, embed, public)
            if self._store is not None:
                self._store.put(name, released.vectors)
            return released
        if stored.dim() != 2 or len(stored) != len(rows):
            raise PrivacyError(
                f"embeddings {name}: kept are {tuple(stored.shape)}, for {len(rows)} records"
            )
        return ReleasedEmbedding(rows, stored, self.ledger.history(), self.ledger.charged(), _SEAL)

    def step(self, rows: Tensor, gradients: Callable[[], Tensor]) -> Tensor:
        """Return the sum (d,) of θ_m's `gradients`, as the mode allows it to be used.

        `dp_sgd`: `gradients` returns every record's own (b, d). Each is clipped to C and the sum
        gets N(0, σ²), charged durably before it is computed. This is (2C/σ)-GDP for each count of a
        record. Without such protection it may return fewer rows, already added up. From then on
        (`trained`) every release depends on every record. Raises BudgetSpent as `release`, and
        PrivacyError in the frozen modes and for a record named twice, which would move the sum
        twice.
        """
        self._check(rows)
        if len(torch.unique(rows)) < len(rows):
            raise PrivacyError(
                "records: one is named twice in a step, which would count twice for one charge"
            )
        plan = self.plan
        if plan.mode in FROZEN:
            raise PrivacyError(
                f"mode={plan.mode}: θ_m is public, and must not learn from private rows"
            )
        if plan.mode == "dp_sgd":
            self._charge_above(self._stepped, rows, plan.step_multiplier)
            mask = torch.ones(len(rows), dtype=torch.bool)
            self.random.renew()
            with flushed():
                total = clipped_sum(gradients(), plan.step_clip, mask).total.cpu()
            return gaussian(total, 2 * plan.step_clip * plan.step_multiplier, self.random).to(
                torch.float32
            )
        self._learned = True
        with flushed():
            return gradients().sum(0)

    # -- accounting --------------------------------------------------------------------------------

    def _check(self, rows: Tensor) -> None:
        if len(rows) == 0 or int(rows.min()) < 0 or int(rows.max()) >= len(self._released):
            raise PrivacyError(f"records: expected numbers in [0, {len(self._released)})")

    def _pay(self, rows: Tensor) -> None:
        plan = self.plan
        if not plan.private:
            self._charge(0.0, 1)
        elif plan.mode == "trained" and self._learned:
            # Any record moves every one of the b vectors by up to 2B: one Gaussian release of
            # sensitivity 2B·sqrt(b).
            self._charge(plan.noise_multiplier / math.sqrt(len(rows)), 1)
        else:
            self._charge_above(self._released, rows, plan.noise_multiplier)

    def _charge_above(self, counts: Tensor, rows: Tensor, multiplier: float) -> None:
        after = counts + torch.bincount(rows, minlength=len(counts))
        self._charge(multiplier, int(after.max()) - int(counts.max()))
        counts.copy_(after)

    def _charge(self, multiplier: float, count: int) -> None:
        plan = self.plan
        if count == 0:
            return
        after = [*self.ledger.history(), Spend(1.0, multiplier, count)]
        # Noise from a known seed has no guarantee; the ledger says so, and no budget binds. In a
        # simulation it binds all the same.
        binds = self.random.secret or isinstance(self.ledger, SimulatedLedger)
        if plan.private and binds and not gdp.within(after, plan.epsilon, plan.delta):
            raise BudgetSpent(
                f"epsilon={plan.epsilon}: the next release would pass this party's budget"
            )
        if plan.private:
            mechanism = "gaussian"
        else:
            mechanism = plan.mode
        self.ledger.charge(1.0, multiplier, mechanism, secret=self.random.secret, count=count)

    def _clear(self, embeddings: Tensor) -> Tensor:
        """Return embeddings of public people, as the server sees private ones but for the noise."""
        h = embeddings.detach().cpu().to(torch.float32)
        if self.plan.private:
            return clip_rows(h, self.plan.bound)
        return h

    def _noisy(self, embeddings: Tensor, count: int) -> Tensor:
        if embeddings.dim() != 2 or len(embeddings) != count:
            raise PrivacyError(f"embeddings of shape {tuple(embeddings.shape)} for {count} records")
        plan = self.plan
        h = embeddings.detach().cpu()
        if plan.mode == "none":
            return h.to(torch.float32)
        if plan.mode != "paper":
            h = clip_rows(h, plan.bound)
        return gaussian(h.flatten(), plan.std, self.random).to(torch.float32).view_as(h)
