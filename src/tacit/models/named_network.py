"""A network of a user's own, as a run file names it: a module, or a graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from tacit.models.losses import Loss
from tacit.models.objectives import Objective
from tacit.models.own_network import OwnNetwork


@dataclass(frozen=True, slots=True)
class NetworkUse:
    """What a network is for.

    shape: of an example. outputs: numbers that it gives for one, or 0 for any number. labels:
    classes of the target, or 0 where it has none. loss: of one example; None: the objective's.
    objective: what it learns of labels, counts, an event or tokens. integers: where an example is
    whole numbers, what they lie below.
    """

    shape: tuple[int, ...]
    outputs: int
    labels: int
    loss: Loss | None
    regularization: float
    objective: Objective | None
    integers: int | None


class NamedNetwork(ABC):
    """The keys of [model] for a network of a user's own. Nothing is read before `build`."""

    @abstractmethod
    def digests(self) -> dict[str, str]:
        """Return SHA-256 of what the section names, by key. Executes nothing.

        Raises ConfigError.
        """

    @abstractmethod
    def files(self) -> list[Path]:
        """Return the files, beside code, that make the model, relative to the run file's folder."""

    def build(
        self,
        shape: tuple[int, ...],
        classes: int,
        regularization: float,
        objective: Objective | None = None,
        integers: int | None = None,
    ) -> OwnNetwork:
        """Return the model for examples of `shape`; classes: 0 where the target has none.

        objective: what it learns of labels, counts or an event. integers: where an example is whole
        numbers, their bound. A module's code is executed. Raises ConfigError.
        """
        loss, outputs = self._loss(classes, objective)
        labels = classes if objective is None else 0
        return self._built(
            NetworkUse(shape, outputs, labels, loss, regularization, objective, integers)
        )

    @abstractmethod
    def _loss(self, classes: int, objective: Objective | None) -> tuple[Loss | None, int]:
        """Return the loss of one example, and the network's outputs for one (0: any number)."""

    @abstractmethod
    def _built(self, use: NetworkUse) -> OwnNetwork:
        """Return the model for its use. Raises ConfigError."""
