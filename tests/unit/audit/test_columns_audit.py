"""The audit of own columns: a hostile roster, and a party that guesses labels."""

from __future__ import annotations

from tacit.audit.columns_attacks import columns_tests
from tacit.audit.label_inference import label_tests
from tacit.audit.subject import Randomness


def test_a_roster_makes_nobody_public_and_finds_nobody_and_mutants_are_caught() -> None:
    findings = columns_tests(Randomness(1), mutants=True)
    assert [finding.verdict for finding in findings] == ["passes", "passes", "caught", "caught"]


def test_a_party_guesses_no_more_labels_than_randomised_response_allows() -> None:
    protected, frozen, clear = label_tests(Randomness(1), mutants=True)
    assert [protected.verdict, frozen.verdict, clear.verdict] == ["passes", "passes", "caught"]
    assert protected.measured > 0.8 * protected.claim  # a party that guesses nothing would pass
    assert clear.measured > 0.98
