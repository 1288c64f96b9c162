"""The audit of looks: an edge that judges models on held-out rows, and an attacker who reads both.

The edge is made as `tacit edge` makes its own, from a table on disk and a ledger that holds half of
its people out. An attacker knows all people but one, chooses the model that is judged, and reads
the bytes of looks and of pushes. docs/privacy.md, "The audit", has what each test is for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor

from tacit import config
from tacit.algorithms import registry
from tacit.audit.adapters import vector
from tacit.audit.asked_edge import (
    LOUD_Z,
    MOVES,
    Scratch,
    as_alike,
    as_claimed,
    as_stated,
    either_way,
    unrelated,
)
from tacit.audit.judged_worlds import HELD_OUT, JUDGED_WORLDS, TWO, JudgedPerson, JudgedWorld
from tacit.audit.message_attacks import counted_charges, open_fields
from tacit.audit.statistics import Finding
from tacit.audit.subject import EDGE, RUN, SCHEMA, Randomness
from tacit.config.edge_looks import Judging
from tacit.datasets.held_out import UnitSplit
from tacit.datasets.source import EdgePart, Source
from tacit.judging.look_sheet import LookSheet
from tacit.privacy.accounting.history import UnitSide
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.plan import Plan
from tacit.privacy.private_sum.choice import WAYS
from tacit.privacy.private_sum.clipping import Clipped
from tacit.privacy.private_sum.judged_sums import JudgedSums
from tacit.privacy.private_sum.rounded_sums import room
from tacit.privacy.release import Releaser
from tacit.protocol import wire_up
from tacit.protocol.messages import GlobalModel, Push
from tacit.questions.row_parts import Reals

NOISE_LOOKS: Final = 400
CANARY_LOOKS: Final = 1200
START_LOOKS: Final = 120
CHARGED_LOOKS: Final = 12
_Z: Final = 0.5  # near μ = 2 a wrong factor is found with the fewest messages

Divide = Callable[[Source, UnitSplit, Path], EdgePart]


def divided(source: Source, split: UnitSplit, folder: Path) -> EdgePart:
    """Return the edge's rows, as `tacit edge` divides them."""
    return source.edge(0, None, folder, split)


@dataclass(frozen=True)
class JudgedSubject:
    """An edge that judges, and what it claims: honest as it stands, else with one defect.

    worlds: in which a person's moves are read. sheet: counts a row; None: the run's own. way: sums
    up. split: tells a unit's side. divide: gives training and looks their rows.
    """

    name: str = "looks, discrete_gaussian"
    z: float = _Z
    worlds: tuple[JudgedWorld, ...] = JUDGED_WORLDS
    sheet: Callable[[LookSheet], LookSheet] | None = None
    way: type[JudgedSums] = JudgedSums
    split: type[UnitSplit] = UnitSplit
    divide: Divide = divided
    releaser: type[Releaser] = Releaser
    random: type[Random] = Random
    ledger: type[Ledger] = Ledger
    honest: bool = True

    def __str__(self) -> str:
        return self.name

    def but(self, **changes: object) -> JudgedSubject:
        """Return the same subject with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def finding(
        self, test: str, quantity: str, claim: float, measured: float, *, alarm: bool
    ) -> Finding:
        """Return the result of one test of it."""
        return Finding(f"judged, {test}", self.name, quantity, claim, measured, alarm, self.honest)


@dataclass(frozen=True, slots=True)
class AuditedJudging(Judging):
    """The looks of a run at the audit's noise, and as many as are asked for."""

    z: float = _Z

    def plan(self, most: int = 0) -> Plan:
        """Return the run's plan with another z, and no budget that ends."""
        plan = Judging.plan(self, most)
        return replace(plan, noise_multiplier=self.z, epsilon=math.inf)


