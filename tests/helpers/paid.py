"""Released vectors and small models of data for tests, made through the only door there is."""

from __future__ import annotations

import math

from torch import Tensor

from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.clipping import Clipped
from tacit.privacy.release import Mechanism, Plan, Released, Releaser


def plan(
    mechanism: Mechanism = "gaussian",
    *,
    q: float = 0.25,
    batch: float = 4.0,
    z: float = 1.0,
    clip_min: float = 0.1,
    clip_max: float = 100.0,
    epsilon: float = 2.0,
    paper_epsilon: float = 0.1,
) -> Plan:
    """Return a plan with this z, which is not calibrated."""
    return Plan(mechanism, q, batch, z, clip_min, clip_max, epsilon, 1e-5, paper_epsilon)


def releaser(plan: Plan, *, seed: int | None = 1, ledger: Ledger | None = None) -> Releaser:
    """Return a releaser on a ledger in memory; seeded unless `seed` is None."""
    return Releaser(plan, ledger or Ledger(":memory:", "data"), Random(seed))


def released(vector: Tensor, clip: float = 1.5) -> Released:
    """Release `vector` as it is, without noise (and so without any guarantee)."""
    return releaser(plan("none", z=0.0)).release(clip, lambda: Clipped(vector, math.inf))
