"""Charges made ahead: no release without a charge, whoever dies when; at most one task lost a death.

One life of a ledger is a random sequence of tasks, commits, deaths, forks and orderly ends. After
every step its file is read as somebody else would read it. The rule's mutants must break it.
"""

from __future__ import annotations

import copy
import os
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tacit.errors import PrivacyError
from tacit.privacy.ledger import Charged, Ledger, durable, read_chains
from tacit.privacy.ledger.chain import Charge, LedgerRow
from tests.helpers.paid import plan, releaser

LARGEST = 3  # releases of a task
SEEDS, STEPS = 6, 40


class Broken(AssertionError):
    """The rule is broken."""


def must(true: bool, what: str) -> None:
    if not true:
        raise Broken(what)


class Life:
    """A ledger, and all that was ever released under it."""

    def __init__(self, folder: Path, kind: type[Ledger], seed: int) -> None:
        self.folder, self.kind, self.chance = folder, kind, random.Random(seed)
        self.openings, self.may_be_lost = 0, 0
        self.released: Counter[float] = Counter()  # by noise multiplier
        self.said: list[Charged] = []
        self.ledger = self.opened(folder / "0.db")

    def opened(self, path: Path) -> Ledger:
        self.path = path
        ledger = self.kind(path, "data")
        must(ledger.charged().count >= self.released.total(), "an opening has forgotten releases")
        return ledger

    def step(self) -> None:
        what = self.chance.choice(["task"] * 4 + ["commit"] * 4 + ["die", "close", "fork"])
        getattr(self, what)()
        self.check()

    def task(self) -> None:
        """Begin 1 to LARGEST releases: from now on their results may be anywhere."""
        z = self.chance.choice([1.0] * 9 + [4.0])
        if z not in self.ahead():
            self.may_be_lost += self.ledger.ahead  # given up for another kind of release
        self.release(self.ledger, z, self.chance.randint(1, LARGEST))

    def release(self, ledger: Ledger, z: float, count: int) -> None:
        ledger.charge(0.1, z, "gaussian", secret=True, count=count)
        self.released[z] += count
        must(ledger.charged() not in self.said, "one charge stands for two releases")
        self.said.append(ledger.charged())

    def ahead(self) -> set[float]:
        last = self.ledger._last
        return {float.fromhex(last.noise_multiplier)} if last is not None else set()

    def commit(self) -> None:
        """Store a message, and charge what the largest task needs."""
        missing = LARGEST - self.ledger.ahead
        if 1.0 not in self.ahead():
            self.may_be_lost += self.ledger.ahead
            missing = LARGEST
        ahead = Charge(0.1, 1.0, "gaussian", secret=True, count=missing) if missing > 0 else None
        with self.ledger.transaction(ahead) as db:
            db.execute("INSERT OR REPLACE INTO sender VALUES (x'', 'run', 1, NULL, NULL, NULL)")

    def die(self) -> None:
        """Die as by `kill -9`: the file is all that remains."""
        self.may_be_lost += LARGEST
        self.openings += 1
        path = self.folder / f"{self.openings}.db"
        shutil.copy(self.path, path)
        self.ledger._db.close()
        self.ledger = self.opened(path)

    def close(self) -> None:
        """End in order: nothing is lost by it."""
        self.ledger.close()
        self.ledger = self.opened(self.path)

    def fork(self) -> None:
        """Let a child release, and its parent, too, if it can."""
        with another_process():
            child = copy.copy(self.ledger)
            self.release(child, 1.0, 1)
        try:
            self.release(self.ledger, 1.0, 1)
        except PrivacyError:
            pass  # the child has charged it
        self.die()

    def check(self) -> None:
        (chain,) = read_chains(self.path)
        chain.verify()
        paid: Counter[float] = Counter()
        for spend in chain.history():
            paid[spend.noise_multiplier] += spend.count
        for z, count in self.released.items():
            must(paid[z] >= count, f"{count} releases at z = {z}, {paid[z]} charges")
        lost = chain.count - self.released.total() - self.ledger.ahead
        must(lost <= self.may_be_lost, f"{lost} charges are lost, {self.may_be_lost} may be")
        for position in self.said:
            must(
                position.count <= chain.count and chain.head_after(position.count) == position.head,
                "what was said to have been charged was taken back",
            )


@contextmanager
def another_process() -> Iterator[None]:
    """Act as a forked child: with the same memory and files, and another process id."""
    usual = os.getpid
    try:
        durable.os.getpid = lambda: usual() + 1  # type: ignore[attr-defined]
        yield
    finally:
        durable.os.getpid = usual  # type: ignore[attr-defined]


def live(folder: Path, kind: type[Ledger]) -> None:
    for seed in range(SEEDS):
        (folder / str(seed)).mkdir()
        life = Life(folder / str(seed), kind, seed)
        for _ in range(STEPS):
            life.step()
        life.ledger.close()


def test_no_release_is_without_a_charge_and_at_most_one_task_is_lost_a_death(
    tmp_path: Path,
) -> None:
    live(tmp_path, Ledger)


# -- mutants ---------------------------------------------------------------------------------------


class UsesItTwice(Ledger):
    """What is ahead is used, and stays."""

    def _begin(self, entry: LedgerRow) -> None:
        ahead = self.ahead
        super()._begin(entry)
        if ahead:
            self._begun = replace(self._begun, count=self._file.count - ahead)


