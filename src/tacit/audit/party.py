"""The audit's test G: a vertical party, before a server that asks for record 0 as often as it likes.

The two worlds differ in the features of record 0 (in `cached`, where all is released at once, of every record). What
is claimed is what the ledger says on the wire: μ² of one answer is that of all, divided by their number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacit.algorithms.vafl.party import Party
from tacit.algorithms.vafl.step_rules import Protocol
from tacit.audit.statistics import Finding, Values, proven, uneven
from tacit.audit.subject import DELTA, EDGE, RUN, SCHEMA, Randomness
from tacit.datasets.alignment import names
from tacit.models.zoo.embeddings import embedding
from tacit.privacy import gdp
from tacit.privacy.embeddings import (
    EmbeddingPlan,
    EmbeddingReleaser,
    EmbeddingStore,
    Mode,
    clip_rows,
)
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms import gaussian
from tacit.privacy.simulated import SimulatedLedger
from tacit.protocol import wire
from tacit.protocol.messages import Outgoing, Update
from tacit.protocol.vertical import Embed, Feedback, Request, Roster

FEATURES, WIDTH, FAR, RECORDS, TABLE = 4, 3, 1e3, 8, 2000
SALT = b"audit"


@dataclass(frozen=True)
class Vertical:
    """A party and what it claims: honest as it stands, a mutant with another releaser."""

    name: str
    mode: Mode
    z: float = 1.0
    step_z: float = 0.0
    bound: float = 1.0
    releaser: type[EmbeddingReleaser] = EmbeddingReleaser
    honest: bool = True

    def plan(self) -> EmbeddingPlan:
        """Without a budget that binds."""
        return EmbeddingPlan(
            self.mode, self.bound, self.z, 1e12, DELTA, step_clip=1.0, step_multiplier=self.step_z
        )


class InMemory:
    """Where a party's releases are kept, for as long as this process lives."""

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}

    def get(self, name: str) -> Tensor | None:
        """What was released under `name`."""
        return self._held.get(name)

    def put(self, name: str, vectors: Tensor) -> None:
        """Keep it."""
        self._held[name] = vectors


# -- the party ------------------------------------------------------------------------------------------------------


def party(
    subject: Vertical, source: Randomness, x: Tensor, kept: EmbeddingStore | None = None
) -> Party:
    """A party whose records have features x (n, FEATURES)."""
    ids = [str(number) for number in range(len(x))]
    random = source.random()
    ledger = (
        Ledger(":memory:", "audit") if random.secret else SimulatedLedger()
    )  # which counts a known seed as secret
    door = subject.releaser(subject.plan(), ledger, random, len(x), kept)
    network = embedding("linear", (FEATURES,), WIDTH)
    return Party(EDGE, 0, Protocol(2, len(x)), x, names(ids, SALT, EDGE), network, door)


def roster(records: int) -> Roster:
    """All of them, in the party's own order."""
    return Roster(names([str(number) for number in range(records)], SALT, "server"), records)


def features(length: float, records: int = RECORDS, *, everybody: bool = False) -> Tensor:
    """(records, FEATURES): record 0, or everybody, is a multiple of the first feature; the others are alike."""
    x = torch.zeros(records, FEATURES)
    x[:, 0] = length if everybody else 0.5
    x[0, 0] = length
    return x


def heard(outgoing: list[Outgoing]) -> Update:
    """What the server reads from the bytes of one answer."""
    (out,) = outgoing
    assert isinstance(out.message, Embed)
    found = wire.read_up(wire.decode(bytearray(wire.up(RUN, 1, out.message, SCHEMA))), SCHEMA, 1)
    assert isinstance(found, Update)
    return found


def way(made: Party) -> Tensor:
    """(WIDTH,) float64: the direction of record 0's embedding in the first world."""
    h = made.embedding.embed(made.theta, FAR * torch.eye(FEATURES)[:1])[0].detach().double()
    return h.div(h.norm())


Answers = tuple[Values, float]  # a score for each answer, and the μ that the ledger says of one


def asked(subject: Vertical, source: Randomness, length: float, count: int) -> Answers:
    """Record 0's embedding, asked for `count` times."""
    made, rows = party(subject, source, features(length)), torch.tensor([0])
    made.on_message(roster(RECORDS))
    before = gdp.mu(made.releaser.ledger.history())
    answers = [heard(made.on_message(Request(number, rows))) for number in range(1, count + 1)]
    scores = torch.stack([answer.vector for answer in answers]).double() @ way(made)
    return scores.numpy(), _one(answers[-1], before, count)


