"""Ways to compute drawn rows alone, with one defect each, which the audit must catch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tacit.algorithms.base.gradient_edge import GradientEdge
from tacit.algorithms.base.local_steps import LocalStepsEdge
from tacit.kernels.loading import Library, library
from tacit.models import Model
from tacit.privacy.private_sum.clipping import Clipped
from tacit.privacy.private_sum.row_sums import Drawn, RowKernel, RowSums, SumTerms, row_kernel
from tacit.privacy.private_sum.rows_alone import RowsAlone
from tacit.privacy.private_sum.sampling import drawn_rows
from tacit.privacy.private_sum.tape_sums import TapeKernel
from tacit.privacy.private_sum.way import NotAlone
from tacit.privacy.release import Releaser
from tacit.protocol.messages import GlobalModel, Hello, Outgoing

Picked = Callable[[NDArray[np.int64], int], NDArray[np.int64]]

# -- which rows are drawn --------------------------------------------------------------------------


class MoreOften(RowsAlone):
    """Draws each row at 1.25 q, and is charged for q."""

    def draw(self) -> NDArray[np.int64]:
        """Draw a batch that is a quarter too large."""
        rate = min(1.0, 1.25 * self.plan.sampling_rate)
        return drawn_rows(self.records, rate, self.size, self.random)


class TwoCoins(RowsAlone):
    """Gives a row two coins of q/2 each, so that it counts twice if both say yes."""

    def draw(self) -> NDArray[np.int64]:
        """Draw two batches at half the rate, as one."""
        rate = self.plan.sampling_rate / 2
        random = self.random
        return np.concatenate([drawn_rows(self.records, rate, self.size, random) for _ in range(2)])


class OppositeCoins(RowsAlone):
    """Lets two neighbours share a coin.

    They are never drawn together, so one tells of the other.
    """

    def draw(self) -> NDArray[np.int64]:
        """Draw every row at rate q, as promised, but not independently."""
        rate = self.plan.sampling_rate
        words = self.random.words(self.records) >> np.uint64(11)
        coins = words.astype(np.float64) * 2.0**-53
        coins[1::2] = (coins[0::2][: len(coins[1::2])] - rate) % 1.0
        return np.flatnonzero(coins < rate)


class KeptRows(RowsAlone):
    """Takes the same rows again until its role tells it to forget them."""

    _batch: NDArray[np.int64] | None = None

    def draw(self) -> NDArray[np.int64]:
        """Return the rows of the first draw."""
        if self._batch is None:
            self._batch = super().draw()
        else:
            self._batch = self._batch
        return self._batch

    def forget(self) -> None:
        """Draw anew next time."""
        self._batch = None


class OneBatch(LocalStepsEdge):
    """Draws once for all H local steps of a task."""

    def work(self, message: GlobalModel) -> list[Outgoing]:
        """Compute one task with one batch."""
        assert isinstance(self.private_sum, KeptRows)
        self.private_sum.forget()
        return super().work(message)


class SameAgain(GradientEdge):
    """Draws once for a model, and takes the same rows when it is asked for that model again."""

    _version: int | None = None

    def work(self, message: GlobalModel) -> list[Outgoing]:
        """Compute a task with the rows of its model."""
        assert isinstance(self.private_sum, KeptRows)
        if message.version != self._version:
            self.private_sum.forget()
        self._version = message.version
        return super().work(message)


class NeverFewer(RowsAlone):
    """Fills a draw of few rows up with others: a minimum that no accountant knows of."""

    def draw(self) -> NDArray[np.int64]:
        """Draw at least as many rows as are drawn on average."""
        drawn = super().draw()
        fewest = int(self.plan.sampling_rate * self.records)
        missing = max(0, fewest - len(drawn))
        others = np.setdiff1d(np.arange(self.records), drawn)
        more = others[self.random.permutation(len(others))[:missing]]
        return np.concatenate((drawn, more))


class ShuffledBatches(RowsAlone):
    """Draws epochs of a shuffled order in batches of one size, accounted as Poisson.

    Data loaders do so.
    """

    _remaining = np.empty(0, dtype=np.int64)

    def draw(self) -> NDArray[np.int64]:
        """Return the next rows of the epoch."""
        size = round(self.plan.sampling_rate * self.records)
        if len(self._remaining) < size:
            self._remaining = np.argsort(self.random.words(self.records))
        batch = self._remaining[:size]
        self._remaining = self._remaining[size:]
        return batch


@dataclass(frozen=True, slots=True)
class _Counted(Clipped):
    """A sum that tells how many rows are in it."""

    rows: int = 0


class CountsRows(RowsAlone):
    """Tells its releaser how many rows were drawn."""

    def compute(self, params: Tensor, clip: float) -> Clipped:
        """Return the sum, with its number of rows."""
        index = self.draw()
        clipped = self._sum(params, Drawn(self.x, self.y, index), clip)
        return _Counted(clipped.total, clipped.sensitivity, clipped.step, len(index))


class TrueDenominator(Releaser):
    """Divides by the number of drawn records, which is secret."""

    def _noisy(
        self, clipped: Clipped, clip: float, paper_dims: slice | None
    ) -> tuple[Tensor, float]:
        assert isinstance(clipped, _Counted)
        self.plan = replace(self.plan, batch=max(1.0, float(clipped.rows)))
        return super()._noisy(clipped, clip, paper_dims)


class TellsRows(GradientEdge):
    """Says how many rows it has, in the last bits of what it says first."""

    def start(self) -> list[Outgoing]:
        """Return Hello, with a variance of the noise that tells."""
        (hello,) = super().start()
        assert isinstance(hello.message, Hello)
        variance = hello.message.noise_variance * (1 + self.private_sum.records * 2.0**-40)
        return [replace(hello, message=replace(hello.message, noise_variance=variance))]


# -- how they are added up -------------------------------------------------------------------------


class BySums(RowsAlone):
    """A way whose sums go wrong somewhere; nobody tries them before they are used."""

    def sums_of(self, model: Model) -> RowSums:
        """Return sums of other rows than were drawn."""
        kernel = row_kernel(model)
        kernels = library()
        if kernel is None or kernels is None:
            raise NotAlone(f"no kernels for {model.name}")
        return _OtherSums(model, kernel, kernels, self.picked)

    def picked(self, index: NDArray[np.int64], block: int) -> NDArray[np.int64]:
        """Return the rows to add up, of those drawn, `block` of which are computed at a time."""
        raise NotImplementedError


class _OtherSums(RowSums):
    def __init__(
        self, model: Model, kernel: RowKernel | TapeKernel, kernels: Library, picked: Picked
    ) -> None:
        super().__init__(model, kernel, kernels)
        self._picked = picked

    def sum(self, params: Tensor, drawn: Drawn, terms: SumTerms) -> Clipped:
        picked = self._picked(drawn.index, self._block)
        return super().sum(params, replace(drawn, index=picked), terms)


class BorderTwice(BySums):
    """Adds the first row of a part to the part before it, too."""

    def picked(self, index: NDArray[np.int64], block: int) -> NDArray[np.int64]:
        """Return the drawn rows, those at a border twice."""
        return np.concatenate((index, index[block::block]))


class LastForgotten(BySums):
    """Forgets the last row of every part."""

    def picked(self, index: NDArray[np.int64], block: int) -> NDArray[np.int64]:
        """Return the drawn rows without the last of each block."""
        return np.delete(index, np.arange(block - 1, len(index), block))


class ByPlace(BySums):
    """Computes every second place only, as a kernel that rounds by place does a little."""

    def picked(self, index: NDArray[np.int64], block: int) -> NDArray[np.int64]:
        """Return the rows at odd places, one behind the other as a kernel is compiled for."""
        return np.ascontiguousarray(index[1::2])


class AloneTwiceTheClip(RowsAlone):
    """Clips drawn rows at 2C, and adds the noise of C."""

    def compute(self, params: Tensor, clip: float) -> Clipped:
        """Return the sum of rows that are too long, as if they were cut to C."""
        return replace(super().compute(params, 2 * clip), sensitivity=clip)
