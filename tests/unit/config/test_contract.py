"""What algorithms say of themselves, and what is built of a run definition."""

from __future__ import annotations

from typing import get_args

import pytest

from tacit import config
from tacit.config import RunFile
from tacit.config.algorithm_entries import BUILT_IN, settings_classes
from tacit.privacy import report

FILE = """
[run]
updates = 10
[data]
dataset = "digits"
[model]
name = "logistic"
[algorithm]
name = "{name}"
[privacy]
mechanism = "{mechanism}"
noise_at = "{noise_at}"
batch = 32
pushes = 10
clip = 1.0
[edges]
count = 4
epsilon = [1.0, 1.0, 8.0]
"""
KINDS = tuple(settings_classes())


def run_file(name: str, mechanism: str = "gaussian", noise_at: str = "edge") -> RunFile:
    return config.parse(FILE.format(name=name, mechanism=mechanism, noise_at=noise_at), "test")


def test_every_name_of_an_algorithm_has_its_roles() -> None:
    names = [name for kind in KINDS for name in get_args(kind.model_fields["name"].annotation)]
    assert sorted(names) == sorted(BUILT_IN)


@pytest.mark.parametrize(
    ("name", "noise_at", "worker", "composition", "guarantee"),
    [
        ("mapa", "edge", "edge", "max", report.AT_EDGE),
        ("fedbuff", "server", "edge", "max", report.AT_SERVER),
        ("adp2sgd", "edge", "peer", "max", report.AT_EDGE),
        ("vafl", "edge", "party", "sum", report.AT_PARTY),
    ],
)
def test_an_algorithm_says_who_works_and_who_is_protected(
    name: str, noise_at: str, worker: str, composition: str, guarantee: report.Guarantee
) -> None:
    run = run_file(name, noise_at=noise_at)
    promise = run.define().promise
    assert (run.algorithm.worker, run.algorithm.composition) == (worker, composition)
    assert (promise.composition, promise.guarantee) == (composition, guarantee)


def test_noise_is_calibrated_once_for_every_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    epsilons: list[float] = []

    def calibrate(epsilon: float, *_: object) -> float:
        epsilons.append(epsilon)
        return 1.0

    monkeypatch.setattr("tacit.config.plans.calibrate", calibrate)
    plans = run_file("mapa").define().plans
    assert [plans.plan(number).epsilon for number in range(5)] == [1.0, 1.0, 8.0, 2.0, 2.0]
    assert plans.named("edge-2").epsilon == plans.budget("edge-2") == 8.0
    assert plans.named("a stranger").epsilon == 2.0
    assert epsilons == [1.0, 8.0, 2.0]


def test_without_noise_nothing_is_calibrated() -> None:
    plan = run_file("asgd", mechanism="none").define().plans.plan(0)
    assert (plan.noise_multiplier, plan.private, plan.clip_is_bounded) == (0.0, False, False)
