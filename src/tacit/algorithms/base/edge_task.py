"""What an edge computes for one update, as public numbers that a run file can state."""

from __future__ import annotations

from abc import abstractmethod

from tacit import shown
from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.base.laws import Laws
from tacit.algorithms.base.owner import Owner
from tacit.config.algorithm_contract import Sections
from tacit.config.sections import Section
from tacit.privacy.private_sum.choice import WAYS, Ways
from tacit.protocol.messages import Update
from tacit.robust.law import Law


class EdgeTask(Section):
    """The task that an edge does on each model it is sent.

    A task is built in, so an edge needs none of the algorithm's code. kind: its name in a run file.
    """

    kind: str

    def toml(self) -> str:
        """Return the task as a run file states it."""
        stated = {"kind": self.kind} | self.model_dump(exclude_defaults=True)
        return shown.toml(stated)

    @property
    def most_steps(self) -> int:
        """Releases that one update costs, at most."""
        return 1

    @property
    def relative(self) -> bool:
        """Whether an update is a gradient, or a distance from its model; if not, it is a model."""
        return True

    @property
    def least_steps(self) -> int:
        """Releases that one update costs, at least."""
        return 1

    @property
    def passes(self) -> int:
        """Batches of a pass over an edge's rows; 0: each update has a batch of its own."""
        return 0

    @property
    def lawful(self) -> bool:
        """Whether an honest update has a law."""
        return True

    @property
    def beside(self) -> int:
        """Numbers of an update beside those of a model."""
        return 0

    def agree(self, run: Sections) -> None:
        """Raise ValueError where the task does not fit the run's noise or guard."""
        if run.guard.norm_factor is not None:
            raise ValueError(
                f"guard.norm_factor={run.guard.norm_factor:g}: no bound is known of {self.kind}; "
                "it is for gradients"
            )

    @abstractmethod
    def role(self, owner: Owner, horizon: int, ways: Ways = WAYS) -> EdgeRole:
        """Return the role of the edge with `owner`'s rows; horizon: T of the run."""
        raise NotImplementedError

    @abstractmethod
    def law(self, laws: Laws, update: Update, clip: float, horizon: int) -> Law:
        """Return the law of an honest update that was computed at clip norm `clip`."""
        raise NotImplementedError
