"""DP-PASGD's two sides against eqs (5) to (7); its planner has a file of its own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tacit.algorithms import registry
from tacit.algorithms.base.local_steps import LocalStepsEdge
from tacit.algorithms.dp_pasgd.averaging import DpPasgdServer
from tacit.algorithms.dp_pasgd.pasgd_settings import DpPasgd
from tacit.config import RunFile
from tacit.datasets import Dataset
from tacit.models import build
from tacit.models.vectors import mean_gradient
from tacit.privacy.accounting import Spend, epsilon_pld
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.release import Plan, Releaser
from tacit.protocol.messages import EVERYONE, Deadline, GlobalModel, Halt, Hello, Push, Update
from tests.helpers.private_sums import sum_of
from tests.helpers.run_files import run_file as base_run_file

MODEL = build("logistic", (1, 1, 3), 2)
SIZE = MODEL.size
X = torch.randn(12, 1, 1, 3, generator=torch.Generator().manual_seed(3))
DATA = Dataset(X, (X.sum((1, 2, 3)) > 0).long(), 2, "test/train")


def run_file(tau: int = 4, updates: int = 100) -> RunFile:
    return base_run_file(
        run={"updates": updates},
        algorithm={"name": "dp-pasgd", "learning_rate": 0.5, "tau": tau},
        privacy={"clip": 1.0, "batch": 8, "noise_multiplier": 1.0},
        edges={"count": 3},
    )


def server(updates: int = 100) -> DpPasgdServer:
    cloud = registry.server(run_file(updates=updates).define(), MODEL)
    assert isinstance(cloud, DpPasgdServer)
    for edge in "abc":
        cloud.on_message(Hello(edge, 2.0, 1e-5, "gaussian", 1.0, 0.1, 100.0, ()))
    return cloud


def device(tau: int, plan: Plan, seed: int | None = 1) -> LocalStepsEdge:
    algorithm = run_file(tau).algorithm
    assert isinstance(algorithm, DpPasgd)
    releaser = Releaser(plan, Ledger(":memory:", "test"), Random(seed))
    return LocalStepsEdge(algorithm.task(), "a", MODEL, releaser, sum_of(DATA, MODEL, releaser))


def plan(mechanism: str = "gaussian", z: float = 1.0, q: float = 0.5) -> Plan:
    return Plan(mechanism, q, 4.0, z, 0.01, 100.0, 100.0, 1e-5, rows_max=40)  # type: ignore[arg-type]


def pushed(edge: LocalStepsEdge, params: Tensor, clip: float = 1.0) -> Push:
    (out,) = edge.on_message(GlobalModel(0, params, clip))
    assert isinstance(out.message, Push)
    return out.message


def update(edge: str, base: int, value: float) -> Update:
    return Update(edge, base, torch.full((SIZE,), value), 1.0, ())


def test_eq_5_and_6_tau_local_steps_without_noise_by_hand() -> None:
    start = torch.linspace(-1, 1, SIZE)
    random, x = Random(1), start
    for _ in range(3):
        index = torch.from_numpy((random.words(4) % 12).astype("int64"))
        x = x - 0.5 * mean_gradient(MODEL, x, DATA.x[index], DATA.y[index])
    push = pushed(device(3, plan("none", 0.0)), start)
    torch.testing.assert_close(push.released.vector, x)


def test_eq_7_the_cloud_averages_the_devices_models() -> None:
    cloud = server()
    for edge, value in (("c", 3.0), ("a", 1.0)):
        assert cloud.on_message(update(edge, 0, value)) == []
    outgoing = cloud.on_message(update("b", 0, 8.0))
    torch.testing.assert_close(cloud.params, torch.full((SIZE,), 4.0))
    assert sorted(out.to for out in outgoing) == ["a", "b", "c"]
    assert cloud.version == 1


def test_averages_end_the_run_not_local_steps() -> None:
    cloud = server(updates=1)
    for edge in "ab":
        cloud.on_message(update(edge, 0, 1.0))
    (out,) = cloud.on_message(update("c", 0, 1.0))
    assert (out.to, out.message) == (EVERYONE, Halt(1, "all updates applied"))


def test_a_straggler_is_left_out_of_the_average_and_of_nothing_else() -> None:
    cloud = server()
    for edge in "ab":
        cloud.on_message(update(edge, 0, 2.0))
    timer = cloud.timer()
    assert timer is not None
    cloud.on_message(Deadline(timer.number))
    torch.testing.assert_close(cloud.params, torch.full((SIZE,), 2.0))  # over two, not over three
    spent = (Spend(0.1, 1.0, 4),)
    cloud.on_message(Update("c", 0, torch.full((SIZE,), 100.0), 1.0, spent))
    torch.testing.assert_close(cloud.params, torch.full((SIZE,), 2.0))
    assert cloud.edges["c"].spent == spent  # what it has computed it has paid


@pytest.mark.parametrize("scale", [1.0, 2 / 3, 3 / 2])
def test_eq_6_the_noise_of_tau_steps_has_its_standard_deviation(scale: float) -> None:
    # No row is ever drawn (q tiny), so what comes is noise alone: τ steps of std η·z·C/L each.
    role = device(9, plan("gaussian", z=2.0 * scale, q=1e-6))
    noise = torch.cat(
        [pushed(role, torch.zeros(SIZE), clip=0.1).released.vector for _ in range(300)]
    ).double()
    expected = 0.5 * 2.0 * 0.1 / 4.0 * 9**0.5
    ratio = float(noise.std()) / expected
    assert (0.95 < ratio < 1.05) == (scale == 1.0)
    assert abs(float(noise.mean())) < 4 * scale * expected / len(noise) ** 0.5


@pytest.mark.parametrize("mechanism", ["gaussian", "discrete_gaussian"])
def test_every_local_iteration_is_charged_not_every_average(mechanism: str) -> None:
    role = device(6, plan(mechanism, z=3.0), seed=None)
    for _ in range(2):
        push = pushed(role, torch.zeros(SIZE))
    assert sum(row.count for row in push.released.spent) == 12
    once = epsilon_pld((Spend(0.5, 3.0, 2),), 1e-5)
    assert epsilon_pld(push.released.spent, 1e-5) > 1.5 * once


def test_dp_sgd_is_tau_one() -> None:
    role = device(1, plan(z=3.0), seed=None)
    assert pushed(role, torch.zeros(SIZE)).released.charged.count == 1
