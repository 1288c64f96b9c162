"""Metrics: the quality of a model on the public test set, in the numbers that people report.

A metric is a function of all answers to the test set. tacit's own are in `METRICS`; a user's is
"module:function" beside the run file. It is called with (scores (n, classes), y (n,)) of a
classification, or (numbers (n,), y (n,)) of a regression, both in the unit of the file, and returns
a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tacit.datasets import Dataset
from tacit.datasets.target import Target
from tacit.errors import FROM_OWN_CODE, ConfigError
from tacit.models.answers import Answers, MetricInputs
from tacit.models.building import answers
from tacit.models.model_contract import Model
from tacit.user_code import load_entry

Metric = Callable[[Answers, Target], dict[str, float]]


def accuracy(seen: Answers, target: Target) -> dict[str, float]:
    """The share of examples, or words, that are guessed."""
    return {"accuracy": seen.accuracy}


def per_class(seen: Answers, target: Target) -> dict[str, float]:
    """Return each class's recall, the share of its examples that is guessed; it may have none."""
    assert seen.guesses is not None
    right = seen.guesses == seen.y
    found = {}
    for place, name in enumerate(target.names):
        if len(of_it := right[seen.y == place]):
            found[f"accuracy of {name}"] = float(of_it.double().mean())
    return found


def auc(seen: Answers, target: Target) -> dict[str, float]:
    """Return the area under the ROC curve, a tie counting half.

    It is how often an example of a class has a higher score for it than one of another class has.
    Of more than two classes it is the mean over classes, each against the rest, by softmax.
    """
    scores = _by_class(seen)
    places = range(scores.shape[1] == 2, scores.shape[1])
    found = [_auc(scores[:, place], seen.y == place) for place in places]
    known = [one for one in found if not math.isnan(one)]
    return {"auc": sum(known) / len(known) if known else math.nan}


def rmse(seen: Answers, target: Target) -> dict[str, float]:
    """Root of the mean squared error, in the unit of the file."""
    return {"rmse": float((_errors(seen, target) ** 2).mean().sqrt())}


def mae(seen: Answers, target: Target) -> dict[str, float]:
    """Mean absolute error, in the unit of the file."""
    return {"mae": float(_errors(seen, target).abs().mean())}


def perplexity(seen: Answers, target: Target) -> dict[str, float]:
    """The exponential of a word's mean loss."""
    return {"perplexity": math.exp(min(seen.loss, 700.0))}


@dataclass(frozen=True, slots=True)
class OwnMetric:
    """A user's own function, called by its name in the results."""

    entry: str
    function: Callable[[Tensor, Tensor], float]

    def __call__(self, seen: Answers, target: Target) -> dict[str, float]:
        """What the function says. Raises ConfigError where it raises, or says no number."""
        assert seen.scores is not None
        scores = seen.scores
        y = seen.y
        if target.kind == "number":
            scores = target.unscaled(scores.flatten())
            y = target.unscaled(y.flatten())
        try:
            return {self.entry.partition(":")[2]: float(self.function(scores, y))}
        except FROM_OWN_CODE as error:
            raise ConfigError(
                f"evaluation.metrics={self.entry}: {type(error).__name__} on {tuple(scores.shape)} "
                f"and {tuple(y.shape)}; it must return a number"
            ) from error


_CLASSES: dict[str, Metric] = {"accuracy": accuracy, "auc": auc, "per_class": per_class}
_NUMBER: dict[str, Metric] = {"rmse": rmse, "mae": mae}
_TEXT: dict[str, Metric] = {"accuracy": accuracy, "perplexity": perplexity}
METRICS = (*_CLASSES, *_NUMBER, "perplexity")
_WITHOUT_SCORES = (accuracy, per_class, perplexity)


@dataclass(frozen=True, slots=True)
class Metrics:
    """The metrics of a run. metrics: in the order they are shown; target: what y says."""

    metrics: tuple[Metric, ...]
    target: Target

    def measure(
        self, model: Model, params: Tensor, data: Dataset
    ) -> tuple[Answers, dict[str, float]]:
        """The answers to a test set that is not empty, and what every metric says of them.

        Raises ConfigError where a user's own metric or module does.
        """
        kept = MetricInputs(
            scores=any(metric not in _WITHOUT_SCORES for metric in self.metrics),
            guesses=per_class in self.metrics,
        )
        try:
            seen = answers(model, params, data, kept)
        except FROM_OWN_CODE as error:  # of a module, at a row of the public test set
            raise ConfigError(
                f"model.name={model.name}: {type(error).__name__} on the test set, at this model"
            ) from error
        found: dict[str, float] = {}
        for metric in self.metrics:
            found |= metric(seen, self.target)
        return seen, found


def chosen(names: Iterable[str], target: Target, folder: Path) -> Metrics:
    """The metrics called so; () are those that fit the `target`. folder: of the run file.

    Raises ConfigError for one that does not fit, or is not there.
    """
    fitting = {"classes": _CLASSES, "number": _NUMBER, "text": _TEXT}[target.kind]
    wanted = list(names) or _usual(fitting, target)
    return Metrics(tuple(_one(name, fitting, target, folder) for name in wanted), target)


def _usual(fitting: dict[str, Metric], target: Target) -> list[str]:
    if target.kind != "classes":
        return list(fitting)
    if len(target.names) == 2:
        return ["accuracy", "auc"]
    return ["accuracy"]


def _one(name: str, fitting: dict[str, Metric], target: Target, folder: Path) -> Metric:
    if ":" in name:
        if target.kind == "text":
            raise ConfigError(f"evaluation.metrics={name}: is for classes and numbers, not texts")
        return OwnMetric(name, load_entry(name, folder, "evaluation.metrics").target)
    if name not in fitting:
        raise ConfigError(
            f"evaluation.metrics={name}: does not fit a target of kind {target.kind}; use "
            f"{', '.join(fitting)}, or module:function"
        )
    return fitting[name]


def _by_class(seen: Answers) -> Tensor:
    """(n, classes): one score for each class. Of two, or of one output, the odds count."""
    scores = seen.scores
    assert scores is not None
    if scores.shape[1] > 2:
        return scores.softmax(1)
    odds = scores[:, -1] - (scores[:, 0] if scores.shape[1] == 2 else 0)
    return torch.stack((-odds, odds), dim=1)


def _auc(scores: Tensor, is_it: Tensor) -> float:
    """Return the AUC by ranks (Mann and Whitney), averaged over ties; nan for an empty side."""
    positive = int(is_it.sum())
    negative = len(is_it) - positive
    if not positive or not negative:
        return math.nan
    _, place, count = torch.unique(scores, return_inverse=True, return_counts=True)
    ranks = (count.cumsum(0).double() - (count.double() - 1) / 2)[place]
    return (float(ranks[is_it].sum()) - positive * (positive + 1) / 2) / (positive * negative)


def _errors(seen: Answers, target: Target) -> Tensor:
    assert seen.scores is not None
    return (seen.scores.flatten().double() - seen.y.flatten().double()) * target.span
