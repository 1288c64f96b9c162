"""Find edges that work against the others although each one's updates keep the law of honest ones.

A gradient with its sign turned is one: its length and its noise are an honest edge's. Sums of
honest updates point the same way if their data has something in common. The inner product of two
edges' sums is a product of means, plus noise of known size. For edges that work against the others,
all products with the others are negative, while products among those others are positive.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from tacit.robust.law import Walk

FEWEST = 3  # edges that can have a majority
# Mean cosines: at most OPPOSED between accused and others, at least TOGETHER among the others.
OPPOSED = -0.55
TOGETHER = 0.5
# Limits in standard deviations. WORSE and BEHIND are for sums since the beginning. The stricter two
# are for sums of a later block, which lack what honest data gained at the beginning.
WORSE = -1.0
BEHIND = -2.5
WORSE_LATER = -5.0
BEHIND_LATER = -5.0
# For edges that all updates together work against: the fewest edges of a run, a limit in standard
# deviations, and mean cosines with the closest half of the others: at most AWAY to become one of
# them, at most STILL_AWAY to stay one.
SEVERAL = 5
WORSENED = -5.0
AWAY = -0.2
STILL_AWAY = -0.05
STARTS = 16  # starting points of the search for the set that disagrees


def opponents(
    walks: Mapping[str, Walk], t: float, *, worse: float = WORSE, behind: float = BEHIND
) -> list[str]:
    """Return the edges, fewer than half, that work against the others beyond doubt, or none.

    The candidates are the set A whose products with all others are most negative, in standard
    deviations. Two tests rule out noise, each wrong with probability e^-t at most (the sum of many
    products is taken as normal). A's products with the others are below 0, and their mean is below
    the mean among the others. Four more rule out unequal data, by margins that were measured
    (docs/attacks.md), not proven:

    1. A's updates point away from the others' (OPPOSED), also from the half of them that they are
       least against. So a minority that lies does not bring the data of one edge under suspicion.
    2. The others point the same way (TOGETHER). Where every edge's data differs, they do not.
    3. The sum of all updates runs against A's (`worse`, in deviations). Where honest edges pull two
       ways, the model comes to rest at 0 here, after both have gained.
    4. A's mean product with everybody is below the others' (`behind`, in deviations). So noise and
       its correction, which shift all products alike, accuse nobody.
    """
    names = sorted(name for name, walk in walks.items() if walk.count)
    if len(names) < FEWEST:
        return []
    products, variances = _products([walks[name] for name in names])
    chosen = _most_negative(products, variances)
    # A union bound over the 2^K sets that the search could have chosen.
    z = math.sqrt(2 * (t + len(names) * math.log(2)))
    cut, contrast, gained, less = _deviations(products, variances, chosen)
    opposed, together = _cosines(products, chosen)
    noise = max(cut, contrast) >= -z
    unequal = opposed > OPPOSED or together < TOGETHER or gained > worse or less > behind
    if noise or unequal:
        return []
    return [names[place] for place in chosen]


def worsened(walks: Mapping[str, Walk], t: float) -> dict[str, float]:
    """Return the edges that pull where all updates together lead away from, and how far they do.

    The number is the mean cosine of the edge's updates with the closest half of the others'. It is
    for edges that are not of one mind (TOGETHER); where all others are, `opponents` decides.

    The sum of all updates, the edge's own among them, runs against the edge's (WORSENED), and its
    sign is the same without any one of the others. An honest edge's own pull is in that sum, and
    the model knew nothing at first, so its data gained. Where the model comes to rest, the sum
    stays on its side, however different its data is. One liar that pulls against an honest edge
    does not change that. At rest the honest updates together lead the other way, and they are the
    sum without the liar's. An edge that sends the others' mean with its sign turned never gains.
    Noise is ruled out as by `opponents`, unequal data by margins that were measured. Of fewer than
    SEVERAL edges the closest half would be one edge or a liar, so there is none.
    """
    names = sorted(name for name, walk in walks.items() if walk.count)
    if len(names) < SEVERAL:
        return {}
    products, variances = _products([walks[name] for name in names])
    z = math.sqrt(2 * (t + math.log(len(names))))
    cosines = {}
    gained, without = _gains(products, variances)
    for place in ((gained <= WORSENED) & (without < 0)).nonzero().flatten().tolist():
        cut, _, _, less = _deviations(products, variances, [place])
        closest, together = _cosines(products, [place])
        if cut < -z and less <= BEHIND_LATER and together < TOGETHER:
            cosines[names[place]] = closest
    return cosines


def _gains(products: Tensor, variances: Tensor) -> tuple[Tensor, Tensor]:
    """Return each edge's product with the sum of all, in deviations of noise; (K,) twice.

    The second is the largest of those without any one of the others.
    """
    sums = products.sum(1, keepdim=True) - _off_diagonal(products)
    noise = variances.sum(1, keepdim=True) - _off_diagonal(variances)
    gained = sums / noise.clamp(min=1e-12).sqrt()
    return gained.diagonal(), gained.max(1).values


def _products(walks: list[Walk]) -> tuple[Tensor, Tensor]:
    """Return ⟨S_i, S_j⟩, without what noise adds to ‖S_i‖², and its variance, both (K, K).

    The variance is n_i·‖S_j‖² + n_j·‖S_i‖² - n_i·n_j·d, since each sum's noise meets the other's
    mean and noise. It is at least the noises' own n_i·n_j·d. On the diagonal it is doubled.
    """
    stacked = torch.stack([walk.total for walk in walks])
    counts = torch.tensor([float(walk.count) for walk in walks], dtype=torch.float64)
    gram = stacked @ stacked.T
    noise = torch.outer(counts, counts) * stacked.shape[1]
    meets = torch.outer(counts, gram.diagonal())
    variance = torch.maximum(meets + meets.T - noise, noise)
    diagonal = torch.diag(variance.diagonal())
    return gram - torch.diag(counts) * stacked.shape[1], variance + diagonal


def _most_negative(products: Tensor, variances: Tensor) -> list[int]:
    """Return the set, smaller than half, whose products with the rest are lowest in deviations.

    A local search, in which one edge enters or leaves at a time. It starts from each of the
    `STARTS` edges that agree least with the rest and most with one other edge.
    """
    count = len(products)
    apart = _off_diagonal(products)
    noise = _off_diagonal(variances)
    alone = apart.sum(1) - 2 * apart.max(1).values
    starts = torch.argsort(alone, stable=True)[:STARTS].tolist()
    candidates = (_improved(apart, noise, start, (count - 1) // 2) for start in starts)
    _, chosen = min(candidates)
    return sorted(chosen)


def _improved(apart: Tensor, noise: Tensor, start: int, most: int) -> tuple[float, list[int]]:
    """Search from the set {`start`} until no single change lowers the score; (score, set).

    The first change may raise the score: of two opponents who agree much, neither alone is in
    conflict with the rest.
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
        place = int(score.argmin())
        if not float(score[place]) < best[0]:
            return best
        inside[place] = 1 - inside[place]
        best = (float(score[place]), inside.nonzero().flatten().tolist())
    return best


