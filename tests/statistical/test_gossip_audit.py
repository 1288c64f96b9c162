"""The audit of a peer: a neighbour that reads the wire and knows the model before and after one step.

What the audit of an edge does with pushes, done with the models that a peer sends: it takes the step away from them.
"""

from __future__ import annotations

from random import Random as Chooser

import pytest
import torch

from tacit import wire, wire_peers
from tacit.algorithms.adp2sgd import Peer, Terms
from tacit.audit.mutants import Amplified, LessNoise, MeanNoise
from tacit.audit.statistics import Values, proven
from tacit.audit.subject import CLIP, DELTA, NARROW, SCHEMA, Source, Subject, certain, direction, records
from tacit.messages import Answer, Proposal
from tacit.privacy.ledger import Ledger
from tacit.privacy.plan import Releaser
from tacit.topology import build

RATE = 1000.0  # η: so that float32 models hold the steps exactly enough
PAIR = build("complete", ("edge-0", "edge-1"))


def scores(releaser: type[Releaser], *, canary: bool, steps: int) -> Values:
    """(steps,): how much each step, read off the wire by the only neighbour, looks as if the canary were in."""
    subject, model = Subject("peer", releaser=releaser), NARROW
    plan, random = subject.plan(), Source(3 + canary).random()
    paid = subject.releaser(plan, Ledger(":memory:", "audit"), random)
    terms = Terms(RATE, CLIP, 10**9, 10)
    peer = Peer("edge-0", records(model, canary=canary), model, paid, terms, PAIR, seed=1, random=Chooser(1))
    before = certain(model).to(torch.float64)
    seen = []
    for seq in range(1, steps + 1):
        peer.trained.restore(before)  # the same model again: what a hostile neighbour would answer it to
        read, _ = peer.begin()
        assert read is not None
        peer.finish(peer.gradient(read))
        peer.here = {"edge-1"}
        (out,) = peer.propose()
        peer.here = set()
        assert isinstance(out.message, Proposal)
        sent = wire_peers.read(
            wire.decode(bytearray(wire_peers.encoded("audit", out.message, SCHEMA))), SCHEMA, model.size
        )
        assert isinstance(sent, Proposal)
        assert isinstance(sent.model, torch.Tensor)
        seen.append((before - sent.model) / RATE)
        peer.hear(Answer("edge-1", 1, seq, torch.zeros(model.size), {}))
    values: Values = (torch.stack(seen) @ direction(model)).numpy()
    return values


def found(releaser: type[Releaser], steps: int) -> tuple[float, float]:
    """(μ, ε) that the neighbour proves."""
    inside, outside = (scores(releaser, canary=there, steps=steps) for there in (True, False))
    return proven(inside, outside, DELTA)


@pytest.fixture(scope="module")
def honest() -> tuple[float, float]:
    return found(Releaser, 1500)


def test_a_neighbour_learns_no_more_than_the_ledger_says_and_the_test_has_power(
    honest: tuple[float, float],
) -> None:
    claim, (mu, epsilon) = Subject("peer"), honest
    assert claim.mu is not None
    assert 0.4 < mu <= claim.mu
    assert epsilon <= claim.epsilon


@pytest.mark.parametrize("mutant", [MeanNoise, LessNoise])
def test_too_little_noise_shows(mutant: type[Releaser]) -> None:
    mu, _ = found(mutant, 800)
    assert mu > 1.2  # of 1


def test_the_papers_amplification_by_the_number_of_peers_is_refuted(honest: tuple[float, float]) -> None:
    assert honest[1] > Amplified("K = 256").epsilon
