"""Private additive boosting (DP-EBM: Nori et al., ICML 2021), federated and asynchronous.

Idea. A model is a function of each column, cut into bins. An edge releases a noisy histogram of the
residuals that the model leaves on its rows. It covers the bins of all columns at once. With each as
it comes the server takes a damped Newton step in every bin, and nobody waits for anybody. Residuals
are cut at C, as most are small and noise is in proportion to C. At the end of the run none is cut:
what is then left of all rows together sets the probabilities right.

An edge's first two releases count its rows in each bin, of each class. They need no other
mechanism. The model that the server then sends is sure of one class, so that the residual of every
other row is 1, and of its own 0. An update counts if it was computed on such a model. Its edge had
no other task before its first count was applied, and only those of a later version after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from tacit.algorithms.ebm.ebm_settings import EbmSettings
from tacit.algorithms.ebm.histogram_steps import Prior, centred, curvature, rows_of_bins
from tacit.algorithms.ebm.noise_of_runs import NoiseOfRuns
from tacit.algorithms.ebm.phases import numbered
from tacit.algorithms.own.own_server import AlgorithmServer
from tacit.config.definition import Definition
from tacit.models import Model
from tacit.models.additive import FAR, AdditiveModel
from tacit.privacy.private_sum.rounded_sums import room
from tacit.protocol.messages import GlobalModel, Outgoing, Update
from tacit.questions.row_parts import Reals

_FALLS = 0.2  # the learning rate after t releases of each edge: η / (1 + 0.2t)
_INTERCEPT = 0.5  # part of a Newton step that the intercept goes, which all rows speak of
_UNCUT = 0.8  # from this part of the run on no residual is cut, so that probabilities are right
Spread = float | Reals  # one number, or one for each place (W,)
_LATE = 2  # rounds of all edges after which an update weighs less


class EbmServer(AlgorithmServer[EbmSettings]):
    """Boosts with each histogram as it comes.

    counts: rows (classes, W) that were counted, with their noise. counted: of each edge, how many
    releases counted, and the version from which on it had the next task. variance: of the noise in
    `counts`. steps: histograms of residuals that were taken.
    """

    saved: ClassVar[tuple[str, ...]] = ("counts", "counted", "variance", "steps")

    def __init__(self, definition: Definition[EbmSettings], model: Model) -> None:
        assert isinstance(model, AdditiveModel)
        self._definition = definition
        self._model = model
        self._plans = definition.plans
        self._pushes = definition.plans.pushes or 1
        self._cut = definition.plans.default.clip_is_bounded
        settings = definition.algorithm
        self._prior = Prior(model, settings.size, settings.smoothness)
        self._curvature = curvature(model)
        super().__init__(definition, model)

    def begin(self) -> None:
        """Begin without a count."""
        self.counts = torch.zeros(self._model.classes, self._model.width, dtype=torch.float64)
        self.counted: dict[str, list[int]] = {}
        self.variance = 0.0
        self.steps = 0

    # -- tasks -------------------------------------------------------------------------------------

    @property
    def _counts_needed(self) -> int:
        """How many releases of an edge count: of two classes or more, one counts all but one."""
        return 2 if self._model.labels else 1

    def answer(self, edge: str) -> list[Outgoing]:
        """Return the edge's next task: to count, or the model."""
        done = len(self.counted.get(edge, ()))
        if done >= self._counts_needed:
            return super().answer(edge)
        message = GlobalModel(self.version, self._sure_of(done), self.clip, self.terms)
        return [Outgoing(edge, message)]

    def _sure_of(self, label: int) -> Tensor:
        """Return the parameters (d,) of a model that gives every row the class `label`."""
        scores = torch.zeros(self._model.classes, self._model.width)
        scores[label, -1] = FAR
        return scores.flatten()

    def _counting(self, update: Update) -> int | None:
        """Return which count an update is, as it was computed on that task; None: it is none."""
        tasks = self.counted.get(update.edge, [])
        return numbered(tasks, update.base_version, self._counts_needed)

    # -- updates -----------------------------------------------------------------------------------

    def apply(self, update: Update, tau: int) -> list[Outgoing]:
        """Take one step, and give the edge its next task."""
        super().apply(update, tau)
        return self.answer(update.edge)

    def step(self, update: Update, tau: int) -> None:
        """Count with a histogram, or boost."""
        clip = self.clip_at(update.base_version)
        histogram, noise = self._read(update, clip, self._model.part)
        number = self._counting(update)
        each = self._of_a_row(clip)
        if number is None:
            self._boost(histogram, noise, tau)
        elif number < len(self.counted.get(update.edge, [])):
            self.move(self.params)  # a second answer to one task: its rows are counted already
        else:
            self._count(update.edge, number, histogram / each, noise / each)
        self._uncut()

    def _uncut(self) -> None:
        """Cut no residual from some version on."""
        if self.version >= _UNCUT * self.horizon:
            self.clip = max(self.clip, self._longest)

    @property
    def _longest(self) -> float:
        """The length of the longest residual: of classes √2, of a number in [0, 1] 2."""
        return math.sqrt(2.0) if self._model.labels else 2.0

    def _of_a_row(self, clip: float) -> float:
        """Return what a row adds to a bin where it is counted."""
        if not self._model.labels:
            return clip if self._cut else 2 * FAR * self._model.part
        return min(clip / math.sqrt(2.0), 1.0) if self._cut else 1.0

    def _read(self, update: Update, clip: float, share: Spread) -> tuple[Reals, Spread]:
        """Return the sums of residuals (classes, W), in real units, and their noise.

        share: what a row's residual was multiplied by.
        """
        plan = self._plans.named(update.edge)
        shorter = room(plan, self._model.most_entries)
        scale = plan.batch / (share * shorter)
        vector = update.vector.double().numpy().reshape(self._model.classes, -1)
        noise = plan.noise_multiplier * clip / (share * shorter)
        return -vector * scale, noise

    def _count(self, edge: str, number: int, histogram: Reals, noise: Spread) -> None:
        """Add the rows that a release counts, and begin with the classes' shares."""
        self._add_rows(number, histogram)
        self.variance += float(np.max(noise)) ** 2 * self._share_of_noise(number)
        tasks = [*self.counted.get(edge, []), self.version + 1]
        self.counted = {**self.counted, edge: tasks}
        self.move(self._begun() if not self.steps else self.params)

    def _add_rows(self, number: int, histogram: Reals) -> None:
        """Add the rows that count `number` shows, where its model was sure of class `number`."""
        labels = self._model.labels
        counted = np.zeros_like(histogram)
        if not labels:
            counted = -histogram  # every row is far below the model's answer
        elif labels == 2:  # the other class, which both outputs count
            counted[1 - number] = (histogram[1 - number] - histogram[number]) / 2
        elif number:
            counted[0] = histogram[0]
        else:
            counted[1:] = histogram[1:]
        self.counts = self.counts + torch.from_numpy(counted)

    def _share_of_noise(self, number: int) -> float:
        """Return the variance of what a count adds to a bin's rows, in its histogram's noise."""
        labels = self._model.labels
        if labels == 2:
            return 0.5
        return 1.0 if number or not labels else labels - 1.0

    def _begun(self) -> Tensor:
        """Return the parameters (d,) with the classes' shares as intercepts, and nothing else."""
        scores = torch.zeros(self._model.classes, self._model.width, dtype=torch.float64)
        if self._model.labels:
            logs = self.counts[:, -1].clamp(min=1.0).log()
            scores[:, -1] = (logs - logs.mean()) / self._model.part
        return scores.to(torch.float32).flatten()

    def bins_read(self) -> NoiseOfRuns | None:
        """Return the rows of each bin, and what noise makes of its score; None: nothing counted."""
        if not self.counted:
            return None
        return NoiseOfRuns(
            self._again(),
            self._model,
            self._plans,
            self._rows(),
            self.params,
            tuple(self.counted),
            self.version,
        )

    def _again(self) -> Callable[[], AlgorithmServer[EbmSettings]]:
        """Return what makes the run's server, at its beginning."""
        return partial(type(self), self._definition, self._model)

    def _rows(self) -> Reals:
        """Return the rows (W,) of each bin."""
        return rows_of_bins(self._model, self.counts.sum(0).numpy(), math.sqrt(self.variance))

    def _boost(self, histogram: Reals, noise: Spread, tau: int) -> None:
        """Go a part of a Newton step, in every bin at once."""
        model, edges = self._model, max(1, len(self.counted))
        scores = self.params.double().numpy().reshape(model.classes, -1) * model.part
        step = self._step(scores, histogram, noise, edges)
        self.steps += 1
        moved = scores + self._weight(tau, edges) * step
        self.move(torch.from_numpy(moved / model.part).to(torch.float32).flatten())

    def _step(self, scores: Reals, histogram: Reals, noise: Spread, edges: int) -> Reals:
        """Return the part of a Newton step (classes, W) that is gone from `scores`."""
        model, each, rows = self._model, self._curvature, self._rows()
        left = edges * noise**2 / self._pushes  # of the mean over all of an edge's releases
        precision = each.h * rows / (each.v * rows + left)
        uphill = precision * histogram - self._prior.times(scores) / edges
        step = self._prior.solved(precision * each.h * rows, uphill)
        step = self.learning_rate() * centred(model, step, rows)
        step[:, -1] = _INTERCEPT * histogram[:, -1] / (each.h * rows[-1])
        return step

    def _weight(self, tau: int, edges: int) -> float:
        """Return the weight of an update of staleness `tau`: 1, and less when others had turns."""
        usual = _LATE * edges
        return 1.0 if tau <= usual else usual / tau

    def learning_rate(self) -> float:
        """Return η of the next step."""
        turns = self.steps / max(1, len(self.counted))
        return self.settings.learning_rate / (1 + _FALLS * turns)

    def schedule(self) -> dict[str, Any]:
        """Return C and the step size."""
        return {"clip": self.clip, "learning_rate": self.learning_rate()}
