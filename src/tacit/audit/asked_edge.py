"""The audit's test I: an edge that answers questions, and an attacker who reads its message.

The edge is made as `tacit edge` makes its own, from a table on disk. An attacker knows all people
but one, and reads the bytes of the message. docs/privacy.md, "The audit", has what each test is
for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from tacit import config
from tacit.algorithms import registry
from tacit.audit.adapters import vector
from tacit.audit.asked_worlds import TOGETHER, UNIT_ROWS, WORLDS, AskedWorld, AttackedPerson, crowd
from tacit.audit.message_attacks import counted_charges, open_fields
from tacit.audit.statistics import SHARE, Finding, ScoreValues, proven, related, tails, uneven
from tacit.audit.subject import DELTA, EDGE, RUN, SCHEMA, Randomness
from tacit.config.definition import Definition
from tacit.datasets.own.asked_table_reader import AskedTableReader
from tacit.datasets.own.own_rows import OwnRows
from tacit.models.sums_model import SumsModel
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.choice import Ways
from tacit.privacy.private_sum.clipping import Clipped
from tacit.privacy.private_sum.rounded_sums import room
from tacit.privacy.private_sum.whole_sums import WholeSums
from tacit.privacy.release import Releaser
from tacit.protocol import wire_up
from tacit.protocol.messages import GlobalModel, Push
from tacit.questions.row_parts import Reals
from tacit.questions.sheet import QuestionSheet

LOUD_Z: Final = 0.02  # noise that hides nothing: what is summed is read off the wire
Z: Final = 0.5  # near μ = 2 a wrong factor is found with the fewest messages
MOVES: Final = 12  # messages of each table, where noise hides nothing
NOISE: Final = 400
CANARY: Final = 1200
STARTS: Final = 120
CHARGED: Final = 12
CROWD: Final = 36
CROWD_PEOPLE: Final = 16_000
CROWD_QUESTIONS: Final = 25
CROWD_Z: Final = 5400.0  # C is three steps, so each of 25 equal numbers is 0.6 of one

Scratch = Callable[[], AbstractContextManager[str]]


class Claiming(Protocol):
    """What is audited: the noise that it claims, and how a finding about it is made."""

    @property
    def z(self) -> float:
        """Noise over C."""

    def finding(
        self, test: str, quantity: str, claim: float, measured: float, *, alarm: bool
    ) -> Finding:
        """Return the result of one test of it."""


@dataclass(frozen=True)
class AskedSubject:
    """An edge that is asked, and what it claims: honest as it stands, else with one defect.

    sheet: makes a row's vector. divided: what that is divided by. way: sums up.
    """

    name: str = "ask, discrete_gaussian"
    z: float = Z
    sheet: type[QuestionSheet] = QuestionSheet
    divided: int = UNIT_ROWS
    way: type[WholeSums] = WholeSums
    releaser: type[Releaser] = Releaser
    random: type[Random] = Random
    ledger: type[Ledger] = Ledger
    honest: bool = True

    def __str__(self) -> str:
        return self.name

    def but(self, **changes: object) -> AskedSubject:
        """Return the same subject with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def finding(
        self, test: str, quantity: str, claim: float, measured: float, *, alarm: bool
    ) -> Finding:
        """Return the result of one test of it."""
        return Finding(f"asked, {test}", self.name, quantity, claim, measured, alarm, self.honest)


