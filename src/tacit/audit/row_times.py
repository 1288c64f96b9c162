"""The audit's test F for compiled loops: does the time of a row tell what numbers stand in it?

Every row of a sum has the same numbers, and the time is the processor's for the sum alone. So a
branch in the inner loop of a kernel shows as a multiple.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import torch
from torch import Tensor

from tacit.audit.statistics import Finding
from tacit.models import Model, build
from tacit.privacy.private_sum.denormals import flushed
from tacit.privacy.private_sum.row_sums import Drawn, RowSums, SumTerms
from tacit.privacy.private_sum.way import NotAlone

# What stands in every place of a row: about where tanh, exp and the activations change their ways.
STRANGE: Final = {
    "zeros": 0.0,
    "a third": 0.3,
    "near one": 0.9,
    "steep": 3.0,
    "nearly flat": 9.5,
    "flat": 20.0,
    "negative": -0.9,
    "denormals": 1e-40,
    "huge": 1e30,
    "infinite": math.inf,
    "no numbers": math.nan,
}
MODELS: Final = {
    "mlp, tanh": build("mlp", (8,), 2, hidden=(500,), activation="tanh"),
    "mlp, relu": build("mlp", (8,), 2, hidden=(503,)),
    "cnn, relu": build("cnn", (1, 10, 10), 3, channels=(5,), kernel=3),
    "cnn, tanh": build(
        "cnn", (1, 10, 10), 3, channels=(5,), kernel=3, activation="tanh", normalization="group"
    ),
    "resnet": build("resnet", (1, 8, 8), 2, width=4),
    "mobilenet": build("mobilenet", (1, 8, 8), 2, width=4),
    "logistic": build("logistic", (4,), 100),
    "svm": build("svm", (4,), 100),
}
# A sum's time is the least of REPEATED. An alarm is one that is RATIO times another's in each of
# LOOKS looks. Kinds take turns. So an alarm is false where every repetition of one kind was slowed
# by a quarter and not every one of another: if load does that to nine of ten, with a probability of
# 12·0.9^100 = 3·10^-4 in a look, and 3·10^-11 in three.
REPEATED = 100
LOOKS = 3
RATIO = 1.25
_ROWS = 16
_CLIP = 1.0
_STEP = 2.0**-12
Work = Callable[[], object]


def row_times(models: Mapping[str, Model] = MODELS) -> list[Finding]:
    """Compare the times of the slowest and the quickest kind of rows, for each kernel's sum (F).

    Skipped where there are no kernels.
    """
    return [
        _finding(f"{name}, {mechanism}", model, step)
        for name, model in models.items()
        for mechanism, step in (("integers", _STEP), ("floats", None))
    ]


def _finding(target: str, model: Model, step: float | None) -> Finding:
    try:
        sums = RowSums.checked(model)
    except NotAlone as why:
        skipped = str(why)
        return Finding(
            "time, strange rows", target, "ratio", RATIO, 1.0, alarm=False, skipped=skipped
        )
    works = [work(sums, rows, step) for rows in strange_rows(model)]
    ratio = slowest(works)
    return Finding("time, strange rows", target, "ratio", RATIO, ratio, alarm=ratio > RATIO)


def work(sums: RowSums, x: Tensor, step: float | None) -> Work:
    """Return the private sum over the rows x."""
    params = passing(sums.model)
    index = np.arange(len(x))
    y = torch.arange(len(x)) % sums.model.classes
    drawn = Drawn(x, y, index)
    terms = SumTerms(_CLIP, step, _ROWS)
    return lambda: sums.sum(params, drawn, terms)


def strange_rows(model: Model) -> list[Tensor]:
    """Return batches (_ROWS, *shape), each of one kind; the first is of random numbers."""
    x, _ = model.random_batch(_ROWS, torch.Generator().manual_seed(1))
    return [x, *(torch.full_like(x, number) for number in STRANGE.values())]


def passing(model: Model) -> Tensor:
    """Return parameters (d,) of which the first layer passes a row's number on, to every unit."""
    params = model.init(1)
    weights = [part for name, part in model.unflatten(params).items() if name.endswith("weight")]
    if len(weights) > 1:
        weights[0].fill_(1.0 / weights[0][0].numel())
    return params


def slowest(works: list[Work], looks: int = LOOKS) -> float:
    """Return the largest ratio of the works' times, in the best of at most `looks` looks."""
    least = math.inf
    for _ in range(looks):
        if least > RATIO:
            took = _least_times(works)
            least = min(least, max(took) / min(took))
    return least


def _least_times(works: list[Work]) -> list[float]:
    took = [math.inf] * len(works)
    with flushed():
        for _ in range(REPEATED):
            for number, task in enumerate(works):
                began = time.thread_time()
                task()
                took[number] = min(took[number], time.thread_time() - began)
    return took
