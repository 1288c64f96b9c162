"""The [ask] section of a run file: questions about rows, in the place of training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from tacit.config.sections import Edges, Section
from tacit.errors import ConfigError
from tacit.privacy.policy import Positive
from tacit.questions.question import Question, parse

ASK = "ask"  # the algorithm
SUMS = "sums"  # what stands in a model's place
_MOST_TIMES = 1e6  # that a weight may be of another: below, noise would be all that is left


class AskSection(Section):
    """The questions of a run, and how its budget is divided among them."""

    questions: tuple[str, ...] = Field(
        strict=False,
        min_length=1,
        max_length=200,
        description='as "count", "missing age", "histogram age 0 110 22", "quantile age 0.01 0.5", '
        '"mean income", "std income", "counts by sex", "crosstab sex outcome", '
        '"correlation age income"',
    )
    weights: tuple[Positive, ...] = Field(
        (),
        strict=False,
        description="of each question, its part of the budget; left out: all alike",
    )

    @field_validator("questions")
    @classmethod
    def _can_be_read(cls, questions: tuple[str, ...]) -> tuple[str, ...]:
        for text in questions:
            try:
                parse(text)
            except ConfigError as error:
                raise ValueError(str(error)) from error
        return questions

    @model_validator(mode="after")
    def _a_weight_each(self) -> Self:
        if self.weights and len(self.weights) != len(self.questions):
            raise ValueError(
                f"weights: {len(self.weights)} for {len(self.questions)} questions; state one for "
                "each, or none"
            )
        if self.weights and max(self.weights) > _MOST_TIMES * min(self.weights):
            raise ValueError(
                f"weights: {max(self.weights):g} is more than {_MOST_TIMES:,.0f} times "
                f"{min(self.weights):g}, of which noise would leave nothing"
            )
        if not math.isfinite(sum(self.weights)):
            raise ValueError(f"weights: {max(self.weights):g} is too large; their parts count")
        return self

    def parsed(self) -> list[Question]:
        """Return the questions."""
        return [parse(text) for text in self.questions]


def with_what_follows(content: Any) -> Any:
    """Return a run file's content with what [ask] decides by itself, where it has that section.

    These are the algorithm, what stands in a model's place, and one update an edge.
    """
    if not (isinstance(content, Mapping) and "ask" in content):
        return content
    filled = dict(content)
    filled.setdefault("algorithm", {"name": ASK})
    filled.setdefault("model", {"name": SUMS})
    run = filled.setdefault("run", {})
    edges = filled.get("edges", {})
    count = edges.get("count", Edges().count) if isinstance(edges, Mapping) else Edges().count
    if isinstance(run, Mapping) and "updates" not in run:
        filled["run"] = {**run, "updates": count}
    return filled
