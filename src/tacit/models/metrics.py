"""Metrics: the quality of a model on the public test set, in the numbers that people report.

A metric is a function of all answers to the test set. tacit's own are in `METRICS`; a user's is
"module:function" beside the run file. It is called with (scores (n, classes), y (n,)) of a
classification, or (numbers (n,), y (n,)) of a regression. Both are in the unit of the file, and it
returns a number. Of labels, counts and events it gets what `tacit.models.objectives` makes of
scores (`means`) and of y (`decoded`).
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
from tacit.models.objective_metrics import (
    concordance,
    counts_constant,
    counts_mae,
    deviance,
    event_nll,
    labels_accuracy,
    labels_auc,
    labels_log_loss,
    objective_constant,
    per_label,
    tokens_constant,
)
from tacit.models.objectives import objective_of
from tacit.models.ranks import area
from tacit.models.ranks import average_precision as precision
from tacit.user_code import load_entry

Metric = Callable[[Answers, Target], dict[str, float]]


def accuracy(answered: Answers, target: Target) -> dict[str, float]:
    """Return the share of examples, or words, that are guessed."""
    return {"accuracy": answered.accuracy}


def per_class(answered: Answers, target: Target) -> dict[str, float]:
    """Return each class's recall, the share of its examples that is guessed; it may have none."""
    assert answered.guesses is not None
    right = answered.guesses == answered.y
    recalls = {}
    for place, name in enumerate(target.names):
        if len(of_it := right[answered.y == place]):
            recalls[f"accuracy of {name}"] = float(of_it.double().mean())
    return recalls


def auc(answered: Answers, target: Target) -> dict[str, float]:
    """Return the area under the ROC curve, a tie counting half.

    It is how often an example of a class has a higher score for it than one of another class has.
    Of more than two classes it is the mean over classes, each against the rest, by softmax.
    """
    return {"auc": _mean_over_classes(area, answered)}


def average_precision(answered: Answers, target: Target) -> dict[str, float]:
    """Return the average precision of finding the second of two classes, which may be rare.

    Of more than two classes it is the mean over classes, each against the rest, by softmax. A
    score that says nothing has the class's share.
    """
    return {"average_precision": _mean_over_classes(precision, answered)}


def rmse(answered: Answers, target: Target) -> dict[str, float]:
    """Return the root of the mean squared error, in the unit of the file."""
    return {"rmse": float((_errors(answered, target) ** 2).mean().sqrt())}


def mae(answered: Answers, target: Target) -> dict[str, float]:
    """Return the mean absolute error, in the unit of the file."""
    return {"mae": float(_errors(answered, target).abs().mean())}


def constant_errors(y: Tensor, target: Target) -> dict[str, float]:
    """Return what the best constant answers reach for y (n,), n >= 1, in the file's unit.

    Of numbers the mean has the least RMSE, and the median the least MAE, as it has of counts. Else
    of labels, counts and events the constant is that of the least loss. Of tokens it is the most
    frequent one, and the tokens' shares for the perplexity. Of another target there are none.
    """
    if target.kind == "text":
        return {}
    if target.kind == "tokens":
        return tokens_constant(y, target)
    objective = objective_of(target)
    if objective is not None:
        constant = objective_constant(y, objective)
        values: dict[str, float] = {}
        for metric in _FITTING[target.kind].values():
            values |= metric(constant, target)
        if target.kind == "counts":
            values |= counts_constant(y)
        return values
    if target.kind != "number":
        return {}
    numbers = target.unscaled(y.flatten())
    return {
        "rmse": float(numbers.std(correction=0)),
        "mae": float((numbers - numbers.median()).abs().mean()),
    }


def perplexity(answered: Answers, target: Target) -> dict[str, float]:
    """Return the exponential of a word's, or token's, mean loss."""
    loss = answered.loss if target.kind == "text" else answered.token_loss
    return {"perplexity": math.exp(min(loss, 700.0))}


@dataclass(frozen=True, slots=True)
class OwnMetric:
    """A user's own function, called by its name in the results."""

    entry: str
    function: Callable[[Tensor, Tensor], float]

    def __call__(self, answered: Answers, target: Target) -> dict[str, float]:
        """Return what the function returns.

        Raises ConfigError where it raises or gives no number.
        """
        assert answered.scores is not None
        scores = answered.scores
        y = answered.y
        if (objective := objective_of(target)) is not None:
            scores = objective.means(scores)
            y = objective.decoded(y)
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