class AskedSource:
    """An edge with a table that is asked the same questions again and again.

    A deployed one is asked once: what it says of itself is the same each time.
    """

    def __init__(
        self,
        subject: AskedSubject,
        source: Randomness,
        run_file: Path,
        world: AskedWorld,
        *,
        ledger: Path | str = ":memory:",
    ) -> None:
        definition = config.load(run_file).define()
        kept = run_file.parent
        rows_source, model = _with_defects(definition, subject, world)
        part = rows_source.edge(0, None, kept)
        plan = definition.plans.plan(0, part.most)
        self.plan = replace(plan, noise_multiplier=subject.z, epsilon=math.inf)
        random = source.random(subject.random)
        releaser = subject.releaser(self.plan, subject.ledger(ledger, "audit"), random)
        ways = Ways(of_rows=subject.way)
        self.ledger = ledger
        self.edge = registry.edge(definition, EDGE, part.rows, model, releaser, ways=ways)
        self._room = room(self.plan, _honest_model(definition).most_entries)
        self.message = GlobalModel(0, model.init(1), 1.0)

    def __call__(self) -> bytes:
        """Return one message. Raises what the edge raises."""
        (out,) = self.edge.on_message(self.message)
        assert isinstance(out.message, Push)
        return wire_up.up(RUN, 1, out.message, SCHEMA)

    def read(self, payload: bytes) -> Tensor:
        """Return (width,) float64: the noisy sums in a message, in units of C, as a server does."""
        return -vector(payload) * self.plan.batch / self._room

    def sums(self, count: int) -> Reals:
        """Return (count, width): so many messages, read."""
        return torch.stack([self.read(self()) for _ in range(count)]).numpy()

    def said(self) -> list[object]:
        """Return what it says of itself at its start."""
        return [out.message for out in self.edge.start()]

    @property
    def std(self) -> float:
        """The claimed noise of one sum."""
        return self.plan.noise_multiplier / self._room


def _with_defects(
    definition: Definition[Any], subject: AskedSubject, world: AskedWorld
) -> tuple[OwnRows, SumsModel]:
    """Return the run's rows and what adds them up, as the subject's sheet and divisor count."""
    rows, model = definition.source, _honest_model(definition)
    assert isinstance(rows, OwnRows)
    reader = rows.reader
    assert isinstance(reader, AskedTableReader)
    if subject.sheet is QuestionSheet and subject.divided == UNIT_ROWS:
        return rows, model
    sheet = world.sheet(subject.sheet, subject.divided)
    return replace(rows, reader=replace(reader, sheet=sheet)), replace(model, sheet=sheet)


def _honest_model(definition: Definition[Any]) -> SumsModel:
    model = definition.build_model()
    assert isinstance(model, SumsModel)
    return model


@contextmanager
def edge_of(
    subject: AskedSubject,
    source: Randomness,
    scratch: Scratch,
    world: AskedWorld = TOGETHER,
    person: AttackedPerson | None = None,
    *,
    ledger: str = "",
) -> Iterator[AskedSource]:
    """Yield an edge whose table is in a folder of its own. ledger: a file there; "": in memory."""
    with scratch() as folder:
        run_file = world.write(Path(folder), person)
        path = Path(folder) / ledger if ledger else ":memory:"
        yield AskedSource(subject, source, run_file, world, ledger=path)


def asked(
    subject: AskedSubject,
    source: Randomness,
    scratch: Scratch,
    world: AskedWorld,
    person: AttackedPerson | None,
    count: int,
) -> Reals:
    """Return (count, width): what an edge with or without a person says, in units of C."""
    with edge_of(subject, source, scratch, world, person) as edge:
        return edge.sums(count)


# -- what one person moves -------------------------------------------------------------------------


def moves(subject: AskedSubject, source: Randomness, scratch: Scratch) -> list[Finding]:
    """Check, for each kind of question, what a person adds to the sums, where noise hides nothing.

    It is what the public sheet says, and no longer than C; all others stay as they are.
    """
    subject = subject.but(z=LOUD_Z)
    return [_moved(subject, source, scratch, world) for world in WORLDS]


def _moved(
    subject: AskedSubject, source: Randomness, scratch: Scratch, world: AskedWorld
) -> Finding:
    without = asked(subject, source, scratch, world, None, MOVES).mean(axis=0)
    apart = [
        asked(subject, source, scratch, world, person, MOVES).mean(axis=0) - without
        for person in world.persons
    ]
    return as_stated(subject, world.name, apart, [*map(world.added, world.persons)])


