"""A model trained without noise leaks its members, and the attack shows it; at ε = 1 none does."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from tacit_services.attacking.attack_findings import AttackedModel, AttackFindings
from tacit_services.attacking.dealt_rows import StandInRows
from tacit_services.attacking.public_attack import ShadowPlan, with_stand_in
from tacit_services.attacking.shadow_runs import ShadowWorld, shadow_signals

from tacit import datasets
from tacit.attacks.likelihood_ratio import draws
from tacit.attacks.trade_off import TradeOff
from tacit.config import RunFile
from tacit.datasets.stand_in import StandIn
from tacit.exported.stored import StoredPrivacy
from tests.helpers.run_files import run_file

RECORDS = 240
UPDATES = 100
SHADOWS = 12
_OPEN = {"mechanism": "none", "clip": 100.0, "clip_max": 100.0, "batch": 120}
_PRIVATE = {"epsilon": 1.0, "pushes": UPDATES, "clip": 1.0, "batch": 40}


def run_of(privacy: Mapping[str, object], updates: int = UPDATES) -> RunFile:
    return run_file(
        {"algorithm": {"name": "fedasync", "learning_rate": 4.0, "steps_min": 1, "steps_max": 1}},
        run={"updates": updates}, edges={"count": 1}, privacy=privacy,
    )  # fmt: skip


def rows_with_random_labels(records: int = RECORDS) -> StandInRows:
    """Return digits whose labels are drawn: what a model knows of a label, it has by heart."""
    digits = datasets.load("digits", "train", None)
    generator = torch.Generator().manual_seed(3)
    x = digits.x[torch.randperm(len(digits), generator=generator)[:records]]
    y = torch.randint(10, (records,), generator=generator)
    return StandInRows(StandIn(x, y, list(np.arange(records)[:, None]), digits), None)


def attacked(privacy: Mapping[str, object]) -> AttackFindings:
    run = run_of(privacy)
    model = run.build_model()
    promise = run.define().promise.total({})
    stated = StoredPrivacy.model_validate(
        promise.document() | {"epsilon": run.privacy.epsilon if run.privacy.private else None}
    )
    subject = AttackedModel(run, model, torch.zeros(model.size), "0" * 64, "last", "0" * 64, stated)
    plan = ShadowPlan(SHADOWS, UPDATES, processes=1)
    return with_stand_in(subject, rows_with_random_labels(), "synthetic", plan)


def test_a_model_without_noise_leaks_and_the_same_at_epsilon_1_does_not() -> None:
    allowed = TradeOff(1.0, 1e-5).most_auc()
    # Given a model that has learnt 120 made-up labels by heart, without noise, then an attack finds
    # members more often than ε = 1 would let any attack;
    open_ = attacked(_OPEN)
    best = max(open_.report.attacks, key=lambda each: each.auc.low)
    assert best.auc.low > allowed, best
    assert best.epsilon_shown > 1.0
    assert (open_.report.bound, open_.report.bounds) == (None, None)
    # and of the same run at ε = 1 every attack stays below the bound, and near a coin.
    private = attacked(_PRIVATE)
    assert 0.5 < (private.report.epsilon or 0) <= 1.0
    assert private.report.beyond == []
    for each in private.report.attacks:
        assert each.auc.high < allowed, each
        assert each.epsilon_shown < 0.5
    # The attack with shadow runs is among them.
    assert {each.name for each in private.report.attacks} >= {"likelihood ratio", "loss"}


def test_processes_change_no_bit_of_the_signals() -> None:
    rows = rows_with_random_labels(60)
    world = ShadowWorld.of(run_of(_OPEN, 3), 3, rows)
    drawn = draws(4, 60, 30, seed=1)
    alone, together = (shadow_signals(world, drawn, processes) for processes in (1, 2))
    assert (alone.signals == together.signals).all()
    assert (alone.inside == together.inside).all()
    assert (alone.inside == drawn).all()
