"""Graphs of peers: who may propose to whom, and the matrices that follow.

Closed forms are derived beside each test.
"""

from __future__ import annotations

import math
from collections import Counter
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.algorithms.gossip.topology import (
    KINDS,
    Topology,
    TopologyKind,
    build,
    expected,
    pairwise,
    spectral_gap,
)
from tacit.errors import ConfigError


def names(size: int) -> list[str]:
    return [f"peer-{index}" for index in range(size)]


def graph(kind: TopologyKind, size: int, probability: float = 0.5) -> Topology:
    return build(kind, names(size), seed=3, probability=probability)


def is_doubly_stochastic(matrix: torch.Tensor) -> bool:
    ones = torch.ones(len(matrix), dtype=torch.float64)
    sums = torch.allclose(matrix.sum(0), ones, atol=1e-12) and torch.allclose(
        matrix.sum(1), ones, atol=1e-12
    )
    return sums and bool((matrix >= 0).all())


@given(size=st.integers(2, 12), data=st.data())
def test_one_exchange_is_doubly_stochastic_symmetric_and_idempotent(
    size: int, data: st.DataObject
) -> None:
    first, second = data.draw(
        st.lists(st.integers(0, size - 1), min_size=2, max_size=2, unique=True)
    )
    matrix = pairwise(size, first, second)
    assert is_doubly_stochastic(matrix)
    assert torch.equal(matrix, matrix.T)
    assert torch.allclose(matrix.T @ matrix, matrix, atol=1e-15)  # so E[AᵀA] of (6) is E[A]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [4, 6, 8, 9, 16])
def test_every_graph_is_doubly_stochastic_and_its_models_agree_in_the_end(
    kind: TopologyKind, size: int
) -> None:
    topology = graph(kind, size)
    assert float(topology.probabilities().sum()) == pytest.approx(1.0)
    matrix = expected(topology)
    assert is_doubly_stochastic(matrix)
    assert torch.allclose(matrix, matrix.T)
    assert 0 < spectral_gap(matrix) <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_expected_matrix_is_the_mean_of_those_that_are_drawn(kind: TopologyKind) -> None:
    size, draws, random = 6, 6000, Random(5)
    topology, total = graph(kind, size), torch.zeros(6, 6, dtype=torch.float64)
    proposing = [peer for peer in topology.peers if topology.targets[peer]]
    drawn = 0
    for step in range(draws):
        peer = random.choice(proposing)
        partner = topology.partner(peer, step, topology.peers, random)
        if partner is not None:
            drawn += 1
            total += pairwise(size, topology.peers.index(peer), topology.peers.index(partner))
    assert torch.allclose(total / drawn, expected(topology), atol=5 / math.sqrt(draws))


# -- closed forms of the gap: 1 - ρ = λ_2(L)/2, L = Σ p_ij (e_i - e_j)(e_i - e_j)ᵀ over the links i-j


@pytest.mark.parametrize("size", [4, 5, 8, 16, 31])
def test_the_gap_of_a_ring(size: int) -> None:
    # Each of K links has p = 1/K, split or not; the ring's own λ_2 is 2 - 2cos(2π/K).
    assert spectral_gap(expected(graph("ring", size))) == pytest.approx(
        (1 - math.cos(2 * math.pi / size)) / size
    )


@pytest.mark.parametrize("size", [3, 4, 8, 16, 31])
@pytest.mark.parametrize("kind", ["complete", "random-pair"])
def test_the_gap_of_a_complete_graph(kind: TopologyKind, size: int) -> None:
    # p = 2/K(K-1) and λ_2 = K: the best that one pair at a time can do.
    assert spectral_gap(expected(graph(kind, size))) == pytest.approx(1 / (size - 1))


@pytest.mark.parametrize("size", [4, 8, 16])
def test_the_gap_of_a_ring_whose_senders_take_any_receiver(size: int) -> None:
    # K_{m,m} with m = K/2: p = 1/m², λ_2 = m.
    assert spectral_gap(expected(graph("ring-any", size))) == pytest.approx(1 / size)


def test_the_gap_of_a_torus() -> None:
    # 4 × 4: p = 1/2K; λ_2 of the grid is that of its longer side's ring.
    assert spectral_gap(expected(graph("torus", 16))) == pytest.approx(
        (1 - math.cos(2 * math.pi / 4)) / 32
    )


