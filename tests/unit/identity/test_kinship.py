"""Data is known by its units and rows: whose ledger it has, whatever it is called."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tacit_services.identity import joining, own_ledgers
from tacit_services.identity.kinship import Apart, NotApart
from tacit_services.identity.ledger_place import LedgerPlace
from tacit_services.identity.own_ledgers import LedgerLocation, LedgerOrigin

from tacit.datasets.own.rows import hashed
from tacit.errors import DataError, PrivacyError
from tacit.known_data.owned import Owned
from tacit.known_data.sketch import Marks
from tacit.privacy.accounting import epsilon_pld
from tacit.privacy.ledger import Ledger

DEALT = "by row to 2 edges, seed 1"
BY_PERSON = "by who to 2 edges, seed 1"


def data(
    name: str,
    rows: Iterable[object],
    *,
    people: Iterable[object] | None = None,
    dealing: str = DEALT,
    apart_from: tuple[str, ...] = (),
) -> Owned:
    """Return data with these rows, and the people whose they are, in a file of its own bytes."""
    marks = hashed(str(row).encode() for row in rows)
    units = None if people is None else hashed(str(person).encode() for person in people)

    def read() -> Iterator[Marks]:
        yield Marks(marks, units)

    unit = "row" if people is None else "who"
    return Owned(name, f"bytes of {name}", unit, dealing, "schema", read, apart_from, name)


def charge(place: LedgerLocation, times: int) -> None:
    with closing(Ledger(place.path, place.dataset)) as ledger:
        ledger.charge(0.1, 1.0, "gaussian", secret=True, count=times)


def spent(owned: Owned, home: Path, number: int = 0) -> int:
    count = sum(spend.count for spend in own_ledgers.history(owned, number, home))
    place = own_ledgers.place(owned, number, home)
    with closing(Ledger(place.path, place.dataset)) as ledger:
        assert sum(spend.count for spend in ledger.history()) == count  # as `tacit check` said
    return count


OCTOBER = data("october", range(300))
NOVEMBER = data("november", range(100, 400))


def test_rows_in_another_folder_start_from_the_most_that_any_edge_had_spent(tmp_path: Path) -> None:
    for edge, times in ((0, 3), (1, 9)):
        charge(own_ledgers.place(OCTOBER, edge, tmp_path), times)
    assert [spent(NOVEMBER, tmp_path, edge) for edge in range(2)] == [9, 9]
    charge(own_ledgers.place(NOVEMBER, 0, tmp_path), 1)
    assert [spent(OCTOBER, tmp_path, edge) for edge in range(2)] == [10, 9]


def test_people_who_are_dealt_as_before_keep_the_ledgers_of_their_edges(tmp_path: Path) -> None:
    people = range(300)
    first_visits = data("one", people, people=people, dealing=BY_PERSON)
    for edge, times in ((0, 3), (1, 9)):
        charge(own_ledgers.place(first_visits, edge, tmp_path), times)
    next_visits = data("two", range(1000, 1300), people=people, dealing=BY_PERSON)
    assert [spent(next_visits, tmp_path, edge) for edge in range(2)] == [3, 9]


def test_the_same_rows_by_another_unit_are_refused(tmp_path: Path) -> None:
    charge(own_ledgers.place(OCTOBER, 0, tmp_path), 3)
    with pytest.raises(PrivacyError, match=r"it is known as october\): its ledger counts by 'row'"):
        own_ledgers.place(data("two", range(300), people=range(300)), 0, tmp_path)


def test_other_rows_and_too_few_of_them_begin_anew(tmp_path: Path) -> None:
    charge(own_ledgers.place(OCTOBER, 0, tmp_path), 3)
    assert spent(data("others", range(1000, 1300)), tmp_path) == 0
    assert spent(data("few", [*range(2000, 3000), *range(20)]), tmp_path) == 0


def test_a_ledger_that_paid_for_nothing_is_no_second_one(tmp_path: Path) -> None:
    own_ledgers.place(NOVEMBER, 0, tmp_path)  # registered, and never charged
    charged = data("one", range(2000, 2300))
    charge(own_ledgers.place(charged, 0, tmp_path), 5)
    both = data("both", [*range(100, 400), *range(2000, 2300)])
    assert spent(both, tmp_path) == 5
    assert [spent(each, tmp_path) for each in (NOVEMBER, charged)] == [5, 5]


def test_two_that_paid_are_refused_by_name_until_they_are_joined(tmp_path: Path) -> None:
    december = data("one", range(2000, 2300))
    for each, times in ((OCTOBER, 4), (december, 5)):
        charge(own_ledgers.place(each, 0, tmp_path), times)
    both = data("both", [*range(300), *range(2000, 2300)])
    for look in (own_ledgers.place, own_ledgers.history):
        with pytest.raises(PrivacyError, match="rows of two ledgers, october and one"):
            look(both, 0, tmp_path)
    with (
        pytest.raises(PrivacyError, match="rows of two ledgers"),
        own_ledgers.held([both], tmp_path),
    ):
        pass
    assert own_ledgers.history(OCTOBER, 0, tmp_path)[0].count == 4  # nothing has changed
    joining.join(tmp_path, "october", "one")
    for each in (both, OCTOBER, december):
        assert [spent(each, tmp_path, edge) for edge in range(2)] == [9, 9]
    charge(own_ledgers.place(december, 0, tmp_path), 1)
    assert spent(OCTOBER, tmp_path) == 10
    with pytest.raises(PrivacyError, match="have one ledger already"):
        joining.join(tmp_path, "one", "october")


def test_data_in_use_is_not_joined(tmp_path: Path) -> None:
    december = data("one", range(2000, 2300))
    charge(own_ledgers.place(december, 0, tmp_path), 5)
    with own_ledgers.opened(OCTOBER, 0, tmp_path) as place:
        charge(place, 4)
        with pytest.raises(PrivacyError, match="an edge is training on it"):
            joining.join(tmp_path, "one", "october")
    joining.join(tmp_path, "one", "october")


def test_the_owner_may_say_that_people_are_others(tmp_path: Path) -> None:
    charge(own_ledgers.place(OCTOBER, 0, tmp_path), 3)
    other = data("november", range(100, 400), apart_from=("october",))
    assert spent(other, tmp_path) == 0


def test_a_site_that_got_the_rows_of_another_has_its_ledger(tmp_path: Path) -> None:
    rows = {0: range(300), 1: range(1000, 1300)}
    for number, times in ((0, 3), (1, 9)):
        site = data(f"bytes {number}", rows[number], dealing="")
        owned = Owned("sites", site.digest, "row", "", "schema", site.marks)
        charge(own_ledgers.place(owned, number, tmp_path), times)
    moved = data("", [*rows[1], -1], dealing="")
    owned = Owned("sites", "other bytes", "row", "", "schema", moved.marks)
    assert spent(owned, tmp_path) == 12  # as a new site it began with the 3 of the other


def site(bytes_: str, people: Iterable[int], name: str = "clinic", dealing: str = "") -> Owned:
    """Return the file of one site of several, with a row for each person."""
    rows = [(bytes_, person) for person in people]
    return replace(data(name, rows, people=people, dealing=dealing), digest=bytes_)


def two_sites(home: Path) -> tuple[Owned, Owned]:
    """Return two sites, of which the first has released 90 times and the second once."""
    first, second = site("a", range(300)), site("b", range(300, 600))
    places = [own_ledgers.place(each, at, home) for at, each in enumerate((first, second))]
    for place, times in zip(places, (90, 1), strict=True):
        charge(place, times)
    return first, second


@pytest.mark.parametrize(("moved", "stayed"), [(290, 10), (150, 300), (20, 300)])
def test_who_moves_to_another_sites_file_has_spent_there_what_was_spent_before(
    tmp_path: Path, moved: int, stayed: int
) -> None:
    first, _ = two_sites(tmp_path)
    later = site("b, later", [*range(moved), *range(300, 300 + stayed)])
    assert own_ledgers.standing(later, 1, tmp_path).origin == LedgerOrigin("clinic", "name")
    assert spent(later, tmp_path, 1) == 90
    assert spent(first, tmp_path, 0) == 90
    charge(own_ledgers.place(later, 1, tmp_path), 5)  # and who moves back, into the file of before
    assert spent(first, tmp_path, 0) == 95
    assert spent(later, tmp_path, 1) == 95


def test_sites_without_anybody_in_common_keep_to_what_each_has_spent(tmp_path: Path) -> None:
    two_sites(tmp_path)
    assert spent(site("b, later", range(310, 610)), tmp_path, 1) == 1
    assert spent(site("a, later", range(290)), tmp_path, 0) == 90


def test_a_run_of_two_sites_begins_with_both_raised(tmp_path: Path) -> None:
    first, _ = two_sites(tmp_path)
    later = site("b, later", range(10, 310))
    with own_ledgers.held([first, later], tmp_path):
        assert [spent(each, tmp_path, at) for at, each in enumerate((first, later))] == [90, 90]


def test_a_ledger_in_use_is_not_raised_and_its_data_not_used(tmp_path: Path) -> None:
    two_sites(tmp_path)
    later = site("b, later", range(10, 310))
    [path] = tmp_path.glob("ledgers/*/0/edge-1.db")
    with LedgerPlace(path).locked(), pytest.raises(PrivacyError, match="an edge is using it"):
        own_ledgers.place(later, 1, tmp_path)
    assert spent(later, tmp_path, 1) == 90


def test_a_new_dealing_begins_with_a_bound_on_spends_of_which_none_is_largest(
    tmp_path: Path,
) -> None:
    spends = ((1.0, 6.0, 10), (0.01, 0.8, 800))
    for number, (q, z, count) in enumerate(spends):
        place = own_ledgers.place(OCTOBER, number, tmp_path)
        with closing(Ledger(place.path, place.dataset)) as ledger:
            ledger.charge(q, z, "gaussian", secret=True, count=count)
    before = [own_ledgers.history(OCTOBER, number, tmp_path) for number in range(2)]
    anew = replace(OCTOBER, dealing="by row to 3 edges, seed 1")
    assert spent(anew, tmp_path) == 810
    bound = own_ledgers.history(anew, 0, tmp_path)
    for delta in (1e-3, 1e-5, 1e-8):
        assert epsilon_pld(bound, delta) >= max(epsilon_pld(history, delta) for history in before)
    assert spent(OCTOBER, tmp_path, 1) == 810  # and the next one with no more


@pytest.mark.parametrize("by", ["rows", "people"])
def test_how_much_is_of_others_as_the_owner_says_is_said(tmp_path: Path, by: str) -> None:
    def these(name: str, numbers: range) -> Owned:
        return data(name, numbers, people=numbers if by == "people" else None)

    charge(own_ledgers.place(these("A", range(300)), 0, tmp_path), 9)
    other = replace(these("B", range(30, 330)), apart_from=("A",))
    for _ in range(2):  # and so it is, once it has a ledger of its own
        standing = own_ledgers.standing(other, 0, tmp_path)
        assert standing.apart == own_ledgers.place(other, 0, tmp_path).apart
        [apart] = standing.apart
        assert isinstance(apart, Apart)
        assert (apart.name, apart.by) == ("A", by)
        assert apart.share == pytest.approx(0.9)
        assert "about 90% of the" in str(apart)
    nobody = replace(these("C", range(500, 800)), apart_from=("A",))
    assert own_ledgers.standing(nobody, 0, tmp_path).apart == ()


def test_a_ledger_that_the_data_has_already_is_said_to_be_no_others(tmp_path: Path) -> None:
    charge(own_ledgers.place(OCTOBER, 0, tmp_path), 9)
    charge(own_ledgers.place(NOVEMBER, 0, tmp_path), 1)
    late = replace(NOVEMBER, apart_from=("october", "elsewhere"))
    expected = (NotApart("october"),)
    assert own_ledgers.standing(late, 0, tmp_path).apart == expected
    assert own_ledgers.place(late, 0, tmp_path).apart == expected
    assert spent(late, tmp_path) == 10
    in_time = data("december", range(50, 350), apart_from=("october", "november"))
    [apart] = own_ledgers.standing(in_time, 0, tmp_path).apart
    assert isinstance(apart, Apart)


def test_after_a_join_the_owner_has_to_name_all_that_are_others(tmp_path: Path) -> None:
    for name, rows, times in (("A", range(300), 9), ("B", range(1000, 1300), 5)):
        charge(own_ledgers.place(data(name, rows), 0, tmp_path), times)
    joining.join(tmp_path, "A", "B")
    later = data("later", [*range(1000, 1300), 7777], apart_from=("A",))
    for look in (own_ledgers.place, own_ledgers.standing):
        with pytest.raises(PrivacyError, match=r"a part of a ledger that was joined.*name B, too"):
            look(later, 0, tmp_path)
    assert spent(replace(later, apart_from=()), tmp_path) == 14
    both = data("apart", [*range(1000, 1300), 8888], apart_from=("A", "B", "later"))
    assert [data_set.name for data_set in own_ledgers.standing(both, 0, tmp_path).apart] == ["A"]
    assert spent(both, tmp_path) == 0


def test_a_run_says_of_each_edge_how_its_data_was_known(tmp_path: Path) -> None:
    sites = [
        Owned("sites", f"bytes {number}", "row", "", "schema", data("", rows).marks)
        for number, rows in enumerate((range(300), range(1000, 1300)))
    ]
    with own_ledgers.held(sites, tmp_path) as kinship:
        assert kinship == [LedgerOrigin(None, ""), LedgerOrigin(None, "name")]
    charge(own_ledgers.place(sites[0], 0, tmp_path), 3)
    with own_ledgers.held(sites, tmp_path) as kinship:
        assert {entry.continues for entry in kinship} == {"sites"}
    with own_ledgers.held([NOVEMBER], tmp_path) as kinship:
        assert kinship == [LedgerOrigin("sites", "rows")]


def test_data_is_read_once_for_its_sketch(tmp_path: Path) -> None:
    passes = []

    def read() -> Iterator[Marks]:
        passes.append(1)
        assert OCTOBER.marks is not None
        yield from OCTOBER.marks()

    owned = Owned("once", str(tmp_path), "row", DEALT, "schema", read)
    with own_ledgers.held([owned, owned], tmp_path):
        for number in range(2):
            own_ledgers.history(owned, number, tmp_path)
            own_ledgers.place(owned, number, tmp_path)
    assert len(passes) == 1


def test_what_cannot_be_read_begins_no_ledger(tmp_path: Path) -> None:
    def read() -> Iterator[Marks]:
        raise DataError("train.csv: is damaged")
        yield

    with pytest.raises(DataError, match="is damaged"):
        own_ledgers.place(Owned("one", "aa", "row", DEALT, "schema", read), 0, tmp_path)
    assert not list(tmp_path.glob("ledgers/*/data.json"))


def older(home: Path) -> Path:
    """Write a register as tacit 0.2 wrote it, with one ledger that has paid."""
    plain = Owned("october", OCTOBER.digest, "row", DEALT)
    charge(own_ledgers.place(plain, 0, home), 7)
    [path] = home.glob("ledgers/*/data.json")
    content = json.loads(path.read_text()) | {"format": 1}
    del content["joined"]
    path.write_text(json.dumps(content, indent=1))
    (home / "ledgers" / "sketch.key").unlink()
    assert not list(home.glob("ledgers/*/units-*"))
    return path


def test_a_ledger_of_an_older_tacit_gets_its_sketch_when_it_is_next_used(tmp_path: Path) -> None:
    path = older(tmp_path)
    standing = own_ledgers.standing(NOVEMBER, 0, tmp_path)
    assert (standing.origin.continues, standing.unseen) == (None, 1)  # and `tacit check` says so
    assert spent(OCTOBER, tmp_path) == 7
    assert json.loads(path.read_text())["format"] == 2
    assert own_ledgers.standing(NOVEMBER, 0, tmp_path).unseen == 0
    assert spent(NOVEMBER, tmp_path) == 7


def test_a_lost_key_is_not_made_anew_in_silence(tmp_path: Path) -> None:
    own_ledgers.place(OCTOBER, 0, tmp_path)
    (tmp_path / "ledgers" / "sketch.key").unlink()
    for look in (own_ledgers.place, own_ledgers.history):
        with pytest.raises(PrivacyError, match=r"sketch\.key: is gone"):
            look(OCTOBER, 0, tmp_path)


def test_a_damaged_sketch_is_said_to_be_one(tmp_path: Path) -> None:
    own_ledgers.place(OCTOBER, 0, tmp_path)
    [path] = tmp_path.glob("ledgers/*/units-all.json")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(PrivacyError, match=r"units-all\.json: is damaged"):
        own_ledgers.place(NOVEMBER, 0, tmp_path)


def test_edges_at_once_leave_one_whole_sketch(tmp_path: Path) -> None:
    """Start eight processes at once, each with a file of its own, and one that is common."""
    gate, opener = os.pipe()
    children = []
    for number in range(8):
        if not (child := os.fork()):
            try:
                os.close(opener)
                os.read(gate, 1)  # until the parent has closed it
                site = data("", [*range(300), *range(1000 * number, 1000 * number + 200)])
                owned = Owned("sites", f"{number}", "row", "", "schema", site.marks)
                dealt = data("common", range(90_000, 90_300))
                own_ledgers.place(owned, number, tmp_path)
                own_ledgers.place(dealt, number % 2, tmp_path)
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    os.close(opener)
    os.close(gate)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 8
    parts = sorted(path.name for path in tmp_path.glob("ledgers/*/units-*.json"))
    assert parts == [*(f"units-{number}.json" for number in range(8)), "units-all.json"]
    standing = own_ledgers.standing(data("again", range(7000, 7200)), 0, tmp_path)
    assert standing.origin == LedgerOrigin("sites", "rows")
