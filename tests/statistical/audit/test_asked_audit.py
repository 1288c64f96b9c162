"""The audit of questions: an edge that answers them, a person more or less, and broken edges.

Seeds are fixed. One run of the audit raises a false alarm with probability below ALPHA = 1e-3.
"""

from __future__ import annotations

import tempfile
from functools import cache

import numpy as np
import pytest

from tacit.audit.asked_edge import AskedSubject, canary, moves, noise
from tacit.audit.asked_mutants import HONEST, MUTANTS, TESTS, AskedTest
from tacit.audit.asked_worlds import TOGETHER, UNIT_ROWS, WORLDS, AskedWorld
from tacit.audit.mutants import LessNoise
from tacit.audit.statistics import Finding
from tacit.audit.subject import Randomness
from tests.helpers.nightly import nightly

KINDS = {"count", "missing", "histogram", "quantile", "mean", "std", "counts", "crosstab"}


class TwoThirdsOfIt(LessNoise):
    factor = 2 / 3


class ThreeHalvesOfIt(LessNoise):
    factor = 3 / 2


# Each looks at every kind of question: the first in CI, the others in nightly.
MOVING, *MORE_MOVING = [pair for pair in MUTANTS if pair[0] is moves]
LONG = ("half noise", "rounded to nearest, unchecked")
OTHER_MUTANTS = [pair for pair in MUTANTS if pair[0] is not moves]
QUICK_MUTANTS = [pair for pair in OTHER_MUTANTS if not pair[1].name.endswith(LONG)]
LONG_MUTANTS = [pair for pair in OTHER_MUTANTS if pair[1].name.endswith(LONG)]


@cache
def findings_of(test: AskedTest, subject: AskedSubject, seed: int = 1) -> list[Finding]:
    return test(subject, Randomness(seed), tempfile.TemporaryDirectory)


def test_every_kind_of_question_is_attacked_by_a_person_who_moves_it_most() -> None:
    asked = [world.questions[0].split()[0] for world in WORLDS]
    assert KINDS | {"correlation"} == set(asked)
    for world in WORLDS[:-1]:
        lengths = {person.name: _length(world, person.name) for person in world.persons}
        assert max(lengths.values()) == pytest.approx(1, abs=1e-4), world.name
        assert min(len(person.rows) for person in world.persons) < UNIT_ROWS
        assert max(len(person.rows) for person in world.persons) > UNIT_ROWS
    assert _length(TOGETHER, "has many rows") > 0.95


def _length(world: AskedWorld, name: str) -> float:
    (person,) = (person for person in world.persons if person.name == name)
    return float(np.linalg.norm(world.added(person)))


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.__name__)
def test_an_honest_edge_passes(test: AskedTest) -> None:
    assert {finding.verdict for finding in findings_of(test, HONEST)} == {"passes"}


@pytest.mark.parametrize(
    ("test", "mutant"),
    [*QUICK_MUTANTS, MOVING, *nightly(*LONG_MUTANTS, *MORE_MOVING)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_broken_edge_is_caught(test: AskedTest, mutant: AskedSubject) -> None:
    assert "caught" in {finding.verdict for finding in findings_of(test, mutant)}


def test_what_a_person_moves_is_measured_for_each_kind() -> None:
    findings = findings_of(moves, HONEST)
    assert len(findings) == len(WORLDS)
    assert all(0.9 < finding.measured < 1.1 for finding in findings)


def test_the_bound_on_a_person_has_power() -> None:
    for finding in findings_of(canary, HONEST):
        assert 0.5 * finding.claim < finding.measured <= finding.claim == 2.0


def test_two_thirds_and_three_halves_of_the_noise_are_seen_in_every_sum() -> None:
    for kind, ratio in ((TwoThirdsOfIt, 2 / 3), (ThreeHalvesOfIt, 3 / 2)):
        each, _, tails = findings_of(noise, HONEST.but(releaser=kind, honest=False))
        assert each.verdict == tails.verdict == "caught"
        assert each.measured == pytest.approx(ratio, rel=0.25)


@pytest.mark.parametrize("world", nightly(*WORLDS[:-1]), ids=lambda world: world.name)
def test_one_message_shows_no_more_of_a_person_whatever_is_asked(world: AskedWorld) -> None:
    person = max(world.persons, key=lambda person: _length(world, person.name))
    attacked = AskedWorld(world.name, world.questions, (person,), world.others)
    scratch = tempfile.TemporaryDirectory
    findings = canary(HONEST, Randomness(1), scratch, 1600, attacked)
    assert {finding.verdict for finding in findings} == {"passes"}
    assert all(finding.measured > 0.5 * finding.claim for finding in findings)
    less = canary(
        HONEST.but(releaser=LessNoise, honest=False), Randomness(1), scratch, 1600, attacked
    )
    assert {finding.verdict for finding in less} == {"caught"}


@pytest.mark.exhaustive
def test_thirty_audits_of_an_honest_edge_raise_no_alarm_and_miss_no_mutant() -> None:
    for seed in range(30):
        for test in TESTS:
            assert {each.verdict for each in findings_of(test, HONEST, 100 + seed)} == {"passes"}
        for test, mutant in MUTANTS:
            assert "caught" in {each.verdict for each in findings_of(test, mutant, 100 + seed)}
