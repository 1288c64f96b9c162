"""The records of a vertical run, as its server knows them: names and labels."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from tacit.datasets.alignment import NameHashes


@dataclass(frozen=True, slots=True, eq=False)
class LabelledRecords:
    """The rows of a run, as the server knows them: names (n,), and labels int64 (n,).

    The first `records` are trained on, and the rest is for evaluation and inference. The labels to
    train on come from randomised response at ε = `label_epsilon` (inf: the labels themselves).
    """

    names: NameHashes
    records: int
    labels: Tensor
    label_epsilon: float = math.inf