def _off_diagonal(matrix: Tensor) -> Tensor:
    return matrix - torch.diag(matrix.diagonal())


def _deviations(products: Tensor, variances: Tensor, chosen: list[int]) -> list[float]:
    """Return the four weighted sums of products that `opponents` tests, in deviations of noise."""
    count = len(products)
    a = torch.zeros(count, dtype=torch.float64)
    a[chosen] = 1.0
    outside = 1 - a
    everybody = torch.ones(count, dtype=torch.float64)
    size = float(a.sum())
    others = float(outside.sum())
    cut = torch.outer(a, outside)
    among = torch.outer(outside, outside)
    among.fill_diagonal_(0.0)
    with_all = torch.outer(a, everybody)
    rest_with_all = torch.outer(outside, everybody)
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
    """Return mean cosines: of `chosen` with the closest half of the rest, and among the rest."""
    others = [place for place in range(len(products)) if place not in chosen]
    lengths = products.diagonal().clamp(min=1.0)
    ours = float(lengths[chosen].mean())
    theirs = float(lengths[others].mean())
    among = _off_diagonal(products[others][:, others])
    within = float(among.sum()) / max(1, len(others) * (len(others) - 1))
    between = products[chosen][:, others].mean(0).sort(descending=True).values
    closest = float(between[: math.ceil(len(others) / 2)].mean())
    return closest / math.sqrt(ours * theirs), within / theirs


def _deviation(products: Tensor, variances: Tensor, weights: Tensor) -> float:
    """Return Σ w_ij·p_ij over its standard deviation; p_ij and p_ji are one random number."""
    both = weights + weights.T
    both.diagonal().div_(2)
    both = torch.triu(both)
    return float((both * products).sum()) / _root((both * both * variances).sum())


def _root(variance: Tensor) -> float:
    return math.sqrt(max(1e-12, float(variance)))
