"""Which models an edge refuses at run time."""

from __future__ import annotations

import math

from torch import Tensor

from tacit.models.vectors import LARGEST, learnable
from tacit.privacy.plan import Plan
from tacit.privacy.policy import Terms

MIN_CLIP = 2.0**-40  # far below any C of a real run, far above float32's smallest number


def refusal(
    plan: Plan, params: Tensor, clip: float, terms: Terms | None, rate: float | None = None
) -> str | None:
    """Return why an edge of this plan must not work on the model `params` (d,). None: it may.

    rate: the q that the run definition has for every edge; None: the plan's. An edge that states
    its own number of rows draws by the plan's q, and is charged for it, not for the server's.

    C must lie in the plan's bounds (nan, inf and 0 do not). Where none bind, noise still needs a C
    to scale by. The server's terms, where it states them, must be the plan's: mechanism, place of
    the noise, q, and z. A server that is to add the noise must state them. Parameters beyond ±10^6
    were not learnt: they are meant to make rows overflow.
    """
    low = plan.clip_min
    high = plan.clip_max
    if plan.clip_is_bounded and not learnable(params):
        return (
            f"params: one is not finite, or beyond {LARGEST:g}; this edge computes nothing "
            f"with such a model"
        )
    if plan.clip_is_bounded and not low <= clip <= high:
        return f"clip={clip}: this edge allows [{low}, {high}] only"
    if plan.mechanism != "none" and not MIN_CLIP <= clip < math.inf:
        return f"clip={clip}: this edge needs a finite one, {MIN_CLIP:.3g} at least"
    if terms is None:
        trusting = plan.noise_at == "server"
        if trusting:
            return "terms=None: only a server that states them gets updates without noise"
        return None
    stated = (
        ("mechanism", terms.mechanism, plan.declared),
        ("sampling_rate", terms.sampling_rate, plan.sampling_rate if rate is None else rate),
        ("noise_multiplier", terms.noise_multiplier, plan.noise_multiplier),
    )
    for field, theirs, ours in stated:
        if theirs is not None and theirs != ours:
            return f"{field}={theirs}: this edge works with {ours} only"
    return None
