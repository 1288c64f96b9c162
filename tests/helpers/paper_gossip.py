"""Peers in one process for tests.

A network that loses, repeats and reorders, and disks that outlive their peers.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random as Chooser
from typing import Any

import torch
from torch import Tensor

from tacit.algorithms.gossip.adp2sgd import Peer
from tacit.algorithms.gossip.allreduce import SyncPeer
from tacit.algorithms.gossip.topology import Topology, TopologyKind
from tacit.algorithms.gossip.topology import build as build_graph
from tacit.algorithms.gossip.worker import WAYS, GossipSettings
from tacit.datasets import Dataset
from tacit.models import Model, build
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.release import Mechanism, Plan, Releaser
from tacit.protocol.messages import Outgoing, PeerMessage
from tests.helpers.private_sums import sum_of

MODEL = build("logistic", (1, 1, 3), 2)
SIZE = MODEL.size  # 8
BATCH = 4.0
AnyPeer = Peer | SyncPeer
State = tuple[dict[str, Tensor], dict[str, Any]]


def names(count: int) -> list[str]:
    return [f"peer-{index}" for index in range(count)]


def rows(number: int, count: int = 8) -> Dataset:
    """Return some rows of peer `number`."""
    generator = torch.Generator().manual_seed(number)
    return Dataset(
        torch.randn(count, 1, 1, 3, generator=generator), torch.arange(count) % 2, 2, "test"
    )


def make(
    me: str,
    topology: Topology,
    *,
    sync: bool = False,
    mechanism: Mechanism = "none",
    rate: float = 0.5,
    learning_rate: float = 0.0,
    horizon: int = 10**9,
    max_staleness: int = 10**6,
    life: int = 1,
    z: float = 1.0,
    data: Dataset | None = None,
    model: Model = MODEL,
    batch: float = BATCH,
    ledger: Ledger | None = None,
    random: Random | None = None,
    clip: float = 1.0,
    epsilon: float = float("inf"),
) -> AnyPeer:
    number = topology.peers.index(me)
    plan = Plan(mechanism, rate, batch, z, 1e-6, 1e6, epsilon, 1e-5, rows_max=100)
    releaser = Releaser(plan, ledger or Ledger(":memory:", "test"), random or Random(number))
    settings = GossipSettings(learning_rate, clip, horizon, max_staleness, report_every=10)
    private_sum = sum_of(rows(number) if data is None else data, model, releaser, ways=WAYS)
    if sync:
        return SyncPeer(me, model, releaser, private_sum, settings, topology, seed=1)
    chooser = Chooser(number)
    return Peer(
        me, model, releaser, private_sum, settings, topology, seed=1, life=life, random=chooser
    )


class Net:
    """K peers, what is on its way between them, and their durable states."""

    def __init__(
        self, count: int, kind: TopologyKind = "ring", *, apart: bool = True, **changes: Any
    ) -> None:
        """Build the peers; with `apart`, each begins with a model of its own."""
        self.topology = build_graph(kind, names(count), seed=7)
        self.changes = changes
        self.flying: list[tuple[str, PeerMessage]] = []
        self.peers: dict[str, AnyPeer] = {}
        self.disks: dict[str, State] = {}
        generator = torch.Generator().manual_seed(11)
        for name in self.topology.peers:
            peer = self.peers[name] = make(name, self.topology, **changes)
            if apart:
                peer.trained.restore(torch.randn(SIZE, generator=generator, dtype=torch.float64))
            peer.here = set(peer.neighbours)
            self.disks[name] = peer.state()

    def call(
        self, name: str, work: Callable[[AnyPeer], list[Outgoing]], *, crash: bool = False
    ) -> None:
        """Let a peer do something; as its driver must, make its state durable before anything is
        sent.

        `crash`: it dies before either.
        """
        outgoing = work(self.peers[name])
        if crash:
            self.restart(name)
            return
        if outgoing:
            self.disks[name] = self.peers[name].state()
        for out in outgoing:
            assert isinstance(out.message, PeerMessage)
            self.flying.append((out.to, out.message))

    def deliver(self, index: int = 0, *, crash: bool = False) -> None:
        to, message = self.flying.pop(index)
        self.call(to, lambda peer: peer.hear(message), crash=crash)

    def restart(self, name: str) -> None:
        """Kill a peer with `kill -9`, and start a new one from what was durable."""
        fresh = self.peers[name] = make(name, self.topology, life=99, **self.changes)
        fresh.restore(*self.disks[name])
        fresh.here = set(fresh.neighbours)

    def step(self, name: str) -> None:
        """Do one whole step of a peer, with nothing in between."""
        peer = self.peers[name]
        read: list[Tensor | None] = []

        def begin(any_peer: AnyPeer) -> list[Outgoing]:
            params, outgoing = any_peer.begin()
            read.append(params)
            return outgoing

        self.call(name, begin)
        (params,) = read
        if params is not None:
            released = peer.gradient(params)
            self.call(name, lambda any_peer: any_peer.finish(released))

    def settle(self) -> None:
        """Let the network work again until all is settled.

        Everything arrives, and what has no answer is asked for again.
        """
        for _ in range(100):
            while self.flying:
                self.deliver()
            if all(peer.settled for peer in self.peers.values()):
                return
            for name in self.peers:
                self.call(name, lambda peer: peer.repeat(peer.neighbours))
        raise AssertionError("exchanges stay open")

    def total(self) -> Tensor:
        """Return the sum of all models, shape (d,)."""
        return torch.stack([peer.trained.params for peer in self.peers.values()]).sum(0)

    def under_way(self) -> Tensor:
        """Return what a receiver has added, and the proposer is still to subtract, shape (d,)."""
        total = torch.zeros(SIZE, dtype=torch.float64)
        for name, peer in self.peers.items():
            assert isinstance(peer, Peer)
            for other, link in peer.links.items():
                receiver = self.peers[other]
                assert isinstance(receiver, Peer)
                theirs = receiver.links[name]
                if link.open and (theirs.life, theirs.answered) == (peer.life, link.proposed):
                    assert theirs.delta is not None
                    total += theirs.delta.vector
        return total