def as_stated(
    subject: Claiming, test: str, apart: Sequence[Reals], stated: Sequence[Reals]
) -> Finding:
    """Check what each person has moved in the mean of MOVES messages, and bound its length.

    apart: the means with each person, less the one without. stated: what they should be.
    """
    worst, alarm = 0.0, False
    deviation = subject.z * math.sqrt(2 / MOVES)
    for moved, should in zip(apart, stated, strict=True):
        excess = (moved - should) / deviation
        chance = float(stats.chi2.sf(float(excess @ excess), len(excess)))
        length = math.sqrt(max(0.0, float(moved @ moved) - len(moved) * deviation**2))
        alarm |= chance * len(stated) < SHARE
        worst = max(worst, length)
    return subject.finding(test, "C a unit", 1.0, worst, alarm=alarm)


def canary(
    subject: AskedSubject,
    source: Randomness,
    scratch: Scratch,
    messages: int = CANARY,
    world: AskedWorld = TOGETHER,
) -> list[Finding]:
    """Bound what one message shows of the person with many rows, in either direction."""
    person = world.persons[0]
    way = world.added(person)
    inside, outside = (
        asked(subject, source, scratch, world, table, messages) @ way for table in (person, None)
    )
    return either_way(subject, world.name, inside, outside)


def either_way(
    subject: Claiming, test: str, inside: ScoreValues, outside: ScoreValues
) -> list[Finding]:
    """Bound the μ by which messages with a person and without lie apart, in either direction."""
    return [
        bounded(subject, f"{test} {name}", sample, reference)
        for name, sample, reference in (("D/D'", inside, outside), ("D'/D", -outside, -inside))
    ]


def bounded(subject: Claiming, test: str, inside: ScoreValues, outside: ScoreValues) -> Finding:
    """Bound the μ by which messages with a person lie above those without."""
    mu, _ = proven(inside, outside, DELTA)
    claim = 1 / subject.z
    return subject.finding(test, "μ", claim, mu, alarm=mu > claim)


def crowded(subject: AskedSubject, source: Randomness, scratch: Scratch) -> list[Finding]:
    """Check that equal people add no more, and no less, where C is three steps of the grid."""
    subject, world = subject.but(z=CROWD_Z), crowd(CROWD_PEOPLE, CROWD_QUESTIONS)
    each = world.added(world.others[0])
    length = float(np.linalg.norm(each))
    with edge_of(subject, source, scratch, world) as edge:
        along = float(edge.sums(CROWD).mean(axis=0) @ each) / length
        deviation = edge.std / math.sqrt(CROWD)
    apart = abs(along - CROWD_PEOPLE * length) / deviation
    alarm = apart > float(stats.norm.isf(SHARE / 2))
    return [subject.finding("crowd", "C a record", 1.0, along / CROWD_PEOPLE, alarm=alarm)]


# -- structure -------------------------------------------------------------------------------------


def noise(
    subject: AskedSubject, source: Randomness, scratch: Scratch, messages: int = NOISE
) -> list[Finding]:
    """Check that every sum has the claimed noise, to its tails, and no two messages share it."""
    with edge_of(subject, source, scratch) as edge:
        drawn = torch.from_numpy(edge.sums(messages) - TOGETHER.of_others())
        return as_claimed(subject, drawn, edge.std)


def as_claimed(subject: Claiming, drawn: Tensor, claimed: float) -> list[Finding]:
    """Check that noise (n, width) has the claimed deviation, a Gaussian's tails, and no repeats."""
    worst, wrong = uneven(drawn, claimed)
    same = len(drawn) - len(torch.unique(drawn, dim=0))
    chance, limit = tails(drawn / claimed)
    return [
        subject.finding("noise, each sum", "std/claim", 1.0, worst, alarm=bool(wrong)),
        subject.finding("noise, any two alike", "pairs", 0, same, alarm=same > 0),
        subject.finding("noise, its tails", "p-value", limit, chance, alarm=chance < limit),
    ]


