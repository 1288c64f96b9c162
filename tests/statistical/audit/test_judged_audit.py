"""The audit of looks: an edge that judges models, a person more or less, and broken edges.

Seeds are fixed. One run of the audit raises a false alarm with probability below ALPHA = 1e-3.
"""

from __future__ import annotations

import tempfile
from functools import cache

import numpy as np
import pytest

from tacit.audit.judged_edge import JudgedSubject, judged_canary, judged_moves, judged_noise, pushed
from tacit.audit.judged_mutants import (
    JUDGED_HONEST,
    JUDGED_MUTANTS,
    JUDGED_TESTS,
    JudgedTest,
    ThreeHalvesNoise,
    TwoThirdsNoise,
)
from tacit.audit.judged_worlds import JUDGED_WORLDS, THREE, TWO, UNIT_ROWS, JudgedWorld
from tacit.audit.mutants import LessNoise
from tacit.audit.statistics import Finding
from tacit.audit.subject import Randomness
from tacit.judging.look_sheet import BINS, CELLS
from tests.helpers.nightly import nightly

# Each looks at every kind of target: the first in CI, the others in nightly.
MOVING, *MORE_MOVING = [pair for pair in JUDGED_MUTANTS if pair[0] is judged_moves]
OTHER_MUTANTS = [pair for pair in JUDGED_MUTANTS if pair[0] is not judged_moves]


@cache
def findings_of(test: JudgedTest, subject: JudgedSubject, seed: int = 1) -> list[Finding]:
    return test(subject, Randomness(seed), tempfile.TemporaryDirectory)


def test_every_kind_of_target_is_attacked_by_a_person_who_moves_it_most() -> None:
    assert {world.target.kind for world in JUDGED_WORLDS} == {"classes", "number"}
    for world in JUDGED_WORLDS:
        lengths = [float(np.linalg.norm(world.added(person))) for person in world.persons]
        assert max(lengths) == pytest.approx(1, abs=1e-4), world.name
        assert min(lengths) == 0  # of who is trained on
        assert min(person.rows for person in world.persons) < UNIT_ROWS
        assert max(person.rows for person in world.persons) > UNIT_ROWS
        assert {person.held for person in world.others} == {True, False}


@pytest.mark.parametrize("world", [TWO, THREE], ids=lambda world: world.name)
def test_the_attacked_lie_in_the_first_and_the_last_cell_and_others_between(
    world: JudgedWorld,
) -> None:
    place = world.sheet.parts["scores"].place

    def cells(persons: object) -> set[int]:
        added = [world.added(person)[place] for person in persons]  # type: ignore[attr-defined]
        return {int(np.argmax(scores)) % CELLS for scores in added if scores.any()}

    outer = {0, CELLS - 1} if world is TWO else {CELLS - 1}
    assert outer <= cells(world.persons)
    assert len(cells(world.others)) >= 3
    assert BINS[0] == 0
    assert BINS[-1] == 1


@pytest.mark.parametrize("test", JUDGED_TESTS, ids=lambda test: test.__name__)
def test_an_honest_edge_that_judges_passes(test: JudgedTest) -> None:
    assert {finding.verdict for finding in findings_of(test, JUDGED_HONEST)} == {"passes"}


@pytest.mark.parametrize(
    ("test", "mutant"),
    [*OTHER_MUTANTS, MOVING, *nightly(*MORE_MOVING)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_broken_edge_that_judges_is_caught(test: JudgedTest, mutant: JudgedSubject) -> None:
    assert "caught" in {finding.verdict for finding in findings_of(test, mutant)}


def test_what_a_person_moves_a_look_by_is_measured_for_each_kind() -> None:
    findings = findings_of(judged_moves, JUDGED_HONEST)
    assert len(findings) == len(JUDGED_WORLDS)
    assert all(0.9 < finding.measured < 1.1 for finding in findings)


@pytest.mark.parametrize("world", JUDGED_WORLDS, ids=lambda world: world.name)
def test_who_is_trained_on_moves_a_push_where_who_is_held_out_must_not(world: JudgedWorld) -> None:
    subject = JUDGED_HONEST.but(z=0.02)
    (trained_on,) = (person for person in world.persons if not person.held)
    apart = pushed(subject, Randomness(1), tempfile.TemporaryDirectory, world, trained_on)
    assert np.linalg.norm(apart) == pytest.approx(1, abs=0.1)


def test_the_bound_on_who_is_judged_has_power() -> None:
    for finding in findings_of(judged_canary, JUDGED_HONEST):
        assert 0.5 * finding.claim < finding.measured <= finding.claim == 2.0


def test_two_thirds_and_three_halves_of_the_noise_are_seen_in_every_count() -> None:
    for kind, ratio in ((TwoThirdsNoise, 2 / 3), (ThreeHalvesNoise, 3 / 2)):
        each, _, tails = findings_of(judged_noise, JUDGED_HONEST.but(releaser=kind, honest=False))
        assert each.verdict == tails.verdict == "caught"
        assert each.measured == pytest.approx(ratio, rel=0.25)


@pytest.mark.parametrize("world", nightly(*JUDGED_WORLDS), ids=lambda world: world.name)
def test_one_look_shows_no_more_of_a_person_whatever_is_judged(world: JudgedWorld) -> None:
    scratch = tempfile.TemporaryDirectory
    findings = judged_canary(JUDGED_HONEST, Randomness(1), scratch, 1600, world)
    assert {finding.verdict for finding in findings} == {"passes"}
    assert all(finding.measured > 0.5 * finding.claim for finding in findings)
    less = JUDGED_HONEST.but(releaser=LessNoise, honest=False)
    caught = judged_canary(less, Randomness(1), scratch, 1600, world)
    assert {finding.verdict for finding in caught} == {"caught"}


@pytest.mark.exhaustive
def test_thirty_audits_of_looks_raise_no_alarm_and_miss_no_mutant() -> None:
    for seed in range(30):
        for test in JUDGED_TESTS:
            findings = findings_of(test, JUDGED_HONEST, 100 + seed)
            assert {each.verdict for each in findings} == {"passes"}
        for test, mutant in JUDGED_MUTANTS:
            assert "caught" in {each.verdict for each in findings_of(test, mutant, 100 + seed)}
