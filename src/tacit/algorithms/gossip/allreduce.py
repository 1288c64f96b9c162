"""SYNC: the synchronous baseline of A(DP)²SGD. Every worker waits for every other, every round.

Paper: A(DP)²SGD (arXiv:2008.09246), section 5 and appendix A. In its words: "an allreduce (sum)
call after each learner's weight update in each iteration and then the average of the weights across
all the learners".

The paper's all-reduce is NCCL's, on one machine's GPUs. Here every worker sends its model to every
other. Sampling, clipping, noise and ledger are those of `worker.Worker`, so at the same z and T the
two spend the same ε.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from tacit.algorithms.gossip.topology import Topology
from tacit.algorithms.gossip.worker import GossipSettings, GossipWorker
from tacit.models import Model
from tacit.privacy.private_sum.way import PrivateSum
from tacit.privacy.release import Released, Releaser
from tacit.privacy.release.trained import Shared, Trained
from tacit.protocol.messages import Missing, Outgoing, PeerMessage, Share


class SyncPeer(GossipWorker):
    """A worker that goes from round to round with all the others.

    No worker can be two rounds ahead of another. So a worker that keeps its two latest shares can
    give any that is still wanted, in the same bits. All take the mean of the same numbers in the
    same order, and so have the same model. The driver must make `state()` durable after every call
    that returns messages, before it sends them.
    """

    waits = True

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
        super().__init__(edge, model, releaser, private_sum, settings, topology, seed=seed)
        self.round = 0
        self._shares: dict[int, Shared] = {}  # ours, of this round and the last
        self._heard: dict[int, dict[str, Tensor]] = {}  # others', of this round and the next

    def begin(self) -> tuple[Tensor | None, list[Outgoing]]:
        """Return the model that all workers step from.

        None: the run is over, or shares of this round have still to come.
        """
        if not self.settled or self.finished:
            return None, []
        return self.trained.params, []

    def finish(self, released: Released) -> list[Outgoing]:
        """Step w_k ← w - ηg̃ (4), and send it to all."""
        self.trained.descend(released, self.rate)
        self.counts[self.edge] = self.round + 1
        self._shares = {
            number: shared for number, shared in self._shares.items() if number == self.round - 1
        }
        self._shares[self.round] = self.trained.share()
        share = Share(self.edge, self.round, self._shares[self.round])
        self._reduce()
        return [Outgoing(other, share) for other in self.topology.peers if other != self.edge]

    def abandon(self) -> list[Outgoing]:
        """Send nothing: without a step there is no share, and all others wait for it."""
        return []

    def hear(self, message: PeerMessage) -> list[Outgoing]:
        """Take in a share of this round or the next, or repeat one of ours to a peer that asks.

        A message about an earlier round changes nothing.
        """
        match message:
            case Share() if message.peer in self.counts and message.round in (
                self.round,
                self.round + 1,
            ):
                tensor = self._sane(message.model)
                if tensor is not None:
                    self._heard.setdefault(message.round, {}).setdefault(message.peer, tensor)
                    self._reduce()
            case Missing() if message.peer in self.counts and message.round in self._shares:
                return [
                    Outgoing(
                        message.peer, Share(self.edge, message.round, self._shares[message.round])
                    )
                ]
            case _:
                pass
        return []

    def count_first_hand(self) -> None:
        """Do nothing: a round ends by the shares themselves, so no count is taken on trust."""

    def propose(self) -> list[Outgoing]:
        """Return no message: beside a round's shares there is nothing to exchange."""
        return []

    @property
    def neighbours(self) -> frozenset[str]:
        """All other peers, for every graph."""
        return frozenset(self.topology.peers) - {self.edge}

    def repeat(self, neighbours: Iterable[str]) -> list[Outgoing]:
        """Ask the `neighbours` whose share of this round is missing to send it again.

        Also before our own step: they will not repeat by themselves what they sent while we were
        disconnected.
        """
        heard = self._heard.get(self.round, {})
        if self.finished and self.settled:
            missing = []
        else:
            missing = [name for name in neighbours if name not in heard]
        return [Outgoing(name, Missing(self.edge, self.round)) for name in missing]

    def _reduce(self) -> None:
        """Set w ← (1/K) Σ_k w_k, once all shares have come."""
        if self.settled:
            return
        shares = self._heard.get(self.round, {}) | {self.edge: self._shares[self.round].vector}
        if len(shares) == len(self.counts):
            self.trained.mean([shares[name] for name in self.topology.peers])
            self._heard.pop(self.round, None)
            self.round += 1
            self.counts = dict.fromkeys(self.counts, self.round)

    # -- persistence -------------------------------------------------------------------------------

    @property
    def settled(self) -> bool:
        """Whether this peer has still to take its step of the round, and so waits for no share."""
        return self.round not in self._shares

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return (tensors, JSON values) from which `restore` continues.

        Other peers' shares are left out: they can be asked for again.
        """
        tensors = {f"said/{number}": shared.vector for number, shared in self._shares.items()}
        return tensors | {"params": self.trained.params}, {
            "round": self.round,
            "counts": self.counts,
        }

    def restore(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.trained.restore(tensors["params"])
        self.round = values["round"]
        self.counts = dict(values["counts"])
        shares = {name: tensor for name, tensor in tensors.items() if name.startswith("said/")}
        self._shares = {
            int(name.removeprefix("said/")): Trained.again(tensor)
            for name, tensor in shares.items()
        }
        self._heard = {}
