"""Points of a figure that come from no training: a planner's answers, an attacker's success."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from pydantic import Field
from tacit_services.testbed import simulated_run

from tacit.algorithms.dp_pasgd import design as dp_pasgd_plan
from tacit.algorithms.dp_pasgd.design import Planner
from tacit.algorithms.dp_pasgd.pasgd_settings import DpPasgd
from tacit.algorithms.dp_pasgd.problem import DesignProblem
from tacit.audit.inversion import cosine, invert
from tacit.config import RunFile
from tacit.config.sections import Section
from tacit.datasets.source import EdgePart, published_only
from tacit.errors import ConfigError
from tacit.privacy.accounting import epsilon_pld
from tacit.privacy.policy import Positive
from tacit.protocol.messages import GlobalModel, Push, Update
from tacit.simulation.client_server import received
from tacit_lab.papers.figures.stored_results import Result


class Design(Section):
    """The settings of `tacit plan dp-pasgd`, asked about the run file.

    G, X_m, η, ε and δ are the run file's; c1 is the time of its downlink, c2 that of a local step.
    """

    planner: Planner = "poisson"
    resource: Positive = Field(description="C_th")
    smoothness: Positive = Field(description="L")
    strong_convexity: Positive = Field(description="λ")


class AttackSettings(Section):
    """An attack on a run file's edges, each of which holds one record.

    A curious server asks for answers to the same first model again and again; each victim's answers
    are averaged, and the mean is inverted. As in the definition of differential privacy, the
    attacker knows all records but the victim's.
    """

    pushes: int = Field(gt=0, description="answers of one victim that are averaged")
    victims: int = Field(10, gt=0)


class UntrainedPoint(RunFile):
    """A run file whose point is computed (a [design] or an [attack]) and not trained."""

    design: Design | None = None
    attack: AttackSettings | None = None

    def answer(self, root: Path | None) -> Result:
        """Return a result in the form of a simulation's, with one point."""
        if self.design is not None:
            return _planned(self, self.design)
        assert self.attack is not None
        return _attacked(self, self.attack, root)


def _planned(run: RunFile, design: Design) -> Result:
    """Return the period τ of the optimal design, and the ε that its z and K really cost.

    ε comes from the design's own accountant. The run file's ε has no effect on it.
    """
    p = run.privacy
    a = run.algorithm
    if not isinstance(a, DpPasgd):
        raise ConfigError(f"algorithm.name={a.name!r}: a [design] is of dp-pasgd")
    problem = DesignProblem(
        epsilon=p.epsilon,
        delta=p.delta,
        devices=run.edges.count,
        batch=(p.batch,),
        lipschitz=run.privacy.constant_clip,
        dim=run.build_model().size,
        smoothness=design.smoothness,
        strong_convexity=design.strong_convexity,
        lr=a.learning_rate,
        c1=run.network.downlink.seconds,
        c2=run.network.compute.seconds,
        resource=design.resource,
    )
    if design.planner == "poisson":
        rate = run.sampling_rate()
    else:
        rate = None
    plan = dp_pasgd_plan.plan(problem, design.planner, rate)
    return {
        "series": [{"version": plan.rounds, "tau": float(plan.tau)}],
        "epsilon": round(plan.epsilon, 4),
    }


def _attacked(run: RunFile, attack: AttackSettings, root: Path | None) -> Result:
    """Return how alike images read out of pushes are to the victims' (mean cosine), and ε.

    ε is that of the victim that spent most.
    """
    definition = run.define()
    table = simulated_run.training_rows(published_only(definition.source), root)
    model = definition.build_model()
    chosen = torch.randperm(len(table), generator=torch.Generator().manual_seed(run.run.seed))[
        : attack.victims
    ]
    task = GlobalModel(0, model.init(run.run.seed), definition.privacy.constant_clip)
    likeness = []
    spent = 0.0
    for number, row in enumerate(chosen):
        victim = table.take(row[None])
        role = simulated_run.edge(definition, model, number, EdgePart(victim, len(victim)))
        total = torch.zeros(model.size, dtype=torch.float64)
        for _ in range(attack.pushes):
            (out,) = role.on_message(task)
            if not isinstance(out.message, Push):
                raise ConfigError(
                    f"attack.pushes={attack.pushes}: privacy.epsilon={run.privacy.epsilon} pays "
                    f"for less"
                )
            update = received(out.message)
            assert isinstance(update, Update)
            total += update.vector
        if run.privacy.private:
            spent = max(spent, epsilon_pld(update.spent, run.privacy.delta))
        else:
            spent = math.inf
        likeness.append(
            cosine(invert(total / attack.pushes, model.shape, model.classes).image, victim.x[0])
        )
    point = {"version": 0, "likeness": round(math.fsum(likeness) / len(likeness), 6)}
    return {"series": [point], "epsilon": round(spent, 4) if math.isfinite(spent) else None}
