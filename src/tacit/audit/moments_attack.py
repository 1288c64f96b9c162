"""The audit's test J: an edge that releases second moments, and an attacker who reads its message.

The attacker knows all people but one. docs/privacy.md, "The audit", has what each test is for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from tacit.algorithms.base.owner import Owner
from tacit.algorithms.least_squares.moments_edge import MomentsEdge, MomentsTask
from tacit.audit.adapters import vector
from tacit.audit.message_attacks import counted_charges
from tacit.audit.statistics import SHARE, Finding, ScoreValues, proven, tails, uneven
from tacit.audit.subject import DELTA, EDGE, RUN, SCHEMA, Randomness
from tacit.datasets.edge_rows import EdgeRows, Units
from tacit.models import Layered, Model
from tacit.privacy.accounting import Spend, epsilon_pld
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.plan import Plan
from tacit.privacy.private_sum.moment_grid import BESIDE_DIAGONAL, ON_DIAGONAL
from tacit.privacy.private_sum.moment_rows import MomentRows
from tacit.privacy.private_sum.moment_sums import MomentSums
from tacit.privacy.release import Releaser
from tacit.protocol import wire_up
from tacit.protocol.messages import GlobalModel, Push

LOUD_Z: Final = 0.02  # noise that hides nothing: what is summed is read off the wire
Z: Final = 0.5  # near μ = 2 a wrong factor is found with the fewest messages
MOVES: Final = 12
CANARY: Final = 1200
NOISE: Final = 400
CHARGED: Final = 12
LIMIT: Final = 4  # rows of a person that count, at most
PEOPLE: Final = 6
MODEL: Final = Layered("logistic", (1, 1, 3), 2)
_FAR: Final = 1e4

AttackedRows = tuple[Tensor, Tensor]  # x (rows, *shape) and y (rows,)


def _persons() -> dict[str, AttackedRows]:
    """Return who is attacked: with one row, an enormous one, and more rows than count."""
    chance = torch.Generator().manual_seed(5)
    several = torch.rand(LIMIT, *MODEL.shape, generator=chance)
    return {
        "one row": (torch.tensor([[[[0.4, 0.9, 0.1]]]]), torch.tensor([1])),
        "an enormous row": (torch.tensor([[[[_FAR, -_FAR, _FAR]]]]), torch.tensor([0])),
        "no number": (torch.tensor([[[[math.nan, 0.0, 1.0]]]]), torch.tensor([1])),
        "rows of a person": (several, torch.ones(LIMIT, dtype=torch.int64)),
        "rows beyond the limit": (
            several[:1].repeat(3 * LIMIT, 1, 1, 1),
            torch.ones(3 * LIMIT, dtype=torch.int64),
        ),
    }


PERSONS: Final = _persons()


@dataclass(frozen=True)
class MomentsSubject:
    """An edge of least squares, and what it claims: honest as it stands, else with one defect."""

    name: str = "least-squares, discrete_gaussian"
    z: float = Z
    sums: type[MomentSums] = MomentSums
    releaser: type[Releaser] = Releaser
    random: type[Random] = Random
    ledger: type[Ledger] = Ledger
    honest: bool = True

    def __str__(self) -> str:
        return self.name

    def finding(
        self, test: str, quantity: str, claim: float, measured: float, *, alarm: bool
    ) -> Finding:
        """Return the result of one test of it."""
        return Finding(f"moments, {test}", self.name, quantity, claim, measured, alarm, self.honest)


class MomentsSource:
    """An edge with people's rows that releases its moments again and again.

    A deployed one does so once: what it sends is made in the same way each time.
    """

    def __init__(
        self,
        subject: MomentsSubject,
        source: Randomness,
        person: AttackedRows | None = None,
        ledger: Path | str = ":memory:",
    ) -> None:
        plan = Plan(
            "discrete_gaussian", 1.0, PEOPLE, subject.z, 0.1, 10.0, math.inf, DELTA,
            rows_max=PEOPLE + 1,
        )  # fmt: skip
        random = source.random(subject.random)
        releaser = subject.releaser(plan, subject.ledger(ledger, "audit"), random)

        def kind(name: str, model: Model, of: Releaser, honest: MomentSums) -> MomentsEdge:
            arguments = honest.data, model, honest.rows, honest.plan, honest.random
            return MomentsEdge(name, model, of, subject.sums(*arguments))

        owner = Owner(EDGE, people(person), MODEL, releaser, kind=kind)
        edge = MomentsTask().role(owner, 1)
        assert isinstance(edge, MomentsEdge)
        self.edge = edge
        self.plan = plan
        grid = edge.moments.grid
        step = plan.step(1.0)
        assert grid is not None
        assert step is not None
        self.deviation = grid.deviation * step
        self.unit = grid.unit * step
        self.message = GlobalModel(0, MODEL.init(1), 1.0)

    def __call__(self) -> bytes:
        """Return one message. Raises what the edge raises."""
        (out,) = self.edge.on_message(self.message)
        assert isinstance(out.message, Push)
        return wire_up.up(RUN, 1, out.message, SCHEMA)

    def read(self, payload: bytes) -> Tensor:
        """Return (W,) float64: what a message says, in units of C."""
        return vector(payload) * self.plan.batch

    def drawn(self, count: int) -> Tensor:
        """Return (count, W): so many messages, read."""
        return torch.stack([self.read(self()) for _ in range(count)])

    def added(self, person: AttackedRows) -> Tensor:
        """Return (W,): what the public rule says that a person adds, in units of C."""
        x, y = (part[:LIMIT].numpy() for part in person)
        rows = MomentRows(self.edge.moments.rows.features, 2)
        u, r = rows.scaled(x.reshape(len(x), -1).astype(np.float64), y)
        square = BESIDE_DIAGONAL / ON_DIAGONAL * (u.T @ u)
        np.fill_diagonal(square, (u * u).sum(axis=0))
        upper = square[np.triu_indices(len(square))]
        both: NDArray[np.float64] = np.concatenate([upper, (u.T @ r).ravel()])
        return torch.from_numpy(both * self.unit / LIMIT)


def people(person: AttackedRows | None) -> EdgeRows:
    """Return the rows of all others, one each, and those of `person`, if any, after them."""
    chance = torch.Generator().manual_seed(3)
    x = torch.rand(PEOPLE, *MODEL.shape, generator=chance)
    y = torch.arange(PEOPLE) % 2
    starts = list(range(PEOPLE + 1))
    if person is not None:
        x, y = torch.cat([x, person[0]]), torch.cat([y, person[1]])
        starts.append(len(y))
    units = Units(np.arange(len(y)), np.array(starts), LIMIT, mean=False)
    public_row = torch.zeros(1, *MODEL.shape)
    return EdgeRows(torch.cat([x, public_row]), torch.cat([y, torch.zeros(1).long()]), units)


def moves(subject: MomentsSubject, source: Randomness) -> list[Finding]:
    """Check what each attacked person adds to the moments, where noise hides nothing.

    It is what the public rule says, and no longer than C.
    """
    loud = replace(subject, z=LOUD_Z)
    without = MomentsSource(loud, source).drawn(MOVES).mean(dim=0)
    findings = []
    for name, person in PERSONS.items():
        edge = MomentsSource(loud, source, person)
        apart = edge.drawn(MOVES).mean(dim=0) - without
        deviation = edge.deviation * math.sqrt(2 / MOVES)
        excess = (apart - edge.added(person)) / deviation
        chance = float(stats.chi2.sf(float(excess @ excess), len(excess)))
        length = math.sqrt(max(0.0, float(apart @ apart) - len(apart) * deviation**2))
        findings.append(
            subject.finding(name, "C a unit", 1.0, length, alarm=chance < SHARE or length > 1.02)
        )
    return findings


def canary(subject: MomentsSubject, source: Randomness, messages: int = CANARY) -> list[Finding]:
    """Bound what one message shows of a person with all rows that count, in either direction."""
    person = PERSONS["rows beyond the limit"]
    edge = MomentsSource(subject, source, person)
    way = edge.added(person)
    samples: list[ScoreValues] = [
        (each.drawn(messages) @ way).numpy() for each in (edge, MomentsSource(subject, source))
    ]
    claim = epsilon_pld([Spend(1.0, subject.z, 1, "discrete_gaussian")], DELTA)
    findings = []
    for name, inside, outside in (
        ("D/D'", samples[0], samples[1]),
        ("D'/D", -samples[1], -samples[0]),
    ):
        mu, epsilon = proven(inside, outside, DELTA)
        for quantity, most, value in (("μ", 1 / subject.z, mu), ("ε", claim, epsilon)):
            findings.append(
                subject.finding(f"canary {name}", quantity, most, value, alarm=value > most)
            )
    return findings


def noise(subject: MomentsSubject, source: Randomness, messages: int = NOISE) -> list[Finding]:
    """Check that every moment has the claimed noise, to its tails, and no two messages share it."""
    edge = MomentsSource(subject, source)
    exact = MomentsSource(replace(subject, z=LOUD_Z, releaser=Releaser), source)
    drawn = edge.drawn(messages)
    drawn = drawn - exact.drawn(MOVES).mean(dim=0) * edge.unit / exact.unit
    worst, wrong = uneven(drawn, edge.deviation)
    same = messages - len(torch.unique(drawn, dim=0))
    chance, limit = tails(drawn / edge.deviation)
    return [
        subject.finding("noise, each number", "std/claim", 1.0, worst, alarm=bool(wrong)),
        subject.finding("noise, any two alike", "pairs", 0, same, alarm=same > 0),
        subject.finding("noise, its tails", "p-value", limit, chance, alarm=chance < limit),
    ]


def charges(subject: MomentsSubject, source: Randomness, path: Path) -> list[Finding]:
    """Check that a copy of the ledger's file holds all messages that were sent, at their price."""
    edge = MomentsSource(subject, source, ledger=path)
    missing = 0
    for number in range(1, CHARGED + 1):
        edge()
        price = (1.0, subject.z, "discrete_gaussian")
        missing = max(missing, number - counted_charges(path, price))
    return [subject.finding("ledger's file", "missing", 0, missing, alarm=missing > 0)]


def attacked(source: Randomness) -> list[Finding]:
    """Return what one person moves, and shows in one message, at an honest edge."""
    return [*moves(HONEST, source), *canary(HONEST, source)]


MomentsTest = Callable[[MomentsSubject, Randomness], list[Finding]]
TESTS: Final[tuple[MomentsTest, ...]] = (moves, canary, noise)
HONEST: Final = MomentsSubject()
