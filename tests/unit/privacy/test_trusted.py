"""The noise of a trusted aggregator: one budget and one lineage for every edge."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tacit.errors import BudgetSpent, PrivacyError
from tacit.privacy.accounting import Spend
from tacit.privacy.noise.randomness import Random
from tacit.privacy.release import Plan, trusted
from tacit.privacy.release.trusted import Trusted

DIMS = 2000


def plan(edge: str) -> Plan:
    return Plan(
        "gaussian",
        1.0,
        64.0,
        2.0,
        0.1,
        10.0,
        5.0 if edge == "poor" else 15.0,
        1e-5,
        noise_at="server",
    )


@pytest.fixture
def server_releaser(tmp_path: Path) -> Iterator[Trusted]:
    here = Trusted(tmp_path / "trusted.db", "digits", plan, Random())
    yield here
    here.close()


@pytest.mark.parametrize("length", [0.0, 0.5, 3.0, 1e6])
def test_an_update_is_cut_to_the_clip_and_noised_by_z_times_it(
    server_releaser: Trusted, length: float
) -> None:
    gradient = torch.zeros(DIMS)
    gradient[0] = length
    drawn = torch.stack([server_releaser.release("edge-0", gradient, 3.0).vector for _ in range(8)])
    centred = drawn - gradient.clamp(max=3.0)
    # 16,000 draws: their deviation is 6.0 to 3 % with probability 1 - 10^-7, and not 2/3 or 3/2 of
    # it.
    assert abs(float(centred.std()) / 6.0 - 1) < 0.03
    assert float((drawn.mean(0) - gradient.clamp(max=3.0))[0].abs()) < 6 * 6.0 / math.sqrt(8)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_an_update_that_is_not_finite_is_noise_only(server_releaser: Trusted, bad: float) -> None:
    gradient = torch.full((DIMS,), bad)
    assert bool(torch.isfinite(server_releaser.release("edge-0", gradient, 1.0).vector).all())


def test_every_edge_has_its_own_budget(server_releaser: Trusted) -> None:
    gradient, pushes = torch.zeros(3), plan("poor").central().pushes_left(())
    assert pushes
    for _ in range(pushes):
        server_releaser.release("poor", gradient, 1.0)
    with pytest.raises(BudgetSpent):
        server_releaser.release("poor", gradient, 1.0)
    assert server_releaser.history("poor") == (Spend(1.0, 2.0, pushes),)
    assert server_releaser.history("edge-0") == ()
    server_releaser.release("edge-0", gradient, 1.0)


def test_a_clip_outside_the_plan_is_not_released(server_releaser: Trusted) -> None:
    with pytest.raises(PrivacyError, match=r"clip=11\.0"):
        server_releaser.release("edge-0", torch.zeros(3), 11.0)
    assert server_releaser.history("edge-0") == ()


def test_lineages_survive_being_closed_and_another_process(
    server_releaser: Trusted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trusted, "OPEN", 2)
    for _ in range(2):
        for edge in ("a", "b", "c", "d"):
            server_releaser.release(edge, torch.zeros(3), 1.0)
    assert len(server_releaser._open) == 2
    server_releaser.close()
    again = Trusted(tmp_path / "trusted.db", "digits", plan, Random())
    assert [again.history(edge) for edge in "abcd"] == 4 * [(Spend(1.0, 2.0, 2),)]
    again.close()
    other = Trusted(tmp_path / "trusted.db", "mnist", plan, Random())
    assert other.history("a") == ()
    other.close()
