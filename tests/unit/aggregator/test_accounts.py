"""ε of what edges have released: exact where there is time, else a bound that says so."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, TimeoutError
from dataclasses import replace

import pytest
from tacit_services.aggregator.reporting import accounts as module
from tacit_services.aggregator.reporting.accounts import SAVED, SHARE, Accounts
from tacit_services.aggregator.reporting.shown_accounts import ShownAccounts

from tacit.algorithms.base.records import EdgeRecord
from tacit.privacy.accounting import History, Spend, epsilon_pld
from tacit.protocol.messages import Hello
from tests.helpers.run_files import MAPA, run_file

PROMISE = run_file(MAPA, run={"updates": 9999}, edges={"count": 3}).define().promise
A_WHILE = 20 * SAVED / SHARE  # enough for all that may be saved up, and for what is owed
HELLO = Hello("edge-0", 8.0, 1e-5, "gaussian", 0.1, 0.1, 10.0, ())


class Clock:
    """A test's time."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def record(count: int, z: float = 1.0) -> EdgeRecord:
    return EdgeRecord(HELLO, count, (Spend(0.05, z, count),))


def exact(edge_record: EdgeRecord) -> float:
    return epsilon_pld(edge_record.spent, PROMISE.delta)


def spend_all(accounts: Accounts) -> int:
    """Have exact numbers composed until there is no time left; how many were."""
    for composed in range(10_000):
        edge_record = record(1_001 + 2 * composed)
        if accounts.total({"edge-0": edge_record}).bound:
            return composed
    raise AssertionError("it composed 10,000 of them")


