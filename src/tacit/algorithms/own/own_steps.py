"""The edge whose local steps follow a user's own rule: local code at each site."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.base.edge_task import EdgeTask
from tacit.algorithms.base.laws import Laws
from tacit.algorithms.base.local_steps import LocalStepsEdge, LocalStepsTask
from tacit.algorithms.base.owner import Owner
from tacit.algorithms.own.own_code import calling, like_model
from tacit.config.algorithm_contract import Sections
from tacit.errors import FROM_OWN_CODE, ConfigError
from tacit.privacy.private_sum.choice import WAYS, Ways
from tacit.privacy.release import Steps
from tacit.protocol.messages import GlobalModel, Update
from tacit.robust.law import Law
from tacit.user_code import load_entry

Keys = dict[str, bool | int | float | str]


class LocalRule(ABC):
    """How an edge moves between two noisy gradients.

    A rule is given what has been released, and public numbers. What it makes of them is
    post-processing, as long as it looks at nothing else in its process. So the owner of the rows
    reads its code, and states the code's SHA-256. A rule has no clock and no randomness. Each edge
    makes one, with the run file's `algorithm.edge.keys`.
    """

    @abstractmethod
    def step(self, params: Tensor, gradient: Tensor, start: Tensor, number: int) -> Tensor:
        """Return the next x (d,).

        params: x now (d,). gradient: the noisy mean gradient at it (d,). start: x_τ, the model that
        the edge was sent (d,). number: of the step, from 0. Nothing may be written into them.
        """


class OwnStepsTask(EdgeTask):
    """H local steps by a rule of the user's own, each of them a release.

    Guarantee: the rule sees noisy gradients only, and only their end is pushed. Its code is in the
    edge's own folder, and has the SHA-256 that the edge's run file states.
    """

    kind: Literal["own steps"] = Field("own steps", description="several steps by an own rule")
    entry: str = Field(description='the rule, "module:Rule"')
    code: str | None = Field(
        None,
        pattern="^[0-9a-f]{64}$",
        description="SHA-256 of the rule's code; a site without the algorithm's code must state it",
    )
    steps: int = Field(5, gt=0, le=100_000, description="H, local steps of one task")
    keys: Keys = Field({}, description="the rule's own settings")

    @property
    def most_steps(self) -> int:
        """H."""
        return self.steps

    @property
    def lawful(self) -> bool:
        """Whether an honest update has a law: nothing is known of what a rule does."""
        return False

    def agree(self, run: Sections) -> None:
        """Raise ValueError where a rule would see gradients without noise."""
        super().agree(run)
        if run.privacy.noise_at == "server":
            raise ValueError(
                "privacy.noise_at=server: an own rule of local steps would see gradients without "
                "noise; leave it at the edge"
            )

    def role(self, owner: Owner, horizon: int, ways: Ways = WAYS) -> EdgeRole:
        """Return the edge with the rule of its own folder.

        Raises ConfigError where the code is missing, fails, or is not what the run file states.
        """
        if owner.folder is None:
            raise ConfigError(f"algorithm.edge.entry={self.entry}: there is no folder of code here")
        rule = self.rule(owner.folder)
        kind = owner.kind or OwnStepsEdge
        return kind(self, rule, owner.name, owner.model, owner.releaser, owner.private_sum(ways))

    def rule(self, folder: Path) -> LocalRule:
        """Return a new rule by the code in `folder`. Raises ConfigError as `role`."""
        where = f"algorithm.edge.entry={self.entry}"
        loaded = load_entry(self.entry, folder, "algorithm.edge.entry")
        if self.code not in (None, loaded.digest):
            raise ConfigError(
                f"algorithm.edge.code={self.code}: the code of {self.entry} here has SHA-256 "
                f"{loaded.digest}"
            )
        kind = loaded.target
        if not (loaded.from_folder and isinstance(kind, type) and issubclass(kind, LocalRule)):
            raise ConfigError(
                f"{where}: is no class derived from tacit.algorithms.LocalRule, beside the run file"
            )
        try:
            rule = kind(**self.keys)
        except FROM_OWN_CODE as error:
            why = f"calling it with algorithm.edge.keys failed: {error}"
            raise ConfigError(f"{where}: {why}") from error
        return rule

    def law(self, laws: Laws, update: Update, clip: float, horizon: int) -> Law:
        """Raise NotImplementedError: nothing is known of what a rule does."""
        raise NotImplementedError


class OwnStepsEdge(LocalStepsEdge):
    """An edge whose local steps are a rule's. It pushes the distance that they led."""

    def __init__(self, task: OwnStepsTask, rule: LocalRule, *arguments: Any) -> None:
        """arguments: as of EdgeRole."""
        fixed = LocalStepsTask(steps_min=task.steps, push="distance")
        super().__init__(fixed, *arguments)
        self.rule = rule
        self.entry = task.entry

    def steps(self, message: GlobalModel) -> Steps:
        """Return H steps of the rule from the model in `message`."""
        numbers = iter(range(self.task.most_steps))
        entry = self.entry

        def advance(params: Tensor, gradient: Tensor) -> Tensor:
            given = params.clone(), gradient.clone(), message.params.clone()
            with calling(entry, "step of the rule"):
                moved = self.rule.step(*given, next(numbers))
            return plain_tensor(entry, moved, params)

        return Steps(message.clip, self.task.most_steps, message.params, advance, delta=True)


def plain_tensor(entry: str, moved: object, params: Tensor) -> Tensor:
    """Return a copy of what a rule gave.

    A class derived from Tensor would see what private rows are multiplied with, so there is none.
    Raises ConfigError unless it is a plain tensor like `params` (d,), of finite numbers.
    """
    if type(moved) is not Tensor or moved.layout != torch.strided:
        raise ConfigError(
            f"algorithm.edge.entry={entry}: the rule's step gave a {type(moved).__name__}; return "
            "a plain tensor"
        )
    return like_model(entry, "step of the rule", moved.detach().clone(), params)
