"""What the noise of all releases leaves in each bin: the deviation among runs on made-up rows.

The rows are drawn from what was released: bins from the noisy counts, each column by itself, and
targets from the trained functions. The same server trains on them again and again, and only the
noise of counts and histograms is new each time. What then differs among the models is of the noise.

Columns that go together are not made so, and what they share is less sure than this says. Chance in
whose rows they are is not in it, nor what smoothing and clipping take away from each run alike.

Guarantee. It reads a released model, released counts and public constants: it costs no ε.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from tacit.algorithms.own.own_server import AlgorithmServer
from tacit.config.plans import Plans
from tacit.models.additive import AdditiveModel
from tacit.models.places import joined
from tacit.privacy.private_sum.rounded_sums import room
from tacit.protocol.messages import GlobalModel, Update
from tacit.questions.row_parts import PlaceNumbers, Reals

MOST_UPDATES = 2000  # of a run that is made again
_RUNS = 24  # a deviation is known to about a seventh
_ROWS = 3000  # that are made up
_SEED = 0  # this noise hides nothing
_SPREAD = 0.17  # of a number in [0, 1] about its function


@dataclass(frozen=True)
class NoiseOfRuns:
    """The bins of a model after some updates of some edges. counts: rows of each bin (W,).

    again: makes the run's server, at its beginning. params: (d,) of the trained model.
    """

    again: Callable[[], AlgorithmServer]  # type: ignore[type-arg]
    model: AdditiveModel
    plans: Plans
    rows: Reals
    params: torch.Tensor
    edges: tuple[str, ...]
    updates: int

    def deviations(self) -> Reals | None:
        """Return the standard deviation (W,) of a class's score in each bin, of the noise alone.

        None: the run is too long to be made again, or has no rows.
        """
        if self.updates > MOST_UPDATES or not self.rows[-1] > 0:
            return None
        random = np.random.default_rng(_SEED)
        bins = self._bins(random)
        y = self._targets(bins, random)
        scores = np.stack([self._run(bins, y, random) for _ in range(_RUNS)])
        if self.model.labels:
            scores = scores - scores.mean(axis=1, keepdims=True)
        variance = scores.var(axis=0, ddof=1).sum(axis=0)
        deviations: Reals = np.sqrt(variance / max(1, self.model.classes - 1))
        return deviations

    def _bins(self, random: np.random.Generator) -> PlaceNumbers:
        """Return the places (n, T + 1) of made-up rows, of which each column is drawn by itself."""
        columns = []
        for column, start in zip(self.model.columns, self.model.starts, strict=False):
            weights = self.rows[start : start + column.bins]
            shares = weights / weights.sum()
            columns.append(torch.from_numpy(random.choice(column.bins, _ROWS, p=shares)))
        places: PlaceNumbers = joined(self.model.columns, columns, self.model.pairs).numpy()
        return places

    def _targets(self, bins: PlaceNumbers, random: np.random.Generator) -> Reals:
        """Return what the trained functions say of each row, with chance."""
        scores = self.model.scores_at(self.params, bins)
        if not self.model.labels:
            drawn: Reals = scores[:, 0] + _SPREAD * random.standard_normal(len(bins))
            return drawn.clip(0.0, 1.0)
        gumbel = random.gumbel(size=scores.shape)
        classes: Reals = (scores + gumbel).argmax(axis=1).astype(np.float64)
        return classes

    def _run(self, bins: PlaceNumbers, y: Reals, random: np.random.Generator) -> Reals:
        """Return the scores (classes, W) after a run with new noise, whose edges take turns."""
        role = self.again()
        while role.version < self.updates:
            for number, edge in enumerate(self.edges):
                mine = slice(number, None, len(self.edges))
                [task] = role.answer(edge)
                assert isinstance(task.message, GlobalModel)
                vector = self._released(edge, task.message, bins[mine], y[mine], random)
                role.apply(Update(edge, role.version, vector, role.clip, ()), 0)
        params = role.params.double().numpy().reshape(self.model.classes, -1)
        scores: Reals = params * self.model.part
        return scores

    def _released(
        self,
        edge: str,
        task: GlobalModel,
        bins: PlaceNumbers,
        y: Reals,
        random: np.random.Generator,
    ) -> torch.Tensor:
        """Return the vector (d,) that an edge with these rows, each standing for some, releases."""
        model, plan = self.model, self.plans.named(edge)
        residuals = model.residuals_at(task.params, bins, y)
        lengths = np.sqrt((residuals**2).sum(axis=1, keepdims=True))
        residuals = residuals * np.minimum(1.0, task.clip / np.maximum(lengths, 1e-12))
        each = self.rows[-1] / _ROWS * room(plan, model.most_entries)
        shares = model.of_places(model.shares(task.params))
        histogram = np.stack(
            [
                np.bincount(bins.ravel(), np.repeat(of_class, bins.shape[1]), model.width)
                for of_class in residuals.T
            ]
        )
        noise = plan.noise_multiplier * task.clip * random.standard_normal(histogram.shape)
        vector = (noise - each * shares * histogram).ravel() / plan.batch
        return torch.from_numpy(vector).float()
