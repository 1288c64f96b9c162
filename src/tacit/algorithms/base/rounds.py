"""Synchronous rounds in a world where nobody may be waited for: FedAvg and DP-PASGD.

Everybody who is asked works on the same version; the round ends when all have answered, or at its
deadline if `need` have. Who did not answer in time is `absent` and is not asked again before it
speaks. With fewer than `need` answers a deadline asks others instead, and the round goes on: a
model is never made of fewer. Answers are combined in the order of their edges' names, so that a
round gives the same bits however its messages arrive.
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
        self.expected, self.clients, self.deadline_s = definition.needed, clients, deadline_s
        self.wait_s = min(deadline_s, definition.wait)  # for the first round
        self.need = max(1, math.ceil(quorum * clients))
        self.seed = definition.seed
        self.asked: list[str] = []
        self.answers: dict[str, Tensor] = {}
        self.absent: set[str] = set()
        self.waits = 0  # number of the timer that runs

    @abstractmethod
    def combine(self, answers: list[Tensor]) -> Tensor:
        """The next model (d,) from the vectors of a round, in the order of their edges' names."""

    def answer(self, edge: str) -> list[Outgoing]:
        """The round's model, for who is asked and has not answered."""
        waited_for = edge in self.asked and edge not in self.answers
        return [Outgoing(edge, self.global_model())] if waited_for else []

    def admits(self, update: Update, tau: int) -> bool:
        """The first answer of an edge to this round, also of one that nobody hoped for any more."""
        return tau == 0 and bool(self.asked) and update.edge not in self.answers

    def joined(self, edge: str) -> list[Outgoing]:
        """Let a newcomer fill up the round.

        The first round begins when all that are expected are there.
        """
        self.absent.discard(edge)
        if not self.asked:
            return self._begin() if self.version or len(self.present()) >= self.expected else []
        if edge not in self.asked and len(self.asked) < self.clients:
            self.asked.append(edge)
        return self.answer(edge)

    def left(self, edge: str) -> list[Outgoing]:
        """A round does not wait for an edge that will send no more."""
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
        """The deadline of the round, or of the wait for the first one."""
        if self.asked:
            return Timer(self.waits, self.deadline_s)
        return Timer(self.waits, self.wait_s) if self.present() else None

    def on_deadline(self, number: int) -> list[Outgoing]:
        """Go on without those who have not answered.

        With too few answers, ask others instead.
        """
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
        """How far the round has come, for `schedule`."""
        return {"asked": len(self.asked), "answered": len(self.answers), "absent": len(self.absent)}

    def average(self, vectors: list[Tensor]) -> Tensor:
        """What the vectors (d,) of a round make together, by `guard.rule`: the plain average (d,).

        Weights n_k would need exact sizes, which are private; the rows of all edges are dealt
        alike.
        """
        return combine(self.rule, vectors, self.trim)

    def base(self, update: Update) -> Tensor:
        """The round's model."""
        return self.params

    def shut_out(self, edge: str) -> list[Outgoing]:
        """What it has said in this round does not count either."""
        self.answers.pop(edge, None)
        return self.left(edge)

    def present(self) -> list[str]:
        """Edges that may be asked, by name."""
        return sorted(
            name
            for name, record in self.edges.items()
            if not record.retired and name not in self.absent and name not in self.accused
        )

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The base's, with the round as far as it has come."""
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
        self.asked, self.absent, self.waits = (
            list(values["asked"]),
            set(values["absent"]),
            values["waits"],
        )
        given = (name for name in tensors if name.startswith("answer/"))
        self.answers = {name.removeprefix("answer/"): tensors[name] for name in given}

    def _update(self, update: Update) -> list[Outgoing]:
        self.absent.discard(update.edge)  # too late, perhaps, but alive
        return super()._update(update)

    def _begin(self) -> list[Outgoing]:
        self.answers, self.waits = {}, self.waits + 1
        self.asked = self._chosen(self.present(), self.clients)
        return [Outgoing(edge, self.global_model()) for edge in self.asked]

    def _close_if_complete(self) -> list[Outgoing]:
        enough = len(self.answers) >= self.need and len(self.answers) >= len(self.asked)
        return self._close() if enough else []

    def _close(self) -> list[Outgoing]:
        self.params = self.combine([self.answers[edge] for edge in sorted(self.answers)])
        self.version += 1
        return self._begin()

    def _chosen(self, edges: list[str], count: int) -> list[str]:
        """`count` of `edges`, drawn without replacement.

        The draw goes by the run's seed and the timer's number, so it is the same anywhere.
        """

        def lot(edge: str) -> bytes:
            return hashlib.sha256(f"tacit round|{self.seed}|{self.waits}|{edge}".encode()).digest()

        return sorted(sorted(edges, key=lot)[:count])
