"""The audit of a party: a hostile server that reads the wire and asks for record 0 as often as it likes.

As test_embedding_audit.py, but through `Party` and the bytes that it sends; and of its training by DP-SGD, where the
server chooses the gradients and sees θ_m after every step, which is more than it ever gets.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tacit import wire
from tacit.algorithms.vafl_party import Party
from tacit.algorithms.vafl_steps import Protocol
from tacit.alignment import names
from tacit.audit.statistics import Values, proven
from tacit.audit.subject import SCHEMA
from tacit.embeddings import embedding
from tacit.messages import Outgoing, Update
from tacit.privacy.clipping import clipped_sum
from tacit.privacy.embeddings import EmbeddingPlan, EmbeddingReleaser, clip_rows
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms import gaussian
from tacit.privacy.sampling import Random
from tacit.vertical import Embed, Feedback, Request, Roster

FEATURES, WIDTH, FAR = 4, 3, 1e3
IDS = ["ada", "ben"]
Attack = Callable[[float, type[EmbeddingReleaser], int], Values]
FRESH = EmbeddingPlan("fresh", 1.0, 1.0, 1e12, 1e-5)  # μ = 1 for one release
LEARNING = EmbeddingPlan("dp_sgd", 1e9, 50.0, 1e12, 1e-5, step_clip=1.0, step_multiplier=1.0)  # and for one step


def party(length: float, plan: EmbeddingPlan, releaser: type[EmbeddingReleaser]) -> Party:
    """Record 0 is a multiple of the first feature; the other one is the same in both worlds."""
    x = torch.zeros(len(IDS), FEATURES)
    x[:, 0] = torch.tensor([length, 0.5])
    seed = 1 if length > 0 else 2  # not secret: the bounds are above the truth for one noise in many
    door = releaser(plan, Ledger(":memory:", "audit"), Random(seed), len(IDS))
    mine = names(IDS, b"salt", "party-0")
    made = Party("party-0", 0, Protocol(2, len(IDS)), x, mine, embedding("linear", (FEATURES,), WIDTH), door)
    made.on_message(Roster(names(IDS, b"salt", "server"), len(IDS)))
    return made


def received(outgoing: list[Outgoing]) -> Tensor:
    """(b, WIDTH), as the server reads it from the bytes."""
    (out,) = outgoing
    assert isinstance(out.message, Embed)
    found = wire.read_up(wire.decode(bytearray(wire.up("audit", 1, out.message, SCHEMA))), SCHEMA, 1)
    assert isinstance(found, Update)
    return found.vector.view(-1, WIDTH)


def asked(length: float, releaser: type[EmbeddingReleaser], trials: int) -> Values:
    """(trials,): how much each answer about record 0 looks like the world in which its feature is positive."""
    made, rows = party(length, FRESH, releaser), torch.tensor([0])
    answers = [received(made.on_message(Request(number, rows))) for number in range(1, trials + 1)]
    way = made.embedding.embed(made.theta, FAR * torch.eye(FEATURES)[:1])[0]
    values: Values = (torch.cat(answers) @ (way / way.norm())).double().numpy()
    return values


def stepped(length: float, releaser: type[EmbeddingReleaser], trials: int) -> Values:
    """(trials,): the same of every step of θ_m, for gradients that are of record 0 alone and without measure."""
    made, seen = party(length, LEARNING, releaser), []
    before, gradient = made.theta.clone(), torch.zeros(len(IDS), WIDTH)
    made.on_message(Feedback(0, 0, None))
    for k in range(1, trials + 1):
        gradient[made._batch(made.step) == 0] = 1e3
        gradient[made._batch(made.step) == 1] = 0.0
        made.on_message(Feedback(made.step, k, gradient.clone()))
        seen.append((before - made.theta) * len(IDS) / made.protocol.steps.party(k))
        made.theta = before  # the same θ_m again: what it was is public
    probe = before.clone().requires_grad_()
    (way,) = torch.autograd.grad(made.embedding.embed(probe, FAR * torch.eye(FEATURES)[:1]).sum(), probe)
    values: Values = (torch.stack(seen) @ (way / way.norm())).double().numpy()
    return values


class Unclipped(EmbeddingReleaser):
    def _noisy(self, embeddings: Tensor, count: int) -> Tensor:
        return gaussian(embeddings.detach().flatten(), self.plan.std, self.random).float().view_as(embeddings)

    def step(self, rows: Tensor, gradients: Callable[[], Tensor]) -> Tensor:
        total = gradients().sum(0)
        return gaussian(total, 2 * self.plan.step_clip * self.plan.step_multiplier, self.random).float()


class LessNoise(EmbeddingReleaser):
    """For a record that is removed, where it is replaced."""

    def _noisy(self, embeddings: Tensor, count: int) -> Tensor:
        clipped = clip_rows(embeddings.detach(), self.plan.bound)
        return gaussian(clipped.flatten(), self.plan.std / 2, self.random).float().view_as(clipped)

    def step(self, rows: Tensor, gradients: Callable[[], Tensor]) -> Tensor:
        everybody = torch.ones(len(rows), dtype=torch.bool)
        total = clipped_sum(gradients(), self.plan.step_clip, everybody).total
        return gaussian(total, self.plan.step_clip * self.plan.step_multiplier, self.random).float()


def leaked(attack: Attack, releaser: type[EmbeddingReleaser], trials: int) -> float:
    """μ that the server proves; a feature of ±FAR is beyond all bounds."""
    mu, _ = proven(attack(FAR, releaser, trials), attack(-FAR, releaser, trials), 1e-5)
    return mu


@pytest.mark.parametrize("attack", [asked, stepped])
def test_a_hostile_server_learns_no_more_than_mu_and_the_test_has_power(attack: Attack) -> None:
    assert 0.35 < leaked(attack, EmbeddingReleaser, 1500) <= 1.0


@pytest.mark.parametrize("mutant", [Unclipped, LessNoise])
@pytest.mark.parametrize("attack", [asked, stepped])
def test_a_mutant_is_caught(attack: Attack, mutant: type[EmbeddingReleaser]) -> None:
    assert leaked(attack, mutant, 1200) > 1.1
