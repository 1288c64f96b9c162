"""Label protection: each label goes through randomised response once, and only the answer is used.

Gradients that a server sends back to parties, and θ_0 itself, are functions of the labels. Noise on
each of them would cost a budget that grows with the training. Noise on the labels costs ε_y once,
and everything after it is post-processing (docs/privacy.md, "Vertical runs").
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from tacit.privacy.noise.randomness import Random


def keep_probability(epsilon: float, classes: int) -> float:
    """Return p = e^ε/(e^ε + C - 1), with which C-ary randomised response keeps the label."""
    return 1 / (1 + (classes - 1) * math.exp(-epsilon))


def randomised_response(labels: Tensor, classes: int, epsilon: float, random: Random) -> Tensor:
    """Return the labels, each kept with probability p, else replaced by a uniform other one.

    The others are the C - 1 other classes.

    labels: int64 (n,) in [0, classes).
    Guarantee: ε-local DP for each label (replace-one). The probabilities of one answer under two
    labels are p and (1-p)/(C-1), whose ratio is e^ε. It holds for ONE draw, so the answer must be
    kept.
    Raises ValueError for ε that is not a finite number > 0, for classes < 2, and for a label
    outside the range.
    """
    if not 0 < epsilon < math.inf or classes < 2:
        raise ValueError(
            f"epsilon={epsilon}, classes={classes}: expected a finite number > 0 and at least 2 "
            f"classes"
        )
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise ValueError(f"labels outside [0, {classes})")
    threshold = np.uint64(min(int(keep_probability(epsilon, classes) * 2.0**64), 2**64 - 1))
    lie = torch.from_numpy(random.words(len(labels)) >= threshold)
    # The modulo bias is below C/2^64.
    shift = (
        torch.from_numpy((random.words(len(labels)) % np.uint64(classes - 1)).astype(np.int64)) + 1
    )
    return torch.where(lie, (labels + shift) % classes, labels)


def corrected_loss(scores: Tensor, answers: Tensor, epsilon: float) -> Tensor:
    """Return (n,): minus the logarithm of the probability that the model gives to each *answer*.

    scores: (n, C). answers: (n,) int64, from `randomised_response`. ε = inf gives cross-entropy.
    "Forward correction" (Patrini et al., arXiv:1609.03683, theorem 2): with true labels p(y|x), the
    minimiser over models is p(y|x) itself, as without noise. Never negative, unlike the unbiased
    estimate by the inverse of the transition matrix.
    """
    if math.isinf(epsilon):
        return functional.cross_entropy(scores, answers, reduction="none")
    # With s = 1 + (C - 1)e^-ε: each wrong answer has probability e^-ε/s, the right one (1 - e^-ε)/s
    # more. In logarithms, so that no ε makes one of them 0.
    scale = math.log1p((scores.shape[-1] - 1) * math.exp(-epsilon))
    honest = functional.log_softmax(scores, -1).gather(-1, answers[:, None])[:, 0]
    more = math.log(-math.expm1(-epsilon)) - scale
    lie = -epsilon - scale
    return -torch.logaddexp(honest + more, honest.new_tensor(lie))