def anew(subject: AskedSubject, source: Randomness, scratch: Scratch) -> list[Finding]:
    """Check that two answers of one process do not share noise."""
    drawn = _noise_of_a_start(subject, source, scratch)
    return [unrelated(subject, "noise, each answer anew", drawn[:-1], drawn[1:])]


def starts(subject: AskedSubject, source: Randomness, scratch: Scratch) -> list[Finding]:
    """Check that the same edge started twice, as for two runs, does not draw the same noise."""
    first, second = (_noise_of_a_start(subject, source, scratch) for _ in range(2))
    return [unrelated(subject, "noise of two starts", first, second)]


def _noise_of_a_start(subject: AskedSubject, source: Randomness, scratch: Scratch) -> Tensor:
    sums = asked(subject, source, scratch, TOGETHER, None, STARTS)
    return torch.from_numpy(sums - TOGETHER.of_others())


def unrelated(subject: Claiming, test: str, first: Tensor, second: Tensor) -> Finding:
    """Check that two samples of noise do not go together."""
    largest, limit = related(first, second)
    return subject.finding(test, "|correlation|", limit, largest, alarm=largest > limit)


def fields(subject: AskedSubject, source: Randomness, scratch: Scratch) -> list[Finding]:
    """Check that all but the sums is the same with each attacked person and without."""
    open_parts = []
    for person in (None, *TOGETHER.persons):
        with edge_of(subject, source, scratch, person=person) as edge:
            open_parts.append((edge.said(), [open_fields(edge()) for _ in range(2)]))
    return [as_alike(subject, open_parts)]


def as_alike(
    subject: Claiming, open_parts: Sequence[tuple[list[object], list[tuple[bool, bytes]]]]
) -> Finding:
    """Check that all that is open is the same each time: what an edge states, and other fields."""
    differing = sum(part != open_parts[0] for part in open_parts)
    differing += sum(not alone for _, fields_of in open_parts for alone, _ in fields_of)
    return subject.finding(
        "fields with and without", "differing", 0, differing, alarm=differing > 0
    )


# -- charges ---------------------------------------------------------------------------------------


class _EndedError(Exception):
    """What ends a computation."""


class _Ending(WholeSums):
    """Ends when it has computed, as a process that is killed there."""

    def compute(self, params: Tensor, clip: float) -> Clipped:
        """Raise _EndedError."""
        super().compute(params, clip)
        raise _EndedError


def charges(subject: AskedSubject, source: Randomness, scratch: Scratch) -> list[Finding]:
    """Check that a copy of the ledger's file holds all answers that were sent, at their price."""
    missing = 0
    with edge_of(subject, source, scratch, ledger="ledger.db") as edge:
        for number in range(1, CHARGED + 1):
            edge()
            missing = max(missing, number - _charged(subject, edge))
    return [subject.finding("ledger's file", "missing", 0, missing, alarm=missing > 0)]


def ended(subject: AskedSubject, source: Randomness, scratch: Scratch) -> list[Finding]:
    """Check that an answer whose computation ends is charged in the ledger's file before that."""
    subject = subject.but(way=_Ending)
    with edge_of(subject, source, scratch, ledger="ledger.db") as edge:
        with suppress(_EndedError):
            edge()
        missing = 1 - _charged(subject, edge)
    return [subject.finding("ended while computing", "missing", 0, missing, alarm=missing > 0)]


def _charged(subject: AskedSubject, edge: AskedSource) -> int:
    """Return the number of charges in a copy of the ledger's file, at the subject's noise."""
    assert isinstance(edge.ledger, Path)
    return counted_charges(edge.ledger, (1.0, subject.z, "discrete_gaussian"))
