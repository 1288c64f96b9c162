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
OPPOSED, TOGETHER = -0.55, 0.5  # mean cosines: with the others, among the others
# Deviations, of sums since the beginning. Later ones miss what honest data has gained at first.
WORSE, BEHIND = -1.0, -2.5
WORSE_LATER, BEHIND_LATER = -5.0, -5.0
STARTS = 16  # of the search for the set that disagrees


def opponents(
    walks: Mapping[str, Walk], t: float, *, worse: float = WORSE, behind: float = BEHIND
) -> list[str]:
    """The edges, fewer than half, that work against the others beyond doubt; none where in doubt.

    They are the set A whose products with all others are most negative in standard deviations. Two
    things exclude noise, each but for probability e^-t (as if the sum of many products were
    normal): A's products with the others are below 0, and their mean below that among the others.
    Four exclude unequal data, by margins that were measured (docs/attacks.md), not proven:

    1. A points away from the others (OPPOSED), who are of one mind (TOGETHER): data that is unequal
       all round has many directions;
    2. what all did makes worse what A's updates speak of, to first order (`worse`, in deviations).
       Honest data that is pulled at from two sides comes to rest where this is 0, having gained;
    3. A's share of that is below the others' (`behind`): what noise and its correction make of all
       alike accuses nobody.
    """
    names = sorted(name for name, walk in walks.items() if walk.count)
    if len(names) < FEWEST:
        return []
    products, variances = _products([walks[name] for name in names])
    chosen = _most_negative(products, variances)
    # so many sets could have been chosen
    z = math.sqrt(2 * (t + len(names) * math.log(2)))
    cut, contrast, gained, less = _deviations(products, variances, chosen)
    opposed, together = _cosines(products, chosen)
    noise = max(cut, contrast) >= -z
    unequal = opposed > OPPOSED or together < TOGETHER or gained > worse or less > behind
    return [] if noise or unequal else [names[one] for one in chosen]


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


def _cosines(products: Tensor, chosen: list[int]) -> tuple[float, float]:
    """The mean product between `chosen` and the rest, and among the rest, over mean lengths."""
    rest = [one for one in range(len(products)) if one not in chosen]
    lengths = products.diagonal().clamp(min=1.0)
    ours, theirs = float(lengths[chosen].mean()), float(lengths[rest].mean())
    among = _off_diagonal(products[rest][:, rest])
    own = float(among.sum()) / max(1, len(rest) * (len(rest) - 1))
    return float(products[chosen][:, rest].mean()) / math.sqrt(ours * theirs), own / theirs


def _deviation(products: Tensor, variances: Tensor, weights: Tensor) -> float:
    """Σ w_ij·p_ij over its deviation; p_ij and p_ji are one number."""
    both = weights + weights.T
    both.diagonal().div_(2)
    both = torch.triu(both)
    return float((both * products).sum()) / _root((both * both * variances).sum())


def _root(variance: Tensor) -> float:
    return math.sqrt(max(1e-12, float(variance)))
