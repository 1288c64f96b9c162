"""A worker that owns rows, an edge or a peer: its role is built from them, and runs to its end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tacit.algorithms import registry
from tacit.algorithms.base.edge import EdgeRole
from tacit.config import RunFile
from tacit.config.algorithm_contract import WorkerKind
from tacit.config.definition import Definition
from tacit.errors import ConfigError
from tacit.kernels.loading import described
from tacit.models import Model
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.plan import Plan
from tacit.privacy.private_sum.denormals import flush_pool
from tacit.privacy.release import Releaser
from tacit_services.identity.folder import Identity
from tacit_services.settings import EdgeSettings, load_policy
from tacit_services.worker.contract import LoopSettings
from tacit_services.worker.device import tried
from tacit_services.worker.loop import WorkerLoop
from tacit_services.worker.resources import WorkerResources, worker_resources
from tacit_services.worker.serving import loop_settings, serve, stopping

log = logging.getLogger("tacit.edge")
Loops = Callable[[EdgeRole, WorkerResources, LoopSettings], AbstractContextManager[WorkerLoop]]


@dataclass(frozen=True, slots=True)
class RowOwner:
    """The owner of a worker's rows, with the settings for them.

    data: the folder of published data sets. device: what computes on them. policy: the file that
    states what a run may do with them; None: the run file decides. rows_alone: as for
    `private_sum`.
    """

    data: Path | None
    device: str
    policy: Path | None
    rows_alone: bool = True

    def role(
        self, definition: Definition[Any], model: Model, identity: Identity, ledger: Ledger
    ) -> EdgeRole:
        """Return the edge role of this identity with its own rows.

        Raises ConfigError, DataError, PrivacyError.
        """
        device = tried(self.device)
        part = definition.source.edge(identity.number, self.data, identity.path)
        plan = self.plan(definition, identity.number, part.most)
        releaser = Releaser(plan, ledger, Random())
        arguments = definition, identity.edge, part.rows, model, releaser, device
        return registry.edge(*arguments, rows_alone=self.rows_alone)

    def plan(self, definition: Definition[Any], number: int, most: int = 0) -> Plan:
        """Return the plan of worker `number`, which has `most` rows at most.

        Raises PrivacyError where the owner's policy forbids it, ConfigError for what is no policy.
        """
        plan = definition.plans.plan(number, most)
        load_policy(self.policy).check(plan, definition.algorithm.name, definition.model.name)
        return plan

    def allow_alone(self, definition: Definition[Any], number: int) -> None:
        """Raise as `plan`, also where a run outside of federations may spend more than a lifetime.

        What the policy states in vain there is logged.
        """
        owners = load_policy(self.policy)
        owners.check_alone(self.plan(definition, number))
        if idle := owners.idle_alone:
            log.info("policy %s: hold in a federation only, and this is none", ", ".join(idle))


def work(
    settings: EdgeSettings, worker: WorkerKind, loops: Loops, run: RunFile | None = None
) -> None:
    """Run one `worker`, whose loop is of `loops`, to its end. Raises TacitError.

    run: of a federation, with the member's own rows; None: the run file that `settings` name.
    """
    stop = stopping()
    torch.set_num_threads(settings.threads)
    flush_pool()
    definition = (run or settings.load_run()).define()
    if definition.algorithm.worker != worker:
        raise ConfigError(
            f"algorithm.name={definition.algorithm.name}: its workers are started by "
            f"tacit {definition.algorithm.worker}, not by tacit {worker}"
        )
    model = definition.build_model()
    owner = RowOwner(settings.data, settings.device, settings.policy, settings.rows_alone)
    allowed = partial(owner.allow_alone, definition)
    with worker_resources(settings, definition, stop, allowed) as resources:
        if resources is None:
            return
        role = owner.role(definition, model, resources.identity, resources.ledger)
        remaining = role.releaser.releases_left
        log.info(
            "%s: %s", role.edge, "no guarantee" if remaining is None else f"{remaining} pushes left"
        )
        log.info("%s computes %s, loops by %s", role.edge, role.private_sum.way, described())
        needs = loop_settings(settings, definition, model, model.size, resources.identity.number)
        with loops(role, resources, needs) as loop:
            serve(loop, stop, resources)