_CLASSES: dict[str, Metric] = {
    "accuracy": accuracy,
    "auc": auc,
    "average_precision": average_precision,
    "per_class": per_class,
}
_NUMBER: dict[str, Metric] = {"rmse": rmse, "mae": mae}
_TEXT: dict[str, Metric] = {"accuracy": accuracy, "perplexity": perplexity}
_LABELS: dict[str, Metric] = {
    "log_loss": labels_log_loss,
    "auc": labels_auc,
    "accuracy": labels_accuracy,
    "per_label": per_label,
}
_COUNTS: dict[str, Metric] = {"deviance": deviance, "mae": counts_mae}
_EVENT: dict[str, Metric] = {"nll": event_nll, "concordance": concordance}
_FITTING: dict[str, dict[str, Metric]] = {
    "classes": _CLASSES,
    "number": _NUMBER,
    "text": _TEXT,
    "tokens": _TEXT,
    "labels": _LABELS,
    "counts": _COUNTS,
    "event": _EVENT,
}
METRICS = tuple(dict.fromkeys(name for metrics in _FITTING.values() for name in metrics))
_WITHOUT_SCORES = (accuracy, per_class, perplexity)


@dataclass(frozen=True, slots=True)
class Metrics:
    """The metrics of a run. metrics: in the order they are shown; target: what y says."""

    metrics: tuple[Metric, ...]
    target: Target

    def measure(
        self, model: Model, params: Tensor, data: Dataset
    ) -> tuple[Answers, dict[str, float]]:
        """Return the answers to a test set that is not empty, and the value of every metric.

        Raises ConfigError where a user's own metric or module does.
        """
        inputs = MetricInputs(
            scores=any(metric not in _WITHOUT_SCORES for metric in self.metrics),
            guesses=per_class in self.metrics,
        )
        try:
            answered = answers(model, params, data, inputs)
        except FROM_OWN_CODE as error:  # of a module, at a row of the public test set
            raise ConfigError(
                f"model.name={model.name}: {type(error).__name__} on the test set, at this model"
            ) from error
        values: dict[str, float] = {}
        for metric in self.metrics:
            values |= metric(answered, self.target)
        return answered, values


def chosen(names: Iterable[str], target: Target, folder: Path) -> Metrics:
    """Return the metrics of these `names`; of (), those that fit the `target`.

    folder: of the run file. Raises ConfigError for one that does not fit, or is not there.
    """
    fitting = _FITTING[target.kind]
    selected = list(names) or _usual(fitting, target)
    return Metrics(tuple(_metric(name, fitting, target, folder) for name in selected), target)


def _usual(fitting: dict[str, Metric], target: Target) -> list[str]:
    if target.kind != "classes":
        return list(fitting)
    if len(target.names) == 2:
        return ["accuracy", "auc"]
    return ["accuracy"]


def _metric(name: str, fitting: dict[str, Metric], target: Target, folder: Path) -> Metric:
    if ":" in name:
        if target.length:
            raise ConfigError(f"evaluation.metrics={name}: is for classes and numbers, not texts")
        return OwnMetric(name, load_entry(name, folder, "evaluation.metrics").target)
    if name not in fitting:
        raise ConfigError(
            f"evaluation.metrics={name}: does not fit a target of kind {target.kind}; use "
            f"{', '.join(fitting)}, or module:function"
        )
    return fitting[name]


def _mean_over_classes(of_class: Callable[[Tensor, Tensor], float], answered: Answers) -> float:
    """Return the mean over classes that have examples; of two classes, that of the second."""
    scores = _by_class(answered)
    places = range(scores.shape[1] == 2, scores.shape[1])
    values = [of_class(scores[:, place], answered.y == place) for place in places]
    defined = [value for value in values if not math.isnan(value)]
    return sum(defined) / len(defined) if defined else math.nan


def _by_class(answered: Answers) -> Tensor:
    """Return (n, classes): one score for each class. Of two, or of one output, the odds count."""
    scores = answered.scores
    assert scores is not None
    if scores.shape[1] > 2:
        return scores.softmax(1)
    odds = scores[:, -1] - (scores[:, 0] if scores.shape[1] == 2 else 0)
    return torch.stack((-odds, odds), dim=1)


def _errors(answered: Answers, target: Target) -> Tensor:
    assert answered.scores is not None
    return (answered.scores.flatten().double() - answered.y.flatten().double()) * target.span
