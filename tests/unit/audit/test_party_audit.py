"""The audit of a party: a hostile server that reads the wire and asks for record 0 as often as it
likes.

As test_embedding_audit.py, but through `Party` and the bytes that it sends; and of its training,
where the server chooses the gradients and sees θ_m after every step, which is more than it ever
gets.
"""

from __future__ import annotations

import pytest

from tacit.audit.attacked_party import AttackedParty, again, attacked, unlike
from tacit.audit.party_mutants import ATTACKS, CACHED, FRESH, HONEST, MUTANTS, STRUCTURE
from tacit.audit.statistics import Finding
from tacit.audit.subject import Randomness
from tests.helpers.nightly import nightly

LONG = "steps"  # of training, of which few are enough to see that they pass
QUICK = [case for case in HONEST if case[0] != LONG]


def leaked(name: str, subject: AttackedParty, count: int) -> Finding:
    (finding,) = attacked(name, ATTACKS[name], subject, Randomness(1), count)
    return finding


@pytest.mark.parametrize(
    ("name", "subject", "count"),
    [*QUICK, *nightly(*(case for case in HONEST if case not in QUICK))],
)
def test_a_hostile_server_learns_no_more_than_the_ledger_says(
    name: str, subject: AttackedParty, count: int
) -> None:
    finding = leaked(name, subject, count)
    assert finding.verdict == "passes"
    assert finding.measured > 0.35 * finding.claim  # a test that always says 0 would pass anything


def test_a_few_steps_of_training_say_no_more_than_the_ledger_says() -> None:
    (subject,) = (subject for name, subject, _ in HONEST if name == LONG)
    assert leaked(LONG, subject, 150).verdict == "passes"


def test_every_mode_with_a_promise_is_audited() -> None:
    assert {subject.mode for _, subject, _ in HONEST} == {"cached", "fresh", "dp_sgd", "trained"}


@pytest.mark.parametrize(
    ("name", "subject", "count"),
    [
        *(case for case in MUTANTS if case[0] != LONG),
        *nightly(*(case for case in MUTANTS if case[0] == LONG)),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_mutant_is_caught(name: str, subject: AttackedParty, count: int) -> None:
    assert leaked(name, subject, count).verdict == "caught"


@pytest.mark.parametrize("subject", [FRESH, CACHED], ids=lambda subject: subject.name)
def test_embeddings_of_a_release_have_noise_of_their_own(subject: AttackedParty) -> None:
    assert [finding.verdict for finding in unlike(subject, Randomness(1))] == ["passes"]


def test_a_table_that_is_asked_for_again_is_the_same() -> None:
    assert [finding.verdict for finding in again(CACHED, Randomness(1))] == ["passes"]


def test_one_noise_for_all_and_a_table_made_again_are_caught() -> None:
    assert [test(subject, Randomness(1))[0].verdict for test, subject in STRUCTURE] == [
        "caught",
        "caught",
    ]
