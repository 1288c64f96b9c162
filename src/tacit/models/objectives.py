"""What a model learns of labels, counts, events and tokens: loss, best constant, prediction.

Shapes: scores (…, outputs) of a model, y (…) as `tacit.datasets.target` codes it. σ is the logistic
function, and softplus z is ln(1 + e^z). Each loss is of one example, convex in its scores, and at
least 0. It takes the same operations for all scores and all y.

    labels   Σ_j softplus z_j - b_j·z_j: binary cross-entropy, summed over the labels
    counts   r - y - y·(z - ln y), r = e^z: half the Poisson deviance, whose gradient is r - y
    event    Σ_j a_j·softplus z_j - b_j·z_j, over intervals j: the negative log-likelihood of the
             hazards σ(z_j). a_j is 1 where the row is at risk in interval j, b_j where its event
             came in it (Gensheimer and Narasimhan, arXiv:1805.00917, eq. 3)
    tokens   the mean of ln Σ_k e^z_tk - z_t,y_t over the places t where a token is learnt: the
             cross-entropy of a token. 0 where none is. Scores (…, length, tokens), y (…, length)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from tacit.datasets.target import NOT_LEARNT, Target

ValueAndShares = tuple[str | float, dict[str, float]]  # the answer, and a probability of each share
_EVEN = 0.5  # a label more likely than this is predicted
_LEFT_OUT = 1 / 8  # of the places of random tokens


@dataclass(frozen=True, slots=True)
class Objective(ABC):
    """The meaning of a model's outputs for one `target`. Two that are equal compute the same."""

    target: Target

    @abstractmethod
    def losses(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return the loss (…) of scores (…, outputs) against y (…)."""

    @abstractmethod
    def decoded(self, y: Tensor) -> Tensor:
        """Return y as a loss or metric of one's own gets it, as float32.

        Labels (…, labels), each 0 or 1. Counts (…). Events (…, 2): the intervals passed without
        the event, and 1 where it came in the next one. Tokens (…, length) as int64, NOT_LEARNT
        where none is learnt, as torch's own cross-entropy has it.
        """

    @abstractmethod
    def constant(self, y: Tensor) -> Tensor:
        """Return the scores (outputs,) float64 that have the least mean loss for y (n,), n >= 1."""

    def constant_losses(self, y: Tensor) -> Tensor:
        """Return the loss (n,) of the scores `constant` for each of y (n, …)."""
        return self.losses(self.constant(y).expand(len(y), -1), y)

    def extremes(self) -> Tensor:
        """Return the least and the largest y (2, …), as a loss of one's own gets them."""
        return self.decoded(torch.tensor([0, self.target.codes - 1]))

    def guesses(self, scores: Tensor) -> Tensor | None:
        """Return the most likely of y (…), where an accuracy is the share of such guesses."""
        return None

    @abstractmethod
    def means(self, scores: Tensor) -> Tensor:
        """Return what the scores stand for.

        Of labels probabilities (…, labels), of counts the expected count (…), of events the
        probability to come through each interval without it (…, intervals). Of tokens the
        probability of each at each place (…, length, tokens).
        """

    @abstractmethod
    def predictions(self, scores: Tensor) -> Iterator[ValueAndShares]:
        """Yield the prediction of each row of scores (n, outputs)."""

    def random(self, count: int, generator: torch.Generator) -> Tensor:
        """Return `count` random y (count,), of no data."""
        return torch.randint(self.target.codes, (count,), generator=generator)


@dataclass(frozen=True, slots=True)
class LabelsObjective(Objective):
    """Several labels at once, each with a logistic score of its own."""

    def losses(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return the binary cross-entropies, summed over the labels."""
        return (functional.softplus(scores) - self.decoded(y) * scores).sum(-1)

    def decoded(self, y: Tensor) -> Tensor:
        """Return the labels (…, labels), each 0 or 1."""
        places = torch.arange(len(self.target.names), device=y.device)
        shifted = torch.bitwise_right_shift(y.unsqueeze(-1), places)
        return torch.bitwise_and(shifted, 1).to(torch.float32)

    def constant(self, y: Tensor) -> Tensor:
        """Return the log odds of each label's share."""
        return _log_odds(self.decoded(y).double().mean(0))

    def means(self, scores: Tensor) -> Tensor:
        """Return the probability of each label (…, labels)."""
        return scores.sigmoid()

    def predictions(self, scores: Tensor) -> Iterator[ValueAndShares]:
        """Yield the labels that are more likely than not, and the probability of each."""
        names = self.target.shares
        for row in self.means(scores).tolist():
            shares = dict(zip(names, row, strict=True))
            yield "; ".join(name for name in names if shares[name] > _EVEN), shares


@dataclass(frozen=True, slots=True)
class CountsObjective(Objective):
    """A count from 0 to the public `high`, by a Poisson law whose rate is e^z.

    Above ln(high) the rate goes on as a straight line, so no score overflows: a count is never
    above `high`.
    """

    def losses(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return half the Poisson deviance of scores (…, 1) for counts y (…)."""
        z = scores.squeeze(-1)
        count = y.to(z.dtype)
        most = math.log(self.target.high)
        rate = z.clamp(max=most).exp() * (1 + (z - most).relu())
        return rate - count - count * (z - count.clamp(min=1).log())

    def decoded(self, y: Tensor) -> Tensor:
        """Return the counts (…)."""
        return y.to(torch.float32)

    def constant(self, y: Tensor) -> Tensor:
        """Return the logarithm of the mean count."""
        return y.double().mean().clamp(min=1e-15).log().reshape(1)

    def means(self, scores: Tensor) -> Tensor:
        """Return the expected count (…), at most `high`."""
        return scores.squeeze(-1).clamp(max=math.log(self.target.high)).exp()

    def predictions(self, scores: Tensor) -> Iterator[ValueAndShares]:
        """Yield the expected count."""
        for rate in self.means(scores).tolist():
            yield rate, {}


@dataclass(frozen=True, slots=True)
class EventObjective(Objective):
    """The time to an event, by a hazard σ(z_j) in each public interval (discrete time)."""

    def losses(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return the negative log-likelihood of the intervals that a row was at risk in."""
        risk, event = self.at_risk(y)
        return (risk * functional.softplus(scores) - event * scores).sum(-1)

    def at_risk(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return whether a row was at risk in each interval, and had its event there: 0 or 1.

        Shapes: (…, intervals) float32.
        """
        passed = torch.bitwise_right_shift(y, 1).unsqueeze(-1)
        happened = torch.bitwise_and(y, 1).unsqueeze(-1)
        places = torch.arange(len(self.target.cuts), device=y.device)
        risk = (places < passed + happened).to(torch.float32)
        event = (places == passed).to(torch.float32) * happened.to(torch.float32)
        return risk, event

    def decoded(self, y: Tensor) -> Tensor:
        """Return (…, 2): intervals passed without the event, and whether it came in the next."""
        passed = torch.bitwise_right_shift(y, 1)
        return torch.stack((passed, torch.bitwise_and(y, 1)), -1).to(torch.float32)

    def constant(self, y: Tensor) -> Tensor:
        """Return the log odds of each interval's hazard: its events among those at risk in it."""
        risk, event = (each.double().sum(0) for each in self.at_risk(y))
        return _log_odds(event / risk.clamp(min=1))

    def means(self, scores: Tensor) -> Tensor:
        """Return the probability to come through each interval without the event."""
        return (-functional.softplus(scores)).cumsum(-1).exp()

    def predictions(self, scores: Tensor) -> Iterator[ValueAndShares]:
        """Yield the mean time without the event up to the last cut, and its chance by each cut.

        Within an interval the chance grows evenly.
        """
        target = self.target
        ends = torch.tensor((target.low, *target.cuts), dtype=torch.float64)
        free = self.means(scores.double())
        before = torch.cat((torch.ones_like(free[:, :1]), free[:, :-1]), dim=1)
        times = ((before + free) / 2 * (ends[1:] - ends[:-1])).sum(1)
        for time, row in zip(times.tolist(), (1 - free).tolist(), strict=True):
            yield target.low + time, dict(zip(target.shares, row, strict=True))


@dataclass(frozen=True, slots=True)
class TokensObjective(Objective):
    """One of several tokens at each place of an example, by softmax.

    The example stays the unit: its loss is the mean over its places, so that a long one weighs as
    much as a short one.
    """

    def losses(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return the mean cross-entropy over the places where a token is learnt; 0 for none."""
        count = (y >= 0).to(scores.dtype).sum(-1)
        return self.token_losses(scores, y).sum(-1) / count.clamp(min=1)

    def token_losses(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return the cross-entropy (…, length) of each place; 0 where none is learnt.

        Without an index into the scores, which could raise. Where nothing is learnt, the place's
        scores count for nothing, also if they are not finite.
        """
        learnt = (y >= 0).unsqueeze(-1)
        plain = torch.where(learnt, scores, 0)
        chosen = torch.arange(scores.shape[-1], device=y.device) == y.unsqueeze(-1)
        of_all = torch.logsumexp(plain, -1) - torch.where(chosen, plain, 0).sum(-1)
        return torch.where(learnt.squeeze(-1), of_all, 0)

    def decoded(self, y: Tensor) -> Tensor:
        """Return the tokens (…, length) as they are."""
        return y

    def constant(self, y: Tensor) -> Tensor:
        """Return the logarithm of each token's share, where every example has the same weight."""
        learnt = y >= 0
        weights = learnt.double() / learnt.sum(-1, keepdim=True).clamp(min=1)
        shares = _weighed(y, weights, self.target.tokens)
        return (shares / shares.sum().clamp(min=1e-300)).clamp(min=1e-15).log()

    def constant_losses(self, y: Tensor) -> Tensor:
        """Return the loss (n,) of that constant, without a score for each place."""
        learnt = y >= 0
        log_shares = self.constant(y).log_softmax(0)
        of_places = torch.where(learnt, -log_shares[y.clamp(min=0)], 0)
        return of_places.sum(-1) / learnt.sum(-1).clamp(min=1)

    def extremes(self) -> Tensor:
        """Return examples without a token, and of the last one alone."""
        bounds = torch.tensor([NOT_LEARNT, self.target.tokens - 1])
        return bounds.unsqueeze(-1).expand(2, self.target.length).contiguous()

    def guesses(self, scores: Tensor) -> Tensor:
        """Return the token of the highest score at each place."""
        return scores.argmax(-1)

    def means(self, scores: Tensor) -> Tensor:
        """Return the probability of each token at each place."""
        return scores.softmax(-1)

    def predictions(self, scores: Tensor) -> Iterator[ValueAndShares]:
        """Yield the most likely token of each place, as numbers with a blank between them."""
        for row in scores.argmax(-1).tolist():
            yield " ".join(map(str, row)), {}

    def random(self, count: int, generator: torch.Generator) -> Tensor:
        """Return `count` random y (count, length): at an eighth of the places none is learnt."""
        size = (count, self.target.length)
        y = torch.randint(self.target.tokens, size, generator=generator)
        return torch.where(torch.rand(size, generator=generator) < _LEFT_OUT, NOT_LEARNT, y)


_KINDS: dict[str, type[Objective]] = {
    "labels": LabelsObjective,
    "counts": CountsObjective,
    "event": EventObjective,
    "tokens": TokensObjective,
    "text": TokensObjective,
}


def objective_of(target: Target) -> Objective | None:
    """Return what a model learns of labels, counts, events, tokens or a text; else None."""
    kind = _KINDS.get(target.kind)
    if kind is None:
        return None
    return kind(target)


def _weighed(y: Tensor, weights: Tensor, tokens: int) -> Tensor:
    """Return the weight (tokens,) of each token."""
    total = torch.zeros(tokens, dtype=torch.float64)
    return total.index_add_(0, y.clamp(min=0).flatten(), weights.flatten())


def _log_odds(shares: Tensor) -> Tensor:
    """Return ln(p / (1 - p)) of float64, finite for 0 and 1 too."""
    return shares.clamp(1e-15, 1 - 1e-15).logit()
