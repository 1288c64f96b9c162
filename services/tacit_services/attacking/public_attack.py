"""Attacks with rows that are nobody's secret: published, public or made up."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tacit.attacks.attack_report import AttackedKind
from tacit.attacks.likelihood_ratio import draws, fewest_runs
from tacit.datasets import Benchmark
from tacit.errors import ConfigError
from tacit_services.attacking.attack_findings import (
    SEED,
    AttackedAs,
    AttackedModel,
    AttackFindings,
    findings,
)
from tacit_services.attacking.dealt_rows import PublishedRows, StandInRows
from tacit_services.attacking.shadow_runs import ShadowWorld, shadow_signals

SHADOWS = 20


@dataclass(frozen=True, slots=True)
class ShadowPlan:
    """How many shadow runs, of how many updates each, in how many processes.

    progress: learns how many have ended.
    """

    runs: int
    updates: int
    processes: int = os.cpu_count() or 1
    progress: Callable[[int], None] = lambda finished: None

    def check(self, records: int, members: int) -> None:
        """Raise ConfigError for fewer runs than an attack learns from."""
        fewest = fewest_runs(records, members)
        if 0 < self.runs < fewest:
            raise ConfigError(
                f"--shadows {self.runs}: is too few for {members:,} members of {records:,}; give "
                f"{fewest} or more, or 0 for the attacks that need none"
            )


def with_published(attacked: AttackedModel, root: Path | None, plan: ShadowPlan) -> AttackFindings:
    """Attack a model of published data: its training rows against its test rows.

    Raises ConfigError, DataError, TacitError.
    """
    run = attacked.run
    source = run.source
    assert isinstance(source, Benchmark)
    if run.evaluation.at_edges:
        raise ConfigError(
            'evaluation.at="edges": which rows an edge held out is its secret, so nobody knows who '
            "was trained on"
        )
    test = source.test(root)
    rows = PublishedRows.of(source, source.train(root), test)
    every, drawn = rows.rows, rows.as_trained
    inside = rows.dealt(run.define(), drawn, run.run.seed).inside
    shadows = None
    if plan.runs:
        plan.check(every.records, rows.trained_on)
        world = ShadowWorld.of(run, plan.updates, rows)
        drawn_runs = draws(plan.runs, every.records, rows.trained_on, SEED)
        shadows = shadow_signals(world, drawn_runs, plan.processes, plan.progress)
    how = AttackedAs("public", f"the published data set {source.name}", False, attacked.epsilon)
    return findings(attacked, (attacked.model, attacked.params), every, inside, shadows, how)


def with_stand_in(
    attacked: AttackedModel, rows: StandInRows, kind: AttackedKind, plan: ShadowPlan
) -> AttackFindings:
    """Attack a twin of a model: the same definition, trained on half of other rows.

    kind: public or synthetic. Raises ConfigError, DataError, TacitError.
    """
    run = attacked.run
    every = rows.rows
    most = run.edges.count * run.define().plans.rows
    members = min(every.records // 2, most)
    world = ShadowWorld.of(run, plan.updates, rows)
    drawn_runs = draws(plan.runs + 1, every.records, members, SEED)
    plan.check(every.records, members)
    shadows = None
    if plan.runs:
        shadows = shadow_signals(world, drawn_runs[:-1], plan.processes, plan.progress)
    twin = world.run(plan.runs, drawn_runs[-1])
    word = "public" if kind == "public" else "made-up"
    how = AttackedAs(kind, f"{word} rows in the form of the private ones", True, twin.epsilon)
    return findings(attacked, (twin.model, twin.params), every, twin.inside, shadows, how)
