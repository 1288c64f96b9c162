"""What is promised to an accepted run has its looks, each of the side of the rows that it is of."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from tacit_services.member.promises import promised
from tacit_services.member.run_promise import RunPromise

from tacit.errors import BudgetSpent
from tacit.privacy.accounting import Spend
from tests.unit.member.test_current_costs import BOUND, LARGE, Site
from tests.unit.member.test_member_loop import offer
from tests.unit.member.test_rolled_back import OWNED, ledger

LOOKS = 5
# Its updates take 0.05 of BOUND, and its looks 0.59.
JUDGED = RunPromise(0.1, 2.0, "gaussian", 10, 3.0, 1e-5, LOOKS, 3.4)
LOOK = Spend(1.0, 3.4, 1, "gaussian", "judging", "held_out")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A member that has accepted a run with looks, and to whom another offer has come."""
    made = Site(tmp_path)
    made.come(offer("first"), promise=JUDGED)
    made.accept("first")
    made.come(offer("second"))
    return made


def charge(site: Site, run: str, spend: Spend, count: int) -> None:
    """Let a run release, and end."""
    with ledger(site.folder) as data, closing(data.loan(OWNED).opened(run)) as opened:
        opened.charge(
            spend.sampling_rate, spend.noise_multiplier, spend.mechanism, secret=True, count=count,
            purpose=spend.purpose, side=spend.side,
        )  # fmt: skip


def test_two_accepted_runs_pass_a_lifetime_by_looks_and_the_owner_is_told_before(
    site: Site,
) -> None:
    screen = site.screen("second")
    assert "59 % is promised, and 41 % is left" in screen
    assert "this run asks for 48 %, so the bound may end a run early" in screen


def test_what_would_pass_the_lifetime_with_the_looks_of_another_run_is_refused(site: Site) -> None:
    # Given: both runs are accepted, and the first one has judged
    site.accept("second")
    lifetime = BOUND.at(BOUND.order)
    assert lifetime is not None
    for _ in range(LOOKS):
        charge(site, "first", LOOK, 1)
    looked = Spend(1.0, 3.4, LOOKS, "gaussian", "judging", "held_out")
    left = lifetime.left((looked,), LARGE.some(1))
    assert left < LARGE.releases <= lifetime.left((), LARGE.some(1))
    # When, then: more updates of the second one than are left beside these looks are not paid
    with pytest.raises(BudgetSpent, match="lifetime_epsilon"):
        charge(site, "second", LARGE.some(1), left + 1)
    charge(site, "second", LARGE.some(1), left)


def test_looks_and_updates_of_one_run_are_of_different_rows_and_do_not_add_up(site: Site) -> None:
    other = JUDGED.some(1)
    assert other.side == "training"
    site.come(offer("third"), promise=RunPromise(0.1, 2.0, "gaussian", 90, 3.0, 1e-5, 1, 50.0))
    screen = site.screen("third")  # 0.05 + 0.39 of the one side; 0.59 of the other are promised
    assert "59 % is promised, and 41 % is left; this run takes" in screen


def test_a_look_that_has_come_is_promised_no_more(site: Site) -> None:
    first = offer("first").fingerprint
    charge(site, first, LOOK, 3)
    due = promised(site.state, None, site.folder / "home")["first"]
    assert [(spend.side, spend.count) for spend in due] == [("held_out", 2), ("training", 10)]
    charge(site, first, JUDGED.some(1), 10)
    charge(site, first, LOOK, 2)
    assert promised(site.state, None, site.folder / "home") == {}
