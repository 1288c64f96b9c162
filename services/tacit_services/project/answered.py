"""What a new run needs of its columns, from the answers of `tacit ask`: no public sample is read.

All of it is post-processing of what was released: bounds are quantiles, categories are the values
whose noisy counts stand out, and the rest is other.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tacit import regular_file, rounding
from tacit.config.learnt import LearntSection
from tacit.datasets.own.table_form import TableForm
from tacit.errors import ConfigError
from tacit.questions.question import Question, parse
from tacit.questions.spelling import CUT
from tacit_services.project.guess import Guess, Guesses
from tacit_services.project.number_guess import NumberGuess, rounded

_QUARTILES = 1.349  # deviations from the first to the third quartile of a normal number
_SPAN = 4.0  # deviations between bounds, where no other answer tells


@dataclass(slots=True)
class _Column:
    """What the answers tell of a column. spread: its standard deviation."""

    quantiles: dict[float, float] = field(default_factory=dict)
    mean: float | None = None
    spread: float | None = None
    values: tuple[str, ...] = ()
    rare: int = 0
    missing: bool = False

    def guess(self, name: str) -> Guess | None:
        """Return the column's guess; None: the answers do not tell enough of it."""
        if len(self.values) > 1:
            return Guess(name, values=self.values, rare=self.rare, missing=self.missing)
        if len(self.quantiles) < 2:
            return None
        low, high = min(self.quantiles.values()), max(self.quantiles.values())
        if not low < high:
            return None
        center = self.mean if self.mean is not None else self._middle(low, high)
        number = NumberGuess(low, high, min(max(center, low), high), self._scale(low, high))
        return Guess(name, number=number, missing=self.missing)

    def _middle(self, low: float, high: float) -> float:
        return self.quantiles.get(0.5, (low + high) / 2)

    def _scale(self, low: float, high: float) -> float:
        if self.spread:
            return self.spread
        quartiles = [self.quantiles.get(share) for share in (0.25, 0.75)]
        if None not in quartiles and quartiles[0] < quartiles[1]:  # type: ignore[operator]
            return rounded(float(quartiles[1] - quartiles[0]) / _QUARTILES)  # type: ignore[operator]
        return rounded((high - low) / _SPAN)


def guesses_of(path: Path, target: str | None, unit: str | None) -> Guesses:
    """Return what the answers in `path` tell: of every column but the target, and of the target.

    target: the column to be learnt; its values were asked for. Raises ConfigError where the file is
    none, or does not tell enough of the target.
    """
    documents = read_answers(path)
    columns: dict[str, _Column] = {}
    rows = 0
    for document in documents:
        question = parse(document["question"])
        if question.kind == "count" and document["value"] is not None:
            rows = max(1, round(document["value"]))
        elif question.columns:
            _learn(columns.setdefault(question.columns[0], _Column()), question, document)
    if target is None:
        raise ConfigError("--target: missing; of answers it must be named")
    guesses = {name: column.guess(name) for name, column in columns.items()}
    target_guess = guesses.pop(target, None)
    if target_guess is None:
        raise ConfigError(
            f"--target {target}: {path.name} does not tell its values, or its bounds; ask "
            f'"counts by {target}", or "quantile {target} 0.01 0.99"'
        )
    columns_read = [guess for name, guess in guesses.items() if guess is not None and name != unit]
    unknown = [name for name, guess in guesses.items() if guess is None and name != unit]
    learnt = _learnt(path, documents)
    remarks = tuple(_remarks(documents, unknown))
    return Guesses(
        columns_read, (target_guess,), TableForm(), remarks, rows=rows, sites=learnt.edges,
        learnt=learnt,
    )  # fmt: skip


def _learnt(path: Path, documents: list[dict[str, Any]]) -> LearntSection:
    """Return what a run file states of these answers. Raises ConfigError for what none can have."""
    first = documents[0]
    try:
        return LearntSection(
            answers=hashlib.sha256(regular_file.content(path)).hexdigest(),
            questions=len(documents),
            edges=first["edges"],
            epsilon=float(first["epsilon"]),
            delta=float(first["delta"]),
        )
    except (ValidationError, OSError, TypeError, ValueError) as error:
        raise ConfigError(f"--answers {path}: its edges, epsilon or delta are none") from error


def _learn(column: _Column, question: Question, document: dict[str, Any]) -> None:
    """Take note of what one question tells of its column; what noise hides tells nothing."""
    value = document.get("value")
    if question.kind == "quantile":
        each = document.get("values", [document])
        pairs = zip(question.numbers, (answer["value"] for answer in each), strict=True)
        column.quantiles |= {share: number for share, number in pairs if number is not None}
    elif question.kind == "mean":
        column.mean = value
    elif question.kind == "std":
        column.spread = value
    elif question.kind == "missing":
        column.missing |= value is not None
    elif question.kind == "counts":
        *stated, other, missing = document["values"]
        column.values = tuple(
            value["label"]
            for value in stated
            if not value["suppressed"] and not value["label"].endswith(CUT)
        )
        column.rare = len(stated) - len(column.values) + (not other["suppressed"])
        unknown = other["high"] is None  # the values were not public: there may be others
        column.missing |= unknown or not missing["suppressed"]


def _remarks(documents: list[dict[str, Any]], unknown: list[str]) -> Iterator[str]:
    first = documents[0]
    yield (
        f"columns and bounds come of answers of {first['edges']} of {first['of']} edges, at "
        f"ε = {rounding.epsilon(first['epsilon'])}, which training does not repeat"
    )
    if unknown:
        yield (
            f"not read, as the answers tell too little of it: {', '.join(unknown)}; ask its "
            "quantiles at two shares, or the counts of its values"
        )


def read_answers(path: Path) -> list[dict[str, Any]]:
    """Return the answers in a file that `tacit ask` has written. Raises ConfigError."""
    try:
        documents = json.loads(regular_file.text(path))
        for document in documents:
            _check(document)
    except OSError as error:
        raise ConfigError(f"--answers {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"--answers {path}: is no answers.json, which `tacit ask` writes"
        ) from error
    if not documents:
        raise ConfigError(f"--answers {path}: has no answer")
    return list(documents)


def _check(document: Mapping[str, Any]) -> None:
    """Raise ValueError, KeyError, TypeError, or ConfigError for what is no answer to its question.

    A host has made it, so nothing of its form is taken for granted.
    """
    question = parse(str(document["question"]))
    _ = document["edges"], document["of"], document["epsilon"], document["delta"]
    each = document.get("values", [document])
    for answer in each:
        _ = answer["suppressed"]
        for key in ("value", "low", "high"):
            if answer[key] is not None and not math.isfinite(answer[key]):
                raise ValueError(key)
        if "values" in document and not isinstance(answer["label"], str):
            raise TypeError("label")
    if question.kind == "quantile" and len(each) != len(question.numbers):
        raise ValueError("values")
    if question.kind in ("counts", "crosstab", "histogram") and len(document["values"]) < 2:
        raise ValueError("values")
