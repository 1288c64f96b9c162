"""Whether edges agree: what hides within the law, as a gradient with its sign turned does.

Sums of honest updates point the same way where their data has something in common: the inner
product of two edges' sums is a product of means, plus noise of known size. Of edges that work
against the others, all products with the others are negative, among those others positive.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from tacit.robust.law import Walk

FEWEST = 3  # edges of which a majority can be told
STARTS = 16  # of the search for the set that disagrees


def opponents(walks: Mapping[str, Walk], t: float) -> list[str]:
    """The edges, fewer than half, that work against the others beyond doubt; none where in doubt.

    They are the set A whose products with all others are most negative in standard deviations. Four
    sums of products must be below zero, each by so many deviations that noise does it with
    probability e^-t at most (as if the sum of many products were normal):

    1. A with the others;
    2. the mean of these, less the mean among the others: A is not only as far from them as they are
       from each other;
    3. A with everybody, itself too: all that was done makes worse what A's updates speak of, to
       first order. Unequal data, pulled at from two sides, comes to rest where this is 0;
    4. the mean of these, less the others' mean: what noise and its correction make of all alike
       accuses nobody.
    """
    names = sorted(name for name, walk in walks.items() if walk.count)
    if len(names) < FEWEST:
        return []
    products, variances = _products([walks[name] for name in names])
    chosen = _most_negative(products, variances)
    # so many sets could have been chosen
    z = math.sqrt(2 * (t + len(names) * math.log(2)))
    found = max(_deviations(products, variances, chosen)) < -z
    return [names[one] for one in chosen] if found else []


def _products(walks: list[Walk]) -> tuple[Tensor, Tensor]:
    """⟨S_i, S_j⟩ less what noise adds to ‖S_i‖², and the noise's variance, (K, K) each.

    n_i·‖S_j‖² + n_j·‖S_i‖² - n_i·n_j·d, as each sum's noise meets the other's mean and noise; never
    below what the noises alone do. Of ‖S_i‖² it is twice as much.
    """
    stacked = torch.stack([walk.total for walk in walks])
    counts = torch.tensor([float(walk.count) for walk in walks], dtype=torch.float64)
    gram, noise = stacked @ stacked.T, torch.outer(counts, counts) * stacked.shape[1]
    meets = torch.outer(counts, gram.diagonal())
    variance = torch.maximum(meets + meets.T - noise, noise)
    own = torch.diag(variance.diagonal())
    return gram - torch.diag(counts) * stacked.shape[1], variance + own


def _most_negative(products: Tensor, variances: Tensor) -> list[int]:
    """The set, below half, whose cut from the rest is lowest in deviations: by single changes, from
    each of the `STARTS` edges that agree least with the rest and most with one another.
    """
    count = len(products)
    apart, noise = _off_diagonal(products), _off_diagonal(variances)
    alone = apart.sum(1) - 2 * apart.max(1).values
    starts = torch.argsort(alone, stable=True)[:STARTS].tolist()
    found = (_improved(apart, noise, one, (count - 1) // 2) for one in starts)
    _, chosen = min(found)
    return sorted(chosen)


def _improved(apart: Tensor, noise: Tensor, start: int, most: int) -> tuple[float, list[int]]:
    """The set that no single change makes lower, from the set of `start` alone; with its score.

    Of two opponents who agree much, each alone is in no conflict: so the first change counts
    whatever it does.
    """
    count = len(apart)
    inside = torch.zeros(count, dtype=torch.float64)
    inside[start] = 1.0
    best = (float(inside @ apart @ (1 - inside)) / _root(inside @ noise @ (1 - inside)), [start])
    for _ in range(2 * count):
        sign = 1 - 2 * inside  # 1: the edge would come in
        cut = inside @ apart @ (1 - inside) + sign * (apart @ (1 - 2 * inside))
        spread = inside @ noise @ (1 - inside) + sign * (noise @ (1 - 2 * inside))
        size = inside.sum() + sign
        score = torch.where((size >= 1) & (size <= most), cut / spread.clamp(min=1.0).sqrt(), 1e300)
        one = int(score.argmin())
        if not float(score[one]) < best[0]:
            return best
        inside[one] = 1 - inside[one]
        best = (float(score[one]), inside.nonzero().flatten().tolist())
    return best


def _off_diagonal(matrix: Tensor) -> Tensor:
    return matrix - torch.diag(matrix.diagonal())


def _deviations(products: Tensor, variances: Tensor, chosen: list[int]) -> list[float]:
    """The four sums of `opponents`, in standard deviations of their noise."""
    count = len(products)
    a = torch.zeros(count, dtype=torch.float64)
    a[chosen] = 1.0
    rest, everybody = 1 - a, torch.ones(count, dtype=torch.float64)
    size, others = float(a.sum()), float(rest.sum())
    cut, among = torch.outer(a, rest), torch.outer(rest, rest)
    among.fill_diagonal_(0.0)
    with_all, rest_with_all = torch.outer(a, everybody), torch.outer(rest, everybody)
    return [
        _deviation(products, variances, weights)
        for weights in (
            cut,
            cut / (size * others) - among / max(1.0, others * (others - 1)),
            with_all,
            with_all / size - rest_with_all / others,
        )
    ]


def _deviation(products: Tensor, variances: Tensor, weights: Tensor) -> float:
    """Σ w_ij·p_ij over its deviation; p_ij and p_ji are one number."""
    both = weights + weights.T
    both.diagonal().div_(2)
    both = torch.triu(both)
    return float((both * products).sum()) / _root((both * both * variances).sum())


def _root(variance: Tensor) -> float:
    return math.sqrt(max(1e-12, float(variance)))
