"""Sides of a ledger's units: each charge is of one, ε is the larger, and a split is for good."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tacit.errors import BudgetSpent, PrivacyError
from tacit.privacy.accounting import Lifetime, epsilon_pld, epsilon_rdp, epsilon_shared
from tacit.privacy.accounting.filters import RenyiFilter
from tacit.privacy.accounting.history import Spend, UnitSide, beyond, by_side, merged, of_all_rows
from tacit.privacy.ledger import Ledger, SharedLedger, read_chains
from tacit.privacy.noise.randomness import Random
from tacit.privacy.plan import Plan
from tacit.privacy.private_sum.clipping import Clipped
from tacit.privacy.release import Releaser
from tacit.privacy.report import composed

DELTA = 1e-5
TRAINED = Spend(0.1, 2.0, 300, "discrete_gaussian", side="training")
JUDGED = Spend(1.0, 20.0, 5, "discrete_gaussian", "judging", "held_out")
BOTH = Spend(1.0, 30.0, 2, "discrete_gaussian", "question")


def charge(ledger: Ledger, spend: Spend) -> None:
    ledger.charge(
        spend.sampling_rate,
        spend.noise_multiplier,
        spend.mechanism,
        secret=True,
        count=spend.count,
        purpose=spend.purpose,
        side=spend.side,
    )


def test_a_ledger_costs_what_its_worse_side_does_and_not_the_sum() -> None:
    every = (TRAINED, JUDGED, BOTH)
    trained, judged = (epsilon_pld(of_all_rows(rows), DELTA) for rows in by_side(every))
    assert trained == epsilon_pld(of_all_rows((TRAINED, BOTH)), DELTA)
    assert judged == epsilon_pld(of_all_rows((JUDGED, BOTH)), DELTA)
    for epsilon in (epsilon_pld, epsilon_rdp):
        assert epsilon(every, DELTA) == max(epsilon(rows, DELTA) for rows in by_side(every))
        assert epsilon(every, DELTA) < epsilon(of_all_rows(every), DELTA)
    # In the other direction, too: where judging costs more, judging counts.
    dear = Spend(1.0, 2.0, 5, "discrete_gaussian", "judging", "held_out")
    assert epsilon_pld((TRAINED, dear), DELTA) == epsilon_pld(of_all_rows((dear,)), DELTA)


def test_a_history_without_sides_is_the_one_that_it_was() -> None:
    history = merged((Spend(0.1, 2.0, 300), BOTH))
    assert by_side(history) == (history,)


def test_people_who_may_be_at_several_edges_have_what_all_sides_spent_added_up() -> None:
    site = (TRAINED, JUDGED)
    together = epsilon_pld(of_all_rows((*site, *site)), DELTA)
    assert composed("together", [site, site], DELTA) == together
    assert epsilon_shared([site, site], DELTA) == together
    assert composed("max", [site, site], DELTA) == epsilon_pld(site, DELTA) < together


def test_a_charge_says_its_side_and_the_chain_hashes_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with closing(Ledger(path, "rows", judges="run")) as ledger:
        for spend in (TRAINED, JUDGED, BOTH):
            charge(ledger, spend)
        assert {row.side for row in ledger.history()} == {"training", "held_out", "both"}
    (chain,) = read_chains(path)
    assert merged(chain.history()) == merged((TRAINED, JUDGED, BOTH))
    assert [row.mechanism for row in chain.rows] == [
        "discrete_gaussian:training", "discrete_gaussian:judging", "discrete_gaussian:question",
    ]  # fmt: skip
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE entry SET mechanism = 'discrete_gaussian:judging' WHERE number = 1")
        db.commit()
    with pytest.raises(PrivacyError, match="the chain is broken"):
        Ledger(path, "rows")


def test_a_tacit_that_knows_no_sides_reads_no_less(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with closing(Ledger(path, "rows")) as ledger:
        charge(ledger, TRAINED)
        charge(ledger, JUDGED)
    (chain,) = read_chains(path)
    # tacit 0.2 took a mechanism that it did not know for a Gaussian, of all rows.
    older = [
        Spend(float.fromhex(row.sampling_rate), float.fromhex(row.noise_multiplier), row.count)
        for row in chain.rows
    ]
    assert epsilon_pld(older, DELTA) >= epsilon_pld(chain.history(), DELTA)


def test_training_counts_training_and_looks_count_their_own_run(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    for run, count in (("first", 2), ("second", 3)):
        with closing(Ledger(path, "rows", judges=run)) as ledger:
            charge(ledger, TRAINED)
            charge(ledger, Spend(1.0, 20.0, count, "discrete_gaussian", "judging", "held_out"))
    with closing(Ledger(path, "rows", judges="second")) as ledger:
        assert [row.count for row in ledger.run_history()] == [600]
        assert [row.count for row in ledger.run_history("judging")] == [3]
    with closing(Ledger(path, "rows", judges="third")) as ledger:
        assert ledger.run_history("judging") == ()


def test_a_charge_ahead_is_taken_back_for_a_look_and_nothing_is_charged_in_vain(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.db"
    plan = Plan("discrete_gaussian", 0.5, 4.0, 2.0, 0.1, 1.0, 50.0, DELTA, rows_max=8)
    with closing(Ledger(path, "rows", judges="run")) as ledger:
        releaser = Releaser(plan, ledger, Random(), side="training")
        for _ in range(3):
            with ledger.transaction(releaser.next_charge(1)):
                pass
            charge(ledger, Spend(1.0, 20.0, 1, "discrete_gaussian", "judging", "held_out"))
            cost = 0.5, 2.0, "discrete_gaussian"
            ledger.charge(*cost, secret=True, purpose=None, side="training")
        with ledger.transaction(releaser.next_charge(1)):
            pass
        assert ledger.ahead == 1
    (chain,) = read_chains(path)
    chain.verify()
    counts = Counter[str]()
    for row in chain.rows:
        counts[row.mechanism] += row.count
    assert counts == {"discrete_gaussian:training": 3, "discrete_gaussian:judging": 3}


def test_looks_have_a_budget_of_their_own(tmp_path: Path) -> None:
    from tacit.privacy.accounting import calibrate

    z = calibrate(0.3, DELTA, 2, 1.0, "discrete_gaussian")
    plan = Plan("discrete_gaussian", 1.0, 1.0, z, 1.0, 1.0, 0.3, DELTA, rows_max=8)
    with closing(Ledger(tmp_path / "ledger.db", "rows", judges="run")) as ledger:
        charge(ledger, TRAINED)
        judge = Releaser(plan, ledger, Random(), "judging", "held_out")
        step = plan.step(1.0)

        def zeros() -> Clipped:
            import torch

            return Clipped(torch.zeros(3, dtype=torch.int64), 1.0, step)

        assert judge.releases_left == 2
        judge.release(1.0, zeros)
        judge.release(1.0, zeros)
        with pytest.raises(BudgetSpent):
            judge.release(1.0, zeros)
        assert epsilon_pld(by_side(ledger.history())[1], DELTA) <= 0.3


def test_a_split_is_drawn_once_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with closing(Ledger(path, "rows")) as ledger:
        key = ledger.split(0.2)
        assert len(key) == 32
        assert ledger.split(0.2) == key
    with closing(Ledger(path, "rows")) as ledger:
        assert ledger.split(0.2) == key
        with pytest.raises(PrivacyError, match=r"held_out=0\.3.*holds out 0\.2"):
            ledger.split(0.3)
    with closing(Ledger(tmp_path / "other.db", "rows")) as other:
        assert other.split(0.2) != key


def test_a_lifetime_bounds_what_questions_add_to_a_budget_of_their_own(tmp_path: Path) -> None:
    z = 8.0  # ε 0.48 of one, 0.7 of two, 0.87 of three and 1.02 of four
    plan = Plan("discrete_gaussian", 1.0, 8.0, z, 1.0, 1.0, 0.5, DELTA, rows_max=8)

    def left(run: str) -> int | None:
        with closing(Ledger(tmp_path / "ledger.db", "rows", question=run)) as ledger:
            releaser = Releaser(plan, ledger, Random())
            assert releaser.releases_left == 1  # each run has a budget of its own
            assert not releaser.has_begun
            releaser.bound(0.9, DELTA)
            if releaser.releases_left:
                ledger.charge(1.0, z, "discrete_gaussian", secret=True)
            return releaser.releases_left

    assert [left(f"run {number}") for number in range(4)] == [1, 1, 1, 0]


def test_a_lifetime_outside_of_federations_is_held_for_each_side(tmp_path: Path) -> None:
    plan = Plan("discrete_gaussian", 1.0, 8.0, 8.0, 1.0, 1.0, 0.5, DELTA, rows_max=8)
    spent = Spend(1.0, 4.0, 1, "discrete_gaussian", side="training")  # ε 1.02
    with closing(Ledger(tmp_path / "ledger.db", "rows", judges="run")) as ledger:
        charge(ledger, spent)
        left = []
        for side in ("training", "held_out", "both"):
            releaser = Releaser(plan, ledger, Random(), "judging", side)
            releaser.bound(0.9, DELTA)
            left.append(releaser.releases_left)
        assert left == [0, 1, 0]


def test_rows_without_ids_are_held_out_by_the_columns_that_a_run_read_first(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with closing(Ledger(path, "rows")) as ledger:
        key = ledger.split(0.2, "columns a and b")
    with closing(Ledger(path, "rows")) as ledger:
        with pytest.raises(PrivacyError, match=r"no ids.*same columns and target"):
            ledger.split(0.2, "column a")
        assert ledger.split(0.2, "columns a and b") == key


def test_a_lifetime_is_held_for_each_side(tmp_path: Path) -> None:
    def spend(side: UnitSide) -> Spend:
        return Spend(1.0, 20.0, 1, "discrete_gaussian", side=side)

    def pays(*sides: UnitSide) -> int:
        budget = RenyiFilter(1.0, DELTA, 16)
        releases = 0
        while True:
            try:
                for side in sides:
                    budget.charge(spend(side))
            except BudgetSpent:
                break
            releases += 1
        return releases

    assert pays("both") == pays("training") == pays("training", "held_out")
    assert pays("both", "held_out") < pays("both")
    lifetime = Lifetime.begun(1.0, DELTA)
    history = (Spend(1.0, 20.0, 5, "discrete_gaussian", side="training"),)
    assert lifetime.left(history, spend("held_out")) == lifetime.left((), spend("held_out"))
    assert lifetime.left(history, spend("both")) == lifetime.left(history, spend("training"))
    assert lifetime.left(history, spend("both")) < lifetime.left((), spend("both"))
    shared = SharedLedger(tmp_path / "shared.db", "rows", run="run", lifetime=lifetime)
    with closing(shared):
        charge(shared, JUDGED)
        assert [row.side for row in shared.run_history("judging")] == ["both"]
        assert shared.run_history() == ()
        assert [row.side for row in shared.history()] == ["held_out"]


def test_another_ledger_of_the_same_people_begins_with_both_sides() -> None:
    begun = beyond((), (TRAINED, JUDGED))
    assert {row.side for row in begun} == {"both"}
    for rows in by_side((TRAINED, JUDGED)):
        assert epsilon_pld(begun, DELTA) >= epsilon_pld(rows, DELTA)
    # A split of one's own covers nobody who was on the other side elsewhere.
    assert beyond((TRAINED, JUDGED), (TRAINED,)) != ()


@pytest.mark.parametrize("mechanism", ["paper:mean_clip", "gaussian", "knorm"])
def test_a_mechanism_with_a_colon_of_its_own_is_read_as_before(
    tmp_path: Path, mechanism: Any
) -> None:
    with closing(Ledger(tmp_path / "ledger.db", "rows")) as ledger:
        ledger.charge(0.5, 1.0, mechanism, secret=True)
        (row,) = ledger.history()
    assert row.side == "both"
    assert row.mechanism == ("gaussian" if ":" in mechanism else mechanism)
