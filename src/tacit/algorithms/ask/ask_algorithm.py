"""Questions about rows, asked of every edge once: sums of what is counted of each row.

Idea. An edge's one update is the noisy sum of its rows' vectors (`tacit.questions.sheet`), divided
by the public number of rows. The server adds these up. So the "model" is the noisy sum over all
rows of all edges that have answered, and `tacit.questions.estimates` reads the answers from it.

Guarantee. An edge that has answered is asked no more, and an answer of it that comes again counts
for nothing. What the server does is post-processing of what was released.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field

from tacit.algorithms.base.algorithm import ServerAlgorithm
from tacit.algorithms.own.own_server import AlgorithmServer
from tacit.algorithms.own.own_settings import AlgorithmSettings
from tacit.config.algorithm_contract import Sections
from tacit.config.definition import Definition
from tacit.config.plans import Plans
from tacit.config.sections import GAUSSIAN
from tacit.config.traits import Traits
from tacit.models import Model
from tacit.models.sums_model import SumsModel
from tacit.privacy.private_sum.rounded_sums import room
from tacit.privacy.release import Plan
from tacit.privacy.report import Promise
from tacit.protocol.messages import Update


class AskSettings(AlgorithmSettings):
    """The [algorithm] section of questions. It has no key of its own."""

    name: Literal["ask"] = Field(description="the algorithm")

    def traits(self, workers: int) -> Traits:
        """Return the traits: each edge releases one sum over all its rows."""
        return Traits(
            counted="answers",
            usual_clip=1.0,
            oldest=self.max_staleness,
            released="once",
            every_row=True,
        )

    def hindered(self, plan: Plan) -> list[str]:
        """Return nothing: nothing is learnt by steps."""
        return []

    def promise(self, plans: Plans, clip: float) -> Promise:
        """Return the statement of privacy, of questions."""
        return replace(super().promise(plans, clip), purpose="question")

    def agree(self, run: Sections) -> None:
        """Raise ValueError where this section contradicts the others."""
        super().agree(run)
        if run.privacy.clip != 1 and run.privacy.private:
            raise ValueError(
                f"privacy.clip={run.privacy.clip}: a row counts as 1 at most; leave it out"
            )
        if run.privacy.noise_multiplier is not None:
            raise ValueError("privacy.noise_multiplier: follows from privacy.epsilon; leave it out")
        if run.privacy.mechanism not in GAUSSIAN:
            raise ValueError(
                f"privacy.mechanism={run.privacy.mechanism}: an answer's interval is that of a "
                f"Gaussian's noise; leave it out"
            )


class AskServer(AlgorithmServer[AskSettings]):
    """Adds up the edges' sums. answered: the edges whose sums are in."""

    saved: ClassVar = ("answered",)

    def __init__(self, definition: Definition[AskSettings], model: Model) -> None:
        super().__init__(definition, model)
        assert isinstance(model, SumsModel)
        self._plans = definition.plans
        self._entries = model.most_entries

    def begin(self) -> None:
        """Begin without an answer."""
        self.answered: list[str] = []

    def admits(self, update: Update, tau: int) -> bool:
        """Check whether the edge has not answered before."""
        return update.edge not in self.answered

    def step(self, update: Update, tau: int) -> None:
        """Add an edge's sum: minus its mean gradient, times the public number of rows."""
        self.answered = [*self.answered, update.edge]
        shorter = room(self._plans.named(update.edge), self._entries)
        self.move(self.params - self.batch / shorter * update.vector)


def deviation(
    definition: Definition[AskSettings], answered: Collection[str], entries: int
) -> float:
    """Return the standard deviation of the noise in each sum, of the edges that have answered.

    entries: the most numbers of a unit's vector that are not 0.
    """
    plans = [definition.plans.named(edge) for edge in answered]
    return math.sqrt(sum((plan.noise_multiplier / room(plan, entries)) ** 2 for plan in plans))


class AskAlgorithm(ServerAlgorithm):
    """Questions, each edge's answer to all of them in one release."""

    settings = AskSettings
    role = AskServer