def test_it_is_exact_while_there_is_time_and_a_bound_when_there_is_none() -> None:
    clock = Clock()
    accounts = Accounts(PROMISE, clock)
    edge_record = record(333)
    assert accounts.total({"edge-0": edge_record}).epsilon == exact(edge_record)
    clock.now += A_WHILE  # the first of a process may have taken more than there was
    assert spend_all(accounts) > 0
    other = record(777)
    total = accounts.total({"edge-0": other})
    assert total.bound
    assert exact(other) < total.epsilon <= exact(record(777 * 9 // 8 + 1))
    (account,) = accounts.of({"edge-0": other}).values()
    assert (account.bound, account.spent.epsilon_pld) == (True, total.epsilon)
    # What is known costs nothing, and time comes back.
    assert not accounts.total({"edge-0": edge_record}).bound
    clock.now += A_WHILE
    assert not accounts.total({"edge-0": other}).bound
    assert accounts.of({"edge-0": other})["edge-0"].spent.epsilon_pld == exact(other)


def test_the_largest_is_found_among_edges_of_different_noise() -> None:
    accounts = Accounts(PROMISE, Clock())
    edges = {"a": record(300, 2.0), "b": record(50, 0.7), "c": record(120, 1.0)}
    total = accounts.total(edges)
    assert (total.epsilon, total.bound) == (max(map(exact, edges.values())), False)
    assert (total.slowest, total.releases) == ("b", 50)


def test_a_steady_total_goes_by_the_records_alone() -> None:
    clock, edge_record = Clock(), record(777)
    fresh, tired = Accounts(PROMISE, clock), Accounts(PROMISE, clock)
    spend_all(tired)
    assert fresh.total({"edge-0": edge_record}, steady=True) == tired.total(
        {"edge-0": edge_record}, steady=True
    )
    fresh.final = tired.final = True
    assert tired.total({"edge-0": edge_record}, steady=True).epsilon == exact(edge_record)


def test_an_answer_beside_newer_counts_is_not_the_one_of_older_counts() -> None:
    accounts, now = Accounts(PROMISE, Clock()), {"edge-0": record(50)}
    assert accounts.total({"edge-0": record(0)}).epsilon == 0
    with ThreadPoolExecutor(1) as other:
        with accounts.busy:  # somebody else's composition is under way
            future = other.submit(accounts.total, now)
            with pytest.raises(TimeoutError):
                future.result(0.3)
        assert future.result(10).epsilon >= exact(now["edge-0"]) > 0


def test_a_bound_is_above_the_budget_only_where_the_edge_has_spent_more() -> None:
    accounts = Accounts(PROMISE, Clock())
    spend_all(accounts)
    for count in range(500, 900, 17):
        edge_record = record(count)
        tight = replace(PROMISE, budget=lambda _, spent_record=edge_record: exact(spent_record))  # type: ignore[misc]
        mine = Accounts(tight, Clock())
        assert mine.total({"edge-0": edge_record}, steady=True).epsilon == pytest.approx(
            exact(edge_record), abs=0
        )
        assert mine.total({"edge-0": edge_record}).share == 1.0


def test_no_edge_is_looked_at_again_that_has_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    accounts = Accounts(PROMISE, Clock())
    edges = {f"edge-{number}": record(number) for number in range(2, 200)}
    accounts.total(edges)
    looked: list[History] = []

    def spender(history: History, budget: float) -> object:
        looked.append(history)
        return module._spender(history, budget)

    monkeypatch.setattr(accounts, "_spender", spender)
    edges["edge-7"] = record(8)
    assert accounts.total(edges).slowest == "edge-2"
    assert looked == [edges["edge-7"].spent]
    # A newcomer comes behind, and is looked at once.
    edges["edge-200"] = record(1)
    assert accounts.total(edges).slowest == accounts.total(edges).slowest == "edge-200"
    assert looked[1:] == [edges["edge-200"].spent]


def test_records_of_another_fold_are_looked_at_anew() -> None:
    accounts = Accounts(PROMISE, Clock())
    accounts.total({f"edge-{number}": record(number) for number in range(5, 9)})
    other = {"edge-8": record(3), "edge-5": record(9)}
    account = accounts.total(other)
    assert (account.slowest, account.releases) == ("edge-8", 3)
    assert account.epsilon >= exact(other["edge-5"])


def test_of_edges_that_release_alike_one_is_composed() -> None:
    accounts = Accounts(PROMISE, Clock())
    edges = {f"edge-{number}": record(300 + number) for number in range(5)}
    total = accounts.total(edges)
    assert (total.epsilon, total.bound) == (exact(edges["edge-4"]), False)
    assert accounts._composed_before == {edges["edge-4"].spent}


def test_with_some_time_a_bound_is_within_a_64th_and_the_next_questions_find_it() -> None:
    accounts = Accounts(PROMISE, Clock())
    accounts._saved = 1e-3  # what is left of spending hangs on the machine
    for count in range(1537, 1552):  # 1552 = 97 * 16, and 97 has seven bits
        total = accounts.total({"edge-0": record(count, 4.0)})
        assert (total.epsilon, total.bound) == (exact(record(1552, 4.0)), True)
    assert 1552 <= 1537 * 65 / 64


def numbers(shown: ShownAccounts, edge_record: EdgeRecord) -> tuple[float, float]:
    """Return ε of the run and of its only edge, as they are shown."""
    edges = {"edge-0": edge_record}
    spent = shown.of(edges)["edge-0"].spent.epsilon_pld
    assert spent is not None
    return shown.total(edges).epsilon, spent


def test_an_epsilon_that_was_shown_never_falls_until_the_exact_one_at_the_end() -> None:
    # Given an aggregator without time, which shows a bound, and then more and more of it,
    clock = Clock()
    accounts = Accounts(PROMISE, clock)
    shown = ShownAccounts(accounts)
    spend_all(accounts)
    seen = []
    for count in range(770, 900, 3):
        clock.now += 0.0 if count < 800 else A_WHILE
        seen.append(numbers(shown, record(count)))
        # then each is at least what was released, and a bound where it is more.
        assert min(seen[-1]) >= exact(record(count))
        total = shown.total({"edge-0": record(count)})
        assert total.bound == (total.epsilon > exact(record(count)))
    assert seen[0][0] > exact(record(770))  # there was a bound that could have fallen
    for place in (0, 1):
        column = [pair[place] for pair in seen]
        assert column == sorted(column)
    assert seen[-1] == (exact(record(899)),) * 2
    accounts.final = True
    assert numbers(shown, record(780)) == (exact(record(780)),) * 2


def test_an_aggregator_that_is_started_again_shows_no_less_than_the_one_before() -> None:
    for count in (777, 801, 960, 1023):
        earlier = Accounts(PROMISE, Clock())
        spend_all(earlier)
        before = numbers(ShownAccounts(earlier), record(count))
        fresh = ShownAccounts(Accounts(PROMISE, Clock()))
        fresh.resumed({"edge-0": record(count)})
        again = numbers(fresh, record(count + 1))
        assert again[0] >= before[0]
        assert again[1] >= before[1]
