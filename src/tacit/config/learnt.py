"""[data] learnt: the answers to questions that a run file's columns and bounds come of."""

from __future__ import annotations

from pydantic import Field

from tacit import rounding
from tacit.config.sections import Section
from tacit.digests import Sha256


class LearntSection(Section):
    """A public statement: what was asked before, at which ε. It spends nothing again."""

    answers: Sha256 = Field(description="SHA-256 of answers.json, which `tacit ask` has written")
    questions: int = Field(gt=0, description="that were asked together")
    edges: int = Field(gt=0, description="that have answered")
    epsilon: float = Field(gt=0, description="of each edge, for all questions together")
    delta: float = Field(ge=0, lt=1, description="of each edge, for all questions together")

    @property
    def words(self) -> str:
        """The statement in words."""
        asked = "1 question" if self.questions == 1 else f"{self.questions:,} questions"
        edges = "1 edge" if self.edges == 1 else f"{self.edges:,} edges"
        return (
            f"columns and bounds come of the answers of {edges} to {asked}, at "
            f"ε = {rounding.epsilon(self.epsilon)} and δ = {self.delta:g} together"
        )