def test_better_connected_graphs_have_larger_gaps() -> None:
    gaps = [
        spectral_gap(expected(graph(kind, 16)))
        for kind in ("ring", "torus", "ring-any", "complete")
    ]
    assert gaps == sorted(gaps)
    assert len(set(gaps)) == 4


def test_two_halves_without_a_link_never_agree() -> None:
    halves = Topology(
        "complete", ("a", "b", "c", "d"), {"a": ("b",), "b": ("a",), "c": ("d",), "d": ("c",)}, 0
    )
    assert spectral_gap(expected(halves)) == pytest.approx(0.0)


# -- appendix A: senders and receivers -------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ring", "ring-any"])
def test_an_even_ring_is_split_so_that_no_two_proposals_can_cross(kind: TopologyKind) -> None:
    topology = graph(kind, 8)
    senders = {peer for peer in topology.peers if topology.targets[peer]}
    receivers = {target for targets in topology.targets.values() for target in targets}
    assert senders == {"peer-0", "peer-2", "peer-4", "peer-6"}
    assert senders | receivers == set(topology.peers)
    assert not senders & receivers


def test_a_ring_links_each_peer_to_the_two_beside_it() -> None:
    assert graph("ring", 8).neighbours("peer-0") == {"peer-1", "peer-7"}
    assert graph("ring", 8).neighbours("peer-1") == {"peer-0", "peer-2"}
    assert graph("ring", 5).targets["peer-1"] == ("peer-0", "peer-2")  # odd: everybody proposes


def test_a_torus_links_each_peer_to_four() -> None:
    topology = graph("torus", 16)
    assert {len(targets) for targets in topology.targets.values()} == {4}
    assert topology.neighbours("peer-5") == {"peer-1", "peer-9", "peer-4", "peer-6"}


def test_erdos_renyi_is_connected_symmetric_and_the_same_for_everybody() -> None:
    topology = graph("erdos-renyi", 16, probability=0.25)
    assert topology == graph("erdos-renyi", 16, probability=0.25)
    assert all(
        peer in topology.targets[other]
        for peer in topology.peers
        for other in topology.targets[peer]
    )
    assert spectral_gap(expected(topology)) > 0
    assert topology != build("erdos-renyi", names(16), seed=4, probability=0.25)


def test_random_pairs_are_perfect_matchings_in_which_everybody_has_its_turn() -> None:
    topology, met = graph("random-pair", 6), Counter[frozenset[str]]()
    for step in range(600):
        pairs = topology.matching(step)
        assert set(pairs) | set(pairs.values()) == set(topology.peers)
        met.update(frozenset(pair) for pair in pairs.items())
    assert len(met) == 15
    assert min(met.values()) > 70  # 120 each, give or take 10
    assert len(graph("random-pair", 7).matching(0)) == 3


# -- who is there ----------------------------------------------------------------------------------


def test_a_partner_is_one_that_is_free() -> None:
    topology, random = graph("complete", 4), Random(1)
    chosen = {topology.partner("peer-0", step, {"peer-2", "peer-3"}, random) for step in range(50)}
    assert chosen == {"peer-2", "peer-3"}
    assert topology.partner("peer-0", 0, (), random) is None


def test_receivers_propose_to_nobody() -> None:
    assert graph("ring", 4).partner("peer-1", 0, names(4), Random(1)) is None


def test_a_matched_partner_that_is_away_is_not_replaced() -> None:
    topology = graph("random-pair", 4)
    peer, partner = next(iter(topology.matching(0).items()))
    assert topology.partner(peer, 0, names(4), Random(1)) == partner
    assert topology.partner(peer, 0, set(names(4)) - {partner}, Random(1)) is None
    assert (
        topology.partner(partner, 0, names(4), Random(1)) is None
    )  # it is for the other one to propose


@pytest.mark.parametrize(
    ("kind", "size", "probability", "why"),
    [
        ("ring", 1, 0.5, "two peers at least"),
        ("torus", 7, 0.5, "no torus"),
        ("torus", 3, 0.5, "no torus"),
        ("erdos-renyi", 16, 0.0, "link_probability=0.0"),
    ],
)
def test_what_is_no_graph_is_refused_in_one_line(
    kind: TopologyKind, size: int, probability: float, why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        graph(kind, size, probability=probability)
