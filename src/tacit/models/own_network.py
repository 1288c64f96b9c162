"""What a network of a user's own, a module or a graph, says of its outputs."""

from __future__ import annotations

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

    @property
    def labels_below(self) -> int:
        """What labels lie below: classes of the target, however many numbers a row gives."""
        return max(self.classes, self.labels)

    def probabilities(self, scores: Tensor) -> Tensor:
        """Return probabilities by softmax; of one output, by the logistic function."""
        if self.labels == 2 and self.classes == 1:
            second = scores.reshape(len(scores)).sigmoid()
            return torch.stack((1 - second, second), dim=1)
        return scores.softmax(-1)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of the scores of one example, where its own loss does not know it alone."""
        places = () if self.objective is None else self.objective.target.shape
        return (*places, self.classes)

    def is_one(self, y: Tensor) -> bool:
        """Check whether y is of one example, and not of a batch."""
        return y.dim() == len(self.output_shape) - 1

    def guesses(self, scores: Tensor) -> Tensor | None:
        """Return the class of each example (B,), or the token of each of its places.

        None where the target is neither, or the output is for its own loss alone.
        """
        if self.objective is not None and scores.shape[1:] == self.output_shape:
            return self.objective.guesses(scores)
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
        if self.is_one(y):
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

    def random_inputs(self, count: int, generator: torch.Generator, below: int | None) -> Tensor:
        """Return `count` random examples (count, *shape): in [0, 1), or whole numbers below."""
        if below is None:
            return torch.rand(count, *self.shape, generator=generator)
        return torch.randint(below, (count, *self.shape), generator=generator)

    def random_targets(self, count: int, generator: torch.Generator) -> Tensor:
        """Return `count` random targets, of no data: an objective's, numbers in [0, 1), classes."""
        if self.objective is not None:
            return self.objective.random(count, generator)
        if not self.labels:
            return torch.rand(count, generator=generator)
        return torch.randint(self.labels, (count,), generator=generator)


def least_and_largest(classes: int, objective: Objective | None = None) -> Tensor:
    """Return the targets (2, …) between which all lie, as a loss of one's own gets them."""
    if objective is not None:
        return objective.extremes()
    if classes:
        return torch.tensor([0, classes - 1])
    return torch.zeros(2)
