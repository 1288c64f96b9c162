"""The audit's test F: does the time of a push tell of one record, or of how many were drawn?

Of one: a model is sent with which one row overflows. Of how many: an edge that computes drawn rows
alone takes longer for more of them, and holds its pushes back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from tacit.audit.statistics import SHARE, Finding, ScoreValues, proven
from tacit.audit.subject import Randomness, Subject
from tacit.audit.worlds import MessageSource, World
from tacit.datasets import Dataset
from tacit.models import build

DEEP = build("mlp", (1, 28, 28), 10, hidden=(8,) * 7)
IMAGES = 128
QUIET_Z = 50.0
WARM = 20
LOOKS = 6  # at a mutant's times, each of all its pushes
TINY = 1e-40  # every product with it is denormal
# (pair, pushes) -> seconds of so many pushes of each edge, in random order
Seconds = Callable[["Pair", int], tuple[ScoreValues, ScoreValues]]
# (pushes, held) -> seconds of each push over the wire, and the rows that it drew; held: back, until
# its public delay is over
SecondsAndRows = Callable[[int, bool], tuple[ScoreValues, ScoreValues]]


@dataclass(frozen=True, eq=False)
class Pair:
    """Two edges that differ in one row.

    One of `strange` overflows or is denormal, none of `plain`.
    """

    strange: MessageSource
    plain: MessageSource


def times(
    subject: Subject, source: Randomness, pushes: int, seconds: Seconds | None = None
) -> list[Finding]:
    """Bound what the times of `pushes` pushes show of a strange row (F).

    seconds: how they are measured.
    """
    subject = timed(subject)
    findings = []
    for name, feature, params in (
        ("overflow", 1.0, overflowing()),
        ("denormals", TINY, DEEP.init(1)),
    ):
        strange, plain = (seconds or processor_seconds)(
            pair(subject, source, feature, params), pushes
        )
        epsilon = max(
            proven(strange, plain, subject.delta)[1], proven(-strange, -plain, subject.delta)[1]
        )
        alarm = epsilon > subject.epsilon
        findings.append(
            Finding(
                f"time, {name}", subject.name, "ε", subject.epsilon, epsilon, alarm, subject.honest
            )
        )
    return findings


def counted(measure: SecondsAndRows, pushes: int, *, delayed: bool) -> Finding:
    """Check that times over the wire do not depend on the numbers of rows drawn, by ranks (F).

    Pushes that are not delayed must depend on them: that edge is a mutant. An edge that does not
    hold them back is a mutant, too. It is tested up to `LOOKS` times, as a busy machine's own noise
    may hide what one test would show.
    """
    p_values: list[float] = []
    p = 1.0
    while p >= SHARE and len(p_values) < (1 if delayed else LOOKS):
        p_values.append(float(stats.spearmanr(*measure(pushes, delayed)).pvalue))
        p = float(stats.combine_pvalues(p_values).pvalue)  # Fisher's method
    target = "rows alone" + ("" if delayed else ", pushes not held back")
    return Finding("time, rows drawn", target, "p-value", SHARE, p, p < SHARE, delayed)


def timed(subject: Subject) -> Subject:
    """Return the subject with a deep model and so much noise that it claims to show little."""
    return subject.but(model=DEEP, z=QUIET_Z, most=IMAGES, batch=float(IMAGES), rate=1.0, steps=1)


def pair(subject: Subject, source: Randomness, feature: float, params: Tensor) -> Pair:
    """Return two edges for `timed` subjects.

    Their first image has `feature` for its first pixel, or 0.
    """
    boxes = (
        MessageSource(
            subject,
            source,
            World(params, images(value), images(value), torch.empty(0)),
            canary=False,
        )
        for value in (feature, 0.0)
    )
    return Pair(*boxes)


def overflowing() -> Tensor:
    """Return parameters (d,), none beyond 1e6, with which only one kind of row overflows.

    Its first pixel is 1.
    """
    params = torch.zeros(DEEP.size)
    for name, weight in DEEP.unflatten(params).items():
        if name.endswith("weight"):
            weight[0, 0] = 1e6
    return params


def images(strange: float) -> Dataset:
    """Return random images whose first pixel is black, except in the first image.

    There it is `strange`; if `strange` is tiny, all pixels of that image are.
    """
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(IMAGES, 1, 28, 28, generator=generator)
    x[:, 0, 0, 0] = 0.0
    if 0 < strange < 1e-30:
        x[0] = strange
    x[0, 0, 0, 0] = strange
    return Dataset(x, torch.randint(10, (IMAGES,), generator=generator), 10, "audit")


def processor_seconds(edges: Pair, pushes: int) -> tuple[ScoreValues, ScoreValues]:
    """Return the processor time of each push.

    The order is random, so that the machine's load falls on both edges.
    """
    seconds: tuple[list[float], list[float]] = ([], [])
    for which in turns(pushes):
        edge = (edges.strange, edges.plain)[which]
        began = time.thread_time()
        edge()
        seconds[which].append(time.thread_time() - began)
    return np.array(seconds[0][WARM:]), np.array(seconds[1][WARM:])


def turns(pushes: int) -> list[int]:
    """Return whose turn it is: WARM uncounted pushes of each edge, then `pushes` of each.

    The latter are in random order.
    """
    order: list[int] = np.random.default_rng(1).permutation(np.arange(2 * pushes) % 2).tolist()
    return [0, 1] * WARM + order
