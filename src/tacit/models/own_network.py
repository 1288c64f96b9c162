"""What a network of a user's own, a module or a graph, says of its outputs."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable

import torch
from torch import Tensor

from tacit.models.losses import Loss, mse, of_each
from tacit.models.model_contract import Model
from tacit.models.objectives import Objective


class OwnNetwork(Model):
    """A model whose target may be classes, a number, or an objective's.

    labels: classes of the target, 0 where it has none. example_loss: of one example's output and
    its y. None: the objective's.
    """

    labels: int
    example_loss: Loss | None

    def probabilities(self, scores: Tensor) -> Tensor:
        """Return probabilities by softmax; of one output, by the logistic function."""
        if self.labels == 2 and self.classes == 1:
            second = scores.reshape(len(scores)).sigmoid()
            return torch.stack((1 - second, second), dim=1)
        return scores.softmax(-1)

    def guesses(self, scores: Tensor) -> Tensor | None:
        """Return the class of each example (B,).

        None where the target is no class, or the output is for its own loss alone.
        """
        if self.labels == 2 and self.classes == 1:
            return (scores.reshape(len(scores)) > 0).to(torch.int64)
        if self.labels and scores.shape[1:] == (self.labels,):
            return scores.argmax(-1)
        return None

    def data_loss(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return the loss of one example's output, (), or of each of a batch, (B,)."""
        if self.example_loss is None:
            assert self.objective is not None
            return self.objective.losses(scores.reshape(*y.shape, self.classes), y)
        decoded = y if self.objective is None else self.objective.decoded(y)
        if y.dim() == 0:
            return self.example_loss(scores, decoded)
        return of_each(self.example_loss)(scores, decoded)

    @property
    def squared_error(self) -> bool:
        """Whether its loss is `mse`."""
        return self.example_loss is mse

    @property
    def trains_objective(self) -> bool:
        """Whether it has an objective, and its loss is the objective's."""
        return self.example_loss is None

    def random_targets(self, count: int, generator: torch.Generator) -> Tensor:
        """Return `count` random targets, of no data: an objective's, numbers in [0, 1), classes."""
        if self.objective is not None:
            return self.objective.random(count, generator)
        if not self.labels:
            return torch.rand(count, generator=generator)
        return torch.randint(self.labels, (count,), generator=generator)


def is_trainable(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a weight's name fits one of the patterns of model.trainable."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def least_and_largest(classes: int, objective: Objective | None = None) -> Tensor:
    """Return the targets (2, …) between which all lie, as a loss of one's own gets them."""
    if objective is not None:
        return objective.decoded(torch.tensor([0, objective.target.codes - 1]))
    if classes:
        return torch.tensor([0, classes - 1])
    return torch.zeros(2)
