"""A check says what was learnt before at which ε, and what a ledger of both comes to, jointly."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tacit_services.identity import own_ledgers
from tacit_services.project import ask_file
from tacit_services.testbed import own_budget

from tacit import config, rounding
from tacit.privacy.accounting import Spend, epsilon_pld
from tacit.privacy.ledger import UNCHARGED, Ledger
from tests.unit.project.test_same_rows import check, home, patients, project

__all__ = ["home"]
ASKED = Spend(1.0, 12.0, 1, "discrete_gaussian", "question")
LEARNT = {"answers": "5e" * 32, "questions": 6, "edges": 2, "epsilon": 0.4, "delta": 1e-5}


def ask(run: Path, home: Path) -> None:
    """Let the ledger of every edge's data pay for an answer."""
    source = config.load(run).source
    for number in range(2):
        owned = source.owned(number)
        assert owned is not None
        place = own_ledgers.place(owned, number, home)
        with closing(Ledger(place.path, place.dataset)) as ledger:
            ledger.charge(1.0, 12.0, "discrete_gaussian", secret=True, purpose="question")


def clinic(folder: Path, **data: Any) -> Path:
    return project(folder, patients(240, seed=2), **data)


def test_a_check_says_what_was_learnt_before_and_what_both_come_to(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = clinic(tmp_path / "clinic", learnt=LEARNT)
    ask(run, home)
    code, output = check(run, capsys)
    assert code == 0, output
    assert (
        "columns and bounds come of the answers of 2 edges to 6 questions, at ε = 0.4 and "
        "δ = 1e-05 together"
    ) in output
    plan = config.load(run).plan(0)
    releases = plan.pushes_left(())
    assert releases is not None
    update = Spend(plan.charged_rate, plan.noise_multiplier, releases, plan.mechanism)
    asked, joint = (epsilon_pld(rows, 1e-5) for rows in ((ASKED,), (ASKED, update)))
    assert 0 < asked < joint < asked + plan.epsilon  # the sum is not what it costs
    lines = re.findall(r"joint of edge-\d+ +ε = ([\d.]+) of questions .* comes to ε = (.*)", output)
    assert lines == [(rounding.epsilon(asked), rounding.epsilon(joint))] * 2


def test_a_ledger_of_no_questions_has_no_joint_line(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, output = check(clinic(tmp_path / "clinic"), capsys)
    assert "joint of" not in output
    assert "learnt before" not in output


def test_the_joint_figure_of_a_run_that_judges_is_that_of_the_worse_side(
    tmp_path: Path, home: Path
) -> None:
    run = clinic(tmp_path / "clinic", learnt=LEARNT)
    text = run.read_text(encoding="utf-8")
    judged = run.with_name("judged.toml")
    judged.write_text(text + '\n[evaluation]\nat = "edges"\nepsilon = 9.0\n', encoding="utf-8")
    ask(run, home)
    definition = config.load(judged).define()
    assert definition.judging is not None
    looks = definition.judging.plan()
    look = Spend(1.0, looks.noise_multiplier, definition.judging.looks, looks.mechanism)
    for ledger in own_budget.left(definition, home):
        assert ledger.joint == pytest.approx(epsilon_pld((ASKED, look), 1e-5), rel=1e-6)


def test_what_was_spent_before_is_said_apart_from_the_budget_that_does_not_count_it(
    tmp_path: Path, home: Path
) -> None:
    run = clinic(tmp_path / "clinic", learnt=LEARNT)
    ask(run, home)
    definition = config.load(run).define()
    (most, _) = own_budget.left(definition, home)
    spent = rounding.epsilon(epsilon_pld((ASKED,), 1e-5))
    assert own_budget.spent_before(most, definition) == (
        f"ε = {spent} was spent before at edge-0, by questions too (ε = {spent}), which the run's "
        f"budget of {most.budget:g} does not count; {most.releases} releases are left to it"
    )
    asked = ask_file.asked(run, ["count"], (), 0.1)
    definition = config.load(asked).define()
    (most, _) = own_budget.left(definition, home)
    assert own_budget.spent_before(most, definition) == (
        f"ε = {spent} was spent before at edge-0; these questions come on top, with ε = 0.1 of "
        "their own"
    )


def test_the_noise_that_a_run_shows_is_its_own_and_not_that_of_questions_before_it(
    tmp_path: Path, home: Path
) -> None:
    run = clinic(tmp_path / "clinic")
    update = Spend(0.25, 2.0, 40, "discrete_gaussian")
    both = (update, ASKED)  # a history is sorted by the rate: questions, at 1, come last
    asking = config.load(ask_file.asked(run, ["count"], (), 0.1)).define().promise
    training = config.load(run).define().promise
    for promise, its_own in ((training, update), (asking, ASKED)):
        shown = promise.spent("edge-0", both, UNCHARGED, both)
        assert (shown.sampling_rate, shown.noise_multiplier) == (
            its_own.sampling_rate,
            its_own.noise_multiplier,
        )
