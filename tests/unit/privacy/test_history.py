"""What one history has beyond another: a bound on both, at every δ."""

from __future__ import annotations

import pytest

from tacit.privacy.accounting import epsilon_pld
from tacit.privacy.accounting.history import History, Spend, beyond

FULL, SUBSAMPLED = Spend(1.0, 6.0, 10), Spend(0.01, 0.8, 200)
LOUD, QUIET = Spend(0.1, 1.1, 300), Spend(0.1, 1.0, 300)
CASES: dict[str, tuple[list[History], History]] = {
    "nothing": ([(), ()], ()),
    "more of one kind": ([(Spend(0.1, 1.0, 3),), (Spend(0.1, 1.0, 9),)], (Spend(0.1, 1.0, 9),)),
    "rows in pieces": ([(Spend(0.1, 1.0, 3),) * 2, (Spend(0.1, 1.0, 5),)], (Spend(0.1, 1.0, 6),)),
    "less noise": ([(LOUD,), (QUIET,)], (QUIET,)),
    "less noise, fewer": (
        [(LOUD,), (Spend(0.1, 1.0, 100),)],
        (Spend(0.1, 1.0, 100), Spend(0.1, 1.1, 200)),
    ),
    "without noise": (
        [(Spend(0.1, 0.0, 1),), (QUIET,)],
        (Spend(0.1, 0.0, 1), Spend(0.1, 1.0, 299)),
    ),
    "other rates": ([(FULL,), (SUBSAMPLED,)], (SUBSAMPLED, FULL)),
    "other mechanisms": (
        [(QUIET,), (Spend(0.1, 1.0, 300, "knorm"),)],
        (QUIET, Spend(0.1, 1.0, 300, "knorm")),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_beyond_nothing_it_is_the_least_bound_of_its_kind(case: str) -> None:
    histories, bound = CASES[case]
    assert beyond((), *histories) == bound
    assert beyond((), *reversed(histories)) == bound
    assert beyond(bound, *histories) == ()


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-8])
def test_it_costs_no_less_than_any_where_each_costs_more_than_the_other_somewhere(
    delta: float,
) -> None:
    first, second = (Spend(1.0, 6.0, 10),), (Spend(0.01, 0.8, 800),)
    bound = (*first, *beyond(first, second))
    assert bound == (*first, *second)
    assert epsilon_pld(bound, delta) > max(epsilon_pld(first, delta), epsilon_pld(second, delta))


def test_what_is_lacking_is_added_to_what_is_there() -> None:
    assert beyond((LOUD,), (QUIET,)) == (
        QUIET,
    )  # what was charged with more noise is no part of it
    assert beyond((QUIET,), (LOUD,)) == ()
    assert beyond((Spend(0.1, 1.0, 3),), (Spend(0.1, 1.0, 9),)) == (Spend(0.1, 1.0, 6),)