def tabled(subject: Vertical, source: Randomness, length: float, count: int) -> Answers:
    """The table's one release of `count` records, which all have the features of record 0."""
    made = party(subject, source, features(length, count, everybody=True), InMemory())
    answer = heard(made.on_message(roster(count)))
    scores = answer.vector.view(-1, WIDTH).double() @ way(made)
    return scores.numpy(), gdp.mu(answer.spent)


def stepped(subject: Vertical, source: Randomness, length: float, count: int) -> Answers:
    """Steps of θ_m for gradients that are of record 0 alone and without measure; θ_m is seen, and put back."""
    made = party(subject, source, features(length))
    made.on_message(roster(RECORDS))
    start = made.theta.clone()
    probe = start.clone().requires_grad_()
    embedded = made.embedding.embed(probe, FAR * torch.eye(FEATURES)[:1]).sum()
    (direction,) = torch.autograd.grad(embedded, probe)
    made.on_message(Feedback(0, 0, None))
    seen, answer = [], None
    for k in range(1, count + 1):
        answer = heard(made.on_message(Feedback(made.step, k, _gradient(made))))
        seen.append((start - made.theta) * RECORDS / made.protocol.steps.party(k))
        made.theta = start  # what it was is public
    assert answer is not None
    return (torch.stack(seen).double() @ (direction / direction.norm()).double()).numpy(), _one(
        answer, 0.0, count
    )


def learned(subject: Vertical, source: Randomness, length: float, count: int) -> Answers:
    """Answers for all records after θ_m has learned, without protection, from record 0: each is full of it."""
    made = party(subject, source, features(length))
    made.on_message(roster(RECORDS))
    start = made.theta.clone()
    made.on_message(Feedback(0, 0, None))
    before = gdp.mu(made.releaser.ledger.history())
    answers, pull = [], -1e6 * _towards(made)
    for k in range(1, count + 1):
        gradient = torch.zeros(RECORDS, WIDTH)
        gradient[_place(made)] = pull
        answers.append(heard(made.on_message(Feedback(made.step, k, gradient))))
        made.theta = start
    others = (
        torch.stack([answer.vector for answer in answers])
        .view(count, RECORDS, WIDTH)
        .double()
        .sum(1)
    )
    scores = others @ (pull / pull.norm()).double()
    return -scores.numpy(), _one(answers[-1], before, count)


def _towards(made: Party) -> Tensor:
    """(WIDTH,) across record 0's own embedding: what passes its clipping."""
    across = torch.cross(way(made), torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64), dim=0)
    return across.div(across.norm()).float()


def _place(made: Party) -> int:
    return int((made._batch(made.step) == 0).nonzero())


def _gradient(made: Party) -> Tensor:
    gradient = torch.zeros(RECORDS, WIDTH)
    gradient[_place(made)] = 1e3
    return gradient


def _one(answer: Update, before: float, count: int) -> float:
    """μ of one answer of `count` alike, by the ledger that the last one carries."""
    return math.sqrt(max(0.0, gdp.mu(answer.spent) ** 2 - before**2) / count)


# -- tests ----------------------------------------------------------------------------------------------------------

Attack = Callable[[Vertical, Randomness, float, int], Answers]


def attacked(
    name: str, attack: Attack, subject: Vertical, source: Randomness, count: int
) -> list[Finding]:
    """G: μ that the server proves of record 0's features, above what the ledger says: an alarm."""
    inside, claim = attack(subject, source, FAR, count)
    outside, _ = attack(subject, source, -FAR, count)
    found = max(proven(inside, outside, DELTA)[0], proven(-inside, -outside, DELTA)[0])
    return [
        Finding(f"party, {name}", subject.name, "μ", claim, found, found > claim, subject.honest)
    ]


def unlike(subject: Vertical, source: Randomness) -> list[Finding]:
    """G: the noise of one record's embedding in a release is not that of another's."""
    made = party(subject, source, features(1.0, TABLE, everybody=True), InMemory())
    vectors = heard(made.on_message(roster(TABLE))).vector.view(-1, WIDTH).double()
    apart = (vectors[0::2] - vectors[1::2]) / math.sqrt(2)  # all have the same features
    worst, wrong = uneven(apart, subject.plan().std)
    return [
        Finding("party, noise", subject.name, "std/claim", 1.0, worst, bool(wrong), subject.honest)
    ]


