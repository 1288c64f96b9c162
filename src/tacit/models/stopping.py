"""When more training buys nothing: `run.stop = "no better"`.

    t        version of the latest evaluation; T: `run.updates`; n: rows of the public test set that
             every evaluation uses
    a, b     the evaluations in (t/4, t/2], and in (t/2, t]: the window moves and grows with t
    g        gain: mean of b less mean of a, of the accuracy, or of the loss with its sign turned

A curve that flattens wins about as much by doubling its updates as it won by doubling them before.
So g says what the rest can buy. Its standard error s has two independent parts:

    s² = s_a²/|a| + s_b²/|b|  +  r²

The first part is the scatter of the models: private noise moves each of them. The second is the
test set's. All evaluations use the same n rows, so they are compared in pairs (McNemar). If m rows
changed from wrong to right or back, the difference has the variance m/n². At least g·n rows have
changed, and one row at the least. As many again are taken to have cancelled, so that r² is
2·max(|g|, 1/n)/n. A loss is no yes or no. There r is 0.5 % of the loss: less is worth no ε.

The models may scatter too much. Where the root of the first part is above half the standard error
of an accuracy on n rows, the window says too little, and the run goes on.

There is no gain where g <= s, of the accuracy and of the loss. A number has the loss alone. That
must hold at LOOKS evaluations in a row, each with LEAST evaluations in a or more. It is not asked
before EARLIEST of the run.

A model that is no better than always the same answer has not begun to learn: a flat curve at the
constant's level says nothing of what comes. It gets PATIENCE of the run. It is better where the
mean accuracy of b is above the constant's by two standard errors. It is also better where its loss
is below the constant's by BEYOND.

What is not promised: that the full run would not have been better. The rule looks at one test set
many times, and a curve may rise after it was flat. docs/accuracy.md has what it lost and saved.

The rule is a function of the evaluations alone. It costs no ε, as the test set is public and the
models were sent. It gives the same answer after a restart, and anybody may compute it again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

LEAST = 8
LOOKS = 6
EARLIEST = 0.25
PATIENCE = 0.75
WORTH = 0.005  # a gain of loss below this part of it is worth no ε
BEYOND = 0.01  # of the constant's loss
_PLENTY = 1000  # evaluations: if so many are enough, more are


@dataclass(frozen=True, slots=True)
class Evaluated:
    """An evaluation on n = `samples` rows; accuracy: None where the target is a number."""

    version: int
    accuracy: float | None
    loss: float
    samples: int


@dataclass(frozen=True, slots=True)
class Baseline:
    """What always the same answer reaches on the test set; None: cannot be compared."""

    accuracy: float | None = None
    loss: float | None = None


def no_better(evaluations: Sequence[Evaluated], horizon: int, baseline: Baseline) -> bool:
    """Return whether the latest evaluations show no gain beyond its uncertainty.

    evaluations: oldest first. horizon: T. See above for the rule, and for what it does not promise.
    """
    if len(evaluations) < LOOKS + 2 * LEAST:
        return False
    ends = range(len(evaluations) - LOOKS + 1, len(evaluations) + 1)
    return all(_flat(evaluations[:end], horizon, baseline) for end in ends)


def can_end(horizon: int, every: int, last: int) -> bool:
    """Return whether a run whose evaluations show no gain at all ends before version `last`.

    It has an evaluation every `every` versions. Of a run with few of them the rule says nothing.
    """
    step = max(every, last // _PLENTY)
    flat = [Evaluated(version, None, 1.0, 1) for version in range(0, last, step)]
    return no_better(flat, horizon, Baseline(loss=2.0))


def _flat(evaluations: Sequence[Evaluated], horizon: int, baseline: Baseline) -> bool:
    latest = evaluations[-1].version
    if latest < EARLIEST * horizon:
        return False
    before = [each for each in evaluations if latest / 4 < each.version <= latest / 2]
    after = [each for each in evaluations if latest / 2 < each.version]
    if min(len(before), len(after)) < LEAST:
        return False
    if latest < PATIENCE * horizon and not _better_than(baseline, after):
        return False
    if _scattered(before, after):
        return False
    return not (_gains(before, after, _accuracy) or _gains(before, after, _less_loss))


def _scattered(before: Sequence[Evaluated], after: Sequence[Evaluated]) -> bool:
    """Return whether the models differ so much that the window's accuracy says little."""
    earlier = [each.accuracy for each in before if each.accuracy is not None]
    later = [each.accuracy for each in after if each.accuracy is not None]
    if len(earlier) < 2 or len(later) < 2:
        return False
    share = fmean(later)
    return _scatter(earlier, later) > share * (1 - share) / (4 * after[-1].samples)


def _scatter(earlier: Sequence[float], later: Sequence[float]) -> float:
    """Return the variance of the difference of two means, by the scatter of the values."""
    return variance(earlier) / len(earlier) + variance(later) / len(later)


def _accuracy(evaluation: Evaluated) -> float | None:
    return evaluation.accuracy


def _less_loss(evaluation: Evaluated) -> float | None:
    return -evaluation.loss


def _gains(
    before: Sequence[Evaluated], after: Sequence[Evaluated], of: Callable[[Evaluated], float | None]
) -> bool:
    """Return whether there is a gain beyond one standard error; no: there are no such numbers."""
    earlier = [value for each in before if (value := of(each)) is not None]
    later = [value for each in after if (value := of(each)) is not None]
    if len(earlier) < 2 or len(later) < 2:
        return False
    gain = fmean(later) - fmean(earlier)
    if of is _accuracy:
        samples = after[-1].samples
        of_rows = 2 * max(abs(gain), 1 / samples) / samples
    else:
        of_rows = (WORTH * fmean(later)) ** 2
    return gain > math.sqrt(_scatter(earlier, later) + of_rows)


def _better_than(baseline: Baseline, after: Sequence[Evaluated]) -> bool:
    if baseline.loss is not None:
        loss = fmean(each.loss for each in after)
        if loss < (1 - BEYOND) * baseline.loss:
            return True
    accuracies = [each.accuracy for each in after if each.accuracy is not None]
    if baseline.accuracy is None or not accuracies:
        return False
    share = baseline.accuracy
    error = math.sqrt(share * (1 - share) / after[-1].samples)
    return fmean(accuracies) > share + 2 * error
