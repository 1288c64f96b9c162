"""The audit's test G: a vertical party, and a server that asks for record 0 as often as it likes.

The two worlds differ in the features of record 0 (in `cached`, where all is released at once, of
every record). The claim is what the ledger says on the wire: μ² of one answer is that of all
answers, divided by their number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.algorithms.vafl.party import Party
from tacit.algorithms.vafl.step_rules import Protocol
from tacit.audit.statistics import Finding, ScoreValues, proven, uneven
from tacit.audit.subject import DELTA, EDGE, RUN, SCHEMA, Randomness
from tacit.datasets.alignment import names
from tacit.models.zoo.embedding_networks import embedding
from tacit.privacy.accounting import gdp
from tacit.privacy.ledger import Ledger
from tacit.privacy.ledger.simulated import SimulatedLedger
from tacit.privacy.release.embeddings import EmbeddingPlan, EmbeddingReleaser, EmbeddingStore, Mode
from tacit.protocol import wire, wire_up
from tacit.protocol.messages import Outgoing, Update
from tacit.protocol.vertical import Embed, Feedback, Request, Roster

FEATURES = 4
WIDTH = 3
FAR = 1e3
RECORDS = 8
TABLE = 2000
SALT = b"audit"


@dataclass(frozen=True)
class AttackedParty:
    """A party and what it claims: honest as it stands, a mutant with another releaser."""

    name: str
    mode: Mode
    z: float = 1.0
    step_z: float = 0.0
    bound: float = 1.0
    releaser: type[EmbeddingReleaser] = EmbeddingReleaser
    honest: bool = True

    def plan(self) -> EmbeddingPlan:
        """Return the party's plan, without a budget that binds."""
        return EmbeddingPlan(
            self.mode, self.bound, self.z, 1e12, DELTA, step_clip=1.0, step_multiplier=self.step_z
        )


class InMemory:
    """A store of a party's releases, for as long as this process lives."""

    def __init__(self) -> None:
        self._vectors: dict[str, Tensor] = {}

    def get(self, name: str) -> Tensor | None:
        """Return what was released under `name`."""
        return self._vectors.get(name)

    def put(self, name: str, vectors: Tensor) -> None:
        """Store `vectors` under `name`."""
        self._vectors[name] = vectors


# -- the party -------------------------------------------------------------------------------------


def party(
    subject: AttackedParty, source: Randomness, x: Tensor, store: EmbeddingStore | None = None
) -> Party:
    """Return a party whose records have features x (n, FEATURES)."""
    ids = [str(number) for number in range(len(x))]
    random = source.random()
    # A simulated ledger counts noise from a known seed as secret.
    if random.secret:
        ledger = Ledger(":memory:", "audit")
    else:
        ledger = SimulatedLedger()
    door = subject.releaser(subject.plan(), ledger, random, len(x), store)
    network = embedding("linear", (FEATURES,), WIDTH)
    return Party(EDGE, 0, Protocol(2, len(x)), x, names(ids, SALT, EDGE), network, door)


def roster(records: int) -> Roster:
    """Return a roster of all records, in the party's own order."""
    return Roster(names([str(number) for number in range(records)], SALT, "server"), records)


def features(length: float, records: int = RECORDS, *, everybody: bool = False) -> Tensor:
    """Return (records, FEATURES), 0.5 but for the first feature of record 0, or of everybody.

    It is `length`.
    """
    x = torch.zeros(records, FEATURES)
    x[:, 0] = length if everybody else 0.5
    x[0, 0] = length
    return x


def heard(outgoing: list[Outgoing]) -> Update:
    """Return what the server reads from the bytes of one answer."""
    (out,) = outgoing
    assert isinstance(out.message, Embed)
    update = wire_up.read_up(
        wire.decode(bytearray(wire_up.up(RUN, 1, out.message, SCHEMA))), SCHEMA, 1
    )
    assert isinstance(update, Update)
    return update


def way(victim: Party) -> Tensor:
    """Return (WIDTH,) float64: the direction of record 0's embedding in the first world."""
    h = victim.embedding.embed(victim.theta, FAR * torch.eye(FEATURES)[:1])[0].detach().double()
    return h.div(h.norm())


AttackScores = tuple[
    ScoreValues, float
]  # a score for each answer, and the μ that the ledger says of one


def asked(subject: AttackedParty, source: Randomness, length: float, count: int) -> AttackScores:
    """Score record 0's embedding, asked for `count` times."""
    victim = party(subject, source, features(length))
    rows = torch.tensor([0])
    victim.on_message(roster(RECORDS))
    before = gdp.mu(victim.releaser.ledger.history())
    answers = [heard(victim.on_message(Request(number, rows))) for number in range(1, count + 1)]
    scores = torch.stack([answer.vector for answer in answers]).double() @ way(victim)
    return scores.numpy(), _answer_mu(answers[-1], before, count)


