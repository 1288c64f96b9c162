"""Attribute inference: the value of one column is guessed from the model and all else of a row.

The attacker knows the row's other columns and its target, and how frequent each value is. It
guesses the value with the largest frequency times likelihood of the target (Fredrikson et al.,
USENIX Security 2014; Yeom et al., arXiv:1709.01604, section 5). A guess that is right as often
of members as of others tells of the population, and is no leak of a member.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from tacit.attacks.attack_report import AttributeFigures
from tacit.attacks.attacked_rows import RecordRows, losses
from tacit.attacks.measured import proportion
from tacit.models import Model


@dataclass(frozen=True, slots=True)
class OneHotColumn:
    """A column that is one-hot in x: places `first` to `first + width - 1`."""

    name: str
    first: int
    width: int

    @property
    def places(self) -> slice:
        """Its places of x."""
        return slice(self.first, self.first + self.width)


def guessed(
    model: Model, params: torch.Tensor, rows: RecordRows, column: OneHotColumn,
    frequencies: torch.Tensor,
) -> npt.NDArray[np.bool_]:  # fmt: skip
    """Return whether the value of each row (n,) is guessed.

    frequencies (width,): of the values, as the attacker knows them.
    """
    x = rows.x.clone()
    merits = torch.empty(len(x), column.width, dtype=torch.float64)
    for value in range(column.width):
        x[:, column.places] = 0.0
        x[:, column.first + value] = 1.0
        merits[:, value] = frequencies[value].log() - losses(model, params, x, rows.y)
    truth = rows.x[:, column.places].argmax(-1)
    right: npt.NDArray[np.bool_] = (merits.argmax(-1) == truth).numpy()
    return right


def attribute_figures(
    model: Model, params: torch.Tensor, members: RecordRows, others: RecordRows,
    column: OneHotColumn,
) -> AttributeFigures:  # fmt: skip
    """Return how often the column is guessed, of members and of others.

    Frequencies are those of the others, with one row more of each value.
    """
    counts = others.x[:, column.places].double().sum(0) + 1
    frequencies = counts / counts.sum()
    shares = [
        proportion(int(right.sum()), len(right))
        for rows in (members, others)
        for right in [guessed(model, params, rows, column, frequencies)]
    ]
    return AttributeFigures(
        column=column.name, values=column.width, members=shares[0], others=shares[1]
    )
