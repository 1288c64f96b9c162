"""Whole simulated runs with edges that lie; the table of docs/attacks.md is `bench.poison`'s."""

from __future__ import annotations

import pytest

from bench.poison import GUARD, HALVES, UNEQUAL, Case, outcome
from tests.helpers.nightly import nightly

pytestmark = pytest.mark.slow
NIGHTLY = nightly("fedbuff", "dp-pasgd")


@pytest.mark.parametrize("algorithm", ["mapa", *NIGHTLY])
@pytest.mark.parametrize(
    ("lie", "liars"), [*nightly(("sign flip", 1), ("constant", 2)), ("sign flip", 2)]
)
def test_liars_are_found_and_cost_little(algorithm: str, lie: str, liars: int) -> None:
    came = outcome(Case(algorithm, lie, liars, 1, GUARD))
    honest = outcome(Case(algorithm, seed=1))["accuracy"]
    assert set(came["accused"]) == {f"edge-{number}" for number in range(liars)}
    assert came["accuracy"] > honest - (3 if liars == 1 else 10)


@pytest.mark.parametrize(
    "partition", ["", *UNEQUAL, HALVES], ids=["iid", "dirichlet", "shards", "halves"]
)
@pytest.mark.parametrize("algorithm", ["mapa", *NIGHTLY[1:]])
def test_nobody_is_accused_where_all_are_honest(algorithm: str, partition: str) -> None:
    came = outcome(Case(algorithm, seed=2, guard=GUARD, partition=partition))
    assert came["accused"] == {}
    assert came["accuracy"] > 88


@pytest.mark.parametrize("algorithm", ["mapa", *NIGHTLY])
@pytest.mark.parametrize("liars", [1, *nightly(2)])
def test_a_pull_within_the_law_costs_little(algorithm: str, liars: int) -> None:
    guarded = outcome(Case(algorithm, "pull within the law", liars, 1, GUARD))["accuracy"]
    honest = outcome(Case(algorithm, seed=1))["accuracy"]
    assert guarded > honest - (3 if liars == 1 else 10)
