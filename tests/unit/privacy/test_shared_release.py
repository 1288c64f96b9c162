"""What a run may spend of data that other runs use: its own budget, and the data's lifetime."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tacit import datasets
from tacit.algorithms.base.gradient_edge import GradientEdge
from tacit.errors import BudgetSpent
from tacit.models import build
from tacit.privacy.accounting import Lifetime, Spend
from tacit.privacy.ledger import SharedLedger, read_chains
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.clipping import Clipped
from tacit.privacy.release import Plan, Releaser
from tacit.privacy.release.release import Steps
from tacit.protocol.messages import GlobalModel, Push, Retired
from tests.helpers.private_sums import sum_of

# A run may spend ε = 1.0, the data 2.0; about so many releases at this q and z.
PLAN = Plan("gaussian", 0.25, 40.0, 4.0, 0.2, 5.0, 1.0, 1e-5)
LIFETIME = Lifetime.begun(2.0, 1e-5)
PUSH = Spend(0.25, 4.0, 1)


def sender(
    path: Path, run: str, plan: Plan = PLAN, lifetime: Lifetime | None = LIFETIME
) -> Releaser:
    return Releaser(plan, SharedLedger(path, "data", run=run, lifetime=lifetime), Random())


def summed() -> Clipped:
    return Clipped(torch.zeros(3), 1.0)


def released(releaser: Releaser, count: int) -> None:
    for _ in range(count):
        releaser.release(1.0, summed)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def test_a_run_spends_its_own_budget_whatever_others_have_spent(path: Path) -> None:
    most = PLAN.pushes_left(())
    assert most is not None
    assert 1 < most < LIFETIME.left((), PUSH)
    first, second = sender(path, "one"), sender(path, "two")
    assert (first.releases_left, second.releases_left) == (most, most)
    # What the first has released is not in the second's budget, also after a restart,
    released(first, most)
    with pytest.raises(BudgetSpent, match=r"^epsilon=1\.0: "):
        released(first, 1)
    assert sender(path, "one").releases_left == 0
    # and is in the data's lifetime.
    lifetime = LIFETIME.left((Spend(0.25, 4.0, most),), PUSH)
    assert second.releases_left == sender(path, "two").releases_left == min(lifetime, most)


def test_a_lifetime_ends_every_run_at_its_next_release(path: Path) -> None:
    wide = Plan("gaussian", 0.25, 40.0, 4.0, 0.2, 5.0, 8.0, 1e-5)
    first, second = sender(path, "one", wide), sender(path, "two", wide)
    full = LIFETIME.left((), PUSH)
    assert first.releases_left == second.releases_left == full
    released(first, full - 3)
    assert (second.releases_left, second.can_pay(1.0, 4)) == (3, False)
    with pytest.raises(BudgetSpent, match=r"^lifetime_epsilon: "):
        second.release_steps(Steps(1.0, 4, torch.zeros(3), lambda params, noisy: params), no_query)
    released(second, 3)
    for releaser in (first, second):
        assert releaser.releases_left == 0
        with pytest.raises(BudgetSpent, match=r"^lifetime_epsilon: "):
            releaser.release(1.0, lambda: no_query(torch.zeros(3)))
    assert read_chains(path)[0].count == full


def no_query(params: torch.Tensor) -> Clipped:
    raise AssertionError("rows were read although nothing pays for it")


def test_all_steps_of_a_task_and_a_whole_pass_are_paid_for_together(path: Path) -> None:
    first = sender(path, "one")
    first.release_steps(
        Steps(1.0, 5, torch.zeros(3), lambda params, noisy: params), lambda params: summed()
    )
    tree = Plan("gaussian", 1 / 8, 40.0, 40.0, 0.2, 5.0, 1.0, 1e-5, passes=8)
    second = sender(path, "two", tree)
    second.charge_pass(1.0, 4)
    history = read_chains(path)[0].history()
    assert history == (Spend(0.25, 4.0, 5), Spend(1.0, 40.0, 4))
    assert second.releases_left == min(
        tree.pushes_left((Spend(1.0, 40.0, 4),)) or 0, LIFETIME.left(history, Spend(1.0, 40.0, 1))
    )
    left = second.releases_left
    with pytest.raises(BudgetSpent):
        second.charge_pass(1.0, left + 1)


def test_the_task_that_follows_a_message_is_charged_with_it(path: Path) -> None:
    first = sender(path, "one")
    ahead = first.next_charge(5)
    assert ahead is not None
    left = first.releases_left
    with first.ledger.transaction(ahead):
        pass
    assert first.releases_left == left  # none has begun
    assert first.next_charge(5) is None
    released(first, 5)
    assert (first.ledger.ahead, first.ledger.charged().count) == (0, 5)


def test_a_message_of_one_run_states_what_all_have_released(path: Path) -> None:
    first, second = sender(path, "one"), sender(path, "two")
    released(first, 2)
    push = second.release(1.0, summed)
    assert (push.charged.count, push.spent) == (3, (Spend(0.25, 4.0, 3),))
    assert first.ledger.charged().count == 2


@pytest.mark.parametrize("mechanism", ["none", "paper"])
def test_a_lifetime_pays_for_no_run_without_a_guarantee(path: Path, mechanism: str) -> None:
    plan = Plan(mechanism, 0.25, 40.0, 4.0, 0.2, 5.0, 1.0, 1e-5)  # type: ignore[arg-type]
    releaser = sender(path, "one", plan)
    assert releaser.releases_left == 0
    with pytest.raises(BudgetSpent):
        releaser.release(1.0, summed)
    # Where the owner states no lifetime, such a run is as free as on a ledger of its own.
    assert sender(path, "two", plan, None).releases_left is None


def test_an_edge_whose_datas_lifetime_is_spent_retires(path: Path) -> None:
    # Given an edge at work, on data that another run uses as well,
    wide = Plan("gaussian", 0.25, 40.0, 4.0, 0.2, 5.0, 8.0, 1e-5)
    rows = datasets.load("digits", "train", None)
    model = build("logistic", (1, 8, 8), 10)
    ours, other = sender(path, "one", wide), sender(path, "two", wide)
    summed_up = sum_of(rows.take(torch.arange(160)), model, ours)
    edge = GradientEdge("edge-0", model, ours, summed_up)
    task = GlobalModel(1, torch.zeros(model.size), 1.0, None)
    (push,) = edge.on_message(task)
    assert isinstance(push.message, Push)
    # when the other run spends the rest of the lifetime,
    released(other, other.releases_left or 0)
    # then the edge retires at its next task, and says what it has come to itself.
    (retired,) = edge.on_message(task)
    assert isinstance(retired.message, Retired)
    assert retired.message.reason.startswith("lifetime_epsilon: ")
    assert retired.message.charged == push.message.released.charged
