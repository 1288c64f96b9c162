"""Least squares in closed form: each edge releases its second moments once, and the server solves.

Idea. An edge's one update is the noisy sum of its rows' moments, half of XᵀX and Xᵀy
(`privacy.private_sum.moment_sums`), divided by the public number of rows. The server adds up what
has come, and solves anew, with a ridge that follows from the noise. So an edge that comes later
improves the model, and one that has left remains in it. There are no rounds.

Guarantee. An edge that has answered is asked no more, and an answer of it that comes again counts
for nothing. What the server does is post-processing of what was released.

Shapes: D numbers of a row with its constant, K targets, W moments.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from tacit.algorithms.base.algorithm import ServerAlgorithm
from tacit.algorithms.base.server import ServerRole
from tacit.algorithms.least_squares.least_squares_settings import LeastSquaresSettings
from tacit.algorithms.least_squares.moments_edge import rows_of
from tacit.algorithms.least_squares.ridge_solution import (
    logit_gain,
    noise_ridge,
    solution,
    unpacked,
)
from tacit.config.definition import Definition
from tacit.models import Model
from tacit.privacy.plan import Plan
from tacit.privacy.private_sum.moment_grid import (
    BESIDE_DIAGONAL,
    ON_DIAGONAL,
    MomentGrid,
    moments_of,
)
from tacit.privacy.private_sum.moment_rows import CONSTANT, SHARE
from tacit.protocol.messages import Outgoing, Update


class LeastSquaresServer(ServerRole):
    """Adds up the edges' moments, and solves for the model.

    moments: (W,) float64, in rows of length 1. variance: of the noise in a diagonal entry.
    answered: the edges whose moments are in.
    """

    def __init__(self, definition: Definition[LeastSquaresSettings], model: Model) -> None:
        """Raise ConfigError for settings with which no edge could answer."""
        super().__init__(definition, model)
        settings = definition.algorithm
        self.max_staleness = settings.max_staleness
        self._strength = settings.ridge
        self._rows = rows_of(model, settings.class_weights, settings.norm)
        self._plans = definition.plans
        for plan in definition.plans.different():
            self._grid(plan)
        self.update_size = moments_of(self._rows.features, self._rows.targets)
        self.moments = torch.zeros(self.update_size, dtype=torch.float64)
        self.variance = 0.0
        self.answered: list[str] = []

    def admits(self, update: Update, tau: int) -> bool:
        """Check whether the edge has not answered before."""
        return update.edge not in self.answered

    def apply(self, update: Update, tau: int) -> list[Outgoing]:
        """Add an edge's moments, and solve."""
        plan = self._plans.named(update.edge)
        moments = update.vector.double() * plan.batch
        grid = self._grid(plan)
        if grid is not None:
            step = plan.step(self.clip)
            assert step is not None
            moments = moments / (step * grid.unit)
            half = self.update_size - self._rows.features * self._rows.targets
            moments[:half] *= self._beside
            self.variance += (grid.deviation / grid.unit) ** 2
        self.moments = self.moments + moments
        self.answered = [*self.answered, update.edge]
        self.params = self.solved().to(self.params.dtype)
        self.version += 1
        return [Outgoing(update.edge, self.global_model())]

    @property
    def ridge(self) -> float:
        """λ, in rows of length 1."""
        deviation = math.sqrt(self.variance) * ON_DIAGONAL / BESIDE_DIAGONAL
        return noise_ridge(deviation, self._rows.features, self._strength)

    def solved(self) -> Tensor:
        """Return the model (d,) of the moments up to now."""
        rows = self._rows
        deviation = math.sqrt(self.variance)
        square, cross = unpacked(self.moments, rows.features)
        solved = solution(square, cross, self.ridge, deviation)
        if rows.classes:
            gain = logit_gain(solved, square, rows.classes, deviation)
            weights = gain * solved.weights
        else:  # a target from -1 to 1, for rows of the usual length
            weights = solved.weights / (2 * SHARE * rows.norm)
            weights[-1] += 0.5 / CONSTANT
        return torch.cat([weights[:-1].T.reshape(-1), weights[-1] * CONSTANT])

    def schedule(self) -> dict[str, float]:
        """Return C, the step size, and λ."""
        return {"clip": self.clip, "learning_rate": 1.0, "ridge": self.ridge}

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the server's state, with the moments."""
        tensors, values = super().state()
        own = {"variance": self.variance, "answered": self.answered}
        return tensors | {"moments": self.moments}, values | own

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        super().restore(tensors, values)
        self.moments = tensors["moments"]
        self.variance = values["variance"]
        self.answered = list(values["answered"])

    @property
    def _beside(self) -> Tensor:
        """What the upper half of XᵀX is multiplied by: 29/41 beside the diagonal, and 1 on it."""
        rows, columns = torch.triu_indices(self._rows.features, self._rows.features)
        return torch.where(rows == columns, 1.0, ON_DIAGONAL / BESIDE_DIAGONAL).double()

    def _grid(self, plan: Plan) -> MomentGrid | None:
        if not plan.private:
            return None
        return MomentGrid.of(plan, self._rows.features, self._rows.targets)


class LeastSquaresAlgorithm(ServerAlgorithm):
    """Least squares, each edge's moments in one release."""

    settings: ClassVar = LeastSquaresSettings
    role: ClassVar = LeastSquaresServer
