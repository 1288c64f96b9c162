"""The server of a run in which pairs of columns say something together, too.

An edge has one answer to every task: a noisy histogram of residuals over what the task's model says
by its shares. So a look covers the cells of all candidates, and a step the columns and the chosen
pairs. A look moves no score. When every edge has looked, the server takes the pairs whose noisy
sums are likelier with a function than without, at most `interactions` of them. Then each edge
counts its rows in their cells, class by class, as it did in the bins of columns.

Guarantee. Which pairs are chosen follows from what was released: the choice costs what its releases
cost, which the ledgers charge one by one, as all others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from tacit.algorithms.ebm.ebm_server import EbmServer, Spread
from tacit.algorithms.ebm.ebm_settings import EbmSettings
from tacit.algorithms.ebm.histogram_steps import centred, rows_of_bins
from tacit.algorithms.ebm.pair_steps import PairPrior, unlinked_rows, without_columns
from tacit.algorithms.ebm.phases import LOOKS, Phases, numbered
from tacit.algorithms.own.own_server import AlgorithmServer
from tacit.config.definition import Definition
from tacit.models import Model
from tacit.models.additive import AdditiveModel
from tacit.protocol.messages import GlobalModel, Outgoing, Update
from tacit.questions.row_parts import Reals

_FALLS = 0.2  # the learning rate of pairs after t releases of each edge: η / (1 + 0.2t)
_FASTER = 1.5  # than columns, as pairs have fewer releases
_TINY = 1e-9  # more than 0: nothing is divided by a cell without rows and noise


TaskKind = Literal["columns", "look", "cells", "step"]


class PairsServer(EbmServer):
    """Boosts columns, chooses pairs, and boosts both.

    pairs: numbers of the pairs that have a function. since: the version from which on; -1: not yet.
    looked: sums of the search (classes, W), and looked_noise their noise's variances (W,).
    looks_of, cells_of: as `counted`, of looks and of counts in cells. cells_noise: as `variance`,
    of these. pair_steps: histograms that pairs have taken.
    """

    saved: ClassVar[tuple[str, ...]] = (
        *EbmServer.saved,
        "pairs",
        "since",
        "looked",
        "looked_noise",
        "looks_of",
        "cells_of",
        "cells_noise",
        "pair_steps",
    )

    def __init__(
        self,
        definition: Definition[EbmSettings],
        model: Model,
        chosen: tuple[int, ...] | None = None,
    ) -> None:
        """chosen: the pairs that a search will choose in any case; None: the best."""
        assert isinstance(model, AdditiveModel)
        settings = definition.algorithm
        self._will_choose = chosen
        self._phases = Phases.of(definition.run.updates)
        self._most = settings.interactions or len(model.pairs)
        self._priors: dict[tuple[int, ...], PairPrior] = {}
        super().__init__(definition, model)

    def begin(self) -> None:
        """Begin without a count; listed pairs have a function at once."""
        super().begin()
        searches = self.settings.searches
        self.pairs: list[int] = [] if searches else list(range(len(self._model.pairs)))
        self.since = -1 if searches else 0
        self.looked = torch.zeros_like(self.counts)
        self.looked_noise = torch.zeros(self._model.width, dtype=torch.float64)
        self.looks_of: dict[str, list[int]] = {}
        self.cells_of: dict[str, list[int]] = {}
        self.cells_noise = 0.0
        self.pair_steps = 0
        self.params = self._model.with_shares(self.params, self._shares("step", 0))

    # -- tasks -------------------------------------------------------------------------------------

    def answer(self, edge: str) -> list[Outgoing]:
        """Return the edge's next task: to count, to look at all candidates, or the model."""
        done = len(self.cells_of.get(edge, ()))
        if len(self.counted.get(edge, ())) < self._counts_needed:
            return super().answer(edge)
        if self._counts_cells and done < self._counts_needed:
            params = self._with("cells", self._sure_of(done))
        elif self._searching(self.version) and len(self.looks_of.get(edge, ())) < LOOKS:
            params = self._with("look", self.params)
        else:
            return super().answer(edge)
        return [Outgoing(edge, GlobalModel(self.version, params, self.clip, self.terms))]

    def _sure_of(self, label: int) -> Tensor:
        """Return the parameters (d,) of a model that gives every row the class `label`."""
        return self._with("columns", super()._sure_of(label))

    @property
    def _counts_cells(self) -> bool:
        """Whether a search has chosen pairs, in whose cells nobody has counted before."""
        return self.since > 0 and bool(self.pairs)

    def _searching(self, version: int) -> bool:
        """Check whether edges that had this version were asked for looks."""
        return self._phases.search <= version and (self.since < 0 or version < self.since)

    def _task_of(self, update: Update) -> tuple[TaskKind, int]:
        """Return the kind of task that an update answers, and which of this kind."""
        edge, base = update.edge, update.base_version
        if (number := self._counting(update)) is not None:
            return "columns", number
        if self._counts_cells and base >= self.since:
            number = numbered(self.cells_of.get(edge, ()), base, self._counts_needed)
            if number is not None:
                return "cells", number
        if self._searching(base):
            number = numbered(self.looks_of.get(edge, ()), base, LOOKS)
            if number is not None:
                return "look", number
        return "step", 0

    def _with(self, kind: TaskKind, params: Tensor) -> Tensor:
        return self._model.with_shares(params, self._shares(kind, self.version))

    def _shares(self, kind: TaskKind, version: int) -> Reals:
        """Return the shares (T + 1,) of such a task of this version."""
        covered = np.zeros(len(self._model.terms) + 1, np.bool_)
        first = len(self._model.columns)
        pairs: Sequence[int] = self.pairs
        has_pairs = 0 <= self.since <= version
        if kind == "look":
            pairs = range(len(self._model.pairs))
        elif kind == "columns" and self.since != 0:
            pairs = ()  # a search chooses some later, and they are counted alone
        elif kind == "step" and not has_pairs:
            pairs = ()
        covered[:first] = covered[-1] = kind in ("columns", "step")
        covered[[first + number for number in pairs]] = True
        return self._model.even_shares(covered)

    # -- updates -----------------------------------------------------------------------------------

    def step(self, update: Update, tau: int) -> None:
        """Count with a histogram, look at its cells, or boost."""
        clip = self.clip_at(update.base_version)
        kind, number = self._task_of(update)
        share = self._model.of_places(self._shares(kind, update.base_version))
        histogram, noise = self._read(update, clip, np.where(share > 0, share, math.inf))
        each = self._of_a_row(clip)
        done = {"columns": self.counted, "look": self.looks_of, "cells": self.cells_of}
        if kind == "step":
            self._boost(histogram, noise, tau)
        elif number < len(done[kind].get(update.edge, [])):
            self.move(self.params)  # a second answer to one task: it is known already
        elif kind == "columns":
            self._count(update.edge, number, histogram / each, noise / each)
        elif kind == "cells":
            self._count_cells(update.edge, number, histogram / each, noise / each)
        else:
            self._take_look(update.edge, histogram, noise)
        self._uncut()

    def move(self, params: Tensor) -> None:
        """Make `params` the next version, with the shares of a step. A search may end here."""
        version = self.version + 1
        if self.since < 0 and (version >= self._phases.latest or self._all_looked):
            self.pairs = self._choice()
            self.since = version
        super().move(self._model.with_shares(params, self._shares("step", version)))

    def _count(self, edge: str, number: int, histogram: Reals, noise: Spread) -> None:
        """Count rows in bins, and in the cells of listed pairs."""
        if self.since == 0:
            self.cells_noise += float(np.max(noise)) ** 2 * self._share_of_noise(number)
        super()._count(edge, number, histogram, noise)

    def _count_cells(self, edge: str, number: int, histogram: Reals, noise: Spread) -> None:
        """Count rows in the cells of chosen pairs."""
        self._add_rows(number, histogram)
        self.cells_noise += float(np.max(noise)) ** 2 * self._share_of_noise(number)
        self.cells_of = _with_next(self.cells_of, edge, self.version + 1)
        self.move(self.params)

    # -- the search --------------------------------------------------------------------------------

    def _take_look(self, edge: str, histogram: Reals, noise: Spread) -> None:
        """Add a histogram to those of the search."""
        self.looked = self.looked + torch.from_numpy(histogram)
        self.looked_noise = self.looked_noise + torch.from_numpy(np.square(noise))
        self.looks_of = _with_next(self.looks_of, edge, self.version + 1)
        self.move(self.params)

    @property
    def _all_looked(self) -> bool:
        """Whether every edge that has counted its rows has looked as often as it is asked to."""
        looked = sum(len(tasks) >= LOOKS for tasks in self.looks_of.values())
        return looked > 0 and looked >= len(self.counted)

    def _choice(self) -> list[int]:
        """Return the pairs that are worth a function, by the search's sums, in ascending order."""
        if self._will_choose is not None:
            return list(self._will_choose)
        if not self.looks_of:
            return []
        worth = self.worth()
        best = sorted(range(len(worth)), key=lambda number: -worth[number])[: self._most]
        return sorted(number for number in best if worth[number] > 0)

    def worth(self) -> Reals:
        """Return how much likelier the search's sums are with a function of each pair (P,)."""
        prior, each = self._prior_of(tuple(range(len(self._model.pairs)))), self._curvature
        rounds = sum(map(len, self.looks_of.values())) / max(1, len(self.counted))
        rows = prior.of_cells(unlinked_rows(self._model, self._rows()))
        sums = without_columns(prior.of_cells(self.looked.numpy() / rounds), rows)
        variance = prior.of_cells(self.looked_noise.numpy()) / rounds**2
        precision = each.h * rows / np.maximum(each.v * rows + variance, _TINY)
        return prior.evidence(precision * each.h * rows, precision * sums)

    def _prior_of(self, pairs: tuple[int, ...]) -> PairPrior:
        if pairs not in self._priors:
            settings = self.settings
            prior = PairPrior(self._model, pairs, settings.size, settings.smoothness)
            self._priors[pairs] = prior
        return self._priors[pairs]

    # -- steps -------------------------------------------------------------------------------------

    def _rows(self) -> Reals:
        """Return the rows (W,) of each bin and cell."""
        noise = np.full(self._model.width, math.sqrt(self.variance))
        noise[self._cells] = math.sqrt(self.cells_noise)
        return rows_of_bins(self._model, self.counts.sum(0).numpy(), noise)

    @property
    def _cells(self) -> slice:
        starts = self._model.starts
        return slice(starts[len(self._model.columns)], starts[-1])

    def _step(self, scores: Reals, histogram: Reals, noise: Spread, edges: int) -> Reals:
        """Return the step of columns, and of the pairs that the histogram covers."""
        assert isinstance(noise, np.ndarray)
        covered = noise > 0
        step = super()._step(scores, histogram, noise, edges)
        step[:, ~covered] = 0.0
        step[:, self._cells] = 0.0
        if covered[self._cells].any() and self._cells_counted:
            step += self._pair_step(scores, histogram, noise, edges)
            self.pair_steps += 1
        return step

    @property
    def _cells_counted(self) -> bool:
        """Whether every edge has counted its rows in cells, so that a step knows its length."""
        if not self._counts_cells:
            return True
        counted = (len(self.cells_of.get(edge, ())) for edge in self.counted)
        return all(count >= self._counts_needed for count in counted)

    def _pair_step(self, scores: Reals, histogram: Reals, noise: Reals, edges: int) -> Reals:
        """Return the part of a Newton step (classes, W) of the cells of all chosen pairs."""
        prior, each = self._prior_of(tuple(self.pairs)), self._curvature
        everywhere = self._rows()
        rows = prior.of_cells(everywhere)
        pushes = self._pushes * (1 - max(0, self.since) / self.horizon)
        variance = edges * prior.of_cells(noise) ** 2 / max(1.0, pushes)
        precision = each.h * rows / np.maximum(each.v * rows + variance, _TINY)
        uphill = precision * prior.of_cells(histogram)
        uphill = uphill - prior.times(prior.of_cells(scores)) / edges
        step = prior.onto(prior.solved(precision * each.h * rows, uphill))
        turns = self.pair_steps / edges
        rate = min(1.0, _FASTER * self.settings.learning_rate) / (1 + _FALLS * turns)
        return rate * centred(self._model, step, everywhere)

    def _again(self) -> Callable[[], AlgorithmServer[EbmSettings]]:
        """Return what makes the run's server at its beginning, with the same choice."""
        chosen = tuple(self.pairs) if self.settings.searches else None
        return partial(type(self), self._definition, self._model, chosen)


def _with_next(tasks: dict[str, list[int]], edge: str, version: int) -> dict[str, list[int]]:
    """Return the tasks that edges have done, with one more of `edge`."""
    return {**tasks, edge: [*tasks.get(edge, []), version]}
