"""The edge role that algorithms share: the private rows and the clipped sum of a batch."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.algorithms.base.rehearsal import Rehearsed, rehearsed
from tacit.datasets import PrivateRows
from tacit.errors import BudgetSpent
from tacit.models import Model
from tacit.models.vectors import example_gradients, linear_factors, mean_gradient
from tacit.privacy.ledger.chain import Charge
from tacit.privacy.noise.mechanisms import grid_step
from tacit.privacy.plan import padded_size
from tacit.privacy.policy import refusal
from tacit.privacy.private_sum.clipping import (
    Clipped,
    add_rows,
    clipped_sum,
    integer_sum,
    outer_sum,
)
from tacit.privacy.private_sum.probe import require_separate_examples
from tacit.privacy.private_sum.rows_alone import RowSums
from tacit.privacy.private_sum.sampling import Batch, drawn_rows, poisson, rows_of_units
from tacit.privacy.release import Releaser
from tacit.protocol.messages import SERVER, GlobalModel, Halt, Hello, Outgoing, Retired

# Bytes of per-example gradients (a linear model: of inputs) that an edge holds at a time.
HELD = 2**24
_SHOWN = 2**22  # numbers of the public rows that slots are rehearsed with
_FAR = 1e-9  # probability that a draw has more rows than a push's delay is made for


class EdgeRole(ABC):
    """An edge: it holds the private rows, and all that it sends has passed its `Releaser`.

    `work` is the algorithm's. x, y: the rows, and after them the public row, all zeros, which fills
    the empty slots of a batch. records: how many units there are, each of one row if `units` is
    None. size: slots of a batch, a function of public numbers.
    """

    # Whether it may compute drawn rows alone: its loop must hide how long that took.
    row_by_row: ClassVar[bool] = True

    def __init__(
        self,
        edge: str,
        data: PrivateRows,
        model: Model,
        releaser: Releaser,
        device: str = "cpu",
        *,
        rows_alone: bool = True,
    ) -> None:
        """Raises PrivacyError for more units than the plan's shapes are made for, or than its
        integers can add up.

        rows_alone: compute the drawn rows only, each by itself, where the role, the model, the
        mechanism and this machine allow it (`alone` then is not None); otherwise a batch of a fixed
        shape in random slots. False: such a batch in any case.
        """
        self.edge, self.model, self.releaser, self.device = edge, model, releaser, device
        rows = data.for_edge(model.classes)
        self.records, self.units, self.size = rows.records, rows.units, releaser.plan.slots
        releaser.plan.check_rows(self.records)
        self.x, self.y = rows.x.to(device), rows.y.to(device)
        found = self._rows_alone(asked=rows_alone)
        self.alone = found if isinstance(found, RowSums) else None
        self._why_slots = found if isinstance(found, str) else ""
        # Whether the gradient of every unit is an outer product, which need not be written out.
        outer = model.linear and not model.regularization and self.units is None
        outer = outer and self.alone is None
        self.ghost = outer and releaser.plan.mechanism in ("gaussian", "knorm")
        # A batch is computed in parts of public sizes, so that none needs much more memory than
        # HELD: `rows` units at a time, and `together` rows of a unit at a time.
        held = max(1, HELD // (4 * (model.size // model.classes if self.ghost else model.size)))
        self.rows = max(1, held // self._rows_of_one())
        self.together = min(held, self._rows_of_one())
        if releaser.plan.private and self.alone is None:
            require_separate_examples(model, device, self._shapes())
        self.halt_reason = ""
        self.refusals, self.refusal = 0, ""  # models refused, and why the latest one was

    @property
    def halted(self) -> bool:
        """Whether the run is over."""
        return bool(self.halt_reason)

    def _rows_alone(self, *, asked: bool) -> RowSums | str:
        """Return the kernel that adds up drawn rows alone; if none may, why, for the log.

        Nothing else decides how an edge computes. The time of such a step grows with the number of
        rows drawn, which is secret: so messages must leave at a time that does not depend on it.
        """
        if not asked:
            return "not asked for drawn rows alone"
        if not self.row_by_row:
            return "a peer computes a batch of a fixed shape"
        if not self.releaser.plan.private:
            return "no Poisson batch is drawn"
        if self.units is not None:
            return "a unit may have several rows"
        if self.device != "cpu":
            return f"its kernels are for the cpu, not for {self.device}"
        return RowSums.checked(self.model)

    def _rows_of_one(self) -> int:
        """The most rows of one unit that are computed for it."""
        return 1 if self.units is None else self.units.limit

    @property
    def way(self) -> str:
        """How a step is computed and why not otherwise, for the log.

        Nothing in it depends on a row.
        """
        if self.alone is not None:
            return "drawn rows alone"
        if not self.releaser.plan.private:
            return "a plain batch"
        return f"{self.size} slots: {self._why_slots}"

    def _shapes(self) -> set[int]:
        """Return the numbers of rows that are computed at a time."""
        units = _parts(self.size, self.rows)
        return {
            count * rows for count in units for rows in _parts(self._rows_of_one(), self.together)
        }

    @abstractmethod
    def work(self, message: GlobalModel) -> list[Outgoing]:
        """Do one task on the model in `message`. Raises BudgetSpent before anything is computed."""

    def task_steps(self, version: int) -> int:
        """Return how many local steps, each a release, a task on model `version` takes."""
        return 1

    def held_steps(self, message: GlobalModel | Halt) -> int:
        """Return how many delays of one step the answer to `message` is held back for."""
        return self.task_steps(message.version) if isinstance(message, GlobalModel) else 1

    @property
    def push_size(self) -> int:
        """Numbers in a push."""
        return self.model.size

    @property
    def most_steps(self) -> int:
        """Releases that its largest task takes."""
        return 1

    def next_charge(self) -> Charge | None:
        """Return the charge that pays ahead for the next task, whichever it is."""
        return self.releaser.next_charge(self.most_steps)

    def start(self) -> list[Outgoing]:
        """Return Hello, the public privacy configuration; sent again to ask for a model."""
        plan, ledger = self.releaser.plan, self.releaser.ledger
        hello = Hello(
            self.edge,
            plan.epsilon,
            plan.delta,
            plan.declared,
            plan.noise_variance(self.model.size),
            plan.clip_min,
            plan.clip_max,
            ledger.history(),
            ledger.charged(),
            self.refusals,
            self.refusal,
        )
        return [Outgoing(SERVER, hello)]

    def refuses(self, message: GlobalModel) -> str | None:
        """Return why this edge refuses the model, in one line; None: it accepts it.

        See privacy.policy.refusal.
        """
        return refusal(self.releaser.plan, message.params, message.clip, message.terms)

    def on_message(self, message: GlobalModel | Halt) -> list[Outgoing]:
        """Do the task that a model brings, or end at Halt; return the messages to send.

        A model that the edge's plan does not allow is only counted: nothing is charged or released.
        """
        if isinstance(message, Halt):
            self.halt_reason = message.reason or "halted"
            return []
        if self.halted:  # a model that was under way
            return []
        if why := self.refuses(message):
            self.refusals, self.refusal = self.refusals + 1, why
            return []
        try:
            return self.work(message)
        except BudgetSpent as spent:
            return self.retire(str(spent))

    def retire(self, reason: str) -> list[Outgoing]:
        """Return the last message of an edge whose budget is spent."""
        ledger = self.releaser.ledger
        return [Outgoing(SERVER, Retired(self.edge, reason, ledger.history(), ledger.charged()))]

    def query(self, params: Tensor, clip: float) -> Clipped:
        """Return the private sum over a fresh batch at `params` (d,).

        `Releaser` adds noise to it, or releases it as it is (mechanism none).
        """
        plan = self.releaser.plan
        params = params.to(self.device)
        if self.alone is not None:
            return self._alone(self.alone, params, clip)
        if plan.private:  # a clipped sum over a Poisson batch
            batch = self.draw()
            clipped = self.clipped(params, clip, batch.index, batch.mask)
            return Clipped(clipped.total.cpu(), clipped.sensitivity, clipped.step)
        return self.unbounded(params, clip)

    def unbounded(self, params: Tensor, clip: float) -> Clipped:
        """Return what `query` does where the plan has no guarantee: a mean gradient, not clipped.

        An algorithm overrides it whose paper sends something else.
        """
        index = self.with_replacement(round(self.releaser.plan.batch))
        return Clipped(self.mean(params, index).cpu(), math.inf)

    def mean(self, params: Tensor, index: Tensor) -> Tensor:
        """Return the mean gradient (d,) of the units `index` (B,), not clipped."""
        if self.units is not None:
            sums = (self.gradients(params, part).sum(0) for part in torch.split(index, self.rows))
            return sum(sums, params.new_zeros(self.model.size)) / max(1, len(index))
        index = index.to(self.device)
        return mean_gradient(self.model, params, self.x[index], self.y[index])

    def gradients(self, params: Tensor, index: Tensor) -> Tensor:
        """Return the gradient (B, d) of each unit in `index` (B,), over all rows of the unit.

        A unit's rows are computed `together` at a time and added in their order. If the gradient of
        one of its rows is not finite, the unit's is not either, and counts as zero when clipped.
        """
        if self.units is None:
            index = index.to(self.device)
            return example_gradients(self.model, params, self.x[index], self.y[index])
        rows, weights = rows_of_units(self.units, index, self.releaser.random)
        total = params.new_zeros((len(index), self.model.size))
        for some, shares in zip(
            torch.split(rows, self.together, 1), torch.split(weights, self.together, 1), strict=True
        ):
            flat = some.flatten().to(self.device)
            each = example_gradients(self.model, params, self.x[flat], self.y[flat])
            add_rows(total, each, shares.to(self.device))
        return total

    def _alone(self, sums: RowSums, params: Tensor, clip: float) -> Clipped:
        """The clipped sum over the drawn rows, and no others."""
        step = self._step(clip)
        return sums.sum(params, self.x, self.y, self.drawn(), clip, step=step, rows=self.size)

    def drawn(self) -> NDArray[np.int64]:
        """Draw the rows of a fresh Poisson batch, without slots: their numbers (R,)."""
        rate = self.releaser.plan.sampling_rate
        return drawn_rows(self.records, rate, self.size, self.releaser.random)

    def rehearsals(self) -> list[Callable[[], None]]:
        """Return functions that each do one step's work on public rows and drop the result.

        A push's delay is measured with the slowest. Drawn rows alone are as many as a real draw
        exceeds with probability 1e-9 at most; slots are as many as always.
        """
        plan = self.releaser.plan
        if self.alone is not None:
            rows = padded_size(plan.most_rows, plan.sampling_rate, _FAR)
        else:
            rows = max(1, min(plan.most_rows, _SHOWN // math.prod(self.model.shape)))
        tasks = rehearsed(self.model, rows + (self.alone is None))
        return [
            partial(self.releaser.rehearse, plan.clip_max, self._query_of(one)) for one in tasks
        ]

    def _query_of(self, task: Rehearsed) -> Callable[[], Clipped]:
        """Return a function that does the work of `query` on public rows."""
        sums, clip = self.alone, self.releaser.plan.clip_max
        if sums is not None:
            everyone, step = np.arange(len(task.y)), self._step(clip)
            return lambda: sums.sum(
                task.params, task.x, task.y, everyone, clip, step=step, rows=self.size
            )
        edge = copy.copy(self)  # which has public rows instead, the last of them in empty slots
        edge.x, edge.y = task.x.to(self.device), task.y.to(self.device)
        edge.records = count = len(task.y) - 1
        if self.units is not None:
            edge.units = replace(self.units, order=np.arange(count), starts=np.arange(count + 1))
        return partial(edge.query, task.params, clip)

    def _step(self, clip: float) -> float | None:
        """The integers' grid at this clip; None for floats."""
        plan = self.releaser.plan
        whole = plan.mechanism == "discrete_gaussian"
        return grid_step(clip, plan.noise_multiplier) if whole else None

    def draw(self) -> Batch:
        """Draw a fresh Poisson batch."""
        return poisson(
            self.records, self.releaser.plan.sampling_rate, self.size, self.releaser.random
        )

    def clipped(self, params: Tensor, clip: float, index: Tensor, mask: Tensor) -> Clipped:
        """The clipped sum over the rows `index` (B,) where `mask` (B,) is True."""
        mask = mask.to(self.device)
        parts = zip(torch.split(index, self.rows), torch.split(mask, self.rows), strict=True)
        sums = (self._clipped_part(params, clip, *part, len(mask)) for part in parts)
        whole = next(sums)
        for part in sums:  # added as they come, so that one at a time is held
            whole.total.add_(part.total)
        return whole

    def _clipped_part(
        self, params: Tensor, clip: float, index: Tensor, mask: Tensor, rows: int
    ) -> Clipped:
        """Return the clipped sum of a part of the slots; rows: slots of the whole batch."""
        if self.ghost:
            index = index.to(self.device)
            return outer_sum(
                *linear_factors(self.model, params, self.x[index], self.y[index]), clip, mask, rows
            )
        gradients, step = self.gradients(params, index), self._step(clip)
        if step is not None:
            return integer_sum(gradients, clip, mask, step)
        return clipped_sum(gradients, clip, mask, rows)

    def with_replacement(self, count: int) -> Tensor:
        """`count` independent row numbers (count,). The modulo bias is below n/2^64."""
        words = self.releaser.random.words(count) % self.records
        return torch.from_numpy(words.astype("int64"))


def _parts(whole: int, most: int) -> set[int]:
    """The sizes of the parts that `torch.split` makes of `whole`, of at most `most` each."""
    return {min(whole, most), whole % most or min(whole, most)}
