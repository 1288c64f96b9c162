"""The looks of a run, at its server: when the model is judged, who has answered, and the sums.

Idea. A look opens when the run reaches one of `Judging.moments`. Its model is the one of that
moment. Each edge that is given a task then is given the look before it, once; training waits for no
answer. The next look closes the last one, but a late answer to it still counts. The look at the end
is asked of all edges at once, and the run waits for it for a while.

Of closed looks the two models are kept that may turn out to be the best (`look_choice`).

Guarantee. An answer moves no model. The state is a function of the journal alone, so a replay ends
in the same sums. An edge counts once in a look.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.config.edge_looks import Judging
from tacit.judging import look_choice
from tacit.judging.look_figures import LookSums
from tacit.privacy.private_sum.rounded_sums import room
from tacit.protocol.messages import Timer, Update

_MODEL = "look/model/"
LAST_LOOK = 2**40  # the number of the timer of the last look; rounds count theirs from 0


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """A look that has begun: its number from 1 on, the version judged, and each edge's sums.

    sums: (width,) float32 by edge, in the scale of the sheet. It is replaced and never changed.
    """

    number: int
    version: int
    sums: Mapping[str, Tensor] = field(default_factory=dict)


def summed(judging: Judging, look: Look) -> LookSums:
    """Return the sums of a look over the edges that have answered so far."""
    noise = noise_of_edge(judging) * math.sqrt(len(look.sums))
    return LookSums(judging.sheet, stacked(judging, look).sum(0), noise)


def stacked(judging: Judging, look: Look) -> NDArray[np.float64]:
    """Return each edge's sums (edges, width)."""
    if not look.sums:
        return np.zeros((0, judging.sheet.width))
    return torch.stack(list(look.sums.values())).double().numpy()


def noise_of_edge(judging: Judging) -> float:
    """Return the standard deviation of the noise in each of one edge's sums."""
    plan = judging.plan()
    return plan.noise_multiplier / room(plan, judging.sheet.width)


class Looks:
    """The looks of one run. model: (d,), what the open look judges; None: none has begun.

    models: those of looks, by number, that are open or may be the best.
    """

    def __init__(self, judging: Judging) -> None:
        self._judging = judging
        self.begun: tuple[Look, ...] = ()
        self.models: Mapping[int, Tensor] = {}
        self.last = False  # whether the run has come to its end, and waits for the last look
        self._room = room(judging.plan(), judging.sheet.width)

    @property
    def width(self) -> int:
        """Numbers of an answer."""
        return self._judging.sheet.width

    @property
    def number(self) -> int:
        """The number of the open look; 0: none has begun."""
        return self.begun[-1].number if self.begun else 0

    @property
    def version(self) -> int:
        """The version that the open look judges."""
        return self.begun[-1].version if self.begun else 0

    def reach(self, version: int, params: Tensor) -> None:
        """Open the look of this moment, if it is one; the model is the run's now."""
        due = sum(moment <= version for moment in self._judging.moments)
        if due > self.number:
            candidates = self._may_be_best()
            self.models = {n: model for n, model in self.models.items() if n in candidates}
            self.begun = (*self.begun, Look(due, version))
            self.models = {**self.models, due: params}

    @property
    def model(self) -> Tensor | None:
        """The model (d,) that the open look judges; None: none has begun."""
        return self.models.get(self.number)

    def best(self) -> tuple[Look, Tensor] | None:
        """Return the best look and its model (d,); None: noise hides all."""
        place = look_choice.best([summed(self._judging, look) for look in self.begun])
        if place is None or self.begun[place].number not in self.models:
            return None
        return self.begun[place], self.models[self.begun[place].number]

    def _may_be_best(self) -> set[int]:
        """Return the numbers of looks that are the best when the next one is surely worse."""
        sums = [summed(self._judging, look) for look in self.begun]
        places = (look_choice.best(sums), look_choice.top_of(sums))
        numbers = {self.begun[place].number for place in places if place is not None}
        return numbers or {self.number}

    def is_for(self, edge: str, looked: int) -> bool:
        """Check whether `edge` is to be given the open look. looked: the last it is done with."""
        return self.number > looked and edge not in self.begun[-1].sums

    def knows(self, number: int) -> bool:
        """Check whether the look of this number has begun."""
        return any(look.number == number for look in self.begun)

    def take(self, update: Update) -> None:
        """Add an edge's answer: minus its sums, each made shorter by the public room."""
        self.begun = tuple(
            _with(look, update.edge, update.vector / -self._room)
            if look.number == update.look and update.edge not in look.sums
            else look
            for look in self.begun
        )

    def timer(self) -> Timer:
        """Return the timer for which the run waits for the last look."""
        return Timer(LAST_LOOK, self._judging.wait)

    # -- persistence -------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return (tensors, JSON values) from which `restore` goes on."""
        tensors: dict[str, Tensor] = {}
        begun = []
        for look in self.begun:
            begun.append([look.number, look.version, list(look.sums)])
            if look.sums:
                tensors[f"look/{look.number}"] = torch.stack(list(look.sums.values()))
        tensors |= {f"{_MODEL}{number}": model for number, model in self.models.items()}
        return tensors, {"begun": begun, "last": self.last}

    def restore(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Go on from what `state` returned."""
        self.models = {
            int(name.removeprefix(_MODEL)): model
            for name, model in tensors.items()
            if name.startswith(_MODEL)
        }
        self.last = values["last"]
        self.begun = tuple(
            Look(number, version, _rows(edges, tensors.get(f"look/{number}")))
            for number, version, edges in values["begun"]
        )


def _with(look: Look, edge: str, sums: Tensor) -> Look:
    return Look(look.number, look.version, {**look.sums, edge: sums})


def _rows(edges: list[str], table: Tensor | None) -> dict[str, Tensor]:
    return {} if table is None else dict(zip(edges, table, strict=True))
