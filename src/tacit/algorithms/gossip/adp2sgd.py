"""A(DP)²SGD: asynchronous decentralized parallel SGD with differential privacy, or ADPSGD without.

Paper: "A(DP)²SGD: Asynchronous Decentralized Parallel Stochastic Gradient Descent with Differential
Privacy" (arXiv:2008.09246), Algorithm 1, eqs (1), (3) and (4), appendix A. A `Peer` is one of its
workers. There is no server.

| here          | paper | meaning |
| ------------- | ----- | --- |
| trained       | w_k   | this worker's model, float64 (d,) |
| counts        | t     | steps of every worker, as known here; the sum is the global counter |
| learning_rate | η     |     |
| batch         | B     | expected batch size, and the fixed denominator L of privacy.md |
| horizon       | T     | steps of all workers together |
| max_staleness | τ     | exchanges between reading ŵ_k and applying the step made of it |
| noise         | σ     | zC, the standard deviation of the noise on the clipped *sum* |

Differs from the paper (why: docs/algorithms.md): every example is clipped, and batches are Poisson.
The noise's σ is for the sum that it is added to, never for the mean (E1). Each worker's ledger
counts its own rate q and its own steps, without a 1/K for "who acts is random" (E2). One exchange
is exactly once: see `Peer`. `mechanism = "none"` is ADPSGD.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

from torch import Tensor

from tacit.algorithms.gossip.topology import Topology
from tacit.algorithms.gossip.worker import GossipSettings, GossipWorker, as_tensor
from tacit.models import Model
from tacit.privacy.private_sum.way import PrivateSum
from tacit.privacy.release import Released, Releaser
from tacit.privacy.release.trained import Shared, Trained
from tacit.protocol.messages import Answer, Outgoing, PeerMessage, Proposal


@dataclass(slots=True)
class NeighbourLink:
    """The state that is kept of one neighbour, in both directions; each has numbers of its own.

    proposed, open: the number of our latest exchange with it, and whether its answer is still to
    come. life, answered: of its latest exchange that was done here. delta: what we added for that
    one, which is the answer, to be sent again if it asks again.
    """

    proposed: int = 0
    open: bool = False
    life: int = 0
    answered: int = 0
    delta: Shared | None = None


class Peer(GossipWorker):
    """A worker that averages with one neighbour at a time while it computes, and never waits.

    Two peers cannot both know that a message has arrived. So one of them decides an exchange. The
    proposer i sends its model under a number. The receiver j adds δ = (x_i - x_j)/2 to its own
    model, and stores number and δ in the same durable write, before it answers. When the answer
    comes, i subtracts δ, however often it had to ask, and also if it has taken steps meanwhile. It
    proposes nothing else on this link before. So a number is applied at most once at j and at most
    once at i, and at i only if at j. The mean of all models is that of the steps alone. While an
    answer is under way it is δ/K from that. No peer waits: an exchange with a neighbour that is
    disconnected stays open.

    The driver must make `state()` durable after every call that returns messages, before it sends
    them.
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
        random: Random,
        life: int = 1,
    ) -> None:
        """random: chooses partners. life: when this peer's durable state was made.

        A newer state has a larger life.
        """
        super().__init__(edge, model, releaser, private_sum, settings, topology, seed=seed)
        self.life = life
        self.random = random
        self.links = {name: NeighbourLink() for name in sorted(self.neighbours)}
        self.staleness: Counter[int] = Counter()
        self._age: int | None = None  # exchanges since ŵ was read; None: no step is being computed
        self._waiting: dict[tuple[str, bool], Proposal | Answer] = {}
        self._farewell_sent = False

    # -- Algorithm 1 -------------------------------------------------------------------------------

    def begin(self) -> tuple[Tensor | None, list[Outgoing]]:
        """Begin a step: ŵ to compute a gradient at, and the exchange beside it (lines 4 and 6).

        None: the run is over.
        """
        if self.finished:
            return None, self._farewell()
        self._age = 0
        return self.trained.params, self.propose()

    def finish(self, released: Released) -> list[Outgoing]:
        """Step w_k ← w' - ηg̃(ŵ) (line 9), where w' is what w_k has become meanwhile.

        Then comes what had to wait for it.
        """
        assert self._age is not None
        self.trained.descend(released, self.rate)
        self.counts[self.edge] += 1
        self.staleness[self._age] += 1
        return self.abandon()

    def abandon(self) -> list[Outgoing]:
        """Give up the step that was begun: the budget is spent.

        What waited for it waits no more.
        """
        self._age = None
        waiting = self._waiting
        self._waiting = {}
        return [out for message in waiting.values() for out in self.hear(message)]

    def propose(self) -> list[Outgoing]:
        """Propose an exchange to a neighbour that is present and has none of ours open (line 8).

        Nothing, if there is no such neighbour.
        """
        free = {name for name in self.here if name in self.links and not self.links[name].open}
        partner = self.topology.partner(self.edge, self.steps, free, self.random)
        if partner is None:
            return []
        link = self.links[partner]
        link.proposed += 1
        link.open = True
        return [self._proposal(partner, link)]

    def _farewell(self) -> list[Outgoing]:
        """Tell the neighbours, once, that the run is over; they would go on else.

        An exchange tells them, or an old answer again.
        """
        if self._farewell_sent:
            return []
        self._farewell_sent = True
        links = [(name, self.links[name]) for name in sorted(self.here)]
        again = [self._answer(name, link) for name, link in links if link.delta is not None]
        return again + [out for _ in links for out in self.propose()]

    def repeat(self, neighbours: Iterable[str]) -> list[Outgoing]:
        """Propose the open exchanges with `neighbours` once more, with the model as it is now.

        The first to arrive decides.
        """
        return [
            self._proposal(name, self.links[name]) for name in neighbours if self.links[name].open
        ]

    def hear(self, message: PeerMessage) -> list[Outgoing]:
        """Take in a neighbour's message. Other messages, and ones seen before, change nothing."""
        if not isinstance(message, Proposal | Answer) or message.peer not in self.links:
            return []
        if self._sane(message.model if isinstance(message, Proposal) else message.delta) is None:
            return []
        self._count(message.counts)
        if (
            self._age is not None and self._age >= self.settings.max_staleness
        ):  # Assumption 2.3: τ is a bound
            self._waiting[message.peer, isinstance(message, Answer)] = message
            return []
        if isinstance(message, Proposal):
            return self._proposed(message)
        return self._answered(message)

    # -- one exchange ------------------------------------------------------------------------------

    def _proposed(self, message: Proposal) -> list[Outgoing]:
        link = self.links[message.peer]
        if message.life > link.life:  # its durable state is new, so its numbers begin anew
            link.life = message.life
            link.answered = 0
            link.delta = None
        if (message.life, message.seq) < (
            link.life,
            link.answered,
        ):  # it goes on only after an answer, so it has had this one
            return []
        if message.seq > link.answered:
            link.answered, link.delta = message.seq, self.trained.meet(as_tensor(message.model))
            self._older()
        return [self._answer(message.peer, link)]

    def _answered(self, message: Answer) -> list[Outgoing]:
        link = self.links[message.peer]
        if not link.open or (message.life, message.seq) != (self.life, link.proposed):
            return []  # a second answer
        delta = as_tensor(message.delta)
        if (
            self._sane(self.trained.params - delta) is None
        ):  # many differences in bounds may lead out of them
            return []
        self.trained.shift(delta)
        link.open = False
        self._older()
        return []

    def _older(self) -> None:
        if self._age is not None:
            self._age += 1

    def _answer(self, name: str, link: NeighbourLink) -> Outgoing:
        assert link.delta is not None
        return Outgoing(
            name, Answer(self.edge, link.life, link.answered, link.delta, dict(self.counts))
        )

    def _proposal(self, name: str, link: NeighbourLink) -> Outgoing:
        model = self.trained.share()
        return Outgoing(
            name, Proposal(self.edge, self.life, link.proposed, model, dict(self.counts))
        )

    # -- persistence -------------------------------------------------------------------------------

    @property
    def settled(self) -> bool:
        """Whether no exchange of ours is open with a neighbour that is here, and no step under way.

        A neighbour that is away, or that is waited for no more, keeps its exchange open: that is
        done when both are back.
        """
        return self._age is None and not any(
            link.open and self.patient and name in self.here for name, link in self.links.items()
        )

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return (tensors, JSON values) from which `restore` continues.

        A tensor never changes: a new one takes its place.
        """
        tensors = {"params": self.trained.params}
        tensors |= {
            f"delta/{name}": link.delta.vector
            for name, link in self.links.items()
            if link.delta is not None
        }
        links = {
            name: [link.proposed, link.open, link.life, link.answered]
            for name, link in self.links.items()
        }
        staleness = sorted(self.staleness.items())
        return tensors, {
            "life": self.life,
            "counts": self.counts,
            "links": links,
            "staleness": staleness,
        }

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Continue from what `state` returned.

        A step that was being computed is gone, and stays paid for.
        """
        self.trained.restore(tensors["params"])
        self.life = values["life"]
        self.staleness = Counter(dict(values["staleness"]))
        self.counts |= {
            peer: steps for peer, steps in values["counts"].items() if peer in self.counts
        }
        for name, (proposed, is_open, life, answered) in values["links"].items():
            if name in self.links:
                delta = tensors.get(f"delta/{name}")
                if delta is None:
                    shared = None
                else:
                    shared = Trained.again(delta)
                self.links[name] = NeighbourLink(proposed, is_open, life, answered, shared)
        self._age = None
        self._waiting = {}
