"""Offers of published data: for members without rows of their own, and for no others."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from tacit_services.display.progress import SlowSteps
from tacit_services.member.consent import KeyStanding
from tacit_services.member.judging import judged
from tacit_services.member.looking import Looked, look, with_rows
from tacit_services.member.screen import Screen
from tacit_services.member.verdict import PolicyWord, RefusalKind
from tacit_services.offers.packing import PackedOffer

from tacit.config.site import Site
from tacit.privacy.ledger import Ledger
from tacit.privacy.policy import Policy
from tests.helpers.offered import federations_run, fetched, packed, table

DIGITS = {"kind": None, "dataset": "digits", "target": None, "rows": None, "columns": None}
WITHIN = Policy(accept="within")


@pytest.fixture
def digits(tmp_path: Path) -> PackedOffer:
    folder = tmp_path / "researcher"
    folder.mkdir()
    return packed(folder, federations_run(data=DIGITS, edges={"count": 2}))


def seen(offer: PackedOffer, folder: Path, site: Site) -> Looked:
    looked = look(
        offer.offer, fetched(offer, folder / f"member{site.number}"), site, KeyStanding.KNOWN
    )
    return with_rows(looked, folder / "home", SlowSteps(), part=folder / "parts")


def test_a_member_of_published_data_takes_part_with_the_part_of_its_number(
    digits: PackedOffer, tmp_path: Path
) -> None:
    looked = seen(digits, tmp_path, Site(1, tmp_path, published=True))
    assert judged(looked, WITHIN).answer is PolicyWord.ACCEPT
    rows = dict(dict(Screen(looked).sections())["What is read"])
    assert rows["your data"].startswith("none: a part of a published data set")


def test_what_its_part_has_spent_in_runs_before_counts(digits: PackedOffer, tmp_path: Path) -> None:
    (tmp_path / "parts" / "1").mkdir(parents=True)
    with closing(Ledger(tmp_path / "parts" / "1" / "ledger.db", "digits")) as ledger:
        ledger.charge(0.1, 1.0, "discrete_gaussian", secret=True, count=50)
    costs = [
        seen(digits, tmp_path, Site(number, tmp_path, published=True)).cost for number in (0, 1)
    ]
    assert [cost is not None and cost.before > 0 for cost in costs] == [False, True]


def test_a_member_without_a_part_of_the_run_takes_none(digits: PackedOffer, tmp_path: Path) -> None:
    verdict = judged(seen(digits, tmp_path, Site(2, tmp_path, published=True)), WITHIN)
    assert (verdict.answer, verdict.kind) == (PolicyWord.REFUSE, RefusalKind.UNAVAILABLE)
    assert "places 0 to 1" in verdict.reason


def test_a_member_with_rows_takes_no_published_ones(digits: PackedOffer, tmp_path: Path) -> None:
    site = Site(1, table(tmp_path / "mine.csv", 300, 5))
    verdict = judged(seen(digits, tmp_path, site), WITHIN)
    assert (verdict.answer, verdict.kind) == (PolicyWord.REFUSE, RefusalKind.UNAVAILABLE)
    assert "--published" in verdict.reason


def test_a_member_of_published_data_is_asked_for_no_rows(tmp_path: Path) -> None:
    (tmp_path / "researcher").mkdir()
    offer = packed(tmp_path / "researcher", federations_run())
    verdict = judged(seen(offer, tmp_path, Site(1, tmp_path, published=True)), WITHIN)
    assert (verdict.answer, verdict.kind) == (PolicyWord.REFUSE, RefusalKind.UNAVAILABLE)
    assert "rows of a member's own" in verdict.reason
