"""VAFL's step sizes, of Theorems 1 to 4 and, for t > 1, 7 to 10 (arXiv:2007.06081); its batches.

| here        | paper   | meaning |
| ----------- | ------- | --- |
| smoothness  | L       | Lipschitz constant of the gradient of F |
| convexity   | μ       | strong convexity of F |
| delay       | D       | bound on every delay τ_{n,m} |
| tail, ratio | p̄, ρ   | P(τ = d) <= p̄·ρ^d (Assumption 5) |
| rarest      | min q_m | share of iterations of the least active party |
| scale       | c_η     | free constant |
| horizon     | K       | iterations |

The theorems' statements and their proofs disagree in two places, and the proofs are followed.
Theorem 2's step has min q_m where the statement has min sqrt(q_m). Theorem 3's has max_m sqrt(c_m)
where the statement has min. Both make the step that the proof covers: the first longer, with the
K_0 that goes with it, the second shorter.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


def delay_constant(tail: float, ratio: float) -> float:
    """Return c_m = p̄(ρ/(1-ρ)² + 2ρ²/(1-ρ)³) of appendix C, from Assumption 5."""
    return tail * (ratio / (1 - ratio) ** 2 + 2 * ratio**2 / (1 - ratio) ** 3)


def theorem_1(smoothness: float, delay: int, scale: float, horizon: int) -> float:
    """Return η = min{1/(4(1+D)L), c_η/sqrt(K)}, for bounded delay and a nonconvex loss."""
    return min(1 / (4 * (1 + delay) * smoothness), scale / math.sqrt(horizon))


def theorem_2(
    k: int, smoothness: float, convexity: float, delay: int, rarest: float, t: int = 1
) -> float:
    """Return η^k = 4/(μ·min q_m·(k + K_0)), for bounded delay and strong convexity.

    K_0 = 4(4(D+1)L + 2μ·min q_m·D)/(μ·t·min q_m), at the end of the proof; t > 1 as in Theorem 8.
    """
    start = (
        4
        * (4 * (delay + 1) * smoothness + 2 * convexity * rarest * delay)
        / (convexity * t * rarest)
    )
    return 4 / (convexity * rarest * (k + start))


def theorem_3(smoothness: float, tail: float, ratio: float, scale: float, horizon: int) -> float:
    """Return η for stochastic unbounded delay and a nonconvex loss.

    η = min{1/(4(1+max sqrt(c_m))L), c_η/sqrt(K)}, eq. (34).
    """
    return min(_longest(smoothness, tail, ratio), scale / math.sqrt(horizon))


def theorem_4(
    k: int,
    smoothness: float,
    convexity: float,
    tail: float,
    ratio: float,
    rarest: float,
    t: int = 1,
) -> float:
    """Return η^k = 2/(ν(k + K_0)), for stochastic unbounded delay and strong convexity.

    K_0 = 4(1+max sqrt(c_m))L/(tν). ν = min{(1-ρ)c_m/(η̄(20+c_m)), μ·q_m/2} with η̄ = 1/(4(1+max
    sqrt(c_m))L), at the end of the proof.
    """
    c = delay_constant(tail, ratio)
    longest = _longest(smoothness, tail, ratio)
    nu = min((1 - ratio) * c / (longest * (20 + c)), convexity * rarest / 2)
    return 2 / (nu * (k + 1 / (longest * t * nu)))


def _longest(smoothness: float, tail: float, ratio: float) -> float:
    return 1 / (4 * (1 + math.sqrt(delay_constant(tail, ratio))) * smoothness)


@dataclass(frozen=True, slots=True)
class StepRule:
    """The rule that gives η^k, and its constants.

    `constant` is the experiments' own rule (appendix G), the others are the theorems'. rate: η of
    `constant`, times its schedule's factor of (k, K). server_share: η_0/η_m of `constant`; a
    theorem's is 1 (t of Theorems 7 and 9).
    """

    rule: str = "constant"
    rate: float = 0.1
    server_share: float = 1.0
    smoothness: float = 1.0
    convexity: float = 0.001
    delay: int = 0
    tail: float = 1.0
    ratio: float = 0.5
    rarest: float = 1.0
    scale: float = 1.0
    horizon: int = 1
    t: int = 1
    factor: Callable[[int, int], float] | None = None

    def party(self, k: int) -> float:
        """Return η_m^k."""
        match self.rule:
            case "theorem_1":
                return theorem_1(self.smoothness, self.delay, self.scale, self.horizon) / self.t
            case "theorem_2":
                return theorem_2(
                    k, self.smoothness, self.convexity, self.delay, self.rarest, self.t
                )
            case "theorem_3":
                return (
                    theorem_3(self.smoothness, self.tail, self.ratio, self.scale, self.horizon)
                    / self.t
                )
            case "theorem_4":
                return theorem_4(
                    k, self.smoothness, self.convexity, self.tail, self.ratio, self.rarest, self.t
                )
        return self.rate * (1.0 if self.factor is None else self.factor(k, self.horizon))

    def server(self, k: int) -> float:
        """Return η_0^k: t·η_m^k in Theorems 7 and 9, which 1 and 3 are at t = 1."""
        if self.rule == "constant":
            return self.server_share * self.party(k)
        return self.party(k) * (self.t if self.rule in ("theorem_1", "theorem_3") else 1)


_USUAL = StepRule()


@dataclass(frozen=True, slots=True)
class Protocol:
    """The public numbers that all roles of a run share."""

    parties: int
    batch: int
    steps: StepRule = _USUAL
    t: int = 1
    coordinated: bool = (
        False  # all parties' s-th batch is the same: with t = M, synchronous block-wise SGD
    )
    max_delay: int | None = None
    seed: int = 1


def batch_rows(protocol: Protocol, party: int, step: int, records: int) -> Tensor:
    """Return the records (int64, ascending) of a party's `step`-th activation, from 1 (line 4).

    They are public, and the same when computed anew. Every epoch is a new random order, cut into
    batches of N_m; the rest that does not fill one is left out.
    """
    size = min(protocol.batch, records)
    epoch, place = divmod(step - 1, records // size)
    if protocol.coordinated:
        who = "all"
    else:
        who = str(party)
    digest = hashlib.sha256(f"vafl batch|{protocol.seed}|{who}|{epoch}".encode()).digest()
    order = torch.randperm(
        records, generator=torch.Generator().manual_seed(int.from_bytes(digest[:7]))
    )
    return order[place * size : (place + 1) * size].sort().values
