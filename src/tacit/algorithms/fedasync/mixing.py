"""FedAsync's server (arXiv:1903.03934, Algorithm 1): each update is mixed in when it comes."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from tacit.algorithms.base.algorithm import ServerAlgorithm
from tacit.algorithms.base.server import ServerRole
from tacit.algorithms.fedasync.fedasync_settings import FedAsync
from tacit.config.definition import Definition
from tacit.models import Model
from tacit.protocol.messages import Outgoing, Timer, Update
from tacit.robust.law import Law

MODELS_HELD = 2**24  # bytes of earlier models, where the guard asks what updates are based on


def staleness_weight(staleness: int, a: FedAsync) -> float:
    """Return s(t - τ) of section 5.2: 1, (u + 1)^-a, or 1 up to b, then 1 / (a(u - b) + 1).

    s(0) = 1 for all three.
    """
    if a.staleness == "polynomial":
        return float((staleness + 1) ** -a.a)
    if a.staleness == "hinge" and staleness > a.b:
        return 1 / (a.a * (staleness - a.b) + 1)
    return 1.0


class MixingServer(ServerRole):
    """Processes Server, Scheduler and Updater of Algorithm 1.

    The coordinator's queue is the journal.
    """

    needs_base = True  # updates are models, not distances

    def __init__(self, definition: Definition[FedAsync], model: Model) -> None:
        super().__init__(definition, model)
        self.algorithm, self.max_staleness = (
            definition.algorithm,
            definition.algorithm.max_staleness,
        )
        self.task = definition.algorithm.task(definition.privacy.noise_at)
        self.weight = 1.0  # α_t of the latest update
        self.active: dict[str, int] = {}  # edges at work, and the trigger that began each task
        self.idle: list[str] = []  # edges that wait to be triggered, longest first
        self.triggers = 0
        self.models: dict[int, Tensor] = {}  # by version: those that an update may be based on

    # -- Updater -----------------------------------------------------------------------------------

    def apply(self, update: Update, tau: int) -> list[Outgoing]:
        """Mix an update into the model: x_t = (1 - α_t)·x_{t-1} + α_t·x_new."""
        self._hold()
        self.mix(update.vector, tau, update.room)
        return self._next(update.edge)

    def mix(self, vector: Tensor, tau: int, room: Tensor | None = None) -> None:
        """Mix at α_t = α·s(t - τ), computed afresh: it never carries over to the next update.

        room: where the result may be written, `vector`'s own memory or None.
        """
        self.weight = self.mixing() * staleness_weight(tau, self.algorithm)
        self.params = torch.lerp(self.params, vector, self.weight, out=room)
        self.version += 1

    # -- what the guard's sums ask -------------------------------------------------------------

    def base(self, update: Update) -> Tensor:
        """Return x_τ."""
        return self.models.get(update.base_version, self.params)

    def law(self, update: Update) -> Law:
        """Return the law of H local steps, which the edge's name and τ determine."""
        return self.task.law(self.laws, update, self.clip, self.horizon)

    def admits(self, update: Update, tau: int) -> bool:
        """Check whether the update is fresh and, with guard.sums, of a base that is still held."""
        unknown = (
            self.watch is not None
            and self.needs_base
            and update.base_version < min(self.models, default=self.version)
        )
        return super().admits(update, tau) and not unknown

    def _hold(self) -> None:
        """Hold this version's model, and earlier ones within `MODELS_HELD` bytes.

        At least two of every edge are held.
        """
        if self.watch is None or not self.needs_base:
            return
        self.models[self.version] = self.params
        allowed = MODELS_HELD // (4 * self.params.numel())
        keep = min(self.max_staleness + 1, max(2 * len(self.edges), allowed))
        while len(self.models) > keep:
            del self.models[min(self.models)]

    def mixing(self) -> float:
        """Return α at this epoch.

        The configured one, times its decay once that part of the run is over.
        """
        a = self.algorithm
        return a.mixing * (
            a.mixing_decay if self.version >= a.mixing_decay_at * self.horizon else 1.0
        )

    def schedule(self) -> dict[str, float]:
        """Return C, γ, and α_t of the latest update."""
        return {
            "clip": self.clip,
            "learning_rate": self.algorithm.learning_rate
            * self.algorithm.factor(self.version, self.horizon),
            "mixing": self.weight,
        }

    # -- Scheduler ---------------------------------------------------------------------------------

    def answer(self, edge: str) -> list[Outgoing]:
        """Return the model for an edge at work; the others are idle until they are triggered."""
        if edge in self.active:
            return [Outgoing(edge, self.global_model())]
        return []

    def joined(self, edge: str) -> list[Outgoing]:
        """Trigger the newcomer if there is room for one more at work."""
        if edge not in self.active and edge not in self.idle:
            self.idle.append(edge)
        return self.answer(edge) or self._trigger()

    def left(self, edge: str) -> list[Outgoing]:
        """Let another edge work instead."""
        self.active.pop(edge, None)
        self.idle = [name for name in self.idle if name != edge]
        return self._trigger()

    def timer(self) -> Timer | None:
        """Return the period after which tasks are given away, while others wait.

        An edge that has worked for longer may be gone.
        """
        if self.idle and self.active:
            return Timer(self.triggers, self.algorithm.deadline_s)
        return None

    def on_deadline(self, number: int) -> list[Outgoing]:
        """Put those who have worked for a whole period to the end of the queue.

        What they still send counts.
        """
        late = [name for name, trigger in self.active.items() if trigger < self.triggers]
        self.triggers += 1
        for name in late:
            del self.active[name]
        triggered = self._trigger()
        self.idle += late
        return triggered + self._trigger()

    def _next(self, edge: str) -> list[Outgoing]:
        self.active.pop(edge, None)
        if edge not in self.idle:
            self.idle.append(edge)
        return self._trigger()

    def _trigger(self) -> list[Outgoing]:
        if self.algorithm.concurrency is None:
            room = len(self.idle) + len(self.active)
        else:
            room = self.algorithm.concurrency
        chosen = self.idle[: max(0, room - len(self.active))]
        self.idle = self.idle[len(chosen) :]
        self.active |= dict.fromkeys(chosen, self.triggers)
        return [Outgoing(name, self.global_model()) for name in chosen]

    # -- persistence -------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the base's state, with the scheduler's."""
        tensors, values = super().state()
        scheduling = {
            "weight": self.weight,
            "active": self.active,
            "idle": self.idle,
            "triggers": self.triggers,
        }
        models = {f"model/{version}": model.clone() for version, model in self.models.items()}
        return tensors | models, values | scheduling

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        super().restore(tensors, values)
        self.weight = values["weight"]
        self.triggers = values["triggers"]
        self.active = dict(values["active"])
        self.idle = list(values["idle"])
        self.models = {
            int(name.removeprefix("model/")): model
            for name, model in tensors.items()
            if name.startswith("model/")
        }


class FedAsyncAlgorithm(ServerAlgorithm):
    """FedAsync, and single-thread SGD."""

    settings: ClassVar = FedAsync
    role: ClassVar = MixingServer