def again(subject: Vertical, source: Randomness) -> list[Finding]:
    """G: a table that is asked for again, by a party that has begun anew, is the same, byte for byte."""
    kept, x = InMemory(), features(1.0)
    first, second = (
        heard(party(subject, source, x, kept).on_message(roster(RECORDS))).vector for _ in range(2)
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


# -- mutants --------------------------------------------------------------------------------------------------------


class Unclipped(EmbeddingReleaser):
    """Noise for an embedding of norm B on one that nothing bounds."""

    def _noisy(self, embeddings: Tensor, count: int) -> Tensor:
        return (
            gaussian(embeddings.detach().flatten(), self.plan.std, self.random)
            .float()
            .view_as(embeddings)
        )


class Halved(EmbeddingReleaser):
    """Noise for a record that is removed (B), where it is replaced (2B)."""

    def _noisy(self, embeddings: Tensor, count: int) -> Tensor:
        own, self.plan = (
            self.plan,
            replace(self.plan, noise_multiplier=self.plan.noise_multiplier / 2),
        )
        noisy = super()._noisy(embeddings, count)
        self.plan = own
        return noisy

    def step(self, rows: Tensor, gradients: Callable[[], Tensor]) -> Tensor:
        """As much too little on a step."""
        self._charge_above(self._stepped, rows, self.plan.step_multiplier)
        clipped = clip_rows(gradients(), self.plan.step_clip).sum(0)
        return gaussian(
            clipped, self.plan.step_clip * self.plan.step_multiplier, self.random
        ).float()


class OneNoise(EmbeddingReleaser):
    """One noise vector for all embeddings of a release."""

    def _noisy(self, embeddings: Tensor, count: int) -> Tensor:
        clipped = clip_rows(embeddings.detach(), self.plan.bound)
        return (
            clipped + gaussian(torch.zeros(clipped.shape[1]), self.plan.std, self.random)
        ).float()


class OnceForAll(EmbeddingReleaser):
    """Charges a record's first release, and no other."""

    def _charge(self, multiplier: float, count: int) -> None:
        if not self.ledger.charged().count:
            super()._charge(multiplier, count)


class AsIfFresh(EmbeddingReleaser):
    """Forgets that θ_m has learned from every record."""

    def _pay(self, rows: Tensor) -> None:
        self._learned = False
        super()._pay(rows)


class MadeAgain(EmbeddingReleaser):
    """Makes the table anew whenever it is asked for."""

    def release_once(self, name: str, rows: Tensor, embed: Callable[[], Tensor]) -> object:  # type: ignore[override]
        """Anew."""
        return self.release(rows, embed)


CACHED, FRESH = Vertical("party, cached", "cached"), Vertical("party, fresh", "fresh")
STEPS = Vertical("party, dp_sgd", "dp_sgd", z=50.0, step_z=1.0, bound=1e9)
TRAINED = Vertical("party, trained", "trained")
ATTACKS: dict[str, Attack] = {"asked": asked, "table": tabled, "steps": stepped, "learned": learned}
HONEST = (
    ("asked", FRESH, 1200),
    ("table", CACHED, 4000),
    ("steps", STEPS, 800),
    ("learned", TRAINED, 800),
)


def _mutant(name: str, subject: Vertical, releaser: type[EmbeddingReleaser]) -> Vertical:
    return replace(subject, name=f"MUTANT {name}", releaser=releaser, honest=False)


MUTANTS = (
    ("asked", _mutant("embeddings without a bound", FRESH, Unclipped), 600),
    ("asked", _mutant("half the sensitivity of an embedding", FRESH, Halved), 1600),
    ("asked", _mutant("fresh embeddings charged once", FRESH, OnceForAll), 600),
    ("steps", _mutant("half the sensitivity of a step", STEPS, Halved), 1200),
    ("learned", _mutant("learned, charged as if fresh", TRAINED, AsIfFresh), 600),
)
STRUCTURE = (
    (unlike, _mutant("one noise for all embeddings", FRESH, OneNoise)),
    (again, _mutant("a table made again", CACHED, MadeAgain)),
)


def party_tests(source: Randomness, *, mutants: bool) -> list[Finding]:
    """G, all of it: every mode, and the mutants if they are wanted."""
    found = []
    for name, subject, count in HONEST + (MUTANTS if mutants else ()):
        found += attacked(name, ATTACKS[name], subject, source, count)
    for test, subject in (
        (unlike, FRESH),
        (unlike, CACHED),
        (again, CACHED),
        *(STRUCTURE if mutants else ()),
    ):
        found += test(subject, source)
    return found