class JudgedSource:
    """An edge with a table and a ledger, which is asked for looks and for pushes."""

    def __init__(
        self,
        subject: JudgedSubject,
        source: Randomness,
        folder: Path,
        world: JudgedWorld,
        person: JudgedPerson | None,
        ledger: Path | str,
    ) -> None:
        book = subject.ledger(ledger, "audit", judges=RUN)
        key = book.split(HELD_OUT)
        run_file = world.write(folder, UnitSplit(key, HELD_OUT), person)
        definition = config.load(run_file).define()
        assert definition.judging is not None
        judging = _audited(definition.judging, subject)
        part = subject.divide(definition.source, subject.split(key, HELD_OUT), folder)
        plan = definition.plans.plan(0, part.most)
        self.plan = replace(plan, noise_multiplier=subject.z, epsilon=math.inf)
        random = source.random(subject.random)
        releaser = subject.releaser(self.plan, book, random, side="training")
        model = definition.build_model()
        ways = None if subject.way is JudgedSums else replace(WAYS, judged=subject.way)
        arguments = replace(definition, judging=judging), EDGE, part.rows, model, releaser
        self.edge = registry.edge(*arguments, ways=ways, held_out=part.held_out)
        self.ledger = ledger
        self._params = world.params
        self._room = room(judging.plan(part.most), judging.sheet.width)
        self._looks = 0

    def look(self) -> bytes:
        """Return the answer to one more look. Raises what the edge raises."""
        self._looks += 1
        return self._sent(GlobalModel(0, self._params, 1.0, look=self._looks))

    def push(self) -> bytes:
        """Return what the edge sends of its training rows at the same model."""
        return self._sent(GlobalModel(0, self._params, 1.0))

    def _sent(self, message: GlobalModel) -> bytes:
        (out,) = self.edge.on_message(message)
        assert isinstance(out.message, Push)
        return wire_up.up(RUN, 1, out.message, SCHEMA)

    def looks(self, count: int) -> Reals:
        """Return (count, width): the sums of so many looks, in units of C, as a server has them."""
        read = [vector(self.look()) / -self._room for _ in range(count)]
        return torch.stack(read).double().numpy()

    def pushes(self, count: int) -> Reals:
        """Return (count, d): the noisy sums of gradients of so many pushes, in units of C."""
        read = [vector(self.push()) * self.plan.batch for _ in range(count)]
        return torch.stack(read).double().numpy()

    def said(self) -> list[object]:
        """Return what it says of itself at its start."""
        return [out.message for out in self.edge.start()]

    @property
    def std(self) -> float:
        """The claimed noise of one sum of a look."""
        return self.plan.noise_multiplier / self._room


def _audited(judging: Judging, subject: JudgedSubject) -> AuditedJudging:
    own = {each.name: getattr(judging, each.name) for each in fields(judging)}
    if subject.sheet is not None:
        own["sheet"] = subject.sheet(judging.sheet)
    return AuditedJudging(**own, z=subject.z)


@contextmanager
def judging_edge(
    subject: JudgedSubject,
    source: Randomness,
    scratch: Scratch,
    world: JudgedWorld = TWO,
    person: JudgedPerson | None = None,
    *,
    ledger: str = "",
) -> Iterator[JudgedSource]:
    """Yield an edge whose table is in a folder of its own. ledger: a file there; "": in memory."""
    with scratch() as folder:
        path = Path(folder) / ledger if ledger else ":memory:"
        yield JudgedSource(subject, source, Path(folder), world, person, path)


# -- what one person moves -------------------------------------------------------------------------


def judged_moves(subject: JudgedSubject, source: Randomness, scratch: Scratch) -> list[Finding]:
    """Check, for each kind of target, what a person adds to a look, where noise hides nothing.

    It is what the public sheet says, and no longer than C. One who is trained on adds nothing. All
    others stay as they are.
    """
    subject = subject.but(z=LOUD_Z)
    return [_moved_looks(subject, source, scratch, world) for world in subject.worlds]


def _moved_looks(
    subject: JudgedSubject, source: Randomness, scratch: Scratch, world: JudgedWorld
) -> Finding:
    def mean(person: JudgedPerson | None) -> Reals:
        with judging_edge(subject, source, scratch, world, person) as edge:
            return np.asarray(edge.looks(MOVES).mean(axis=0))

    without = mean(None)
    apart = [mean(person) - without for person in world.persons]
    return as_stated(subject, world.name, apart, [*map(world.added, world.persons)])


def untrained(subject: JudgedSubject, source: Randomness, scratch: Scratch) -> list[Finding]:
    """Check that who is held out moves no push, where noise hides nothing."""
    subject = subject.but(z=LOUD_Z)
    findings = []
    for world in subject.worlds:
        held_out = next(person for person in world.persons if person.held)
        apart = pushed(subject, source, scratch, world, held_out)
        nothing = [np.zeros_like(apart)]
        findings.append(as_stated(subject, f"push, {world.name}", [apart], nothing))
    return findings


