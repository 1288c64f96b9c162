"""The door out of a party: what is charged, when, and what comes out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tacit.errors import BudgetSpent, PrivacyError
from tacit.privacy.accounting import Spend, gdp
from tacit.privacy.ledger import Ledger, read_chains
from tacit.privacy.noise.randomness import Random
from tacit.privacy.release.embeddings import (
    EmbeddingPlan,
    EmbeddingReleaser,
    Mode,
    ReleasedEmbedding,
    clip_rows,
)

RECORDS = 20
ROWS = torch.arange(5)


def plan(mode: Mode, **changes: Any) -> EmbeddingPlan:
    usual = {
        "bound": 1.0,
        "noise_multiplier": 2.0,
        "epsilon": 1e6,
        "delta": 1e-5,
        "step_multiplier": 3.0,
    }
    return EmbeddingPlan(mode, **{**usual, **changes})


def releaser(mode: Mode, ledger: Ledger | None = None, **changes: Any) -> EmbeddingReleaser:
    return EmbeddingReleaser(
        plan(mode, **changes), ledger or Ledger(":memory:", "people"), Random(), RECORDS
    )


def ones(rows: Tensor = ROWS) -> Tensor:
    return torch.ones(len(rows), 3)


def mu(door: EmbeddingReleaser) -> float:
    return gdp.mu(door.ledger.history())


# -- clipping --------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.lists(st.floats(width=32), min_size=4, max_size=4), min_size=1, max_size=6),
    bound=st.floats(1e-3, 1e3),
)
def test_every_row_is_at_most_b_long_and_depends_on_itself_alone(
    rows: list[list[float]], bound: float
) -> None:
    given_rows = torch.tensor(rows, dtype=torch.float32)
    clipped = clip_rows(given_rows, bound)
    assert float(torch.linalg.vector_norm(clipped.double(), dim=1).max()) <= bound
    for number in range(len(given_rows)):
        assert torch.equal(clipped[number], clip_rows(given_rows[number : number + 1], bound)[0])
        if not bool(torch.isfinite(given_rows[number]).all()):
            assert bool((clipped[number] == 0).all())


def test_a_short_row_is_left_as_it_is_and_a_long_one_keeps_its_direction() -> None:
    rows = torch.tensor([[0.3, 0.4], [3.0, 4.0], [0.0, 0.0], [1e-30, 0.0], [3e38, 3e38]])
    clipped = clip_rows(rows, 1.0)
    assert torch.equal(clipped[[0, 2, 3]], rows[[0, 2, 3]])
    assert torch.allclose(clipped[1], torch.tensor([0.6, 0.8]), atol=1e-4)
    assert torch.allclose(clipped[4], torch.full((2,), 0.5**0.5), atol=1e-4)


@pytest.mark.parametrize("bound", [0.0, -1.0, math.inf, math.nan])
def test_a_bound_that_bounds_nothing_is_refused(bound: float) -> None:
    with pytest.raises(ValueError, match="bound="):
        clip_rows(torch.ones(1, 2), bound)


def test_the_gradient_goes_through_the_clipping() -> None:
    rows = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]], requires_grad=True)
    (along,) = torch.autograd.grad((clip_rows(rows, 1.0) * rows.detach()).sum(), rows)
    assert torch.allclose(
        along[0], torch.zeros(2), atol=1e-3
    )  # a clipped row does not grow with its length
    assert torch.equal(along[1:], rows.detach()[1:])


# -- what a release costs --------------------------------------------------------------------------


def test_fresh_releases_cost_the_square_root_of_how_often_the_most_released_record_was() -> None:
    door = releaser("fresh")
    door.release(torch.arange(10), lambda: ones(torch.arange(10)))
    assert mu(door) == pytest.approx(1 / 2)
    door.release(
        torch.arange(10, 20), lambda: ones(torch.arange(10))
    )  # others: the same worst case
    assert mu(door) == pytest.approx(1 / 2)
    for _ in range(3):
        door.release(torch.tensor([4]), lambda: ones(torch.tensor([4])))
    assert mu(door) == pytest.approx(math.sqrt(4) / 2)
    door.release(torch.tensor([7, 7]), lambda: ones(torch.tensor([7, 7])))  # 3 of them by now
    assert mu(door) == pytest.approx(math.sqrt(4) / 2)


@settings(max_examples=25, deadline=None)
@given(batches=st.lists(st.lists(st.integers(0, RECORDS - 1), min_size=1, max_size=8), max_size=12))
def test_no_record_was_ever_released_more_often_than_the_ledger_says(
    batches: list[list[int]],
) -> None:
    door, counts = releaser("fresh"), [0] * RECORDS
    for batch in batches:
        rows = torch.tensor(batch)
        door.release(rows, lambda rows=rows: ones(rows))  # type: ignore[misc]
        for record in batch:
            counts[record] += 1
        assert door.ledger.charged().count == max(counts)


def test_a_restart_refunds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    for session in range(3):
        ledger = Ledger(path, "people")
        door = releaser("fresh", ledger)
        door.release(ROWS, ones)
        assert ledger.charged().count == session + 1
        ledger.close()


def test_the_charge_is_on_disk_before_anything_is_computed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    door = releaser("fresh", Ledger(path, "people"))

    def crash() -> Tensor:
        (chain,) = read_chains(path)
        assert chain.count == 1
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        door.release(ROWS, crash)
    assert door.ledger.charged().count == 1
    door.ledger.close()


def test_trained_without_protection_every_vector_of_a_batch_counts() -> None:
    door = releaser("trained")
    table = torch.arange(RECORDS)
    door.release(table, lambda: ones(table))  # θ_m^0 is public: once for each record
    assert mu(door) == pytest.approx(1 / 2)
    door.step(ROWS, lambda: torch.ones(1, 7))
    door.release(ROWS, ones)
    door.release(ROWS + 5, ones)
    assert mu(door) == pytest.approx(
        math.sqrt(1 + 10) / 2
    )  # K = 10 vectors, all moved by any record


def test_after_a_restart_a_trained_model_may_hold_anything(tmp_path: Path) -> None:
    first = releaser("trained", Ledger(tmp_path / "ledger.db", "people"))
    first.release(ROWS, ones)
    first.ledger.close()
    door = releaser("trained", Ledger(tmp_path / "ledger.db", "people"))
    door.release(ROWS, ones)
    assert mu(door) == pytest.approx(math.sqrt(1 + 5) / 2)
    door.ledger.close()


def test_dp_sgd_pays_for_steps_and_releases() -> None:
    door = releaser("dp_sgd")
    door.release(ROWS, ones)
    for _ in range(2):
        door.step(ROWS, lambda: torch.ones(5, 7))
        door.release(ROWS, ones)
    assert mu(door) == pytest.approx(
        math.sqrt(3 / 2**2 + 2 / 3**2)
    )  # R = 3 at 2B/c = 1/2, S = 2 at 2C/σ = 1/3


def test_a_record_named_twice_in_a_step_is_refused_before_it_is_charged() -> None:
    """Such a record would move the sum by 4C for the price of 2C."""
    door = releaser("dp_sgd")
    with pytest.raises(PrivacyError, match="named twice"):
        door.step(torch.tensor([3, 4, 3]), lambda: ones(torch.arange(3)))
    assert door.ledger.charged().count == 0


def test_a_record_named_twice_in_a_release_pays_twice() -> None:
    door = releaser("fresh")
    door.release(torch.tensor([3, 4, 3]), lambda: ones(torch.arange(3)))
    assert door.ledger.charged().count == 2


def test_dp_sgd_clips_every_gradient_and_adds_noise_of_the_stated_scale() -> None:
    door = releaser("dp_sgd", step_clip=0.5, step_multiplier=0.25)
    huge = torch.zeros(2, 20_000)
    huge[0, 0], huge[1, 1] = 1e6, math.nan
    total = door.step(torch.tensor([0, 1]), lambda: huge)
    assert abs(float(total[0])) < 0.5 + 6 * 0.25
    assert float(total.std()) == pytest.approx(2 * 0.5 * 0.25, rel=0.03)


@pytest.mark.parametrize("mode", ["paper", "none"])
def test_without_a_bound_or_noise_the_ledger_says_so(mode: Mode) -> None:
    door = releaser(mode)
    door.release(ROWS, ones)
    assert math.isinf(mu(door))


def test_noise_from_a_known_seed_counts_as_none() -> None:
    ledger = Ledger(":memory:", "people")
    EmbeddingReleaser(plan("fresh"), ledger, Random(1), RECORDS).release(ROWS, ones)
    assert ledger.history() == (Spend(1.0, 0.0, 1),)


@pytest.mark.parametrize("mode", ["cached", "fresh"])
def test_a_frozen_model_must_not_learn(mode: Mode) -> None:
    with pytest.raises(PrivacyError, match="must not learn"):
        releaser(mode).step(ROWS, lambda: torch.ones(1, 7))


# -- the budget ------------------------------------------------------------------------------------


def test_the_budget_ends_releases_before_anything_is_computed() -> None:
    budget = gdp.epsilon(math.sqrt(3) / 2, 1e-5) + 1e-6
    door, computed = releaser("fresh", epsilon=budget), []
    for _ in range(3):
        door.release(ROWS, ones)
    with pytest.raises(BudgetSpent, match="budget"):
        door.release(ROWS, lambda: computed.append(1) or ones())  # type: ignore[func-returns-value]
    assert not computed
    assert door.ledger.charged().count == 3
    door.release(ROWS + 5, ones)  # other records have had fewer


def test_what_the_ledger_holds_already_counts() -> None:
    ledger = Ledger(":memory:", "people")
    for _ in range(3):
        ledger.charge(1.0, 2.0, "gaussian", secret=True)
    door = releaser("fresh", ledger, epsilon=gdp.epsilon(math.sqrt(3) / 2, 1e-5) + 1e-6)
    with pytest.raises(BudgetSpent):
        door.release(ROWS, ones)


# -- what comes out --------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["cached", "fresh", "dp_sgd", "trained"])
def test_eq_11a_noise_of_standard_deviation_c_on_the_clipped_embedding(mode: Mode) -> None:
    rows = torch.arange(RECORDS)
    door = releaser(mode, bound=0.5, noise_multiplier=3.0)
    far = torch.full((RECORDS, 4000), 1e3)
    released = door.release(rows, lambda: far)
    noise = released.vectors - clip_rows(far, 0.5)
    assert released.vectors.dtype == torch.float32
    assert float(noise.std()) == pytest.approx(2 * 0.5 * 3.0, rel=0.02)  # c = 2B·z


def test_the_paper_neither_clips_nor_bounds() -> None:
    released = releaser("paper").release(ROWS, lambda: torch.full((5, 2), 1e6))
    assert float(released.vectors.min()) > 1e6 - 100


def test_none_releases_the_embeddings_themselves() -> None:
    assert torch.equal(releaser("none").release(ROWS, ones).vectors, ones())


def test_two_releases_have_noise_of_their_own() -> None:
    door = releaser("fresh")
    first, second = door.release(ROWS, ones), door.release(ROWS, ones)
    assert not bool((first.vectors == second.vectors).any())


def test_nobody_else_can_make_a_released_embedding() -> None:
    door = releaser("fresh")
    with pytest.raises(TypeError, match="EmbeddingReleaser only"):
        ReleasedEmbedding(ROWS, ones(), (), door.ledger.charged(), object())


@pytest.mark.parametrize("rows", [[-1], [RECORDS], []])
def test_a_record_that_is_not_there_is_refused(rows: list[int]) -> None:
    with pytest.raises(PrivacyError, match="records"):
        releaser("fresh").release(torch.tensor(rows, dtype=torch.int64), ones)


def test_embeddings_that_are_not_those_of_the_records_are_refused() -> None:
    with pytest.raises(PrivacyError, match="for 5 records"):
        releaser("fresh").release(ROWS, lambda: torch.ones(6, 3))


def test_a_ledger_of_the_other_adjacency_is_refused() -> None:
    """Noise of z times the sensitivity to a row more is up to twice that to a row replaced."""
    ledger = Ledger(":memory:", "people")
    ledger.charge(0.1, 5.0, "gaussian", secret=True)
    with pytest.raises(PrivacyError, match="sampled batches"):
        releaser("fresh", ledger)
