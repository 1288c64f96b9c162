"""Topology: which peers average with which, by graphs and doubly stochastic matrices A_t on them.

Paper: A(DP)²SGD (arXiv:2008.09246), eqs (3) and (6), Algorithm 1 lines 4 and 8, appendix A.

| here         | paper  | meaning |
| ------------ | ------ | --- |
| peers        | [K]    | the workers, by name; a matrix has their order |
| targets      | E      | whom a peer may propose an exchange to; it answers whoever proposes |
| pairwise     | A_t    | of one exchange: the two take their mean, everybody else stays |
| expected     | E[A_t] | over the acting peer (uniform among proposers) and its partner |
| spectral_gap | 1 - ρ  | ρ of (6); the larger the gap, the faster models agree |
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from random import Random
from typing import Literal, get_args

import torch
from torch import Tensor

from tacit.errors import ConfigError

TopologyKind = Literal["ring", "ring-any", "random-pair", "torus", "erdos-renyi", "complete"]
KINDS = get_args(TopologyKind)
_DRAWS = 1000  # Erdős–Rényi graphs drawn until one is connected


@dataclass(frozen=True, slots=True)
class Topology:
    """A graph of peers. Only public numbers go in: every peer makes the same one from the run file.

    ring: an even one is split into senders (even places) and receivers (odd). Only senders propose,
    so no two proposals cross (appendix A). With an odd number of peers there is no such split, and
    all peers propose. ring-any: the same senders, each proposing to any receiver at random
    (appendix A, "communication randomization"). random-pair: the partner at one's step t is that of
    the t-th random perfect matching of all peers. torus, erdos-renyi, complete: any neighbour at
    random, and all peers propose.
    """

    kind: TopologyKind
    peers: tuple[str, ...]
    targets: Mapping[str, tuple[str, ...]]
    seed: int

    def neighbours(self, peer: str) -> frozenset[str]:
        """Return all peers that `peer` may have an exchange with, proposed by either."""
        asking = (other for other in self.peers if peer in self.targets[other])
        return frozenset((*self.targets[peer], *asking))

    def partner(self, peer: str, step: int, free: Collection[str], random: Random) -> str | None:
        """Return the peer to which `peer` proposes an exchange at its own step `step`, or None.

        It is uniform among its targets in `free` (connected, with no exchange under way). For
        random-pair it is the partner in the matching, if free. A_t is doubly stochastic for every
        choice, so absences change only who meets.
        """
        if self.kind == "random-pair":
            matched = self.matching(step).get(peer)
            if matched in free:
                return matched
            return None
        choice = [target for target in self.targets[peer] if target in free]
        if choice:
            return random.choice(choice)
        return None

    def matching(self, step: int) -> dict[str, str]:
        """Return perfect matching number `step`, proposer → partner.

        Of an odd number of peers one stays out.
        """
        order = list(self.peers)
        Random(f"{self.seed}/{step}").shuffle(order)
        return dict(zip(order[::2], order[1::2], strict=False))

    def probabilities(self) -> Tensor:
        """Return who proposes to whom next, (K, K) float64.

        Entry (i, j) is the probability that peer i proposes the next exchange, to peer j.
        """
        size = len(self.peers)
        place = {peer: index for index, peer in enumerate(self.peers)}
        chances = torch.zeros(size, size, dtype=torch.float64)
        proposing = [peer for peer in self.peers if self.targets[peer]]
        for peer in proposing:
            for target in self.targets[peer]:
                chances[place[peer], place[target]] = 1 / (len(proposing) * len(self.targets[peer]))
        return chances


def build(
    kind: TopologyKind, peers: Collection[str], *, seed: int = 0, probability: float = 0.5
) -> Topology:
    """Return the graph of `kind` over `peers`, in their order.

    probability: of a link, for erdos-renyi. Raises ConfigError for fewer than two peers, and for a
    torus of a prime number of them (or below 2 × 2). Raises it also if an Erdős–Rényi graph stays
    unconnected however often it is drawn.
    """
    names = tuple(peers)
    size = len(names)
    if size < 2:
        raise ConfigError(f"edges.count={size}: gossip needs two peers at least")
    match kind:
        case "ring":
            links = _ring(size)
        case "ring-any":
            links = [range(1, size, 2) if index % 2 == 0 else () for index in range(size)]
        case "torus":
            links = _torus(size)
        case "erdos-renyi":
            links = _erdos_renyi(size, probability, seed)
        case "random-pair" | "complete":
            links = [[other for other in range(size) if other != index] for index in range(size)]
    targets = {
        names[index]: tuple(names[other] for other in sorted(set(links[index])))
        for index in range(size)
    }
    return Topology(kind, names, targets, seed)


def pairwise(size: int, first: int, second: int) -> Tensor:
    """Return A_t of one exchange, (K, K) float64: I - (e_i - e_j)(e_i - e_j)ᵀ/2.

    Symmetric, doubly stochastic, A = AᵀA.
    """
    matrix = torch.eye(size, dtype=torch.float64)
    matrix[[first, first, second, second], [first, second, first, second]] = 0.5
    return matrix


def expected(topology: Topology) -> Tensor:
    """Return E[A_tᵀA_t] of (6), (K, K) float64, one exchange at a time.

    It is E[A_t], since A_tᵀA_t = A_t. It is I - L/2, with L the Laplacian of the graph whose edges
    weigh as much as they are likely.
    """
    chances = topology.probabilities()
    weights = chances + chances.T
    laplacian = torch.diag(weights.sum(1)) - weights
    return torch.eye(len(weights), dtype=torch.float64) - laplacian / 2


def spectral_gap(matrix: Tensor) -> float:
    """Return 1 - ρ with ρ = max(|λ_2|, |λ_K|) of (6); at 0 the peers' models never agree.

    matrix: (K, K) symmetric, doubly stochastic.
    """
    values = torch.linalg.eigvalsh(matrix.to(torch.float64))  # ascending; the last is 1
    return 1.0 - max(abs(float(values[-2])), abs(float(values[0])))


def _ring(size: int) -> list[Collection[int]]:
    both: list[Collection[int]] = [
        ((index - 1) % size, (index + 1) % size) for index in range(size)
    ]
    if size % 2:
        return both
    return [both[index] if index % 2 == 0 else () for index in range(size)]


def _torus(size: int) -> list[Collection[int]]:
    """Return the links of the squarest grid of `size` peers, its borders joined.

    Along a side of 2 two peers have one link, not two.
    """
    rows = next(side for side in range(math.isqrt(size), 0, -1) if size % side == 0)
    if rows == 1:
        raise ConfigError(
            f"edges.count={size}: no torus has so many peers; take a product of two sides, 2 × 2 "
            f"or more"
        )
    columns = size // rows
    return [
        {
            (row + down) % rows * columns + (column + right) % columns
            for down, right in ((1, 0), (-1, 0), (0, 1), (0, -1))
        }
        for row in range(rows)
        for column in range(columns)
    ]


def _erdos_renyi(size: int, probability: float, seed: int) -> list[Collection[int]]:
    """Link every pair with `probability`; draw anew until the graph is connected."""
    random = Random(seed)
    for _ in range(_DRAWS):
        links: list[set[int]] = [set() for _ in range(size)]
        for first in range(size):
            for second in range(first):
                if random.random() < probability:
                    links[first].add(second)
                    links[second].add(first)
        if _connected(links):
            return list(links)
    raise ConfigError(
        f"algorithm.link_probability={probability}: no connected graph of {size} peers in "
        f"{_DRAWS} draws"
    )


def _connected(links: list[set[int]]) -> bool:
    reached = {0}
    waiting = [0]
    while waiting:
        fresh = links[waiting.pop()] - reached
        reached |= fresh
        waiting.extend(fresh)
    return len(reached) == len(links)
