"""A member holds its data's ledger once, and its workers charge it by the locks they inherit."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tacit_services.identity import data_register, joining, lineage, own_ledgers
from tacit_services.identity.folder import Identities, Identity
from tacit_services.identity.ledger_loan import LedgerLoan, LifetimeBound
from tacit_services.identity.ledger_place import LedgerPlace
from tacit_services.identity.own_ledgers import LedgerLocation

from tacit.errors import BudgetSpent, PrivacyError
from tacit.known_data.owned import Owned
from tacit.privacy.accounting import Spend
from tacit.privacy.accounting.filters import steadiest_order
from tacit.privacy.ledger import Ledger, read_chains, read_lifetime_orders

OWN = Owned("St. Mary's", "aa", "row", "by row to 5 edges, seed 1")
BOUND = LifetimeBound(4.0, 1e-5)


@contextmanager
def member(folder: Path, name: str = "state") -> Iterator[Identity]:
    identity = Identities(folder / name).acquire(1, threading.Event())
    assert identity is not None
    with closing(identity):
        yield identity


@contextmanager
def lent(
    folder: Path, state: str = "state", owned: Owned = OWN, bound: LifetimeBound = BOUND
) -> Iterator[tuple[LedgerLocation, LedgerLoan]]:
    with (
        member(folder, state) as identity,
        own_ledgers.lent(identity, owned, folder, bound) as (location, loan),
    ):
        yield location, loan


def charge(ledger: Ledger, count: int = 1, z: float = 2.0) -> None:
    ledger.charge(0.1, z, "gaussian", secret=True, count=count)


def test_workers_of_a_member_charge_one_ledger_and_it_goes_on(tmp_path: Path) -> None:
    with lent(tmp_path) as (location, loan):
        assert location.continues is None
        # Given two workers that are told of it,
        told = LedgerLoan.read(loan.text())
        assert told == loan
        with closing(told.opened("one")) as ours, closing(told.opened("two")) as theirs:
            charge(ours)
            charge(theirs, 2)
            assert theirs.charged().count == 3
    # when the member comes back, then the ledger has come as far as was remembered,
    with lent(tmp_path) as (location, loan):
        assert location.continues == OWN.name
        with closing(loan.opened("one")) as ours:
            assert (ours.charged().count, ours.run_history()[0].count) == (3, 1)
    # and an older copy of it is noticed.
    path = loan.path
    path.unlink()
    with pytest.raises(PrivacyError, match="but another one"), lent(tmp_path):
        pass


def test_an_older_copy_of_a_lent_ledger_is_noticed(tmp_path: Path) -> None:
    with lent(tmp_path) as (_, loan), closing(loan.opened("one")) as worker:
        charge(worker)
    before = loan.path.read_bytes()
    with lent(tmp_path) as (_, loan), closing(loan.opened("one")) as worker:
        charge(worker)
    loan.path.write_bytes(before)
    with pytest.raises(PrivacyError, match="an older copy was put back"), lent(tmp_path):
        pass


def test_the_ledger_belongs_to_the_data_with_every_state(tmp_path: Path) -> None:
    # While one member has it, another on the same data is refused in a line,
    with lent(tmp_path) as (_, loan):
        with closing(loan.opened("one")) as worker:
            charge(worker)
        renamed = replace(OWN, name="a copy", digest=OWN.digest)
        for owned in (OWN, renamed):
            with pytest.raises(PrivacyError) as refused, lent(tmp_path, "another", owned):
                pass
            assert "another run is training on it" in str(refused.value)
            assert "\n" not in str(refused.value)
    # and afterwards it goes on where the first has stopped, whatever the bytes are then.
    grown = replace(OWN, digest="bb")
    with lent(tmp_path, "another", grown) as (_, again), closing(again.opened("two")) as worker:
        assert worker.charged().count == 1
        assert (again.path, again.lineage) == (loan.path, loan.lineage)


def test_a_worker_without_its_members_locks_opens_nothing(tmp_path: Path) -> None:
    with lent(tmp_path) as (_, loan):
        # Given a process that has the words, and not the locks,
        for lock in loan.locks:
            stranger = os.open(lock.path, os.O_RDWR)
            for wrong in (replace(lock, descriptor=stranger), replace(lock, descriptor=999)):
                if lock.shared and wrong.descriptor == stranger:
                    continue  # a shared lock is anybody's
                others = tuple(wrong if each is lock else each for each in loan.locks)
                with pytest.raises(PrivacyError, match="no member has it for this process"):
                    replace(loan, locks=others).opened("one")
            os.close(stranger)
        # or another file's.
        swapped = tuple(replace(each, descriptor=0) for each in loan.locks)
        with pytest.raises(PrivacyError, match="no member has it"):
            replace(loan, locks=swapped).opened("one")
    with pytest.raises(PrivacyError, match="no member has it for this process"):
        loan.opened("one")


def test_a_worker_that_outlives_its_member_keeps_the_ledger_from_others(tmp_path: Path) -> None:
    with lent(tmp_path) as (_, loan):
        kept = [os.dup(lock.descriptor) for lock in loan.locks]  # as a child inherits them
    orphan = replace(
        loan,
        locks=tuple(
            replace(lock, descriptor=number) for lock, number in zip(loan.locks, kept, strict=True)
        ),
    )
    with closing(orphan.opened("one")) as worker:
        charge(worker)
        with pytest.raises(PrivacyError, match="an edge is using it"), lent(tmp_path):
            pass
        # Nor is its data dealt in another way.
        dealt = replace(OWN, dealing="by row to 3 edges, seed 1")
        with pytest.raises(PrivacyError, match="an edge is training on it as it was dealt before"):
            own_ledgers.place(dealt, 0, tmp_path)
    for number in kept:
        os.close(number)
    with lent(tmp_path) as (_, loan):
        assert read_chains(loan.path)[0].count == 1


# Charges once for run sys.argv[2] by the loan sys.argv[1], says so, and goes on until it is told to.
WORKER = """
import sys
from tacit.errors import PrivacyError
from tacit_services.identity.ledger_loan import LedgerLoan
try:
    ledger = LedgerLoan.read(sys.argv[1]).opened(sys.argv[2])
