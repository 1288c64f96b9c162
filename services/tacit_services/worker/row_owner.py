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

from tacit import rounding
from tacit.algorithms import registry
from tacit.algorithms.base.edge import EdgeRole
from tacit.config import RunFile
from tacit.config.algorithm_contract import WorkerKind
from tacit.config.definition import Definition
from tacit.datasets.held_out import UnitSplit
from tacit.errors import ConfigError, PolicyForbids
from tacit.kernels.loading import described
from tacit.models import Model
from tacit.privacy.accounting import epsilon_pld
from tacit.privacy.accounting.history import UnitSide
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.plan import Plan
from tacit.privacy.private_sum.denormals import flush_pool
from tacit.privacy.release import Releaser
from tacit_services.identity.folder import Identity
from tacit_services.settings import EdgeSettings, load_policy
from tacit_services.worker import last_statement
from tacit_services.worker.contract import LoopSettings
from tacit_services.worker.device import tried
from tacit_services.worker.last_statement import StatedAnswers, no_consents
from tacit_services.worker.loop import WorkerLoop
from tacit_services.worker.resources import (
    LedgerOpener,
    WorkerResources,
    ledger_of,
    worker_resources,
)
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
        split, side = _split(definition, ledger)
        part = definition.source.edge(identity.number, self.data, identity.path, split)
        plan = self.plan(definition, identity.number, part.most)
        releaser = Releaser(plan, ledger, Random(), side=side)
        self._bound(releaser)
        arguments = definition, identity.edge, part.rows, model, releaser, device
        role = registry.edge(*arguments, rows_alone=self.rows_alone, held_out=part.held_out)
        if role.judge is not None:
            self._bound(role.judge.releaser)
        return role

    def _bound(self, releaser: Releaser) -> None:
        """Let an owner's lifetime bound what questions, looks and training come to together.

        In a federation the ledger does, by a filter. Raises PolicyForbids where it pays for nothing
        of a run that has not begun.
        """
        owners = load_policy(self.policy)
        lifetime = owners.lifetime_epsilon
        if lifetime is None or releaser.ledger.shared:
            return
        releaser.bound(lifetime, owners.lifetime_delta)
        if releaser.releases_left == 0 and not releaser.has_begun:
            spent = epsilon_pld(releaser.ledger.history(), owners.lifetime_delta)
            raise PolicyForbids(
                f"policy lifetime_epsilon={lifetime:g}: ε = {rounding.epsilon(spent)} of it is "
                "spent, and the run's next release would pass it; this edge does not take part",
                "lifetime_epsilon",
            )

    def plan(self, definition: Definition[Any], number: int, most: int = 0) -> Plan:
        """Return the plan of worker `number`, which has `most` rows at most.

        Raises PrivacyError where the owner's policy forbids it, ConfigError for what is no policy.
        """
        plan = definition.plans.plan(number, most)
        owners = load_policy(self.policy)
        owners.check(plan, definition.algorithm.name, definition.model.name)
        owners.check_questions(definition.question_kinds)
        owners.check_looks(definition.looks_plan)
        return plan

    def allow_alone(self, definition: Definition[Any], number: int) -> None:
        """Raise as `plan`, also where a run outside of federations may spend more than a lifetime.

        What the policy states in vain there is logged.
        """
        owners = load_policy(self.policy)
        owners.check_alone(self.plan(definition, number))
        if definition.looks_plan is not None:
            owners.check_alone(definition.looks_plan)
        if idle := owners.idle_alone:
            log.info("policy %s: hold in a federation only, and this is none", ", ".join(idle))


def _split(definition: Definition[Any], ledger: Ledger) -> tuple[UnitSplit | None, UnitSide]:
    """Return how the ledger's data holds rows out, and the side that training is charged to.

    Raises PrivacyError where the ledger holds out another share, or knows rows by other columns.
    """
    if definition.judging is None:
        return None, "both"
    share = definition.judging.held_out
    key = ledger.split(share, definition.source.row_view)
    return UnitSplit(key, share), "training"


def work(
    settings: EdgeSettings,
    worker: WorkerKind,
    loops: Loops,
    run: RunFile | None = None,
    ledger: LedgerOpener = ledger_of,
    consents: StatedAnswers = no_consents,
) -> None:
    """Run one `worker`, whose loop is of `loops`, to its end. Raises TacitError.

    run: of a federation, with the member's own rows; None: the run file that `settings` name.
    ledger: opens what is charged. consents: the owner's answers, for the statement at the end.
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
    # A member's lifetime is held by its ledger; alone, the run's budget is compared with it.
    allowed = partial(owner.allow_alone if run is None else owner.plan, definition)
    with worker_resources(settings, definition, stop, allowed, ledger) as resources:
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
        last_statement.write(role, resources, definition, settings.policy, consents)
