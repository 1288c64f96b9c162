"""The subject of the audit: a real edge behind the wire, of which the audit sees the bytes only.

An attacker chooses the model that the edge works on, and reads what it sends. An `EdgeAdapter` is
one edge of one algorithm. Its messages are read as a noisy sum of clipped gradients, divided by L,
for every use that the algorithm makes of that sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.base.edge_task import EdgeTask
from tacit.datasets.own.dealing import edges_of
from tacit.models import Layered, Model
from tacit.privacy.accounting import Spend, epsilon_pld
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.choice import Ways
from tacit.privacy.release import Mechanism, Plan, Releaser

DELTA = 1e-5
SCHEMA = bytes(32)
RUN = "audit"
EDGE = "edge-0"
# CLIPS: the edge's own bounds
CLIP = 1e-3
CLIPS = (1e-4, 1.0)
# ROWS: records, the canary among them. MOST: slots of a batch of all; public, as without the
# canary.
ROWS = 12
MOST = 16
NARROW = Layered("audit", (1, 1, 2), 2, hidden=(1,))  # 7 parameters
WIDE = Layered("audit", (1, 1, 16), 2, hidden=(8,))  # 154
LOUD = 1000.0  # η of local steps: so large that float32 models hold each step exactly enough

Ask = Callable[[], bytes]
Maker = Callable[..., EdgeRole]
Deal = Callable[..., npt.NDArray[np.int64]]  # a function like `edges_of`
# The message that Ask makes: as sent, and as sent again after a restart.
Resend = Callable[[Ask], tuple[bytes, bytes]]


class Randomness:
    """The source of the audited edges' randomness: the system, or seeds one by one in tests."""

    def __init__(self, seed: int | None = None) -> None:
        if seed is None:
            self._seed = None
        else:
            self._seed = seed << 20

    def random(self, kind: type[Random] = Random) -> Random:
        """Return a stream that no other call gets."""
        if self._seed is None:
            return kind()
        self._seed += 1
        return kind(self._seed)


@dataclass(frozen=True)
class Subject:
    """An edge and what it claims.

    It is honest as it stands, and a mutant with one class replaced (mutants*.py).

    algorithm: whose message is audited (by `adapters.adapter`). task: instead, what an edge of a
    user's own algorithm computes. z: as in `Plan`. It is 1/ε of one push for the pure mechanisms,
    and for the paper's, in its own accounting. steps: H, the releases that one message is made of.
    learning_rate: η of them. rows_alone: as for `private_sum`, by default what `tacit edge` does.
    False: what it does under TACIT_ROWS_ALONE=false.
    """

    name: str
    algorithm: str = "mapa"
    task: EdgeTask | None = None
    mechanism: Mechanism = "gaussian"
    z: float = 1.0
    rate: float = 1.0
    batch: float = ROWS
    most: int = MOST
    steps: int = 1
    learning_rate: float = LOUD
    model: Model = NARROW
    edge: Maker | None = None  # instead of the algorithm's own edge
    ways: Ways | None = None  # instead of the algorithm's own ways of a private sum
    rows_alone: bool = True
    compiled: bool = False  # whether it is a mutant of drawn rows alone, which needs numba
    releaser: type[Releaser] = Releaser
    random: type[Random] = Random
    ledger: type[Ledger] = Ledger
    resend: Resend | None = None
    deal: Deal = edges_of
    honest: bool = True

    def __str__(self) -> str:
        return self.name

    def but(self, **changes: object) -> Subject:
        """Return the same subject with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]

    @property
    def delta(self) -> float:
        """The claimed δ."""
        if self.pure:
            return 0.0
        return DELTA

    @property
    def pure(self) -> bool:
        """Whether the claim is pure ε-DP."""
        return self.mechanism == "knorm" or self.mechanism.startswith("paper")

    @property
    def mu(self) -> float | None:
        """The claimed μ of one message; None where there is no claim in μ (q < 1, pure ε)."""
        if self.pure or self.rate < 1:
            return None
        return math.sqrt(self.steps) / self.z

    @property
    def epsilon(self) -> float:
        """The claimed ε of one message."""
        if self.pure:
            return 1 / self.z
        return epsilon_pld([Spend(self.rate, self.z, self.steps, self.mechanism)], DELTA)

    @property
    def std(self) -> float:
        """The claimed noise of one coordinate of a message with C = CLIP."""
        if self.mechanism == "knorm":
            spread = math.sqrt(self.model.size + 1)
        else:
            spread = 1.0
        return math.sqrt(self.steps) * spread * self.z * CLIP / self.batch

    @property
    def kurtosis(self) -> float:
        """The kurtosis of that noise."""
        d = self.model.size
        # E R⁴·E u⁴ / (E R²·E u²)², of radius R and a direction's coordinate u.
        if self.mechanism == "knorm":
            return 3 * (d + 3) / (d + 1)
        return 3.0

    def plan(self) -> Plan:
        """Return the edge's plan, without a budget: the audit asks as often as it needs."""
        return Plan(
            self.mechanism,
            self.rate,
            self.batch,
            self.z,
            *CLIPS,
            math.inf,
            DELTA,
            paper_epsilon=1 / self.z,
            rows_max=self.most,
            passes=0 if self.task is None else self.task.passes,
        )
