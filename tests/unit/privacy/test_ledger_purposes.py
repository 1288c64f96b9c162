"""Charges for questions: hashed as such, counted for ε as any, and against no training budget."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tacit.errors import PrivacyError
from tacit.privacy.accounting import epsilon_pld
from tacit.privacy.accounting.history import Spend, beyond, of_purpose
from tacit.privacy.ledger import Ledger, read_chains

QUESTION = "discrete_gaussian:question"


def charge(path: Path, question: str | None, z: float = 5.0) -> None:
    with closing(Ledger(path, "rows", question=question)) as ledger:
        ledger.charge(1.0, z, "discrete_gaussian", secret=True)


def test_each_run_of_questions_counts_its_own_and_training_counts_all_training(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.db"
    for question, z in ((None, 4.0), ("first", 5.0), ("second", 6.0), ("first", 7.0), (None, 8.0)):
        charge(path, question, z)

    def counted(question: str | None) -> list[float]:
        with closing(Ledger(path, "rows", question=question)) as ledger:
            return [spend.noise_multiplier for spend in ledger.run_history()]

    assert counted(None) == [4.0, 8.0]
    assert counted("first") == [5.0, 7.0]
    assert counted("second") == [6.0]
    assert counted("third") == []
    with closing(Ledger(path, "rows")) as ledger:
        assert [spend.noise_multiplier for spend in ledger.history()] == [4.0, 5.0, 6.0, 7.0, 8.0]
        assert ledger.charged().count == 5


def test_what_is_charged_counts_at_once() -> None:
    with closing(Ledger(":memory:", "rows", question="first")) as ledger:
        ledger.charge(1.0, 5.0, "discrete_gaussian", secret=True)
        assert ledger.run_history() == (Spend(1.0, 5.0, 1, "discrete_gaussian", "question"),)


def test_a_question_costs_what_training_of_the_same_noise_costs(tmp_path: Path) -> None:
    question, trained = tmp_path / "question.db", tmp_path / "trained.db"
    charge(question, "first")
    charge(trained, None)
    (of_questions,), (of_training,) = (
        [chain.history() for chain in read_chains(path)] for path in (question, trained)
    )
    assert epsilon_pld(of_questions, 1e-5) == epsilon_pld(of_training, 1e-5) > 0


@pytest.mark.parametrize(("was", "becomes"), [(QUESTION, "discrete_gaussian"), (None, QUESTION)])
def test_a_purpose_that_was_changed_breaks_the_chain(
    tmp_path: Path, was: str | None, becomes: str
) -> None:
    path = tmp_path / "ledger.db"
    charge(path, None if was is None else "first")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE entry SET mechanism = ?", (becomes,))
    with pytest.raises(PrivacyError, match="the chain is broken"):
        Ledger(path, "rows")


def test_a_bound_on_several_ledgers_keeps_the_purposes_apart() -> None:
    question = Spend(1.0, 5.0, 1, "discrete_gaussian", "question")
    trained = Spend(1.0, 5.0, 1, "discrete_gaussian")
    bound = beyond((), (question,), (trained,), (question, trained))
    assert set(bound) == {question, trained}
    assert of_purpose(bound, "question") == (question,)
