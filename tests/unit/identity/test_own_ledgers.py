"""Ledgers of somebody's own data: found again whatever happens to the file, and never afresh."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tacit_services.identity import own_ledgers
from tacit_services.identity.own_ledgers import LedgerLocation

from tacit.errors import PrivacyError
from tacit.known_data.owned import Owned
from tacit.privacy.accounting import History
from tacit.privacy.ledger import Ledger

DEALT = Owned("/data/patients.csv", "aa", "row", "by row to 2 edges, seed 1")
OWN_FILE = Owned("clinic/site{edge}.csv", "aa", "row", "")


def charge(place: LedgerLocation, times: int) -> None:
    with closing(Ledger(place.path, place.dataset)) as ledger:
        ledger.charge(0.1, 1.0, "gaussian", secret=True, count=times)


def spent(place: LedgerLocation) -> int:
    with closing(Ledger(place.path, place.dataset)) as ledger:
        return releases(ledger.history())


def releases(history: History) -> int:
    return sum(row.count for row in history)


@pytest.mark.parametrize(
    "later",
    [
        DEALT,
        replace(DEALT, digest="bb"),  # grown, or replaced
        replace(DEALT, name="/elsewhere/copy.csv"),  # renamed, or copied
    ],
    ids=["same", "grown", "renamed"],
)
def test_data_is_found_again_by_its_name_or_by_its_bytes(tmp_path: Path, later: Owned) -> None:
    charge(own_ledgers.place(DEALT, 0, tmp_path), 7)
    assert spent(own_ledgers.place(later, 0, tmp_path)) == 7
    # and both are known from then on: it may be renamed after it has grown.
    assert spent(own_ledgers.place(replace(later, name="third"), 0, tmp_path)) == 7
    assert spent(own_ledgers.place(replace(later, digest="cc"), 0, tmp_path)) == 7


def test_other_data_has_a_ledger_of_its_own(tmp_path: Path) -> None:
    charge(own_ledgers.place(DEALT, 0, tmp_path), 7)
    assert spent(own_ledgers.place(replace(DEALT, name="other", digest="bb"), 0, tmp_path)) == 0


def test_edges_have_ledgers_of_their_own(tmp_path: Path) -> None:
    charge(own_ledgers.place(DEALT, 0, tmp_path), 7)
    assert spent(own_ledgers.place(DEALT, 1, tmp_path)) == 0


def test_after_a_new_dealing_every_edge_starts_from_the_largest_spend_of_any(
    tmp_path: Path,
) -> None:
    for edge, times in ((0, 3), (1, 9)):
        charge(own_ledgers.place(DEALT, edge, tmp_path), times)
    anew = replace(DEALT, dealing="by row to 3 edges, seed 1")
    assert [spent(own_ledgers.place(anew, edge, tmp_path)) for edge in range(3)] == [9, 9, 9]
    charge(own_ledgers.place(anew, 2, tmp_path), 1)
    # The dealing before, once more, is a new one: who was where in between is not looked up.
    assert [spent(own_ledgers.place(DEALT, edge, tmp_path)) for edge in range(2)] == [10, 10]


def test_an_edges_file_is_known_by_its_bytes_wherever_it_is_used(tmp_path: Path) -> None:
    charge(own_ledgers.place(OWN_FILE, 0, tmp_path), 4)
    other = replace(OWN_FILE, digest="bb")
    # A file that nobody has seen may hold the people of one that was: it starts with their spend.
    assert spent(own_ledgers.place(other, 1, tmp_path)) == 4
    charge(own_ledgers.place(other, 1, tmp_path), 2)
    assert spent(own_ledgers.place(OWN_FILE, 1, tmp_path)) == 4
    assert spent(own_ledgers.place(other, 0, tmp_path)) == 6


def test_the_unit_is_fixed_by_the_first_charge(tmp_path: Path) -> None:
    by_person = replace(DEALT, unit="patient_id")
    own_ledgers.place(DEALT, 0, tmp_path)
    place = own_ledgers.place(by_person, 0, tmp_path)  # nothing was charged yet
    charge(place, 1)
    with pytest.raises(PrivacyError, match=r"counts by 'patient_id', and data\.unit says 'row'"):
        own_ledgers.place(DEALT, 0, tmp_path)
    assert spent(own_ledgers.place(by_person, 0, tmp_path)) == 1


def test_a_name_and_bytes_of_two_ledgers_are_refused(tmp_path: Path) -> None:
    other = replace(DEALT, name="other", digest="bb")
    for data in (DEALT, other):
        charge(own_ledgers.place(data, 0, tmp_path), 1)
    with pytest.raises(PrivacyError, match=r'say data\.name = "/data/patients.csv"'):
        own_ledgers.place(replace(other, digest="aa"), 0, tmp_path)
    assert spent(own_ledgers.place(DEALT, 0, tmp_path)) == 1


@pytest.mark.parametrize(
    "text",
    ["{", "{}", "[]", "5", '{"format": 2}', '{"format": 2, "edges": []}', "[" * 200_000],
    ids=["cut", "empty", "list", "number", "format alone", "edges", "brackets"],
)
def test_a_register_that_cannot_be_read_is_no_new_one(tmp_path: Path, text: str) -> None:
    charge(place := own_ledgers.place(DEALT, 0, tmp_path), 7)
    (place.path.parent.parent / "data.json").write_text(text)
    with pytest.raises(PrivacyError, match=r"data\.json: is damaged"):
        own_ledgers.place(DEALT, 0, tmp_path)


def test_a_new_ledger_that_was_not_finished_is_made_anew(tmp_path: Path) -> None:
    charge(place := own_ledgers.place(DEALT, 0, tmp_path), 7)
    # A crash while the ledger of a new dealing was written leaves it beside its place.
    half = place.path.parent.parent / "1" / "edge-0.new"
    half.parent.mkdir()
    half.write_bytes(b"half of a ledger")
    anew = replace(DEALT, dealing="by row to 3 edges, seed 1")
    assert spent(own_ledgers.place(anew, 0, tmp_path)) == 7
    assert not half.exists()


def test_two_runs_at_once_have_not_the_same_data(tmp_path: Path) -> None:
    grown, other = replace(DEALT, digest="bb", dealing="by row to 2 edges, seed 2"), "/data/b.csv"
    with own_ledgers.held([DEALT, DEALT], tmp_path):
        own_ledgers.place(DEALT, 0, tmp_path)
        with (
            pytest.raises(PrivacyError, match="another run is training on it"),
            own_ledgers.held([grown], tmp_path),
        ):
            pass
        with own_ledgers.held([replace(DEALT, name=other, digest="cc")], tmp_path):
            pass
    with own_ledgers.held([grown], tmp_path):
        pass


def test_two_runs_at_once_have_not_two_copies_of_data_that_no_ledger_knows(tmp_path: Path) -> None:
    copy = replace(DEALT, name="/elsewhere/copy.csv")
    grown = replace(DEALT, digest="bb", dealing="by row to 2 edges, seed 2")
    with own_ledgers.held([DEALT], tmp_path):  # for the first time; nothing has been charged
        for same in (copy, grown):
            with (
                pytest.raises(PrivacyError, match="another run is training on it"),
                own_ledgers.held([same], tmp_path),
            ):
                pass
        charge(own_ledgers.place(DEALT, 0, tmp_path), 7)
    with own_ledgers.held([copy], tmp_path):
        assert spent(own_ledgers.place(copy, 0, tmp_path)) == 7
    # Data that was only held has been charged nothing; its unit is not fixed.
    other = Owned("/data/other.csv", "cc", "row", "by row to 2 edges, seed 1")
    with own_ledgers.held([other], tmp_path):
        pass
    assert own_ledgers.history(replace(other, unit="patient"), 0, tmp_path) == ()


def test_while_an_edge_works_nobody_deals_its_data_in_another_way(tmp_path: Path) -> None:
    anew = replace(DEALT, dealing="by row to 2 edges, seed 2")
    with own_ledgers.opened(DEALT, 0, tmp_path) as place:
        charge(place, 3)
        with own_ledgers.opened(DEALT, 1, tmp_path):  # of the same dealing there may be others
            pass
        for number in range(2):
            with pytest.raises(PrivacyError, match="an edge is training on it as it was dealt"):
                own_ledgers.place(anew, number, tmp_path)
    with own_ledgers.opened(anew, 1, tmp_path) as place:
        assert spent(place) == 3
        with pytest.raises(PrivacyError, match="an edge is training on it as it was dealt"):
            own_ledgers.place(DEALT, 0, tmp_path)
