"""An additive model: each column has a function of its own, a value for each of its bins.

The score of a class is the sum over the columns of what the row's bins say, and an intercept. It is
linear in the parameters, and a row's gradient is its residual at the row's bins and 0 elsewhere:

    dloss/dθ[c, bin] = (p_c - [y = c]) / √(K + 1)    at the K bins of the row and the intercept

Scores are divided by √(K + 1), K columns and the intercept, so that a row's gradient is exactly as
long as its residual. To clip the gradient to C is to clip the residual to C.

For a number there is one output, and the residual is that of the squared error.

Some pairs of columns may have a function of their own, over a coarse grid of cells. Then the model
has a share for each term and the intercept, too. They are no part of its answers. They say what a
histogram of residuals covers: a row's vector is its residual times the shares, at its bins. So it
is as long as its residual where the squares of the shares add up to 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from tacit.models.bins import BinnedColumn
from tacit.models.model_contract import LayerValues, Layout, Model
from tacit.models.pair_cells import PairCells
from tacit.models.places import as_inputs, places_of_rows, width
from tacit.questions.row_parts import Entries, PlaceNumbers, Reals

ADDITIVE = "additive"
FAR = 1e4  # an intercept that leaves no doubt: all other classes have probability 0
_FINE = 64  # entries of the table of e^-t for each 1 of t
_REACH = 40  # beyond it e^-t counts as 0
_DECAYS = np.append(np.exp(-np.arange(_FINE * _REACH) / _FINE), (0.0, 0.0))


@dataclass(frozen=True)
class AdditiveModel(Model):
    """Bins of columns, and a score of each for each class; classes: 1 where a number is learnt.

    columns, pairs: the terms, in the order of the parameters. labels: how many classes the target
    has, 0 for a number.
    """

    columns: tuple[BinnedColumn, ...] = ()
    labels: int = 0
    pairs: tuple[PairCells, ...] = ()

    @property
    def labels_below(self) -> int:
        """Classes of the target; 0 where it is a number."""
        return self.labels

    @property
    def terms(self) -> tuple[BinnedColumn | PairCells, ...]:
        """The columns, and after them the pairs of columns."""
        return (*self.columns, *self.pairs)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where the bins of each term begin; at the end, where those of the last one end."""
        counts = (term.bins for term in self.terms)
        return tuple(np.cumsum([0, *counts]).tolist())

    @cached_property
    def width(self) -> int:
        """W: bins of all terms, their shares where there are pairs, and the intercept."""
        return width(self.columns, self.pairs)

    @property
    def part(self) -> float:
        """What each bin's score is multiplied by: 1/√(K + 1)."""
        return 1 / math.sqrt(len(self.columns) + 1)

    def shares(self, params: Tensor) -> Reals:
        """Return what a histogram covers (T + 1,): the share of each term, and of the intercept.

        Without pairs it is 1/√(K + 1) of each.
        """
        if not self.pairs:
            return np.full(len(self.columns) + 1, self.part)
        shares: Reals = params[self.starts[-1] : self.width - 1].double().numpy()
        return shares

    def with_shares(self, params: Tensor, shares: Reals) -> Tensor:
        """Return the parameters (d,) with other shares (T + 1,); of a model that has pairs."""
        scores = params.reshape(self.classes, self.width).clone()
        scores[:, self.starts[-1] : -1] = 0.0
        scores[0, self.starts[-1] : -1] = torch.from_numpy(shares).float()
        return scores.flatten()

    def even_shares(self, covered: npt.NDArray[np.bool_]) -> Reals:
        """Return shares (T + 1,) alike of what is `covered` (T + 1,); their squares add up to 1."""
        return np.where(covered, 1 / math.sqrt(max(1, int(covered.sum()))), 0.0)

    def of_places(self, values: Reals) -> Reals:
        """Return (W,): at each place the value (T + 1,) of its term; 0 at those of shares."""
        spread = np.zeros(self.width)
        counts = [term.bins for term in self.terms]
        spread[: self.starts[-1]] = np.repeat(values[:-1], counts)
        spread[-1] = values[-1]
        return spread

    def says(self, params: Tensor) -> npt.NDArray[np.bool_]:
        """Return for each term (T,) whether it is shown: a pair is where it adds something."""
        scores = params.reshape(self.classes, self.width).numpy()
        parts = (scores[:, start : start + pair.bins] for pair, start in self._pairs_from)
        return np.array([True] * len(self.columns) + [bool(part.any()) for part in parts])

    @property
    def _pairs_from(self) -> list[tuple[PairCells, int]]:
        return list(zip(self.pairs, self.starts[len(self.columns) :], strict=False))

    @property
    def layout(self) -> Layout:
        """The scores of bins, class by class; each class's last number is its intercept.

        Shares stand in the row of the first class.
        """
        return (("bins.weight", (self.classes, self.width)),)

    @property
    def variant(self) -> str:
        """The bins of the columns, and which of them are pairs."""
        bins = [f"{column.bins}" for column in self.columns]
        return " ".join([*bins, *(f"{pair.first}x{pair.second}" for pair in self.pairs)])

    @property
    def most_entries(self) -> int:
        """The most numbers of a row's gradient that are not 0."""
        return self.classes * (len(self.terms) + 1)

    def init(self, seed: int) -> Tensor:
        """Return zeros."""
        return torch.zeros(self.size)

    def covering_all(self) -> Tensor:
        """Return parameters (d,) whose histogram covers every term: none has more to add up."""
        params = torch.zeros(self.size)
        if not self.pairs:
            return params
        return self.with_shares(params, self.even_shares(np.ones(len(self.terms) + 1, np.bool_)))

    @property
    def squared_error(self) -> bool:
        """Whether it learns a number."""
        return not self.labels

    def data_loss(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return the cross-entropy, or the squared error (...) of scores (..., classes)."""
        if self.labels:
            return super().data_loss(scores, y)
        return (scores.squeeze(-1) - y) ** 2

    def guesses(self, scores: Tensor) -> Tensor | None:
        """Return the class of the highest score; None for a number."""
        return scores.argmax(-1) if self.labels else None

    def random_batch(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return `count` random rows, of no data."""
        x = torch.rand(count, *self.shape, generator=generator)
        if not self.labels:
            return x, torch.rand(count, generator=generator)
        return x, torch.randint(self.labels, (count,), generator=generator)

    def bins_of(self, x: Tensor) -> PlaceNumbers:
        """Return the places (n, T + 1) of the bins of rows x (n, *shape), and of the intercept."""
        places: PlaceNumbers = places_of_rows(self.columns, x, self.pairs).numpy()
        return places

    def trace(self, params: Tensor, x: Tensor) -> list[LayerValues]:
        """Return the one layer at work, whose input is 1/√(K + 1) at a row's bins."""
        inputs = as_inputs(self.columns, x.reshape(-1, *self.shape), self.pairs)
        inputs = inputs.view(*x.shape[: x.dim() - len(self.shape)], self.width)
        weight = params.view(self.classes, self.width)
        return [LayerValues(inputs, functional.linear(inputs, weight), bias=False)]

    # -- histograms of residuals -------------------------------------------------------------------

    def residuals(self, params: Tensor, x: Tensor, y: Tensor) -> Entries:
        """Return each row's gradient by its entries, with the opposite sign: what is left to learn.

        Of a model with pairs it is what the shares cover, by them. x: (n, *shape); y: (n,).
        Guarantee: a row's entries are a function of that row and the parameters, to the bit, and of
        no row beside it. Every number is added, multiplied, divided, or looked up in a table, by
        itself. A row with a number that is not finite has entries of 0.
        """
        bins = self.bins_of(x)
        left = self.residuals_at(params, bins, y.numpy())
        finite = torch.isfinite(x.flatten(1)).all(dim=1).numpy()
        sound = finite & np.isfinite(left).all(axis=1)
        left = np.where(sound[:, None], left, 0.0)
        shares = self.shares(params)
        covered = np.flatnonzero(shares)  # nan, of a hostile server, too
        with np.errstate(over="ignore", invalid="ignore"):  # no entry that is not finite is summed
            values = (left[:, :, None] * shares[covered]).astype(np.float32)
        return Entries(self._of_classes(bins[:, covered]), values.reshape(len(left), -1))

    def residuals_at(self, params: Tensor, bins: PlaceNumbers, y: npt.NDArray[np.generic]) -> Reals:
        """Return what is left to learn (n, classes) of rows in these bins (n, T + 1), unscaled."""
        return self._left(self.scores_at(params, bins), y)

    def scores_at(self, params: Tensor, bins: PlaceNumbers) -> Reals:
        """Return the scores (n, classes) of rows in these bins (n, T + 1)."""
        return self._scores(params.numpy(), bins)

    def _of_classes(self, bins: PlaceNumbers) -> PlaceNumbers:
        """Return the places (n, classes · t) of t of rows' bins (n, t), in ascending order."""
        classes = np.arange(self.classes)[:, None] * self.width
        places: PlaceNumbers = (bins[:, None, :] + classes).reshape(len(bins), -1)
        return places

    def _scores(self, params: npt.NDArray[np.float32], bins: PlaceNumbers) -> Reals:
        """Return scores (n, classes), added term by term; pairs that say nothing are left out."""
        table = params.astype(np.float64).reshape(self.classes, self.width).T * self.part
        scores = np.zeros((len(bins), self.classes))
        full = [bool(table[start : start + pair.bins].any()) for pair, start in self._pairs_from]
        for term in np.flatnonzero([True] * len(self.columns) + full + [True]):
            scores += table[bins[:, term]]
        return scores

    def _left(self, scores: Reals, y: npt.NDArray[np.generic]) -> Reals:
        """Return minus the loss's derivative (n, classes) by the scores."""
        left: Reals
        if not self.labels:
            left = 2 * (y.astype(np.float64)[:, None] - scores)
            return left
        best = scores[:, 0]
        for column in range(1, self.classes):
            best = np.maximum(best, scores[:, column])
        weights = decays(best[:, None] - scores)
        total = np.zeros(len(scores))
        for column in range(self.classes):
            total = total + weights[:, column]
        right = (np.arange(self.classes) == y[:, None]).astype(np.float64)
        left = right - weights / total[:, None]
        return left


def decays(t: Reals) -> Reals:
    """Return e^-t for t >= 0, to 4e-5 of it, by a table: the same bits for a t wherever it stands.

    A library's exponential may round the last numbers of an array otherwise than the first.
    """
    cut = np.minimum(np.where(np.isfinite(t), t, _REACH), _REACH) * _FINE
    below = np.floor(cut)
    place = below.astype(np.int64)
    lower, upper = _DECAYS[place], _DECAYS[place + 1]
    decayed: Reals = lower + (upper - lower) * (cut - below)
    return decayed
