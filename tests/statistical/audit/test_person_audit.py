"""The audit by person: an edge whose people have up to 50 rows, the canary one person more.

Seeds are fixed. One run of the audit raises a false alarm with probability below ALPHA = 1e-3.
"""

from __future__ import annotations

import numpy as np
import pytest

from tacit.audit import population
from tacit.audit.mutants import OTHERS, SAMPLED, LessNoise
from tacit.audit.mutants_people import rows_dealt
from tacit.audit.statistics import Finding
from tacit.audit.subject import Randomness, Subject
from tacit.audit.whole import ALGORITHMS, HONEST
from tacit.datasets.own.dealing import edges_of
from tests.helpers.nightly import nightly

GAUSSIAN, DISCRETE, KNORM = HONEST
BY_PERSON = {
    name: (subject, pushes) for name, subject, pushes in SAMPLED if name in ("person", "dealt")
}
DRAWN = next(subject for name, subject in OTHERS if name == "people")


class TwoThirds(LessNoise):
    factor = 2 / 3


class ThreeHalves(LessNoise):
    factor = 3 / 2


def verdicts(findings: list[Finding]) -> set[str]:
    return {finding.verdict for finding in findings}


def test_the_person_has_fifty_rows_and_others_up_to_as_many() -> None:
    world = population.quiet_population(GAUSSIAN)
    units, without = (world.records(canary=present).units for present in (True, False))
    assert units is not None
    assert without is not None
    assert len(units) == len(without) + 1 == 12
    sizes = np.diff(units.starts)
    assert (sizes[-1], sizes.min(), sizes.max()) == (50, 1, 50)
    assert np.diff(without.starts).tolist() == sizes[:-1].tolist()


GOSSIP = next(subject for subject in ALGORITHMS if subject.algorithm == "adp2sgd")


@pytest.mark.parametrize(
    "subject", [DISCRETE, *nightly(GAUSSIAN)], ids=lambda subject: subject.name
)
def test_an_edge_says_no_more_of_a_person_than_of_a_row(subject: Subject) -> None:
    findings = population.person(subject, Randomness(1), 800)
    assert verdicts(findings) == {"passes"}
    assert [finding.claim for finding in findings] == [2.0, 2.0]
    assert all(finding.measured > 1.0 for finding in findings)  # it has power


def test_two_thirds_of_the_noise_are_accused_and_three_halves_pass_with_margin() -> None:
    less = population.person(GAUSSIAN.but(releaser=TwoThirds, honest=False), Randomness(1), 1600)
    assert verdicts(less) == {"caught"}
    more = population.person(GAUSSIAN.but(releaser=ThreeHalves), Randomness(1), 600)
    assert verdicts(more) == {"passes"}
    assert all(finding.measured < 0.6 * finding.claim for finding in more)


@pytest.mark.parametrize("name", ["person", *nightly("dealt")])
def test_rows_that_are_clipped_or_dealt_by_themselves_are_caught(name: str) -> None:
    mutant, pushes = BY_PERSON[name]
    test = {"person": population.person, "dealt": population.dealt}[name]
    assert verdicts(test(mutant, Randomness(1), pushes)) == {"caught"}


def test_a_file_that_is_dealt_by_person_says_no_more_than_one_edge() -> None:
    findings = population.dealt(GAUSSIAN, Randomness(1), 600)
    assert verdicts(findings) == {"passes"}
    assert all(finding.measured > 0.9 for finding in findings)


def test_the_person_is_dealt_to_one_edge_and_by_row_to_all() -> None:
    ids = population._ids(population.quiet_population(GAUSSIAN).of)
    assert len(set(edges_of(ids, seed=1, edges=4)[-50:].tolist())) == 1
    assert len(set(rows_dealt(ids, seed=1, edges=4)[-50:].tolist())) == 4


@pytest.mark.parametrize("subject", HONEST, ids=lambda subject: subject.name)
def test_people_are_drawn_whatever_rows_they_have(subject: Subject) -> None:
    assert verdicts(population.drawn(subject, Randomness(1))) == {"passes"}


def test_rows_that_are_drawn_by_themselves_are_caught() -> None:
    assert verdicts(population.drawn(DRAWN, Randomness(1))) == {"caught"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "subject",
    [GOSSIP, *nightly(*(algorithm for algorithm in ALGORITHMS if algorithm is not GOSSIP))],
    ids=lambda subject: subject.name,
)
def test_no_algorithm_says_more_of_a_person(subject: Subject) -> None:
    assert verdicts(population.person(subject, Randomness(1), 400)) == {"passes"}
    assert verdicts(population.drawn(subject, Randomness(1))) == {"passes"}


@pytest.mark.exhaustive
def test_twelve_audits_of_people_raise_no_alarm_and_miss_no_mutant() -> None:
    for seed in range(12):
        source = Randomness(200 + seed)
        for subject in HONEST:
            assert verdicts(population.person(subject, source, 1200)) == {"passes"}
            assert verdicts(population.drawn(subject, source)) == {"passes"}
        assert verdicts(population.dealt(GAUSSIAN, source, 1200)) == {"passes"}
        assert verdicts(population.person(*_audit_arguments("person", source))) == {"caught"}
        assert verdicts(population.dealt(*_audit_arguments("dealt", source))) == {"caught"}
        assert verdicts(population.drawn(DRAWN, source)) == {"caught"}


def _audit_arguments(name: str, source: Randomness) -> tuple[Subject, Randomness, int]:
    mutant, pushes = BY_PERSON[name]
    return mutant, source, pushes
