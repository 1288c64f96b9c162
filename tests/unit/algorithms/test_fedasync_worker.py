"""The worker of FedAsync and its relatives: local steps, what they cost, how many they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tacit.algorithms.base.local_steps import LocalStepsEdge
from tacit.algorithms.fedasync.fedasync_settings import FedAsync
from tacit.datasets import Dataset
from tacit.models.vectors import example_gradients, mean_gradient
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.policy import Terms
from tacit.privacy.private_sum.choice import Ways
from tacit.privacy.private_sum.clipping import clipped_sum
from tacit.privacy.private_sum.rows_alone import RowsAlone
from tacit.privacy.private_sum.sampling import Batch
from tacit.privacy.private_sum.slots import Slots
from tacit.privacy.release import Plan, Releaser
from tacit.protocol.messages import GlobalModel, Push, Retired
from tests.helpers.fedasync import MODEL, SIZE, joined, run_file, server, update
from tests.helpers.private_sums import sum_of

# -- Worker ----------------------------------------------------------------------------------------

X = torch.randn(12, 1, 1, 3, generator=torch.Generator().manual_seed(3))
DATA = Dataset(X, (X.sum((1, 2, 3)) > 0).long(), 2, "test/train")


def plan(mechanism: str = "none", z: float = 0.0, q: float = 0.5, epsilon: float = 100.0) -> Plan:
    return Plan(mechanism, q, 4.0, z, 0.01, 100.0, epsilon, 1e-5, rows_max=40)  # type: ignore[arg-type]


def worker(
    section: str, privacy_plan: Plan, seed: int | None = 1, name: str = "fedasync"
) -> LocalStepsEdge:
    algorithm = run_file(name, section).algorithm
    assert isinstance(algorithm, FedAsync)
    releaser = Releaser(privacy_plan, Ledger(":memory:", "test"), Random(seed))
    return LocalStepsEdge(
        algorithm.task(), "edge-0", MODEL, releaser, sum_of(DATA, MODEL, releaser)
    )


def pushed(edge: LocalStepsEdge, model: GlobalModel) -> Push:
    (out,) = edge.on_message(model)
    assert isinstance(out.message, Push)
    return out.message


@pytest.mark.parametrize("rows_alone", [True, False])
def test_every_local_step_draws_a_batch_of_its_own(rows_alone: bool) -> None:
    class WatchedSlots(Slots):
        def draw(self) -> Batch:
            batch = super().draw()
            drawn.append(tuple(batch.index.tolist()))
            return batch

    class WatchedRows(RowsAlone):
        def draw(self) -> NDArray[np.int64]:
            rows = super().draw()
            drawn.append(tuple(rows.tolist()))
            return rows

    drawn: list[tuple[int, ...]] = []
    section = run_file(section="steps_min = 6").algorithm
    assert isinstance(section, FedAsync)
    releaser = Releaser(plan("gaussian", 1.0), Ledger(":memory:", "test"), Random(1))
    ways = Ways(WatchedRows, WatchedSlots, WatchedSlots)
    rows = sum_of(DATA, MODEL, releaser, rows_alone=rows_alone, ways=ways)
    watched = LocalStepsEdge(section.task(), "edge-0", MODEL, releaser, rows)
    pushed(watched, GlobalModel(1, torch.zeros(SIZE), 1.0))
    assert len(drawn) == 6
    assert len(set(drawn)) == 6


def test_worker_h_steps_with_the_proximal_pull_by_hand() -> None:
    start = torch.linspace(-1, 1, SIZE)
    role = worker("learning_rate = 0.3\nsteps_min = 4\nproximal = 0.7", plan())
    random = Random(1)  # the same stream: the same rows
    x = start
    for _ in range(4):
        index = torch.from_numpy((random.words(4) % 12).astype("int64"))
        x = x - 0.3 * (mean_gradient(MODEL, x, DATA.x[index], DATA.y[index]) + 0.7 * (x - start))
    push = pushed(role, GlobalModel(6, start, 1.0))
    torch.testing.assert_close(push.released.vector, x)
    assert push.base_version == 6


def test_fedbuff_pushes_the_distance_to_its_base() -> None:
    start = torch.linspace(-1, 1, SIZE)
    section = "learning_rate = 0.3\nsteps_min = 4"
    model = pushed(worker(section, plan()), GlobalModel(0, start, 1.0)).released.vector
    delta = pushed(
        worker(section, plan(), name="fedbuff"), GlobalModel(0, start, 1.0)
    ).released.vector
    torch.testing.assert_close(delta, model - start)


def test_every_local_step_is_a_clipped_noisy_sum_over_a_fresh_batch() -> None:
    start = torch.zeros(SIZE)
    role = worker("learning_rate = 1.0\nsteps_min = 1", plan("gaussian", z=1e-4, q=1.0))
    gradients = example_gradients(MODEL, start, DATA.x, DATA.y)
    total = clipped_sum(gradients, 0.05, torch.ones(12, dtype=torch.bool)).total.float() / 4.0
    push = pushed(role, GlobalModel(0, start, 0.05))
    torch.testing.assert_close(push.released.vector, -total, rtol=0, atol=1e-4)


@pytest.mark.parametrize("mechanism", ["gaussian", "discrete_gaussian", "knorm"])
def test_every_local_step_is_charged(mechanism: str) -> None:
    role = worker(
        "steps_min = 7", plan(mechanism, z=20.0 if mechanism == "knorm" else 2.0), seed=None
    )
    for number in (1, 2, 3):
        push = pushed(role, GlobalModel(0, torch.zeros(SIZE), 1.0))
        assert push.released.charged.count == 7 * number
        assert sum(row.count for row in push.released.spent) == 7 * number


def test_a_budget_that_does_not_pay_for_a_whole_task_pays_for_a_shorter_one_then_the_edge_retires() -> (
    None
):
    role = worker("steps_min = 3\nsteps_max = 5", plan("gaussian", z=1.0), seed=None)
    role.releaser.releases_left = 7
    counts: list[int] = []
    while isinstance(
        out := role.on_message(GlobalModel(len(counts), torch.zeros(SIZE), 1.0))[0].message, Push
    ):
        counts.append(out.released.charged.count)
    assert isinstance(out, Retired)
    assert 7 - 3 < counts[-1] <= 7
    assert (
        role.releaser.ledger.charged().count == counts[-1]
    )  # nothing was charged for what was not done


def test_h_is_between_its_bounds_public_and_the_same_again() -> None:
    role = worker("steps_min = 3\nsteps_max = 9", plan())
    counts = [role.task_steps(version) for version in range(300)]
    assert set(counts) == set(range(3, 10))
    assert counts == [role.task_steps(version) for version in range(300)]


# -- the trusted-cloud form ------------------------------------------------------------------------


def test_a_trusted_cloud_gets_a_distance_of_bounded_length_and_the_weight_scales_noise_and_signal_alike() -> (
    None
):
    trusted = replace(plan("gaussian", z=1.0), noise_at="server")
    trusting = worker("learning_rate = 50.0\nsteps_min = 3", trusted, name="fedbuff")
    push = pushed(
        trusting, GlobalModel(0, torch.zeros(SIZE), 0.01, Terms(trusted.declared, 0.5, 1.0))
    )
    assert float(push.released.vector.norm()) == pytest.approx(0.01, rel=1e-3)
    # What is noised is this vector; the server then multiplies it, noise and all, by s/M <= 1/M.
    role = joined(server("fedbuff", 'buffer = 1\nstaleness = "polynomial"\na = 1.0'), "a")
    role.on_message(update("a", 0, 0.0))
    role.on_message(update("a", 0, 1.0))
    torch.testing.assert_close(role.params, torch.full((SIZE,), 0.5))
