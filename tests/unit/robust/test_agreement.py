"""Who works against the others: found among few and many, and not where data is unequal."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from tacit.robust import agreement
from tacit.robust.agreement import AWAY, WORSENED, opponents, worsened
from tacit.robust.law import Law, Walk

SIZE, COUNT, T = 500, 100, math.log(1e6)
LAW = Law(1.0, 1.0, 1.0)


def walks(means: list[Tensor], seed: int = 1) -> dict[str, Walk]:
    """Return edges with these mean updates, and noise of deviation 1."""
    generator = torch.Generator().manual_seed(seed)
    by_edge = {}
    for number, mean in enumerate(means):
        walk = by_edge[f"edge-{number}"] = Walk.begin(SIZE)
        for _ in range(COUNT):
            walk.add(mean + torch.randn(SIZE, generator=generator, dtype=torch.float64), LAW)
    return by_edge


def axis(number: int, length: float = 1.5) -> Tensor:
    direction = torch.zeros(SIZE, dtype=torch.float64)
    direction[number] = length
    return direction


def test_one_that_turns_every_sign_is_found() -> None:
    means = [-axis(0), axis(0), axis(0), axis(0), axis(0)]
    assert opponents(walks(means), T) == ["edge-0"]


def test_two_of_seven_are_found() -> None:
    means = [-axis(0), -axis(0), *[axis(0)] * 5]
    assert opponents(walks(means), T) == ["edge-0", "edge-1"]


@pytest.mark.parametrize(
    "means",
    [
        [axis(0)] * 5,
        [axis(number) for number in range(5)],
        [torch.zeros(SIZE, dtype=torch.float64)] * 5,
        # at rest between two kinds of data: one edge pulls as far as the four others together
        [-axis(0, 4.0), *[axis(0, 1.0)] * 4],
        # at rest between five: their means add up to nothing
        [axis(number) - sum(axis(other) for other in range(5)) / 5 for number in range(5)],
        [-axis(0), axis(0)],
    ],
    ids=["alike", "nothing in common", "noise alone", "odd one", "all different", "two edges"],
)
def test_nobody_is_accused_for_unequal_data(means: list[Tensor]) -> None:
    assert opponents(walks(means), T) == []


def test_who_turns_the_mean_of_others_that_share_little_is_found() -> None:
    # Given four edges, each with data of its own, and one that sends their mean, turned,
    honest = [axis(0) + axis(number, 3.0) for number in range(1, 5)]
    total = torch.stack(honest).sum(0)
    turned = -total * (float(torch.linalg.vector_norm(honest[0])) / float(total.norm()))
    edges = walks([turned, *honest])
    # then the others are not of one mind, so it could be one of them,
    assert opponents(edges, T) == []
    # but what all have sent led away from where it pulls.
    (accused,) = worsened(edges, T).items()
    assert accused[0] == "edge-0"
    assert accused[1] < AWAY


@pytest.mark.parametrize("rest_updates", [0, 100, 1000], ids=["gaining", "at rest", "long at rest"])
def test_no_data_however_unequal_is_worsened_by_all(rest_updates: int) -> None:
    # Given five edges with nothing in common, which gained first; then the model came to rest,
    # where the sum of their means is 0, so each one's is against all others' together.
    means = [axis(number, 4.0) for number in range(5)]
    total = torch.stack(means).sum(0)
    edges = walks([(COUNT * mean + rest_updates * (mean - total / 5)) / COUNT for mean in means])
    assert worsened(edges, T) == {}


@pytest.mark.parametrize(("others", "expected"), [(3, set()), (4, {"edge-0"})])
def test_fewer_than_five_edges_are_too_few_to_say_so(others: int, expected: set[str]) -> None:
    honest = [axis(0) + axis(number, 2.0) for number in range(1, others + 1)]
    assert worsened(walks([-axis(0, 2.0), *honest]), T).keys() == expected


def test_one_edge_that_pulls_against_another_does_not_have_it_worsened() -> None:
    # Given three edges that share little, one that pulls against them further, as where the model
    # is at rest, and a liar that goes with the three and against it, further still;
    friends, odd = [axis(0) + axis(number, 3.0) for number in range(1, 4)], -axis(0, 6.0)
    total = torch.stack(friends).sum(0)
    led = total / torch.linalg.vector_norm(total) - odd / torch.linalg.vector_norm(odd)
    liar = led * (2 * torch.linalg.vector_norm(friends[0]) / torch.linalg.vector_norm(led))
    edges = walks([odd, liar, *friends])
    # then all together lead away from it, but not without the liar.
    products, variances = agreement._products(list(edges.values()))
    assert agreement._deviations(products, variances, [0])[2] < WORSENED
    assert agreement._cosines(products, [0])[0] < AWAY
    assert worsened(edges, T) == {}


def test_one_liar_does_not_bring_an_edge_with_other_data_under_suspicion() -> None:
    # Given an edge with data of its own, somewhat against three that agree,
    odd = -0.45 * axis(0) + 0.89 * axis(1)
    honest = [axis(0), axis(0), axis(0), odd]
    assert opponents(walks(honest), T) == []
    # and a liar that goes with the three and against it, further than any of them;
    against = 2 * (axis(0) - odd) / float(torch.linalg.vector_norm(axis(0) - odd)) * 1.5
    assert "edge-4" not in opponents(walks([against, *honest]), T, worse=math.inf, behind=math.inf)


def test_the_set_is_the_one_that_a_search_of_all_sets_finds() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(60):
        count = 3 + int(torch.randint(6, (1,), generator=generator))
        signs = torch.randn(count, 1, generator=generator, dtype=torch.float64)
        sums = torch.randn(count, 40, generator=generator, dtype=torch.float64)
        sums = sums + signs * torch.randn(40, generator=generator, dtype=torch.float64)
        products, variances = sums @ sums.T, torch.full((count, count), 40.0, dtype=torch.float64)
        chosen = agreement._most_negative(products, variances)

        def score(some: tuple[int, ...], products: Tensor = products, count: int = count) -> float:
            outside = [index for index in range(count) if index not in some]
            cut = products[list(some)][:, outside]
            return float(cut.sum()) / math.sqrt(40.0 * cut.numel())

        sets = (
            some
            for size in range(1, (count - 1) // 2 + 1)
            for some in itertools.combinations(range(count), size)
        )
        assert score(tuple(chosen)) == pytest.approx(min(map(score, sets)))
