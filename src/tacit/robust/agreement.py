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

MARGIN = 0.25  # of the others' own agreement: what disagreement of unequal data is let be
FEWEST = 3  # edges of which a majority can be told
STARTS = 16  # of the search for the set that disagrees


def opponents(walks: Mapping[str, Walk], t: float) -> list[str]:
    """The edges, fewer than half, that work against the others beyond doubt; none where in doubt.

    They are the set whose products with all others are most negative in standard deviations. Three things must hold. The products' sum is below zero, and their mean below that
    of the products among the others, each by so many deviations that noise does it with probability
    e^-t at most (as if the sum of many products were normal). The mean is below -MARGIN times the
    others' own.
    """
    names = sorted(name for name, walk in walks.items() if walk.count)
    if len(names) < FEWEST:
        return []
    products, variances = _products([walks[name] for name in names])
    chosen = _most_negative(products, variances)
    # so many sets could have been chosen
    z = math.sqrt(2 * (t + len(names) * math.log(2)))
    return [names[one] for one in chosen] if _against(products, variances, chosen, z) else []


def _products(walks: list[Walk]) -> tuple[Tensor, Tensor]:
    """⟨S_i, S_j⟩ and its noise's variance, (K, K) each.

    n_i·‖S_j‖² + n_j·‖S_i‖² - n_i·n_j·d, as each sum's noise meets the other's mean and noise; never
    below what the noises alone do.
    """
    stacked = torch.stack([walk.total for walk in walks])
    counts = torch.tensor([float(walk.count) for walk in walks], dtype=torch.float64)
    gram, noise = stacked @ stacked.T, torch.outer(counts, counts) * stacked.shape[1]
    meets = torch.outer(counts, gram.diagonal())
    return gram, torch.maximum(meets + meets.T - noise, noise)


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


def _root(variance: Tensor) -> float:
    return math.sqrt(max(1.0, float(variance)))


def _cut(products: Tensor, variances: Tensor, chosen: list[int]) -> tuple[float, float, int]:
    """Sum, variance and number of the products between `chosen` and the rest."""
    rest = [one for one in range(len(products)) if one not in chosen]
    part, noise = products[chosen][:, rest], variances[chosen][:, rest]
    return float(part.sum()), float(noise.sum()), part.numel()


def _within(products: Tensor, variances: Tensor, chosen: list[int]) -> tuple[float, float, int]:
    """The same of the products among the rest."""
    rest = [one for one in range(len(products)) if one not in chosen]
    pairs = torch.triu_indices(len(rest), len(rest), 1)
    part, noise = products[rest][:, rest], variances[rest][:, rest]
    return (
        float(part[pairs[0], pairs[1]].sum()),
        float(noise[pairs[0], pairs[1]].sum()),
        pairs.shape[1],
    )


def _against(products: Tensor, variances: Tensor, chosen: list[int], z: float) -> bool:
    cut, noise, pairs = _cut(products, variances, chosen)
    own, own_noise, own_pairs = _within(products, variances, chosen)
    if not chosen or not own_pairs:
        return False
    cut_mean, own_mean = cut / pairs, own / own_pairs
    spread = math.sqrt(noise / pairs**2 + own_noise / own_pairs**2)
    return (
        cut < -z * math.sqrt(noise)
        and cut_mean - own_mean < -z * spread
        and cut_mean < -MARGIN * own_mean
    )
