"""Pairwise averaging whatever happens.

Messages lost, repeated and reordered, peers that die at any point.
"""

from __future__ import annotations

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from torch import Tensor

from tacit.algorithms.gossip.topology import TopologyKind
from tacit.protocol.messages import Outgoing
from tests.helpers.paper_gossip import AnyPeer, Net

CLOSE = 1e-12  # float64 rounding of a few hundred exchanges; the requirement is 1e-6
KINDS: tuple[TopologyKind, ...] = ("ring", "ring-any", "random-pair", "torus", "complete")


class Network(RuleBasedStateMachine):
    """With gradients off, the sum of all models, less what is under way, is what it was, at
    every moment.
    """

    @initialize(
        kind=st.sampled_from(KINDS), count=st.sampled_from([4, 6]), tau=st.sampled_from([0, 1, 100])
    )
    def begin(self, kind: TopologyKind, count: int, tau: int) -> None:
        self.net = Net(count, kind, max_staleness=tau)
        self.first = self.net.total()
        self.reading: dict[str, Tensor] = {}

    def peer(self, number: int) -> str:
        return self.net.topology.peers[number % len(self.net.peers)]

    @rule(number=st.integers(0, 5), crash=st.booleans())
    def propose(self, number: int, crash: bool) -> None:
        self.net.call(self.peer(number), lambda peer: peer.propose(), crash=crash)
        self.forget(number, crash)

    @rule(number=st.integers(0, 5), crash=st.booleans())
    def repeat(self, number: int, crash: bool) -> None:
        self.net.call(self.peer(number), lambda peer: peer.repeat(peer.neighbours), crash=crash)
        self.forget(number, crash)

    @rule(number=st.integers(0, 5))
    def read(self, number: int) -> None:
        name = self.peer(number)
        if name in self.reading:
            return

        def begin(peer: AnyPeer) -> list[Outgoing]:
            params, outgoing = peer.begin()
            assert params is not None
            self.reading[name] = params
            return outgoing

        self.net.call(name, begin)

    @rule(number=st.integers(0, 5), crash=st.booleans())
    def update(self, number: int, crash: bool) -> None:
        name = self.peer(number)
        if name in self.reading:
            released = self.net.peers[name].gradient(self.reading.pop(name))
            self.net.call(name, lambda peer: peer.finish(released), crash=crash)

    @rule(index=st.integers(0, 30), crash=st.booleans())
    def deliver(self, index: int, crash: bool) -> None:
        if self.net.flying:
            place = index % len(self.net.flying)
            name = self.net.flying[place][0]
            self.net.deliver(place, crash=crash)
            self.forget(self.net.topology.peers.index(name), crash)

    @rule(index=st.integers(0, 30))
    def repeat_a_message(self, index: int) -> None:
        if self.net.flying:
            self.net.flying.append(self.net.flying[index % len(self.net.flying)])

    @rule(index=st.integers(0, 30))
    def lose(self, index: int) -> None:
        if self.net.flying:
            self.net.flying.pop(index % len(self.net.flying))

    @rule(number=st.integers(0, 5))
    def kill(self, number: int) -> None:
        self.net.restart(self.peer(number))
        self.forget(number, True)

    def forget(self, number: int, crash: bool) -> None:
        if crash:
            self.reading.pop(self.peer(number), None)

    @invariant()
    def nothing_is_lost_or_counted_twice(self) -> None:
        if hasattr(self, "net"):
            now = self.net.total() - self.net.under_way()
            assert float((now - self.first).abs().max()) < CLOSE

    def teardown(self) -> None:
        if not hasattr(self, "net"):
            return
        for name in list(self.reading):
            released = self.net.peers[name].gradient(self.reading.pop(name))
            self.net.call(name, lambda peer, released=released: peer.finish(released))  # type: ignore[misc]
        self.net.settle()
        assert float((self.net.total() - self.first).abs().max()) < CLOSE
        assert float(self.net.under_way().abs().max()) == 0.0


Network.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
test_the_mean_is_conserved = Network.TestCase


def test_thousands_of_exchanges_conserve_the_mean_far_below_one_in_a_million() -> None:
    net = Net(8, "complete")
    first, spread = (
        net.total(),
        torch.stack([peer.trained.params for peer in net.peers.values()]).std(0),
    )
    for _ in range(500):
        for name in net.peers:
            net.step(name)
        while net.flying:
            net.deliver()
    net.settle()
    models = torch.stack([peer.trained.params for peer in net.peers.values()])
    assert float((net.total() - first).abs().max()) < 1e-11
    assert float(models.std(0).max()) < 1e-6 * float(spread.min())  # and they agree
