"""The edge's task for FedAsync, FedBuff, FedAvg and SGD, and how many steps a task has."""

from __future__ import annotations

import hashlib

from tacit.algorithms.base.local_steps import LocalSteps, descend
from tacit.algorithms.base.server import ServerRole
from tacit.config.algorithms import FedAsync
from tacit.privacy.release import Steps
from tacit.protocol.messages import GlobalModel, Update
from tacit.robust.law import Law


class FedAsyncEdge(LocalSteps[FedAsync]):
    """Process Worker of Algorithm 1, for all four."""

    @property
    def delta(self) -> bool:
        """Whether it pushes how far the steps led, instead of the model."""
        at_server = self.releaser.plan.noise_at == "server"
        return self.algorithm.name == "fedbuff" or at_server

    def steps(self, message: GlobalModel) -> Steps:
        """Return H local steps on the loss f(x; z) + ρ/2·||x - x_τ||², whose result is pushed."""
        a = self.algorithm
        rate = a.learning_rate * a.factor(message.version, self.horizon)
        steps = self.task_steps(message.version)
        return descend(message, steps, rate, a.proximal, delta=self.delta)

    @property
    def most_steps(self) -> int:
        """H_max."""
        return self.algorithm.steps

    def task_steps(self, version: int) -> int:
        """Return H in [H_min, H_max], by the edge's name and τ: public, and always the same.

        Near the end of the budget, what is left of it, but not below H_min.
        """
        a = self.algorithm
        remaining = self.releaser.releases_left
        most = a.steps
        if remaining is not None and a.steps_min <= remaining < most:
            most = remaining
        return local_steps(a, most, self.edge, version)


def local_steps(a: FedAsync, most: int, edge: str, version: int) -> int:
    """Return H in [H_min, `most`] for a task on model `version`."""
    digest = hashlib.sha256(f"tacit steps|{edge}|{version}".encode()).digest()
    return a.steps_min + int.from_bytes(digest[:8]) % (most - a.steps_min + 1)


def task_law(server: ServerRole, a: FedAsync, update: Update) -> Law:
    """Return the law of one task's distance to its base."""
    rate = a.learning_rate * a.factor(update.base_version, server.horizon)
    most = local_steps(a, a.steps, update.edge, update.base_version)
    return server.laws.steps(
        update.edge, server.clip, rate, most=most, fewest=a.steps_min, proximal=a.proximal
    )
