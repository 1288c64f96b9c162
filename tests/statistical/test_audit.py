"""The audit in small (reference/privacy.md 9, tests A and B): an attacker who sees only wire bytes.

A: one record, the canary, is in the data or not. From many pushes for either, a threshold chosen on one half and
Clopper-Pearson bounds on the other (false alarm 1e-3 each) give a lower bound on what one push leaks, as μ of
Gaussian DP and as ε. For the real edge it stays below the claim; for every mutant it is above. B: structure.
Sampling rate 1, so that the claim is that of the bare mechanism: μ = 1/z.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from tacit import wire
from tacit.algorithms.mapa import Edge
from tacit.datasets import Dataset
from tacit.messages import GlobalModel, Push
from tacit.models import build
from tacit.privacy.accounting import Spend, epsilon_pld
from tacit.privacy.clipping import Clipped
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms import paper_noise
from tacit.privacy.plan import Mechanism, Plan, Releaser
from tacit.privacy.sampling import Random
from tacit.vectors import mean_gradient

PUSHES, ALPHA, DELTA, SCHEMA = 1600, 1e-3, 1e-5, bytes(32)
ROWS, CLIP = 12, 1e-3
MODEL = build("logistic", (1, 1, 2), 2)  # four weights, two biases
WEIGHTS = slice(0, 4)
PARAMS = torch.tensor([80.0, 0.0, -80.0, 0.0, 0.0, 0.0])
CANARY = torch.tensor([0.0, 0.0, 0.0, 0.0, -1.0, 1.0]) / math.sqrt(2)  # the direction of its gradient, norm 700 C
Values = NDArray[np.float64]
Rates = NDArray[np.float64]


def data(*, canary: bool) -> Dataset:
    """Rows without any gradient (the model is sure of them), and the canary: only biases move for it."""
    x = torch.zeros(ROWS - 1 + canary, 1, 1, 2)
    x[: ROWS - 1, 0, 0, 0] = 1.0
    return Dataset(x, torch.zeros(len(x), dtype=torch.int64), 2, "audit")


class MeanClip(Edge):
    """MUTANT: clips the mean of the batch, as the paper does, with noise for clipped examples."""

    def _query(self, params: Tensor, clip: float) -> Clipped:
        mean = mean_gradient(self.model, params, self.x, self.y)
        mean = mean / max(1.0, float(mean.norm()) / clip)
        return Clipped(mean * self.releaser.plan.batch, clip)


class FirstLayerOnly(Releaser):
    """MUTANT: the noise is added to the weights, not to the biases."""

    def _noisy(self, clipped: Clipped, clip: float, paper_dims: slice | None) -> tuple[Tensor, float]:
        noisy, scale = super()._noisy(clipped, clip, paper_dims)
        noisy[WEIGHTS.stop :] = clipped.total[WEIGHTS.stop :] / self.plan.batch
        return noisy, scale


class Case(NamedTuple):
    """What runs at the edge, and what it claims."""

    z: float = 1.0
    real_z: float | None = None  # MUTANT: less noise than claimed
    mechanism: Mechanism = "gaussian"
    edge: type[Edge] = Edge
    releaser: type[Releaser] = Releaser
    rate: float = 1.0


HONEST_1, HONEST_4 = Case(1.0), Case(4.0)
HALF_NOISE = Case(1.0, real_z=0.5)
MEAN_CLIP = Case(4.0, edge=MeanClip)
FIRST_LAYER = Case(4.0, releaser=FirstLayerOnly)
PAPER = Case(1.0, mechanism="paper")
PAPER_EPSILON = 0.5


def black_box(case: Case, *, canary: bool, seed: int) -> Callable[[], bytes]:
    """edge(model, data) -> bytes, ready to be asked again and again."""
    plan = Plan(case.mechanism, case.rate, float(ROWS), case.real_z or case.z, 1e-4, 1.0, 1.0, DELTA, PAPER_EPSILON)
    releaser = case.releaser(plan, Ledger(":memory:", "audit"), Random(seed))
    edge = case.edge("edge", data(canary=canary), MODEL, releaser)
    message = GlobalModel(3, PARAMS, CLIP)

    def ask() -> bytes:
        (sent,) = edge.on_message(message)
        assert isinstance(sent.message, Push)
        return wire.up("run", 1, sent.message, SCHEMA)

    return ask


@cache
def pushes(case: Case, canary: bool) -> Tensor:
    """(PUSHES, d): what the attacker decodes."""
    ask = black_box(case, canary=canary, seed=100 + canary)
    vectors = []
    for _ in range(PUSHES):
        tensor = wire.decode(ask()).tensor
        assert tensor is not None
        vectors.append(tensor)
    return torch.stack(vectors).to(torch.float64)


# -- test A ---------------------------------------------------------------------------------------------------------


def lower(hits: int, count: int) -> float:
    return float(stats.beta.ppf(ALPHA, hits, count - hits + 1)) if hits else 0.0


def upper(hits: int, count: int) -> float:
    return float(stats.beta.ppf(1 - ALPHA, hits + 1, count - hits)) if hits < count else 1.0


def bounds(inside: Values, outside: Values, threshold: float) -> tuple[float, float]:
    """(μ, ε) that the test `value > threshold` proves, with Clopper-Pearson."""
    hits = lower(int((inside > threshold).sum()), len(inside))
    alarms = upper(int((outside > threshold).sum()), len(outside))
    mu = float(stats.norm.ppf(hits) - stats.norm.ppf(alarms)) if hits > 0 and alarms < 1 else 0.0
    epsilon = math.log((hits - DELTA) / alarms) if hits > DELTA else 0.0
    return max(mu, 0.0), max(epsilon, 0.0)


def proven(inside: Values, outside: Values) -> tuple[float, float]:
    """The better of both directions; thresholds from the first half of the values, bounds from the second."""
    best = (0.0, 0.0)
    for left, right in ((inside, outside), (-outside, -inside)):
        half = len(left) // 2
        candidates = np.quantile(np.concatenate((left[:half], right[:half])), np.linspace(0.01, 0.99, 99))
        for kind in (0, 1):
            tried = [bounds(left[:half], right[:half], float(threshold))[kind] for threshold in candidates]
            found = bounds(left[half:], right[half:], float(candidates[int(np.argmax(tried))]))
            best = max(best[0], found[0]), max(best[1], found[1])
    return best


def along_the_canary(case: Case) -> tuple[float, float]:
    return proven((pushes(case, True) @ CANARY.double()).numpy(), (pushes(case, False) @ CANARY.double()).numpy())


def by_distance(case: Case, shift: Tensor) -> tuple[float, float]:
    """For noise that is radial: nearer to `shift` than to the origin."""

    def nearer(points: Tensor) -> Values:
        values: Values = (points.norm(dim=1) / (points - shift).norm(dim=1)).log().numpy()
        return values

    return proven(nearer(pushes(case, True)), nearer(pushes(case, False)))


def claim(case: Case) -> tuple[float, float]:
    return 1 / case.z, epsilon_pld([Spend(1.0, case.z, 1)], DELTA)


@pytest.mark.parametrize("case", [HONEST_1, HONEST_4])
def test_the_real_edge_leaks_no_more_than_it_claims(case: Case) -> None:
    mu, epsilon = along_the_canary(case)
    assert mu <= claim(case)[0]
    assert epsilon <= claim(case)[1]


def test_the_audit_has_power() -> None:
    assert along_the_canary(HONEST_1)[0] > 0.5  # of 1: a test that always says 0 would pass anything


@pytest.mark.parametrize("mutant", [HALF_NOISE, MEAN_CLIP, FIRST_LAYER])
def test_a_mutant_leaks_more_than_it_claims(mutant: Case) -> None:
    assert along_the_canary(mutant)[0] > claim(mutant)[0]


@pytest.mark.parametrize("mutant", [MEAN_CLIP, FIRST_LAYER])
def test_the_coarse_mutants_break_the_claimed_epsilon_too(mutant: Case) -> None:
    assert along_the_canary(mutant)[1] > claim(mutant)[1]


def test_the_papers_mechanism_leaks_more_than_it_claims() -> None:
    assert by_distance(PAPER, CLIP * CANARY.double())[1] > PAPER_EPSILON


def test_the_papers_noise_alone_leaks_more_than_it_claims() -> None:
    """Even with a sensitivity that holds: two points ΔS apart in 200 dimensions, at 0.5 per release."""
    random, shift = Random(1), torch.zeros(200, dtype=torch.float64)
    shift[0] = 1.0
    noise = torch.stack([paper_noise(200, 1 / PAPER_EPSILON, random) for _ in range(2 * PUSHES)])

    def nearer(points: Tensor) -> Values:
        values: Values = (points.norm(dim=1) / (points - shift).norm(dim=1)).log().numpy()
        return values

    assert proven(nearer(noise[:PUSHES] + shift), nearer(noise[PUSHES:]))[1] > 4 * PAPER_EPSILON


def test_the_audit_raises_no_false_alarm_in_thirty_runs() -> None:
    for seed in range(30):
        rng = np.random.default_rng(seed)
        mu, epsilon = proven(rng.normal(1.0, 1.0, PUSHES), rng.normal(0.0, 1.0, PUSHES))
        assert mu <= 1.0
        assert epsilon <= claim(HONEST_1)[1]


# -- test B ---------------------------------------------------------------------------------------------------------


def uneven(case: Case) -> list[int]:
    """Coordinates whose noise is more than 10 % off zC/L (six standard deviations at this many pushes)."""
    spread = pushes(case, True).std(dim=0) / (case.z * CLIP / ROWS)
    return [int(column) for column in (spread - 1).abs().gt(0.1).nonzero()]


def test_every_coordinate_on_the_wire_carries_the_claimed_noise() -> None:
    assert uneven(HONEST_1) == uneven(HONEST_4) == []
    assert uneven(FIRST_LAYER) == [4, 5]
    assert uneven(HALF_NOISE) == list(range(6))


def test_the_noise_of_successive_pushes_is_uncorrelated() -> None:
    noise = pushes(HONEST_1, False) / (CLIP / ROWS)
    correlations = noise[:-1].T @ noise[1:] / (PUSHES - 1)
    assert float(correlations.abs().max()) < 5 / math.sqrt(PUSHES)


@pytest.mark.parametrize("rate", [1.0, 0.3, 1e-9])
def test_everything_but_the_vector_is_the_same_with_and_without_the_record(rate: float) -> None:
    seen = []
    for canary in (False, True):
        ask = black_box(Case(rate=rate), canary=canary, seed=1)
        payloads = [ask() for _ in range(20)]
        metas = [wire.decode(payload).meta for payload in payloads]
        for meta in metas:
            meta.ClearField("sha256")  # of the noisy vector
        seen.append(([len(payload) for payload in payloads], [meta.SerializeToString() for meta in metas]))
    assert seen[0] == seen[1]


def test_an_empty_batch_looks_like_any_other() -> None:
    empty = Case(rate=1e-9)
    assert uneven(empty) == []
    assert len(black_box(empty, canary=True, seed=1)()) == len(black_box(HONEST_1, canary=True, seed=1)())
    mean = pushes(empty, True).mean(dim=0) / (CLIP / ROWS)
    assert float(mean.abs().max()) < 5 / math.sqrt(PUSHES)
