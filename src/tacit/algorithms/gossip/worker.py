"""The worker of a run without a server: its rows, its model, its count of all peers' steps.

Paper: A(DP)²SGD (arXiv:2008.09246); the notation is in adp2sgd.py. `GossipWorker` is lines 5 to 7
of its Algorithm 1, the private gradient. Models meet in adp2sgd.py (pairs) and
allreduce.py (all).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median_low
from typing import Any, Final

import torch
from torch import Tensor

from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.gossip.topology import Topology
from tacit.models import Model
from tacit.models.vectors import learnable
from tacit.privacy.private_sum.choice import Ways
from tacit.privacy.private_sum.way import PrivateSum
from tacit.privacy.release import Released, Releaser
from tacit.privacy.release.trained import Shared, Trained
from tacit.protocol.messages import SERVER, GlobalModel, Outgoing, PeerMessage, Report

# A peer's own count of its steps is believed up to this multiple of the median peer's.
BELIEVED = 3
# A peer's messages leave beside its steps, so a step's time must not tell how many rows it drew.
WAYS: Final = Ways(alone=None)


def constant(version: int, horizon: int) -> float:
    """Return 1: a constant schedule."""
    return 1.0


@dataclass(frozen=True, slots=True)
class GossipSettings:
    """The numbers that all workers of a run share."""

    learning_rate: float
    clip: float
    horizon: int
    max_staleness: int
    report_every: int  # own steps between two reports
    factor: Callable[[int, int], float] = constant  # of η, by the counter and the horizon


class GossipWorker(EdgeRole):
    """A worker of a run without a server: its rows, its model, the global counter.

    `gradient` is lines 5 to 7 of Algorithm 1; how models meet is the subclass's.
    """

    def __init__(
        self,
        edge: str,
        model: Model,
        releaser: Releaser,
        private_sum: PrivateSum,
        settings: GossipSettings,
        topology: Topology,
        *,
        seed: int,
    ) -> None:
        """`seed`: of the public initial model, w⁰ for everybody (line 1)."""
        super().__init__(edge, model, releaser, private_sum)
        self.settings = settings
        self.topology = topology
        self.trained = Trained(model, seed)
        self.counts: dict[str, int] = dict.fromkeys(topology.peers, 0)
        self.here: set[str] = set()  # the neighbours that are connected
        self._first_hand: dict[str, int] | None = None  # steps, as each peer counts its own
        self.patient = True  # whether to wait for neighbours that still owe an answer

    @abstractmethod
    def begin(self) -> tuple[Tensor | None, list[Outgoing]]:
        """Begin a step: return ŵ to compute a gradient at (None: not now), and messages to send."""

    @abstractmethod
    def finish(self, released: Released) -> list[Outgoing]:
        """Finish the step that `begin` began, with the noisy gradient `released`."""

    @abstractmethod
    def abandon(self) -> list[Outgoing]:
        """Give up the step that `begin` began, since the budget is spent."""

    @abstractmethod
    def hear(self, message: PeerMessage) -> list[Outgoing]:
        """Take in a message of another peer. One that was seen before changes nothing."""

    @abstractmethod
    def propose(self) -> list[Outgoing]:
        """Propose an exchange to a peer, beside any step; no message if no peer is free."""

    @abstractmethod
    def repeat(self, neighbours: Iterable[str]) -> list[Outgoing]:
        """Ask `neighbours` again for the answers that they still owe."""

    @property
    @abstractmethod
    def settled(self) -> bool:
        """Whether no answer is still to come."""

    @abstractmethod
    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return (tensors, JSON values) from which `restore` continues.

        A tensor never changes: a new one takes its place.
        """

    @abstractmethod
    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Continue from what `state` returned."""

    @property
    def rate(self) -> float:
        """η of the step that is taken now, by what this peer knows of the global counter."""
        steps_taken = sum(self.counts.values())
        return self.settings.learning_rate * self.settings.factor(
            steps_taken, self.settings.horizon
        )

    waits = False  # whether a step may have to wait for other peers

    def work(self, message: GlobalModel) -> list[Outgoing]:
        """Return no message: a peer has no server, so nobody sends it a model."""
        return []

    @property
    def neighbours(self) -> frozenset[str]:
        """The peers that this one may have an exchange with."""
        return self.topology.neighbours(self.edge)

    @property
    def steps(self) -> int:
        """The steps that this worker has taken."""
        return self.counts[self.edge]

    @property
    def version(self) -> int:
        """The global counter as this peer knows it, never ahead of the true one."""
        return sum(self.counts.values())

    @property
    def finished(self) -> bool:
        """Line 3: T steps have been taken by all together."""
        return self.version >= self.settings.horizon

    def gradient(self, params: Tensor) -> Released:
        """Return g̃ of lines 5 to 7 at ŵ = `params`, (d,).

        The ledger is charged, then a batch is drawn, clipped, summed, noised and divided by L.
        Touches rows and ledger only, so that it may run beside everything else. Raises BudgetSpent,
        PrivacyError.
        """
        read = params.to(torch.float32)
        clip = self.settings.clip
        return self.releaser.release(clip, lambda: self.private_sum.compute(read, clip))

    def report(self) -> list[Outgoing]:
        """Return a report of the model and its cost for the observer, which no peer waits for.

        Its counter says T only when no step or proposal of this peer will follow; one of a
        neighbour may.
        """
        version = min(self.version, self.settings.horizon - (not (self.finished and self.settled)))
        ledger = self.releaser.ledger
        charged = (ledger.history(), ledger.charged())
        return [
            Outgoing(SERVER, Report(self.edge, version, self.steps, self.trained.share(), *charged))
        ]

    def count_first_hand(self) -> None:
        """Count a peer's steps by its own word only from now on (`hear_steps`)."""
        self._first_hand = {}

    def hear_steps(self, peer: str, steps: int) -> None:
        """Take in the number of its steps from `peer`, whose identity is known.

        It is believed up to BELIEVED times the median peer's steps, so that one lie is worth a few
        peers' steps and not T.
        """
        if self._first_hand is None or peer not in self.counts or peer == self.edge:
            return
        self._first_hand[peer] = max(self._first_hand.get(peer, 0), steps)
        reported = self._first_hand | {self.edge: self.counts[self.edge]}
        middle = median_low(reported.get(name, 0) for name in self.counts)
        for name, number in self._first_hand.items():
            believed = min(number, BELIEVED * middle + self.settings.report_every)
            self.counts[name] = max(self.counts[name], min(believed, self.settings.horizon))

    def _count(self, counts: Mapping[str, int]) -> None:
        """Merge another peer's counts of steps: of two numbers for a peer the larger is newer.

        So messages may be lost or reordered, and no server is needed. No peer is believed to have
        taken more than T steps: that ends the run as well, and a false number cannot overflow. Does
        nothing where each peer counts its own steps (`count_first_hand`).
        """
        if self._first_hand is not None:
            return
        for peer, steps in counts.items():
            if peer in self.counts and peer != self.edge:
                self.counts[peer] = max(self.counts[peer], min(steps, self.settings.horizon))

    def _sane(self, vector: Shared | Tensor) -> Tensor | None:
        tensor = as_tensor(vector)
        if tensor.shape == (self.model.size,) and learnable(tensor):
            return tensor
        self.refusals += 1
        self.refusal = "a peer's model or difference is out of all bounds"
        return None


def as_tensor(vector: Shared | Tensor) -> Tensor:
    """Return the numbers (d,) of a shared model, whether it is to be sent or was received."""
    if isinstance(vector, Shared):
        return vector.vector
    return vector
