"""The audit of histograms: an edge of `ebm`, a row or a person more or less, and broken edges.

Seeds are fixed.
"""

from __future__ import annotations

import pytest

from tacit.audit.adapters import make
from tacit.audit.histogram_edges import (
    HONEST,
    MUTANTS,
    PAIRED,
    TESTS,
    HistogramTest,
    canary,
    moves,
    person,
)
from tacit.audit.mutants import LessNoise
from tacit.audit.subject import Randomness, Subject
from tacit.audit.worlds import quiet_world
from tacit.privacy.private_sum.histogram_sums import HistogramSums


class TwoThirdsOfTheNoise(LessNoise):
    factor = 2 / 3


class ThreeHalvesOfTheNoise(LessNoise):
    factor = 3 / 2


def test_the_audited_edge_computes_as_that_of_ebm_does() -> None:
    role = make(HONEST, quiet_world(HONEST.model).records(canary=True), Randomness(1)).edge
    assert isinstance(role.private_sum, HistogramSums)


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.__name__)
@pytest.mark.parametrize("honest", [HONEST, PAIRED], ids=lambda subject: subject.name)
def test_an_honest_histogram_passes(test: HistogramTest, honest: Subject) -> None:
    assert {finding.verdict for finding in test(honest, Randomness(1))} == {"passes"}


@pytest.mark.parametrize(
    ("test", "mutant"), MUTANTS, ids=lambda value: getattr(value, "__name__", str(value))
)
def test_a_broken_histogram_is_caught(test: HistogramTest, mutant: Subject) -> None:
    assert "caught" in {finding.verdict for finding in test(mutant, Randomness(1))}


@pytest.mark.parametrize("test", [canary, person])
def test_the_bound_on_a_row_and_on_a_person_has_power(test: HistogramTest) -> None:
    for finding in test(HONEST, Randomness(2)):
        assert 0.4 * finding.claim < finding.measured <= finding.claim == 2.0


def test_a_row_moves_a_histogram_by_nearly_the_clip() -> None:
    (finding,) = moves(HONEST, Randomness(3))
    assert 0.95 < finding.measured <= 1.01


def test_two_thirds_of_the_noise_are_caught_and_three_halves_prove_less() -> None:
    less, more = (
        HONEST.but(releaser=kind, honest=False)
        for kind in (TwoThirdsOfTheNoise, ThreeHalvesOfTheNoise)
    )
    assert "caught" in {finding.verdict for finding in canary(less, Randomness(4))}
    honest, noisier = (canary(subject, Randomness(4))[0].measured for subject in (HONEST, more))
    assert noisier < 0.8 * honest
