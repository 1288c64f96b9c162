"""Answers as JSON has them: `answers.json`, `tacit ask --json`, REST."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tacit.questions.estimates import AnsweredQuestion, Estimate


@dataclass(frozen=True, slots=True)
class Basis:
    """What all answers of a run rest on. edges: that have answered, of how many were asked.

    epsilon, delta: of each edge, for all questions together. unit: whose privacy it is.
    """

    edges: int
    of: int
    epsilon: float
    delta: float
    unit: str


def document(answers: AnsweredQuestion, basis: Basis) -> dict[str, Any]:
    """Return the answers to one question: `value`, or `values` where there are several."""
    if answers.several:
        values = [{"label": answer.label} | _figures(answer) for answer in answers.values]
        figures: dict[str, Any] = {"values": values}
    else:
        figures = _figures(answers.values[0])
    return {"question": answers.question} | figures | asdict(basis)


def _figures(answer: Estimate) -> dict[str, Any]:
    return {
        "value": answer.value,
        "low": answer.low,
        "high": answer.high,
        "suppressed": answer.suppressed,
        "sampling": answer.sampling,
    }
