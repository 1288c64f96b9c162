"""The terms of a linear model of a table, for people: what each column adds to a row's score.

A number adds its weight times its distance from `center` (from `low` without one), in `scale`. A
category or a date adds the weights of its places.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from torch import Tensor

from tacit.config import RunFile
from tacit.config.own_table import TableData
from tacit.datasets.target import Target
from tacit.exported.shown_scores import of_the_highest, shown_scores
from tacit.models import Model
from tacit.models.zoo.layered import Layered
from tacit.questions.row_parts import Reals

_INTERCEPT = "(intercept)"
_KINDS = ("classes", "number")


class LinearTerms:
    """What each column adds. names: the columns, and the intercept."""

    def __init__(
        self, columns: list[tuple[str, int]], weight: Tensor, bias: Tensor, target: Target
    ) -> None:
        """columns: name and places of each. weight: (classes, places). bias: (classes,)."""
        self.names = [*(name for name, _ in columns), _INTERCEPT]
        starts = np.cumsum([0, *(width for _, width in columns)])
        self._parts = [slice(*ends) for ends in pairwise(starts)]
        scores = np.hstack([weight.double().numpy(), bias.double().numpy()[:, None]])
        self._table: Reals = shown_scores(scores, target)  # (outputs, places + 1)

    def reasons(self, x: Tensor) -> list[dict[str, float]]:
        """Return, for each row of x (n, places), what each column adds.

        It is of the single output, or of the class of the highest score.
        """
        products = self._table[:, None, :-1] * x.double().numpy()
        added = np.stack([products[..., part].sum(axis=-1) for part in self._parts], axis=-1)
        shape = (*added.shape[:2], 1)
        intercept = np.broadcast_to(self._table[:, None, -1:], shape)
        chosen = of_the_highest(np.concatenate([added, intercept], axis=-1))
        return [dict(zip(self.names, row, strict=True)) for row in chosen.tolist()]


def linear_terms(run: RunFile, model: Model, params: Tensor) -> LinearTerms | None:
    """Return the terms of a linear model that learns classes or a number of a table; None: no such.

    Of frozen features no column can be told apart.
    """
    target = run.source.target
    if not isinstance(model, Layered) or not model.linear or target.kind not in _KINDS:
        return None
    if not isinstance(run.data, TableData) or run.data.features != "none":
        return None
    features = run.data.schema_of_rows(run.folder).features
    weight, bias = model.unflatten(params).values()
    return LinearTerms([(each.name, each.width) for each in features], weight, bias, target)