def pushed(
    subject: JudgedSubject,
    source: Randomness,
    scratch: Scratch,
    world: JudgedWorld,
    person: JudgedPerson,
) -> Reals:
    """Return how far a person moves the mean of pushes (d,), in units of C."""
    means = []
    for each in (person, None):
        with judging_edge(subject, source, scratch, world, each) as edge:
            means.append(edge.pushes(MOVES).mean(axis=0))
    moved: Reals = means[0] - means[1]
    return moved


def judged_canary(
    subject: JudgedSubject,
    source: Randomness,
    scratch: Scratch,
    messages: int = CANARY_LOOKS,
    world: JudgedWorld = TWO,
) -> list[Finding]:
    """Bound what one look shows of the person with many rows, in either direction."""
    person = world.persons[0]
    way = world.added(person)
    scores = []
    for each in (person, None):
        with judging_edge(subject, source, scratch, world, each) as edge:
            scores.append(edge.looks(messages) @ way)
    inside, outside = scores
    return either_way(subject, world.name, inside, outside)


# -- structure -------------------------------------------------------------------------------------


def judged_noise(
    subject: JudgedSubject, source: Randomness, scratch: Scratch, messages: int = NOISE_LOOKS
) -> list[Finding]:
    """Check that every count has the claimed noise, to its tails, and no two looks share it."""
    with judging_edge(subject, source, scratch) as edge:
        drawn = torch.from_numpy(edge.looks(messages) - TWO.of_others())
        return as_claimed(subject, drawn, edge.std)


def judged_anew(subject: JudgedSubject, source: Randomness, scratch: Scratch) -> list[Finding]:
    """Check that two looks of one process do not share noise."""
    drawn = _noise_of_looks(subject, source, scratch)
    return [unrelated(subject, "noise, each look anew", drawn[:-1], drawn[1:])]


def judged_starts(subject: JudgedSubject, source: Randomness, scratch: Scratch) -> list[Finding]:
    """Check that the same edge started twice does not draw the same noise."""
    first, second = (_noise_of_looks(subject, source, scratch) for _ in range(2))
    return [unrelated(subject, "noise of two starts", first, second)]


def _noise_of_looks(subject: JudgedSubject, source: Randomness, scratch: Scratch) -> Tensor:
    with judging_edge(subject, source, scratch) as edge:
        return torch.from_numpy(edge.looks(START_LOOKS) - TWO.of_others())


def judged_fields(subject: JudgedSubject, source: Randomness, scratch: Scratch) -> list[Finding]:
    """Check that all but the counts is the same with each attacked person and without."""
    open_parts = []
    for person in (None, *TWO.persons):
        with judging_edge(subject, source, scratch, person=person) as edge:
            open_parts.append((edge.said(), [open_fields(edge.look()) for _ in range(2)]))
    return [as_alike(subject, open_parts)]


# -- charges ---------------------------------------------------------------------------------------


class _LookEndedError(Exception):
    """What ends a computation."""


class _EndingLooks(JudgedSums):
    """Ends when it has computed, as a process that is killed there."""

    def compute(self, params: Tensor, clip: float) -> Clipped:
        """Raise _LookEndedError."""
        super().compute(params, clip)
        raise _LookEndedError


def judged_charges(subject: JudgedSubject, source: Randomness, scratch: Scratch) -> list[Finding]:
    """Check that a copy of the ledger's file has all looks and pushes, each on its own side."""
    missing = 0
    with judging_edge(subject, source, scratch, ledger="ledger.db") as edge:
        edge.push()
        for number in range(1, CHARGED_LOOKS + 1):
            edge.look()
            missing = max(missing, number - _charged(subject, edge, "held_out"))
        missing = max(missing, 1 - _charged(subject, edge, "training"))
    return [subject.finding("ledger's file", "missing", 0, missing, alarm=missing > 0)]


def judged_ended(subject: JudgedSubject, source: Randomness, scratch: Scratch) -> list[Finding]:
    """Check that a look whose computation ends is charged in the ledger's file before that."""
    subject = subject.but(way=_EndingLooks)
    with judging_edge(subject, source, scratch, ledger="ledger.db") as edge:
        with suppress(_LookEndedError):
            edge.look()
        missing = 1 - _charged(subject, edge, "held_out")
    return [subject.finding("ended while judging", "missing", 0, missing, alarm=missing > 0)]


def _charged(subject: JudgedSubject, edge: JudgedSource, side: UnitSide) -> int:
    """Return the number of charges of a side in a copy of the ledger's file, at this noise."""
    assert isinstance(edge.ledger, Path)
    return counted_charges(edge.ledger, (1.0, subject.z, "discrete_gaussian"), side)
