"""Metrics of labels, counts and events: how good a model's answers to the public test set are.

Shapes: scores (n, outputs), y (n,), as in `tacit.models.objectives`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tacit.datasets.target import Target
from tacit.models.answers import Answers
from tacit.models.objectives import Objective, objective_of
from tacit.models.ranks import area

_LEAST = 1e-15  # the least probability that a log loss counts


def labels_accuracy(answered: Answers, target: Target) -> dict[str, float]:
    """Return how often a label is guessed, the mean over labels."""
    return {"accuracy": _mean(_accuracies(answered, target))}


def labels_log_loss(answered: Answers, target: Target) -> dict[str, float]:
    """Return the log loss of a label, the mean over labels."""
    return {"log_loss": _mean(_log_losses(answered, target))}


def labels_auc(answered: Answers, target: Target) -> dict[str, float]:
    """Return the area under the ROC curve, the mean over labels that some rows have, not all."""
    return {"auc": _mean(_areas(answered, target))}


def per_label(answered: Answers, target: Target) -> dict[str, float]:
    """Return accuracy, log loss and AUC of each label; no AUC where all rows are alike."""
    values: dict[str, float] = {}
    for name, accuracy, log_loss, auc in zip(
        target.names,
        _accuracies(answered, target),
        _log_losses(answered, target),
        _areas(answered, target),
        strict=True,
    ):
        values |= {f"accuracy of {name}": accuracy, f"log loss of {name}": log_loss}
        if not math.isnan(auc):
            values[f"auc of {name}"] = auc
    return values


def deviance(answered: Answers, target: Target) -> dict[str, float]:
    """Return the mean Poisson deviance, twice the loss: 0 where every count is what is expected."""
    objective = _objective(target)
    assert answered.scores is not None
    scores = answered.scores.double().reshape(-1, 1)
    return {"deviance": 2 * float(objective.losses(scores, answered.y).mean())}


def counts_mae(answered: Answers, target: Target) -> dict[str, float]:
    """Return the mean distance of the expected count from the count."""
    objective = _objective(target)
    assert answered.scores is not None
    expected = objective.means(answered.scores.double().reshape(-1, 1))
    return {"mae": float((expected - answered.y).abs().mean())}


def counts_constant(y: Tensor) -> dict[str, float]:
    """Return the MAE of the constant that has the least: the median of y (n,), n >= 1."""
    counts = y.double()
    return {"mae": float((counts - counts.median()).abs().mean())}


def tokens_constant(y: Tensor, target: Target) -> dict[str, float]:
    """Return the accuracy of the most frequent token, and the perplexity of the tokens' shares.

    y: (n, length). nan where no token is learnt.
    """
    counts = torch.bincount(y[y >= 0], minlength=target.tokens).double()
    if not counts.any():
        return {"accuracy": math.nan, "perplexity": math.nan}
    shares = counts / counts.sum()
    entropy = -torch.special.xlogy(shares, shares).sum()
    return {"accuracy": float(shares.max()), "perplexity": float(entropy.exp())}


def event_nll(answered: Answers, target: Target) -> dict[str, float]:
    """Return the mean negative log-likelihood of the hazards."""
    objective = _objective(target)
    assert answered.scores is not None
    return {"nll": float(objective.losses(answered.scores.double(), answered.y).mean())}


def concordance(answered: Answers, target: Target) -> dict[str, float]:
    """Return the concordance index (Antolini et al., doi:10.1002/sim.2427), nan without a pair.

    A pair is a row whose event came in an interval, and one that passed this interval without it.
    The index is how often the first has the higher chance of an event by the end of that interval.
    A tie counts half.
    """
    objective = _objective(target)
    assert answered.scores is not None
    chances = 1 - objective.means(answered.scores.double())
    passed, happened = objective.decoded(answered.y).unbind(-1)
    pairs = concordant = 0.0
    for place in range(len(target.cuts)):
        now = (passed == place) & (happened > 0)
        compared = now | (passed > place)
        count = int(now.sum()) * int((passed > place).sum())
        if count:
            pairs += count
            concordant += count * area(chances[compared, place], now[compared])
    return {"concordance": concordant / pairs if pairs else math.nan}


def objective_constant(y: Tensor, objective: Objective) -> Answers:
    """Return the best constant answer to y (n,), n >= 1."""
    scores = objective.constant(y).expand(len(y), -1)
    loss = float(objective.losses(scores, y).mean())
    return Answers(math.nan, loss, scores, None, y)


def _probabilities(answered: Answers, target: Target) -> tuple[Tensor, Tensor]:
    """Return each label's probabilities, and whether it holds, (n, labels) float64."""
    objective = _objective(target)
    assert answered.scores is not None
    p = objective.means(answered.scores.double())
    return p, objective.decoded(answered.y).double()


def _accuracies(answered: Answers, target: Target) -> list[float]:
    p, holds = _probabilities(answered, target)
    return ((p > 0.5) == (holds > 0)).double().mean(0).tolist()


def _log_losses(answered: Answers, target: Target) -> list[float]:
    p, holds = _probabilities(answered, target)
    right = torch.where(holds > 0, p, 1 - p)
    return (-right.clamp_min(_LEAST).log()).mean(0).tolist()


def _areas(answered: Answers, target: Target) -> list[float]:
    assert answered.scores is not None
    holds = _objective(target).decoded(answered.y) > 0
    columns = zip(answered.scores.unbind(1), holds.unbind(1), strict=True)
    return [area(scores, has) for scores, has in columns]


def _mean(values: list[float]) -> float:
    """Return the mean of the values that are numbers; nan where none is."""
    defined = [value for value in values if not math.isnan(value)]
    if not defined:
        return math.nan
    return sum(defined) / len(defined)


def _objective(target: Target) -> Objective:
    objective = objective_of(target)
    assert objective is not None
    return objective