class PaysWhatIsThere(Ledger):
    """A task that is larger than what is ahead pays for no more than that."""

    def charge(
        self,
        sampling_rate: float,
        noise_multiplier: float,
        mechanism: str,
        *,
        secret: bool,
        count: int = 1,
        **more: Any,
    ) -> None:
        count = min(count, self.ahead) or count
        cost = sampling_rate, noise_multiplier, mechanism
        super().charge(*cost, secret=secret, count=count, **more)


class ChargesLater(Ledger):
    """Stores the message first; the charge is in memory until the next commit."""

    def transaction(self, ahead: Charge | None = None) -> Any:
        return super().transaction() if ahead is not None else super().transaction(ahead)

    @property
    def ahead(self) -> int:
        return LARGEST


class TakesAllBack(Ledger):
    """An orderly end takes back what has begun as well."""

    def close(self) -> None:
        if self._last is not None and self._file.count:
            head = read_chains(Path(self._path))[0].head_after(self._file.count - self._last.count)
            self._begun = Charged(self._file.count - self._last.count, head)
        super().close()


class TakesBackAtOpening(Ledger):
    """An opening takes what the last process had ahead for unused."""

    def __init__(self, path: Path | str, dataset: str) -> None:
        super().__init__(path, dataset)
        rows = read_chains(Path(path))[0].rows
        if rows and rows[-1].count > 1:
            self._last = rows[-1]
            head = read_chains(Path(path))[0].head_after(self._file.count - 1)
            self._begun = Charged(self._file.count - 1, head)
            self._take_back()
            self._last = None


class SaysWhatIsAhead(Ledger):
    """Messages say a position that an orderly end takes back."""

    def charged(self) -> Charged:
        return self._file


class AnyWillDo(Ledger):
    """A release with less noise is paid with a charge for one with more."""

    def _ahead_for(self, charge: Charge) -> int:
        return self.ahead


class SharedByFork(Ledger):
    """A forked child uses what its parent has ahead."""

    @property
    def ahead(self) -> int:
        return self._file.count - self._begun.count


class TakesNothingBack(Ledger):
    """An orderly end loses a task, as a death does."""

    def _take_back(self) -> None:
        pass


MUTANTS = (
    UsesItTwice,
    PaysWhatIsThere,
    ChargesLater,
    TakesAllBack,
    TakesBackAtOpening,
    SaysWhatIsAhead,
    AnyWillDo,
    SharedByFork,
    TakesNothingBack,
)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_of_the_rule_is_caught(tmp_path: Path, mutant: type[Ledger]) -> None:
    with pytest.raises(Broken):
        live(tmp_path, mutant)


# -- the parts -------------------------------------------------------------------------------------


def test_a_task_larger_than_what_is_ahead_pays_the_rest_in_a_commit_of_its_own(
    tmp_path: Path,
) -> None:
    ledger = Ledger(tmp_path / "ledger.db", "data")
    with ledger.transaction(Charge(0.1, 1.5, "gaussian", secret=True, count=2)):
        pass
    ledger.charge(0.1, 1.5, "gaussian", secret=True, count=5)
    assert (ledger.charged().count, ledger.ahead) == (5, 0)
    assert read_chains(tmp_path / "ledger.db")[0].count == 5
    ledger.verify()
    ledger.close()


def test_a_failing_block_writes_neither_message_nor_charge(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db", "data")
    for failure in (sqlite3.IntegrityError, RuntimeError):
        with pytest.raises(failure):
            _failing(ledger, failure)
    assert ledger.read("SELECT * FROM sender") == []
    assert (ledger.ahead, ledger.charged().count) == (0, 0)
    ledger.charge(0.1, 1.5, "gaussian", secret=True)
    ledger.close()


def test_what_fails_while_it_is_computed_has_begun_and_is_not_taken_back(tmp_path: Path) -> None:
    """End in order after an error in the query: its text may be private."""
    ledger = Ledger(tmp_path / "ledger.db", "data")
    sender = releaser(plan(), ledger=ledger)
    with ledger.transaction(sender.next_charge(2)):
        pass
    with pytest.raises(MemoryError):
        sender.release(1.0, _too_large)
    assert (ledger.ahead, ledger.charged().count) == (1, 1)
    ledger.close()
    assert read_chains(tmp_path / "ledger.db")[0].count == 1


def _failing(ledger: Ledger, failure: type[Exception]) -> None:
    with ledger.transaction(Charge(0.1, 1.5, "gaussian", secret=True)) as db:
        db.execute("INSERT INTO sender VALUES (x'', 'run', 1, NULL, NULL, NULL)")
        raise failure


def _too_large() -> Any:
    raise MemoryError("a batch too large")


def test_no_more_is_charged_ahead_than_the_budget_pays_for() -> None:
    sender = releaser(plan(q=0.25, z=4.0, epsilon=1.0), seed=None)
    remaining = sender.releases_left
    assert remaining is not None
    charge = sender.next_charge(remaining + 5)
    assert charge is not None
    assert charge.count == remaining
    with sender.ledger.transaction(charge):
        pass
    assert sender.next_charge(remaining + 5) is None
    assert sender.releases_left == remaining  # none has begun
    assert sender.can_pay(1.0, remaining)
    assert not sender.can_pay(1.0, remaining + 1)
