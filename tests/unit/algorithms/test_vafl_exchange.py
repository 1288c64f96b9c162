"""VAFL against its paper: one exchange between a client and the server, and the cost of all."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from torch.nn import functional

from tacit.models.zoo.embedding_networks import embedding
from tacit.privacy.accounting import gdp
from tacit.privacy.release.embeddings import EmbeddingPlan, clip_rows
from tacit.protocol.messages import Outgoing, Update
from tacit.protocol.vertical import Embed, Feedback
from tests.helpers.vafl_rig import (
    NONE,
    Uplink,
    World,
    blocks,
    part_of,
    run_file,
    table,
    take,
    uploads,
    world,
)

FRESH = EmbeddingPlan("fresh", 1.0, 5.0, 1e6, 1e-5)


def test_lines_3_6_8_and_11_an_upload_is_also_the_query_and_its_answer_activates_that_client_alone() -> (
    None
):
    federation = world().after_tables()
    waiting = {message.edge for message in uploads(federation)}
    assert waiting == set(
        federation.parties
    )  # line 3: each has begun by itself, nobody's answer was needed
    for k in range(1, 9):
        message = take(federation, next(uploads(federation)))
        others = list(federation.under_way)
        before = federation.server.params
        (reply,) = federation.deliver(message)  # line 11: nothing else was sent, the upload asks
        assert (federation.server.version, reply.to) == (k, message.edge)
        assert not torch.equal(federation.server.params, before)  # line 8
        assert isinstance(reply.message, Feedback)
        assert reply.message.gradient is not None
        assert (
            federation.under_way[:-1] == others
        )  # line 3 again: one client is activated, by its own answer
        again = federation.under_way[-1]
        assert isinstance(again, Update)
        assert (again.edge, part_of(again).step) == (message.edge, part_of(message).step + 1)


@pytest.mark.parametrize("kind", ["linear", "mlp", "cnn", "lstm"])
@pytest.mark.parametrize("plan", [NONE, EmbeddingPlan("trained", 0.3, 1.0, 1e6, 1e-5)])
def test_eqs_2b_4a_the_chain_rule_is_that_of_one_graph(kind: str, plan: EmbeddingPlan) -> None:
    images, labels, records = table("digits", None)
    images = images.reshape(-1, 1, 16, 4)  # whose blocks are squares, as a convolution needs them
    data = (images, labels, records)
    federation = world(
        plan=plan, kind=kind, hidden=(6,), combine="concat", width=3, data=data
    ).after_tables()
    message = take(federation, next(uploads(federation)))
    party, server = federation.parties[message.edge], federation.server
    server.params = torch.linspace(
        -1, 1, server.head.size
    )  # at θ_0 = 0 no gradient would come back
    rows, place = part_of(message).rows, server.place(message.edge)
    theta = party.theta.clone().requires_grad_()
    embedded = party.embedding.embed(theta, blocks(images, 4)[party.number][rows])
    embedded = clip_rows(embedded, plan.bound) if plan.private else embedded
    h = server.table[rows].clone()
    # The noise is a constant.
    h[:, place] = message.vector.view(len(rows), -1) - embedded.detach() + embedded
    torch.autograd.backward(
        functional.cross_entropy(server.head.logits(server.params, h), labels[rows])
    )
    before = party.theta
    federation.deliver(message)
    assert theta.grad is not None
    assert float(theta.grad.norm()) > 0
    assert torch.allclose(party.theta, before - 0.5 * theta.grad, atol=1e-6)


@pytest.mark.parametrize("c", [0.5, 1.0, 2.0])
def test_eqs_12_13_the_smoothness_constant_of_a_perturbed_kink_falls_with_c(c: float) -> None:
    """Take L of h over a bias: 1/(2·sqrt(3)·c) of one relu.

    It is below the theorem's L_σ̄(c) = 2·sqrt(d)·L⁰/c.
    """
    h, width = embedding("mlp", (1,), 1, hidden=(1,), smoothing=c), 0.2 * c
    slopes = []
    for bias in (-width, width):
        theta = torch.tensor([1.0, bias, 1.0, 0.0], requires_grad=True)
        means = h.embed(theta, torch.zeros(400_000, 1), torch.Generator().manual_seed(3)).mean()
        (gradient,) = torch.autograd.grad(means, theta)
        slopes.append(float(gradient[1]))
    constant = (slopes[1] - slopes[0]) / (2 * width)
    assert constant == pytest.approx(1 / (2 * math.sqrt(3) * c), rel=0.03)
    assert constant < 2 / c


class Counting(World):
    """Counts how often each party says each record's embedding."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.counts: dict[str, Counter[int]] = {name: Counter() for name in self.parties}

    def say(self, outgoing: list[Outgoing]) -> None:
        for out in outgoing:
            if isinstance(out.message, Embed):
                self.counts[out.message.edge].update(out.message.part.rows.tolist())
        super().say(outgoing)


def test_mu_of_every_party_is_that_of_what_it_said_counted_again() -> None:
    federation = world(
        run_file(updates=60, every=20), plan=FRESH, combine="concat", width=4, seed=None
    )
    counting = Counting(federation.server, federation.parties)
    server = counting.start().run()
    assert server.version == 60
    for name, party in federation.parties.items():
        most = max(counting.counts[name].values())
        expected = math.sqrt(most) * 2 * FRESH.bound / FRESH.std
        assert most > 2
        assert gdp.mu(party.releaser.ledger.history()) == pytest.approx(expected)
        assert gdp.mu(server.edges[name].spent) == pytest.approx(
            expected, rel=0.2
        )  # its latest words are under way


class Newest(World):
    """Gives a party only the last answer that one upload makes the server send, as the driver does."""

    def answered(self, message: Uplink) -> list[Outgoing]:
        return list({reply.to: reply for reply in super().answered(message)}.values())


@pytest.mark.parametrize("order", range(5))
def test_a_party_that_is_asked_twice_at_once_answers_both(order: int) -> None:
    """Let an evaluation fall due while the server waits for old entries.

    The first of its two requests was lost, then refused.
    """
    federation = world(run_file(updates=120, every=10, algorithm="max_delay = 8"))
    server = Newest(federation.server, federation.parties).start().run(order)
    assert (server.version, server.halt_reason) == (120, "all updates applied")
