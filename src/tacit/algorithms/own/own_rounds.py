"""The settings and the server of a user's own algorithm that works in rounds."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from pydantic import Field
from torch import Tensor

from tacit.algorithms.base.rounds import RoundServer
from tacit.algorithms.own.own_code import calling, like_model
from tacit.algorithms.own.own_settings import AlgorithmSettings
from tacit.algorithms.own.saved_state import SavedState
from tacit.config.algorithm_contract import Sections
from tacit.config.definition import Definition
from tacit.config.traits import Traits, in_several
from tacit.models import Model
from tacit.privacy.policy import Positive


class RoundSettings(AlgorithmSettings):
    """The [algorithm] section of an own algorithm in rounds: inherit from it, and add keys."""

    clients: int | None = Field(
        None, gt=0, description="in rounds: edges asked in each; left out: all of edges.count"
    )
    quorum: float = Field(
        0.5, gt=0, le=1, description="in rounds: part of those asked that must have answered"
    )
    deadline_s: Positive = Field(
        60.0, description="in rounds: seconds that each waits for all answers"
    )

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others, or its code."""
        super().agree(run)
        if self.clients is not None and self.clients > run.edges.count:
            raise ValueError(
                f"algorithm.clients={self.clients} is above edges.count={run.edges.count}"
            )

    def uploads(self, workers: int) -> int:
        """Return how many edges a round asks."""
        return min(workers, self.clients or workers)

    def traits(self, workers: int) -> Traits:
        """Return the traits of rounds."""
        counted = in_several("rounds", self.asked_uploads(workers))
        asynchronous = super().traits(workers)
        return replace(asynchronous, counted=counted, oldest=None, in_turn=False, combines=True)


S = TypeVar("S", bound=RoundSettings)


class AlgorithmRounds(SavedState[S], RoundServer):
    """A server whose `combine` is the algorithm's rule: it makes a model of a round's answers.

    A round asks `clients` edges, and ends when all have answered, or at its deadline if a quorum
    has. `average(answers)` is their mean, or the robust rule of [guard]. Otherwise as
    `AlgorithmServer`.
    """

    def __init__(self, definition: Definition[S], model: Model) -> None:
        a = definition.algorithm
        super().__init__(
            definition,
            model,
            clients=definition.traits.uploads,
            quorum=a.quorum,
            deadline_s=a.deadline_s,
        )
        self.begin_own(definition)

    def made_of(self, answers: list[Tensor]) -> Tensor:
        """Return what `combine` makes of a round. Raises ConfigError for what is no model."""
        with calling(self._entry, "combine"):
            combined = self.combine(answers)
        return like_model(self._entry, "combine", combined, self.params)

    def schedule(self) -> dict[str, float]:
        """Return C, the step size, and how far the round has come."""
        return {"clip": self.clip, "learning_rate": self.learning_rate()} | self.progress()