def tabled(subject: AttackedParty, source: Randomness, length: float, count: int) -> AttackScores:
    """Score the table's one release of `count` records, which all have record 0's features."""
    victim = party(subject, source, features(length, count, everybody=True), InMemory())
    answer = heard(victim.on_message(roster(count)))
    scores = answer.vector.view(-1, WIDTH).double() @ way(victim)
    return scores.numpy(), gdp.mu(answer.spent)


def stepped(subject: AttackedParty, source: Randomness, length: float, count: int) -> AttackScores:
    """Score steps of θ_m for gradients of record 0 alone, which nothing bounds.

    The attack reads θ_m after each step, and puts it back.
    """
    victim = party(subject, source, features(length))
    victim.on_message(roster(RECORDS))
    start = victim.theta.clone()
    probe = start.clone().requires_grad_()
    embedded = victim.embedding.embed(probe, FAR * torch.eye(FEATURES)[:1]).sum()
    (direction,) = torch.autograd.grad(embedded, probe)
    victim.on_message(Feedback(0, 0, None))
    gradients = []
    answer = None
    for k in range(1, count + 1):
        answer = heard(victim.on_message(Feedback(victim.step, k, _gradient(victim))))
        gradients.append((start - victim.theta) * RECORDS / victim.protocol.steps.party(k))
        victim.theta = start  # the public θ_m of before
    assert answer is not None
    return (
        torch.stack(gradients).double() @ (direction / direction.norm()).double()
    ).numpy(), _answer_mu(answer, 0.0, count)


def learned(subject: AttackedParty, source: Randomness, length: float, count: int) -> AttackScores:
    """Score answers for all records after θ_m has learned, unprotected, from record 0.

    Each answer depends on record 0.
    """
    victim = party(subject, source, features(length))
    victim.on_message(roster(RECORDS))
    start = victim.theta.clone()
    victim.on_message(Feedback(0, 0, None))
    before = gdp.mu(victim.releaser.ledger.history())
    answers = []
    pull = -1e6 * _towards(victim)
    for k in range(1, count + 1):
        gradient = torch.zeros(RECORDS, WIDTH)
        gradient[_place(victim)] = pull
        answers.append(heard(victim.on_message(Feedback(victim.step, k, gradient))))
        victim.theta = start
    others = (
        torch.stack([answer.vector for answer in answers])
        .view(count, RECORDS, WIDTH)
        .double()
        .sum(1)
    )
    scores = others @ (pull / pull.norm()).double()
    return -scores.numpy(), _answer_mu(answers[-1], before, count)


def _towards(victim: Party) -> Tensor:
    """Return (WIDTH,): across record 0's own embedding, so that clipping it leaves this."""
    across = torch.cross(way(victim), torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64), dim=0)
    return across.div(across.norm()).float()


def _place(victim: Party) -> int:
    return int((victim._batch(victim.step) == 0).nonzero())


def _gradient(victim: Party) -> Tensor:
    gradient = torch.zeros(RECORDS, WIDTH)
    gradient[_place(victim)] = 1e3
    return gradient


def _answer_mu(answer: Update, before: float, count: int) -> float:
    """Return μ of one answer of `count` equal ones, by the ledger that the last one carries."""
    return math.sqrt(max(0.0, gdp.mu(answer.spent) ** 2 - before**2) / count)


# -- tests -----------------------------------------------------------------------------------------

Attack = Callable[[AttackedParty, Randomness, float, int], AttackScores]


def attacked(
    name: str, attack: Attack, subject: AttackedParty, source: Randomness, count: int
) -> list[Finding]:
    """Compare the μ that the server proves of record 0's features with the ledger's (G).

    A proof above the ledger's is an alarm.
    """
    inside, claim = attack(subject, source, FAR, count)
    outside, _ = attack(subject, source, -FAR, count)
    measured = max(proven(inside, outside, DELTA)[0], proven(-inside, -outside, DELTA)[0])
    return [
        Finding(
            f"party, {name}", subject.name, "μ", claim, measured, measured > claim, subject.honest
        )
    ]


def unlike(subject: AttackedParty, source: Randomness) -> list[Finding]:
    """Check that the noise of one record's embedding in a release is not another's (G)."""
    victim = party(subject, source, features(1.0, TABLE, everybody=True), InMemory())
    vectors = heard(victim.on_message(roster(TABLE))).vector.view(-1, WIDTH).double()
    apart = (vectors[0::2] - vectors[1::2]) / math.sqrt(2)  # all have the same features
    worst, wrong = uneven(apart, subject.plan().std)
    return [
        Finding("party, noise", subject.name, "std/claim", 1.0, worst, bool(wrong), subject.honest)
    ]


def again(subject: AttackedParty, source: Randomness) -> list[Finding]:
    """Check that a table asked for again, of a restarted party, is the same, byte for byte (G)."""
    store = InMemory()
    x = features(1.0)
    first, second = (
        heard(party(subject, source, x, store).on_message(roster(RECORDS))).vector for _ in range(2)
    )
    differing = int((first != second).sum()) + abs(len(first) - len(second))
    return [
        Finding(
            "party, table again",
            subject.name,
            "numbers",
            0,
            differing,
            differing > 0,
            subject.honest,
        )
    ]
