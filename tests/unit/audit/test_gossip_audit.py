"""The audit of a peer: a neighbour that reads the wire and knows the model before and after one
step.

What the audit of an edge does with pushes, done with the models that a peer sends: it takes the
step away from them.
"""

from __future__ import annotations

from functools import cache

import pytest

from tacit.audit.message_attacks import canary
from tacit.audit.mutants import Amplified, LessNoise, MeanNoise
from tacit.audit.mutants_rows import TwiceTheClip
from tacit.audit.statistics import Finding
from tacit.audit.subject import Randomness, Subject
from tacit.privacy.private_sum.choice import Ways
from tests.helpers.nightly import nightly

PEER = Subject("peer", algorithm="adp2sgd")


@cache
def larger_bounds(subject: Subject, pushes: int) -> dict[str, Finding]:
    """Return the larger of the bounds of both directions, by unit."""
    return {
        finding.quantity: finding
        for finding in sorted(canary(subject, Randomness(3), pushes), key=lambda f: f.measured)
    }


def test_a_neighbour_learns_no_more_than_the_ledger_says_and_the_test_has_power() -> None:
    honest = larger_bounds(PEER, 1500)
    assert 0.4 < honest["μ"].measured <= honest["μ"].claim == 1.0
    assert honest["ε"].measured <= honest["ε"].claim


@pytest.mark.parametrize(
    "mutant",
    [
        PEER.but(releaser=LessNoise),
        *nightly(
            PEER.but(releaser=MeanNoise), PEER.but(ways=Ways(None, TwiceTheClip, TwiceTheClip))
        ),
    ],
)
def test_too_little_noise_shows(mutant: Subject) -> None:
    assert larger_bounds(mutant, 1000)["μ"].measured > 1.2  # of 1


def test_the_papers_amplification_by_the_number_of_peers_is_refuted() -> None:
    assert larger_bounds(PEER, 1500)["ε"].measured > Amplified("K = 256").epsilon
