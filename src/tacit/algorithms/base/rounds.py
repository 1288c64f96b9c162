"""Synchronous rounds over edges that may not answer: FedAvg and DP-PASGD.

All edges that are asked work on the same version. The round ends when all have answered, or at its
deadline if `need` have. An edge that did not answer in time is `absent`, and is not asked again
before it sends something. With fewer than `need` answers the deadline asks other edges instead and
the round goes on: a model is never made of fewer. Answers are combined in the order of their edges'
names, so that a round gives the same bits in every order in which its messages arrive.
"""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from typing import Any

from torch import Tensor

from tacit.algorithms.base.server import ServerRole
from tacit.config.definition import Definition
from tacit.models import Model
from tacit.protocol.messages import Outgoing, Timer, Update
from tacit.robust.rules import combine


class RoundServer(ServerRole):
    """A server whose versions are rounds; `combine` is the algorithm's."""

    max_staleness = 0
    one_by_one = False

    def __init__(
        self,
        definition: Definition[Any],
        model: Model,
        *,
        clients: int,
        quorum: float,
        deadline_s: float,
    ) -> None:
        super().__init__(definition, model)
        self.expected = definition.edges.needed_to_start
        self.clients = clients
        self.deadline_s = deadline_s
        self.wait_s = min(deadline_s, definition.edges.wait)  # for the first round
        self.need = max(1, math.ceil(quorum * clients))
        self.seed = definition.run.seed
        self.asked: list[str] = []
        self.answers: dict[str, Tensor] = {}
        self.absent: set[str] = set()
        self.waits = 0  # the running timer's number

    @property
    def waits_to_begin(self) -> bool:
        """Whether no round has begun yet."""
        return not self.asked and not self.version

    @abstractmethod
    def combine(self, answers: list[Tensor]) -> Tensor:
        """Return the next model (d,), from a round's vectors in the order of their edges' names."""

    def made_of(self, answers: list[Tensor]) -> Tensor:
        """Return the next model (d,) of a round's answers."""
        return self.combine(answers)

    def answer(self, edge: str) -> list[Outgoing]:
        """Return the round's model for an edge that is asked and has not answered."""
        waited_for = edge in self.asked and edge not in self.answers
        if waited_for:
            return [Outgoing(edge, self.global_model())]
        return []

    def admits(self, update: Update, tau: int) -> bool:
        """Check whether the update is its edge's first answer to this round, in time or late."""
        return tau == 0 and bool(self.asked) and update.edge not in self.answers

    def joined(self, edge: str) -> list[Outgoing]:
        """Let a newcomer fill up the round.

        The first round begins when all expected edges are connected.
        """
        self.absent.discard(edge)
        if not self.asked:
            if self.version or len(self.present()) >= self.expected:
                return self._begin()
            return []
        if edge not in self.asked and len(self.asked) < self.clients:
            self.asked.append(edge)
        return self.answer(edge)

    def left(self, edge: str) -> list[Outgoing]:
        """Wait no longer for `edge`, which sends no more."""
        if edge in self.asked and edge not in self.answers:
            self.asked.remove(edge)
        return self._close_if_complete()

    def apply(self, update: Update, tau: int) -> list[Outgoing]:
        """Keep the answer; the last one ends the round."""
        if update.edge not in self.asked:
            self.asked.append(update.edge)
        self.absent.discard(update.edge)
        self.answers[update.edge] = update.vector
        return self._close_if_complete()

    def timer(self) -> Timer | None:
        """Return the deadline of the round, or of the wait for the first one."""
        if self.asked:
            return Timer(self.waits, self.deadline_s)
        if self.present():
            return Timer(self.waits, self.wait_s)
        return None

    def on_deadline(self, number: int) -> list[Outgoing]:
        """Go on without the edges that have not answered; with too few answers ask others."""
        self.absent.update(edge for edge in self.asked if edge not in self.answers)
        if not self.asked:
            return self._begin()
        if len(self.answers) >= self.need:
            return self._close()
        self.waits += 1
        self.asked = [edge for edge in self.asked if edge in self.answers]
        others = [edge for edge in self.present() if edge not in self.answers]
        fresh = self._chosen(others, self.clients - len(self.asked))
        self.asked += fresh
        return [out for edge in fresh for out in self.answer(edge)]

    def progress(self) -> dict[str, float]:
        """Return the round's counts of edges, for `schedule`."""
        return {"asked": len(self.asked), "answered": len(self.answers), "absent": len(self.absent)}

    def average(self, vectors: list[Tensor]) -> Tensor:
        """Combine a round's vectors (d,) by `guard.rule`, by default into their plain average.

        Weights n_k would need the edges' exact sizes, which are private.
        """
        return combine(self.rule, vectors, self.trim)

    def base(self, update: Update) -> Tensor:
        """Return the round's model, which all its answers start from."""
        return self.params

    def shut_out(self, edge: str) -> list[Outgoing]:
        """Drop the edge, and its answer to this round."""
        self.answers.pop(edge, None)
        return self.left(edge)

    def present(self) -> list[str]:
        """Return the edges that may be asked, sorted by name."""
        return sorted(
            name
            for name, record in self.edges.items()
            if not record.retired and name not in self.absent and name not in self.accused
        )

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the base's state and the round's."""
        tensors, values = super().state()
        tensors |= {f"answer/{edge}": vector for edge, vector in self.answers.items()}
        return tensors, values | {
            "asked": self.asked,
            "absent": sorted(self.absent),
            "waits": self.waits,
        }

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        super().restore(tensors, values)
        self.asked = list(values["asked"])
        self.absent = set(values["absent"])
        self.waits = values["waits"]
        answer_names = (name for name in tensors if name.startswith("answer/"))
        self.answers = {name.removeprefix("answer/"): tensors[name] for name in answer_names}

    def _update(self, update: Update) -> list[Outgoing]:
        self.absent.discard(update.edge)  # perhaps too late, but it is connected
        return super()._update(update)

    def _begin(self) -> list[Outgoing]:
        self.answers = {}
        self.waits += 1
        self.asked = self._chosen(self.present(), self.clients)
        return [Outgoing(edge, self.global_model()) for edge in self.asked]

    def _close_if_complete(self) -> list[Outgoing]:
        enough = len(self.answers) >= self.need and len(self.answers) >= len(self.asked)
        if enough:
            return self._close()
        return []

    def _close(self) -> list[Outgoing]:
        self.params = self.made_of([self.answers[edge] for edge in sorted(self.answers)])
        self.version += 1
        return self._begin()

    def _chosen(self, edges: list[str], count: int) -> list[str]:
        """Return `count` of `edges`, drawn without replacement.

        The draw depends on the run's seed and the timer's number only, so a replay repeats it.
        """

        def lot(edge: str) -> bytes:
            return hashlib.sha256(f"tacit round|{self.seed}|{self.waits}|{edge}".encode()).digest()

        return sorted(sorted(edges, key=lot)[:count])
