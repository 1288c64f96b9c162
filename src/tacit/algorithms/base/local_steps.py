"""An edge whose task is several local steps, each a release; what a step is, its algorithm says."""

from __future__ import annotations

from abc import abstractmethod
from typing import Generic, TypeVar

import torch
from torch import Tensor

from tacit.algorithms.base.edge import EdgeRole
from tacit.config.algorithm_contract import AlgorithmSection
from tacit.models import Model
from tacit.privacy.private_sum.way import PrivateSum
from tacit.privacy.release import Releaser, Steps
from tacit.protocol.messages import SERVER, GlobalModel, Outgoing, Push

S = TypeVar("S", bound=AlgorithmSection)


class LocalSteps(EdgeRole, Generic[S]):
    """An edge whose task is a number of local steps.

    Every step is charged; combining them is post-processing.
    """

    def __init__(
        self,
        section: S,
        edge: str,
        model: Model,
        releaser: Releaser,
        private_sum: PrivateSum,
        *,
        horizon: int = 1,
    ) -> None:
        """horizon: T, which a schedule of the step size counts by. Otherwise as EdgeRole."""
        super().__init__(edge, model, releaser, private_sum)
        self.algorithm = section
        self.horizon = horizon

    @abstractmethod
    def steps(self, message: GlobalModel) -> Steps:
        """Return the local steps of the task on the model in `message`."""

    def work(self, message: GlobalModel) -> list[Outgoing]:
        """Take all steps of the task and return one push."""
        steps = self.steps(message)
        released = self.releaser.release_steps(
            steps, lambda params: self.private_sum.compute(params, steps.clip)
        )
        return [Outgoing(SERVER, Push(self.edge, message.version, released))]


def descend(
    message: GlobalModel, count: int, rate: float, proximal: float = 0.0, *, delta: bool = False
) -> Steps:
    """Return the task of `count` steps x ← x - γ(g̃ + ρ(x - x_τ)) from the model x_τ in `message`.

    The proximal part is a function of public values, so it stays outside the clipped gradient.
    """
    anchor = message.params

    def advance(params: Tensor, gradient: Tensor) -> Tensor:
        if proximal:
            pull = gradient + proximal * (params - anchor)
        else:
            pull = gradient
        return torch.add(params, pull, alpha=-rate)

    return Steps(message.clip, count, anchor, advance, delta)
