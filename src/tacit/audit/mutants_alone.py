"""Edges that compute drawn rows alone, as `tacit edge` does, with one defect each, which the audit
must catch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tacit.algorithms.fedasync.edge import Edge as FedAsyncEdge
from tacit.algorithms.mapa import Edge
from tacit.kernels.loading import Library, library
from tacit.models import Model
from tacit.privacy.private_sum.clipping import Clipped
from tacit.privacy.private_sum.row_kernel import RowKernel, row_kernel
from tacit.privacy.private_sum.rows_alone import RowSums
from tacit.privacy.private_sum.sampling import drawn_rows
from tacit.protocol.messages import GlobalModel, Hello, Outgoing

Picked = Callable[[NDArray[np.int64], int], NDArray[np.int64]]

# -- which rows are drawn --------------------------------------------------------------------------


class MoreOften(Edge):
    """Draws each row at 1.25 q, and is charged for q."""

    def drawn(self) -> NDArray[np.int64]:
        """A batch that is a quarter too large."""
        plan = self.releaser.plan
        return drawn_rows(
            self.records, min(1.0, 1.25 * plan.sampling_rate), self.size, self.releaser.random
        )


class TwoCoins(Edge):
    """Gives a row two coins of q/2 each, so that it counts twice if both say yes."""

    def drawn(self) -> NDArray[np.int64]:
        """Two batches at half the rate, as one."""
        rate, random = self.releaser.plan.sampling_rate / 2, self.releaser.random
        return np.concatenate([drawn_rows(self.records, rate, self.size, random) for _ in range(2)])


class OppositeCoins(Edge):
    """Lets two neighbours share a coin: they are never drawn together, so one tells of the
    other.
    """

    def drawn(self) -> NDArray[np.int64]:
        """Every row at rate q, as promised, but not independently."""
        rate = self.releaser.plan.sampling_rate
        words = self.releaser.random.words(self.records) >> np.uint64(11)
        coins = words.astype(np.float64) * 2.0**-53
        coins[1::2] = (coins[0::2][: len(coins[1::2])] - rate) % 1.0
        return np.flatnonzero(coins < rate)


class OneBatch(FedAsyncEdge):
    """Draws once for all H local steps of a task."""

    _kept: NDArray[np.int64] | None = None

    def work(self, message: GlobalModel) -> list[Outgoing]:
        """One task with one batch."""
        self._kept = None
        return super().work(message)

    def drawn(self) -> NDArray[np.int64]:
        """The task's batch."""
        self._kept = super().drawn() if self._kept is None else self._kept
        return self._kept


class SameAgain(Edge):
    """Draws once for a model, and takes the same rows when it is asked for that model again."""

    _kept: tuple[int, NDArray[np.int64]] | None = None
    _version = 0

    def work(self, message: GlobalModel) -> list[Outgoing]:
        """A task with the rows of its model."""
        self._version = message.version
        return super().work(message)

    def drawn(self) -> NDArray[np.int64]:
        """The model's batch."""
        if self._kept is None or self._kept[0] != self._version:
            self._kept = self._version, super().drawn()
        return self._kept[1]


class NeverFewer(Edge):
    """Fills a draw of few rows up with others: a minimum that no accountant knows of."""

    def drawn(self) -> NDArray[np.int64]:
        """A batch of at least as many rows as are drawn on average."""
        found, plan = super().drawn(), self.releaser.plan
        fewest = int(plan.sampling_rate * self.records)
        missing = max(0, fewest - len(found))
        others = np.setdiff1d(np.arange(self.records), found)
        more = others[self.releaser.random.permutation(len(others))[:missing]]
        return np.concatenate((found, more))


class ShuffledBatches(Edge):
    """Draws epochs of a shuffled order in batches of one size, as data loaders do, accounted as
    Poisson.
    """

    _left = np.empty(0, dtype=np.int64)

    def drawn(self) -> NDArray[np.int64]:
        """The next rows of the epoch."""
        size = round(self.releaser.plan.sampling_rate * self.records)
        if len(self._left) < size:
            self._left = np.argsort(self.releaser.random.words(self.records))
        found, self._left = self._left[:size], self._left[size:]
        return found


class TrueDenominator(Edge):
    """Divides by the number of drawn records, which is secret."""

    def drawn(self) -> NDArray[np.int64]:
        """The rows, whose number it then divides by."""
        found = super().drawn()
        self.releaser.plan = replace(self.releaser.plan, batch=max(1.0, float(len(found))))
        return found


class TellsRows(Edge):
    """Says how many rows it has, in the last bits of what it says first."""

    def start(self) -> list[Outgoing]:
        """Hello, with a variance of the noise that tells."""
        (said,) = super().start()
        assert isinstance(said.message, Hello)
        told = said.message.noise_variance * (1 + self.records * 2.0**-40)
        return [replace(said, message=replace(said.message, noise_variance=told))]


# -- how they are added up -------------------------------------------------------------------------


class BySums(Edge):
    """An edge whose sums go wrong somewhere; nobody tries them before they are used."""

    def _rows_alone(self, *, asked: bool) -> RowSums | str:
        found, kernel, kernels = (
            super()._rows_alone(asked=asked),
            row_kernel(self.model),
            library(),
        )
        if isinstance(found, str) or kernel is None or kernels is None:
            return found
        return _OtherSums(self.model, kernel, kernels, self.picked)

    def picked(self, index: NDArray[np.int64], held: int) -> NDArray[np.int64]:
        """The rows that are added up, of those drawn; `held` of them are computed at a time."""
        raise NotImplementedError


class _OtherSums(RowSums):
    def __init__(self, model: Model, kernel: RowKernel, kernels: Library, picked: Picked) -> None:
        super().__init__(model, kernel, kernels)
        self._picked = picked

    def sum(
        self,
        params: Tensor,
        x: Tensor,
        y: Tensor,
        index: NDArray[np.int64],
        clip: float,
        *,
        step: float | None,
        rows: int,
    ) -> Clipped:
        picked = self._picked(index, self._held)
        return super().sum(params, x, y, picked, clip, step=step, rows=rows)


class BorderTwice(BySums):
    """Adds the first row of a part to the part before it, too."""

    def picked(self, index: NDArray[np.int64], held: int) -> NDArray[np.int64]:
        """The drawn rows, those at a border twice."""
        return np.concatenate((index, index[held::held]))


class LastForgotten(BySums):
    """Forgets the last row of every part."""

    def picked(self, index: NDArray[np.int64], held: int) -> NDArray[np.int64]:
        """The drawn rows but for some."""
        return np.delete(index, np.arange(held - 1, len(index), held))


class ByPlace(BySums):
    """Computes every second place only, as a kernel that rounds by place does a little."""

    def picked(self, index: NDArray[np.int64], held: int) -> NDArray[np.int64]:
        """Those at odd places."""
        return index[1::2]


class TwiceTheClip(Edge):
    """Clips drawn rows at 2C, and adds the noise of C."""

    def _alone(self, sums: RowSums, params: Tensor, clip: float) -> Clipped:
        return replace(super()._alone(sums, params, 2 * clip), sensitivity=clip)