except PrivacyError as error:
    sys.exit(str(error))
ledger.charge(0.1, 2.0, "gaussian", secret=True)
print(ledger.charged().count, flush=True)
sys.stdin.read()
"""


def test_a_worker_process_inherits_the_locks_and_keeps_them_until_it_is_killed(
    tmp_path: Path,
) -> None:
    with lent(tmp_path) as (_, loan):
        command = [sys.executable, "-c", WORKER, loan.text(), "one"]
        # Given a process that has not inherited them, then it opens nothing;
        stranger = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "no member has it for this process" in stranger.stderr
        # given one that has,
        worker = subprocess.Popen(
            command,
            pass_fds=loan.descriptors,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with worker, closing(loan.opened("two")) as theirs:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "1\n"
            charge(theirs)
            assert theirs.charged().count == 2
            # when another takes the member's place too early, then it is refused;
            with pytest.raises(PrivacyError) as refused, lent(tmp_path, "another"):
                pass
            assert "another run is training on it" in str(refused.value)
            worker.kill()
    with lent(tmp_path) as (_, loan), closing(loan.opened("one")) as again:
        assert (again.charged().count, again.run_history()[0].count) == (2, 1)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"path": 5}', "null"])
def test_what_states_no_loan_is_refused_in_a_line(text: str) -> None:
    with pytest.raises(PrivacyError, match=r"^ledger loan: ") as refused:
        LedgerLoan.read(text)
    assert "\n" not in str(refused.value)


def test_published_data_is_lent_from_the_identitys_own_ledger(tmp_path: Path) -> None:
    with (
        member(tmp_path) as identity,
        lineage.lent(identity, identity.ledger_place, "digits", BOUND) as loan,
        closing(loan.opened("one")) as worker,
    ):
        charge(worker)
        with pytest.raises(PrivacyError, match="an edge is using it"):
            LedgerPlace(loan.path).locked().__enter__()
    with member(tmp_path) as identity, lineage.ledger(identity, identity.ledger_place, "digits"):
        pass


# -- the lifetime ------------------------------------------------------------------------------------


def order_of(loan: LedgerLoan) -> int:
    return read_lifetime_orders(loan.path)[loan.dataset]


def test_the_order_is_fixed_when_the_ledger_begins_whatever_the_owner_states_later(
    tmp_path: Path,
) -> None:
    for epsilon in (8.0, 4.0, None, 12.0):
        with lent(tmp_path, bound=LifetimeBound(epsilon, 1e-5)) as (_, loan):
            assert order_of(loan) == steadiest_order(8.0, 1e-5)
            if epsilon is None:
                assert loan.lifetime is None
            else:
                assert loan.lifetime is not None
                assert (loan.lifetime.epsilon, loan.lifetime.order) == (epsilon, order_of(loan))


def test_a_bound_that_was_lowered_too_far_is_refused_in_a_line(tmp_path: Path) -> None:
    with lent(tmp_path, bound=LifetimeBound(8.0)):
        pass
    low = LifetimeBound(1.0)
    with pytest.raises(PrivacyError) as refused, lent(tmp_path, bound=low):
        pass
    assert str(refused.value).startswith("policy lifetime_epsilon=1.0: ")
    assert "\n" not in str(refused.value)


def test_an_owner_who_states_no_bound_has_an_order_all_the_same(tmp_path: Path) -> None:
    with lent(tmp_path, bound=LifetimeBound()) as (_, loan):
        assert order_of(loan) == steadiest_order(4.0, 1e-5)
    with lent(tmp_path, bound=LifetimeBound(8.0)) as (_, loan):
        assert order_of(loan) == steadiest_order(4.0, 1e-5) != steadiest_order(8.0, 1e-5)


def test_a_new_dealing_keeps_the_order_and_the_spend(tmp_path: Path) -> None:
    with lent(tmp_path) as (_, loan), closing(loan.opened("one")) as worker:
        charge(worker, 3)
    # Given data that is dealt to the edges of a run outside federations in between,
    between = own_ledgers.place(OWN, 4, tmp_path)
    with closing(Ledger(between.path, between.dataset)) as ledger:
        charge(ledger)
    # when it is a member's again, then it is at the same order, and has spent both.
    with lent(tmp_path, bound=LifetimeBound(8.0)) as (_, again):
        assert again.path != loan.path
        assert order_of(again) == order_of(loan)
        with closing(again.opened("one")) as worker:
            assert worker.charged().count == 4


def test_joined_data_has_the_smaller_order(tmp_path: Path) -> None:
    other = Owned("other", "bb", "row", "")
    with lent(tmp_path, bound=LifetimeBound(1.0)) as (_, loan), closing(loan.opened("one")) as one:
        charge(one, 1, 10.0)
    high = LifetimeBound(8.0)
    with lent(tmp_path, "2", other, high) as (_, loan), closing(loan.opened("one")) as two:
        charge(two, 1, 10.0)
    small, large = steadiest_order(8.0, 1e-5), steadiest_order(1.0, 1e-5)
    assert small < large
    joining.join(tmp_path, OWN.name, other.name)
    with lent(tmp_path) as (_, loan):
        assert order_of(loan) == small
    assert data_register.with_name(tmp_path / "ledgers", "other") is not None


def test_a_lifetime_is_of_all_runs_together(tmp_path: Path) -> None:
    with (
        lent(tmp_path) as (_, loan),
        closing(loan.opened("one")) as ours,
        closing(loan.opened("two")) as theirs,
    ):
        assert loan.lifetime is not None
        half = loan.lifetime.left((), Spend(0.1, 2.0, 1)) // 2
        charge(ours, half)
        charge(theirs, half)
        with pytest.raises(BudgetSpent):
            charge(ours, half)


def test_a_member_whose_worker_was_killed_in_a_charge_comes_back(tmp_path: Path) -> None:
    with lent(tmp_path) as (_, loan), closing(loan.opened("one")) as worker:
        charge(worker)
    # Given a ledger as it is in the middle of a charge, with its journal,
    whole = loan.path.read_bytes()
    with closing(sqlite3.connect(loan.path, isolation_level=None)) as db:
        db.executescript(
            "PRAGMA synchronous = OFF; BEGIN IMMEDIATE; UPDATE chain SET count = count + 1"
        )
        journal = Path(f"{loan.path}-journal").read_bytes()
    loan.path.write_bytes(whole)
    Path(f"{loan.path}-journal").write_bytes(journal)
    # when the member starts again, then the half charge is taken back.
    with lent(tmp_path) as (_, again), closing(again.opened("one")) as worker:
        assert worker.charged().count == 1
