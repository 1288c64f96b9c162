"""One ledger, charged by several processes: one chain, one lifetime, each run's own spend.

A life is a random sequence of charges, messages that pay ahead, deaths, orderly ends and restarts
of several openings of one file. Before a commit takes the file's lock, another opening may charge.
After every step the file is read as somebody else would read it. The mutants must break it. Real
processes do the same, without order.
"""

from __future__ import annotations

import fcntl
import os
import random
import secrets
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tacit.errors import BudgetSpent, PrivacyError
from tacit.privacy.accounting import History, Lifetime, Spend, merged
from tacit.privacy.accounting.history import Purpose
from tacit.privacy.ledger import Charged, Ledger, SharedLedger, read_chains
from tacit.privacy.ledger.chain import Chain, Charge, LedgerRow, first_head, next_head
from tacit.privacy.ledger.shared import _ChargedAhead
from tests.helpers.forked import Forked

LARGEST = 3  # releases of a task
RUNS = ("one", "two", "three")
Z = {"one": 2.0, "two": 4.0, "three": 8.0}  # each run's noise multiplier
Q = 0.25
SEEDS, STEPS = 16, 30
LIFETIME = Lifetime.begun(8.0, 1e-5)
TIGHT = Lifetime.begun(3.0, 1e-5)  # of the lives: most end at it


class Broken(AssertionError):
    """The rule is broken."""


def must(true: bool, what: str) -> None:
    if not true:
        raise Broken(what)


class Life:
    """The openings of one file, one for each run, and all that was ever released under it."""

    def __init__(self, path: Path, kind: type[SharedLedger], seed: int) -> None:
        self.path, self.kind, self.chance = path, kind, random.Random(seed)
        self.released: Counter[str] = Counter()
        self.said: set[Charged] = set()
        self.spent: set[str] = set()  # runs that were refused by the lifetime
        self.stated: dict[str, tuple[Charged, History]] = {}
        self.lost: Counter[str] = Counter()  # charged ahead by processes that died
        self.depth = 0
        self.ledgers = {run: self.opened(run) for run in RUNS}

    def opened(self, run: str) -> SharedLedger:
        life = self

        class Met(self.kind):  # type: ignore[name-defined,misc]
            """Another opening may charge before this one has the lock."""

            @contextmanager
            def _commit(self, charge: Charge | None) -> Iterator[sqlite3.Connection]:
                life.meet(run)
                with super()._commit(charge) as db:
                    yield db

        ledger: SharedLedger = Met(self.path, "data", run=run, lifetime=TIGHT)
        own = sum(spend.count for spend in ledger.run_history())
        must(own == self.paid(run), f"run {run}: {own} of {self.paid(run)} are its own")
        self.stated[run] = ledger.charged(), ledger.history()
        return ledger

    def paid(self, run: str) -> int:
        """Return what the file must have of a run that has nothing ahead."""
        return self.released[run] + self.lost[run]

    def meet(self, run: str) -> None:
        if self.depth < 2 and self.chance.random() < 0.4:
            self.depth += 1
            self.charge(self.chance.choice([other for other in RUNS if other != run]))
            self.depth -= 1

    def step(self) -> None:
        run = self.chance.choice(RUNS)
        chance = self.chance.random()
        if chance < 0.1:
            self.lost[run] += self.ledgers[run].ahead
            self.ledgers[run]._db.close()  # dead: the file is all that remains
            self.ledgers[run] = self.opened(run)
        elif chance < 0.2:
            self.ledgers[run].close()
            self.ledgers[run] = self.opened(run)
        elif chance < 0.5:
            self.pay_ahead(run)
        else:
            self.charge(run)
        self.check()

    def pay_ahead(self, run: str) -> None:
        """Store a message, and charge what the largest task needs."""
        ledger = self.ledgers[run]
        missing = LARGEST - ledger.ahead
        charge = Charge(Q, Z[run], "gaussian", secret=True, count=missing) if missing > 0 else None
        with ledger.transaction(charge) as db:
            db.execute("INSERT OR REPLACE INTO sender VALUES (x'', 'run', 1, NULL, NULL, NULL)")
        must(ledger.ahead <= LARGEST, "more is ahead than the largest task needs")

    def charge(self, run: str) -> None:
        ledger, count = self.ledgers[run], self.chance.choice([1, 1, 3, 9, 27])
        try:
            ledger.charge(Q, Z[run], "gaussian", secret=True, count=count)
        except BudgetSpent:
            self.spent.add(run)
            return
        self.released[run] += count
        must(ledger.charged() not in self.said, "one charge stands for two releases")
        (chain,) = read_chains(self.path)
        must(
            by_noise(ledger.history()) == by_noise(up_to(chain, ledger.charged().count)),
            "the history is not of the position",
        )
        must(
            by_noise(ledger.run_history()) == {Z[run]: self.paid(run)},
            "a run's own spend is another",
        )
        self.said.add(ledger.charged())
        self.stated[run] = ledger.charged(), ledger.history()

    def check(self) -> None:
        (chain,) = read_chains(self.path)
        chain.verify()
        paid = {run: self.paid(run) + ledger.ahead for run, ledger in self.ledgers.items()}
        must(
            by_noise(chain.history()) == {Z[run]: count for run, count in paid.items() if count},
            "what is charged is not what was released, and is ahead",
        )
        for said in self.said:
            must(chain.head_after(said.count) == said.head, "what was said is not in the chain")
        for run, ledger in self.ledgers.items():
            stated = ledger.charged(), ledger.history()
            must(stated == self.stated[run], "it states what others have charged since")
        must(spent_within(chain, TIGHT), "the lifetime was passed")


def by_noise(history: Iterable[Spend]) -> dict[float, int]:
    return {spend.noise_multiplier: spend.count for spend in history}


def up_to(chain: Chain, count: int) -> History:
    """Return the chain's charges up to a position."""
    spends, charged = [], 0
    for row in chain.rows:
        part = min(row.count, count - charged)
        spends.append(replace(row, count=part).spend())
        charged += part
    return merged(spends)


def spent_within(chain: Chain, lifetime: Lifetime) -> bool:
    filter_ = lifetime._filter(chain.history())
    return filter_.spent <= filter_.budget * (1 + 1e-12)


def live(folder: Path, kind: type[SharedLedger]) -> list[Life]:
    lives = []
    for seed in range(SEEDS):
        life = Life(folder / f"{seed}.db", kind, seed)
        for _ in range(STEPS):
            life.step()
        for ledger in life.ledgers.values():
            ledger.verify()
            ledger.close()
        lives.append(life)
    return lives


def test_whoever_charges_in_between_there_is_one_chain_and_one_lifetime(tmp_path: Path) -> None:
    lives = live(tmp_path, SharedLedger)
    assert any(life.spent for life in lives)  # else the lifetime was not tried


# -- mutants ---------------------------------------------------------------------------------------


class ReadsBeforeTheLock(SharedLedger):
    """It reads what others have charged, and then takes the lock."""

    def charge(self, *numbers: float | str, **others: bool | int) -> None:  # type: ignore[override]
        with self._reading():
            super()._catch_up()
        super().charge(*numbers, **others)  # type: ignore[arg-type]

    def _catch_up(self) -> None:
        pass


class PutsItsEnd(ReadsBeforeTheLock):
    """Besides, it sets the end of the chain without regard to where it was."""

    def _move(self, target: Charged) -> None:
        self._db.execute("UPDATE chain SET count = ?, head = ?", (target.count, target.head))


class AsksBeforeTheLock(SharedLedger):
    """It asks the lifetime, and then takes the lock."""

    def charge(self, *numbers: float | str, **others: bool | int) -> None:  # type: ignore[override]
        stated = {key: value for key, value in others.items() if value is not None}
        charge = Charge(*numbers, **stated)  # type: ignore[arg-type]
        if not self.lifetime_left(charge) or self.lifetime_left(charge) < charge.count:  # type: ignore[operator]
            raise BudgetSpent("before")
        lifetime, self._lifetime = self._lifetime, None
        try:
            super().charge(*numbers, **others)  # type: ignore[arg-type]
        finally:
            self._lifetime = lifetime


class CountsItsOwn(SharedLedger):
    """It continues the others' chain, and does not count their charges."""

    def _catch_up(self) -> None:
        known = self._known
        super()._catch_up()
        self._known = known


class ForgetsItsRun(SharedLedger):
    """A restarted process does not know what the run has spent."""

    def _enter(self, db: sqlite3.Connection, chain: Chain) -> None:
        super()._enter(db, chain)
        self._of_run = ()


class TakesAllForItsOwn(SharedLedger):
    """A run is charged for what other runs spend."""

    def run_history(self, purpose: Purpose = "training") -> History:
        return self._known


class SaysTooFar(SharedLedger):
    """Its position is the chain's end, its history its own view."""

    def charged(self) -> Charged:
        with self._reading():
            self._catch_up()
        return self._file


class GrowsARowOfBefore(SharedLedger):
    """It adds to its last row although others have charged since."""

    def _catch_up(self) -> None:
        last, rows = self._last, self._rows
        super()._catch_up()
        if last is not None and self._last is None:
            self._last, self._rows = last, rows


class UsesItTwice(SharedLedger):
    """What is ahead is used, and stays."""

    def _begin(self, entry: LedgerRow) -> None:
        parts = tuple(self._charged_ahead)
        super()._begin(entry)
        self._charged_ahead.extend(parts[:1])


class GivesBackWhatHasBegun(SharedLedger):
    """An orderly end gives back the last release as well."""

    def close(self) -> None:
        if self._tail is not None and self._tail.session == self._session:
            row = replace(self._tail, count=1)
            if not row.returned:
                self._charged_ahead.append(_ChargedAhead(row, self._file, self._known))
        super().close()


class GivesNothingBack(SharedLedger):
    """An orderly end loses a task, as a death does."""

    def _give_back(self, others_than: Charge | None = None) -> None:
        pass


class TakesItOut(SharedLedger):
    """An orderly end takes its last row out of the chain, others' positions with it."""

    def _give_back(self, others_than: Charge | None = None) -> None:
        for part in self._parts():
            with super()._commit(None) as db:
                self._catch_up()
                self._move(part.start)
                db.execute("DELETE FROM entry WHERE number = ?", (self._rows,))


class PaysPartly(SharedLedger):
    """A task that is larger than what is ahead pays for no more than that."""

    def charge(self, *numbers: float | str, **others: bool | int) -> None:  # type: ignore[override]
        count = others.pop("count", 1)
        super().charge(*numbers, count=min(count, self.ahead) or count, **others)  # type: ignore[arg-type]


class PaysAheadUnasked(SharedLedger):
    """What is charged ahead is not asked of the lifetime."""

    def _written_if_paid(self, ahead: Charge) -> tuple[Charged, int, LedgerRow] | None:
        lifetime, self._lifetime = self._lifetime, None
        try:
            return super()._written_if_paid(ahead)
        finally:
            self._lifetime = lifetime


class StatesWhatIsAhead(SharedLedger):
    """A message states the position of the charges that are ahead."""

    def charged(self) -> Charged:
        return self._file


@pytest.mark.parametrize(
    "mutant",
    [
        ReadsBeforeTheLock,
        PutsItsEnd,
        AsksBeforeTheLock,
        CountsItsOwn,
        ForgetsItsRun,
        TakesAllForItsOwn,
        SaysTooFar,
        GrowsARowOfBefore,
        UsesItTwice,
        GivesBackWhatHasBegun,
        GivesNothingBack,
        TakesItOut,
        PaysPartly,
        PaysAheadUnasked,
        StatesWhatIsAhead,
    ],
)
def test_a_mutant_of_the_rule_is_caught(tmp_path: Path, mutant: type[SharedLedger]) -> None:
    with pytest.raises((Broken, PrivacyError, ValueError)):
        live(tmp_path, mutant)


# -- real processes --------------------------------------------------------------------------------

# For each line, a child charges the ledger sys.argv[1] for run sys.argv[2] at z = sys.argv[3], and
# prints each position that is acknowledged. It does so until it is killed, has as many charges as
# the line says, or the lifetime of epsilon sys.argv[4] is spent (0: there is none).
NURSERY = """
import fcntl, os, sys
from tacit.errors import BudgetSpent
from tacit.privacy.accounting import Lifetime
from tacit.privacy.ledger import SharedLedger
path, run, z, epsilon = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
bound = Lifetime.begun(epsilon, 1e-5) if epsilon else None
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        ledger = SharedLedger(path, "data", run=run, lifetime=bound)
        os.write(1, b"%d\\n" % os.getpid())
        with open(path + ".gate", "ab") as gate:
            fcntl.flock(gate, fcntl.LOCK_SH)  # until the test lets all of them begin
        for _ in range(int(line)):
            try:
                ledger.charge(0.25, z, "gaussian", secret=True)
            except BudgetSpent:
                break
            at = ledger.charged()
            os.write(1, b"%d %s\\n" % (at.count, at.head.hex().encode()))  # whole, or not at all
        ledger.close()
        os._exit(0)
    os.waitpid(child, 0)
    os.write(1, b"end\\n")
"""


class Worker:
    """A process at a time that charges a ledger for one run, and all that was acknowledged."""

    def __init__(self, path: Path, run: str, epsilon: float) -> None:
        self.said: list[Charged] = []
        self._process = Forked(NURSERY, path, run, Z[run], epsilon)

    def start(self, most: int) -> None:
        self._process.stdin.write(f"{most}\n")
        self._process.stdin.flush()

    def opened(self) -> None:
        """Wait until the process has the ledger open."""
        self._child = int(self._process.stdout.readline())

    def hear(self) -> bool:
        """Take in one position; False: the process has ended."""
        line = self._process.stdout.readline()
        if line in ("end\n", ""):
            return False
        count, head = line.split()
        self.said.append(Charged(int(count), bytes.fromhex(head)))
        return True

    def kill(self) -> None:
        os.kill(self._child, signal.SIGKILL)
        self.end()

    def end(self) -> None:
        while self.hear():
            pass

    def close(self) -> None:
        self._process.close()


@pytest.fixture
def workers(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[dict[str, Worker]]:
    """A worker for each run, on one ledger, whose lifetime is the test's parameter."""
    with ExitStack() as stack:
        yield {
            run: stack.enter_context(closing(Worker(tmp_path / "ledger.db", run, request.param)))
            for run in RUNS
        }


def work(folder: Path, workers: dict[str, Worker], most: int) -> list[Charged]:
    """Let all of them charge at once until they end, and return what they have acknowledged."""
    with (folder / "ledger.db.gate").open("ab") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        for worker in workers.values():
            worker.start(most)
        for worker in workers.values():
            worker.opened()
    for worker in workers.values():
        worker.end()
    return [position for worker in workers.values() for position in worker.said]


def positions(chain: Chain) -> Iterator[Charged]:
    """Yield every position that the chain has come through."""
    count, head = 0, first_head(chain.lineage, chain.dataset)
    for entry in chain.rows:
        for _ in range(entry.count):
            head = next_head(head, count, entry, 1)
            count += 1
            yield Charged(count, head)


def checked(path: Path, said: list[Charged]) -> Counter[float]:
    """Return the charges by noise multiplier of a chain that is whole and has come through all."""
    opened(path, "later").close()  # settles what was cut by a kill
    (chain,) = read_chains(path)
    chain.verify()
    assert len({position.count for position in said}) == len(said)
    assert set(said) <= set(positions(chain))
    return Counter({spend.noise_multiplier: spend.count for spend in chain.history()})


@pytest.mark.parametrize("workers", [8.0], indirect=True)
def test_processes_that_charge_at_once_make_one_chain(
    tmp_path: Path, workers: dict[str, Worker]
) -> None:
    paid = checked(tmp_path / "ledger.db", work(tmp_path, workers, 25))
    assert paid == dict.fromkeys(Z.values(), 25)
    (chain,) = read_chains(tmp_path / "ledger.db")
    assert len(chain.rows) > 3  # their charges stand among each other's


@pytest.mark.parametrize("workers", [8.0], indirect=True)
def test_processes_that_race_for_the_last_of_a_lifetime_do_not_pass_it(
    tmp_path: Path, workers: dict[str, Worker]
) -> None:
    # Given a lifetime that has room for few more releases,
    path = tmp_path / "ledger.db"
    left = LIFETIME.left((), Spend(Q, Z["one"], 1)) - 5
    with closing(SharedLedger(path, "data", run="before", lifetime=LIFETIME)) as ledger:
        ledger.charge(Q, Z["one"], "gaussian", secret=True, count=left)
    # when processes charge at once until it is spent,
    checked(path, work(tmp_path, workers, 10_000))
    # then it is full, and not passed.
    (chain,) = read_chains(path)
    assert spent_within(chain, LIFETIME)
    for z in Z.values():
        assert LIFETIME.left(chain.history(), Spend(Q, z, 1)) == 0


@pytest.mark.parametrize("workers", [0.0], indirect=True)
def test_a_process_that_is_killed_loses_nobody_a_charge_and_stops_nobody(
    tmp_path: Path, workers: dict[str, Worker]
) -> None:
    path, chance = tmp_path / "ledger.db", random.Random(48)
    kills: Counter[str] = Counter()
    for worker in workers.values():
        worker.start(1_000_000)
        worker.opened()
    for _ in range(30):
        # Given processes at work, when one of them is killed somewhere in a charge,
        run = chance.choice(RUNS)
        for _ in range(chance.randrange(3)):
            workers[run].hear()
        for _ in range(chance.randrange(40_000)):
            pass
        workers[run].kill()
        kills[run] += 1
        # then the others go on, and another takes its place.
        for other in RUNS:
            assert other == run or workers[other].hear()
        workers[run].start(1_000_000)
        workers[run].opened()
    for run, worker in workers.items():
        worker.kill()
        kills[run] += 1
    paid = checked(path, [position for worker in workers.values() for position in worker.said])
    for run, worker in workers.items():
        assert len(worker.said) <= paid[Z[run]] <= len(worker.said) + kills[run]
        with closing(opened(path, run)) as ledger:
            assert ledger.run_history() == (Spend(Q, Z[run], paid[Z[run]]),)


# -- one process at a time ---------------------------------------------------------------------------


def opened(path: Path, run: str = "one", lifetime: Lifetime | None = None) -> SharedLedger:
    return SharedLedger(path, "data", run=run, lifetime=lifetime)


def charge(ledger: Ledger, z: float = 2.0, count: int = 1) -> None:
    ledger.charge(Q, z, "gaussian", secret=True, count=count)


def test_a_message_states_the_position_right_after_its_own_charge(tmp_path: Path) -> None:
    ours, theirs = opened(tmp_path / "ledger.db"), opened(tmp_path / "ledger.db", "two")
    charge(ours)
    stated = ours.charged(), ours.history()
    charge(theirs, 4.0, 5)
    # What others charge while ours is computed is not in what ours states,
    assert (ours.charged(), ours.history()) == stated
    assert ours.lifetime_left(Charge(Q, 2.0, "gaussian", secret=True)) is None
    # and is in what it states after its next charge.
    charge(ours)
    assert ours.charged().count == 7
    assert ours.history() == (Spend(Q, 2.0, 2), Spend(Q, 4.0, 5))
    assert ours.run_history() == (Spend(Q, 2.0, 2),)


def test_one_process_at_a_time_charges_for_a_run(tmp_path: Path) -> None:
    before, now = opened(tmp_path / "ledger.db"), opened(tmp_path / "ledger.db")
    charge(now)
    with pytest.raises(PrivacyError, match="another process charges it for run one"):
        charge(before)
    assert read_chains(tmp_path / "ledger.db")[0].count == 1


def test_a_ledger_of_one_process_is_shared_later_and_the_other_way_round(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with closing(Ledger(path, "data")) as ledger:
        charge(ledger, count=3)
        with ledger.transaction(Charge(Q, 2.0, "gaussian", secret=True, count=2)):
            pass  # ahead, and taken back when it is closed
    with closing(opened(path)) as shared:
        assert (shared.charged().count, shared.run_history()) == (3, ())
        charge(shared)
    with closing(Ledger(path, "data", lineage=shared.lineage)) as ledger:
        assert ledger.history() == (Spend(Q, 2.0, 4),)
        ledger.require(shared.charged())
        charge(ledger)
    with closing(opened(path)) as shared:
        assert (shared.charged().count, shared.run_history()) == (5, (Spend(Q, 2.0, 1),))


def test_a_message_pays_for_the_next_task_in_its_own_commit(tmp_path: Path) -> None:
    ours, theirs = opened(tmp_path / "ledger.db"), opened(tmp_path / "ledger.db", "two")
    charge(ours)
    with ours.transaction(Charge(Q, 2.0, "gaussian", secret=True, count=3)) as db:
        db.execute("INSERT INTO sender VALUES (x'', 'run', 1, NULL, NULL, NULL)")
    assert (ours.ahead, ours.charged().count, ours.history()) == (3, 1, (Spend(Q, 2.0, 1),))
    charge(theirs, 4.0)
    assert theirs.history() == (Spend(Q, 2.0, 4), Spend(Q, 4.0, 1))
    charge(ours, count=2)  # of what is ahead: nothing is written
    assert (ours.ahead, ours.charged().count, ours.history()) == (1, 3, (Spend(Q, 2.0, 3),))
    ours.close()
    (chain,) = read_chains(tmp_path / "ledger.db")
    chain.verify()
    assert (chain.count, chain.releases) == (6, 4)
    assert chain.history() == (Spend(Q, 2.0, 3), Spend(Q, 4.0, 1))


def test_another_kind_of_release_gives_back_what_is_ahead(tmp_path: Path) -> None:
    ledger = opened(tmp_path / "ledger.db")
    with ledger.transaction(Charge(Q, 2.0, "gaussian", secret=True, count=3)):
        pass
    ledger.charge(1.0, 9.0, "gaussian", secret=True, purpose="judging", side="held_out")
    assert ledger.ahead == 0
    assert ledger.history() == (Spend(1.0, 9.0, 1, side="held_out"),)
    ledger.close()
    assert read_chains(tmp_path / "ledger.db")[0].releases == 1


def test_a_forked_child_has_nothing_ahead(tmp_path: Path) -> None:
    ledger = opened(tmp_path / "ledger.db")
    with ledger.transaction(Charge(Q, 2.0, "gaussian", secret=True, count=2)):
        pass
    child = os.fork()
    if child == 0:
        os._exit(ledger.ahead)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ledger.ahead == 2


def test_a_message_is_stored_where_the_lifetime_pays_for_no_more(tmp_path: Path) -> None:
    with closing(opened(tmp_path / "ledger.db", lifetime=LIFETIME)) as ledger:
        charge(ledger, count=LIFETIME.left((), Spend(Q, 2.0, 1)) - 1)
        for ahead in (2, 1, 1):
            with ledger.transaction(Charge(Q, 2.0, "gaussian", secret=True, count=ahead)) as db:
                db.execute(
                    "INSERT OR REPLACE INTO sender VALUES (x'', 'run', ?, 0, 0, 0)", (ahead,)
                )
        assert ledger.read("SELECT seq FROM sender") == [(1,)]
        assert ledger.ahead == 1
        assert ledger.lifetime_left(Charge(Q, 2.0, "gaussian", secret=True)) == 1


def test_a_chain_that_gives_back_more_than_was_charged_is_refused(tmp_path: Path) -> None:
    with closing(opened(tmp_path / "ledger.db")) as ledger:
        charge(ledger, count=2)
    (chain,) = read_chains(tmp_path / "ledger.db")
    for rows in ((3, 0), (2, 2)):
        returned, session = rows[0], secrets.token_bytes(16) if rows[1] else chain.rows[0].session
        row = replace(chain.rows[0], session=session, count=returned).given_back()
        row = replace(row, head=next_head(chain.head, chain.count, row))
        forged = replace(chain, rows=(*chain.rows, row), count=2 + returned, head=row.head)
        with pytest.raises(ValueError, match="row 2 of data: gives back more than was charged"):
            forged.verify()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entry SET count = count + 1 WHERE number = 1",
        "UPDATE entry SET mechanism = 'knorm' WHERE number = 2",
        "UPDATE entry SET head = zeroblob(32) WHERE number = 2",
        "UPDATE chain SET count = count - 1",
        "UPDATE chain SET count = 1 << 60",
        "UPDATE chain SET head = zeroblob(32)",
        "DELETE FROM entry WHERE number = 2",
        "DELETE FROM entry",
        "DELETE FROM chain",
    ],
)
def test_rows_that_do_not_continue_the_chain_stop_every_charge(tmp_path: Path, change: str) -> None:
    path = tmp_path / "ledger.db"
    ours, theirs = opened(path), opened(path, "two")
    charge(ours)
    charge(theirs, 4.0)
    with closing(sqlite3.connect(path)) as db:
        db.executescript(change)
    for attempt in (charge, Ledger.verify):
        with pytest.raises(PrivacyError) as refused:
            attempt(ours)
        assert "\n" not in str(refused.value)


def test_a_position_is_required_of_a_shared_ledger_too(tmp_path: Path) -> None:
    ours, theirs = opened(tmp_path / "ledger.db"), opened(tmp_path / "ledger.db", "two")
    charge(ours, count=2)
    position = ours.charged()
    charge(theirs)
    for ledger in (ours, theirs):
        ledger.require(position)
        ledger.verify()
    with pytest.raises(PrivacyError, match="an older copy was put back"):
        ours.require(Charged(9, bytes(32)))
    with pytest.raises(PrivacyError, match="another copy was put back"):
        ours.require(Charged(2, bytes(32)))


def test_one_process_closes_and_the_others_go_on(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ours, theirs = opened(path), opened(path, "two")
    for _ in range(3):
        charge(ours)
        charge(theirs, 4.0)
        ours.close()
        ours.close()
        charge(theirs, 4.0)
        ours = opened(path)
    # Whoever has it alone later brings all into the one file.
    theirs.close()
    ours.close()
    Ledger(path, "data").close()
    assert {file.name for file in tmp_path.iterdir()} == {"ledger.db", "ledger.db.turns"}
    assert read_chains(path)[0].count == 9


# -- the lifetime ------------------------------------------------------------------------------------


def test_the_order_of_a_lifetime_never_changes(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    opened(path, lifetime=Lifetime(2.0, 1e-5, 10)).close()
    # The owner raises and lowers the bound at the same order,
    for epsilon in (8.0, 1.5):
        with closing(opened(path, lifetime=Lifetime(epsilon, 1e-5, 10))) as ledger:
            charge(ledger)
    # and none begins another.
    with pytest.raises(PrivacyError, match="bounded at order 10, which never changes"):
        opened(path, lifetime=Lifetime.begun(8.0, 1e-5))


def test_what_was_spent_before_any_lifetime_counts_in_full(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    full = LIFETIME.left((), Spend(Q, 2.0, 1))
    with closing(Ledger(path, "data")) as ledger:
        charge(ledger, count=full - 1)
    with closing(opened(path, lifetime=LIFETIME)) as shared:
        charge(shared)
        with pytest.raises(BudgetSpent, match=r"^lifetime_epsilon: "):
            charge(shared)
        assert shared.lifetime_left(Charge(Q, 2.0, "gaussian", secret=True)) == 0


@pytest.mark.parametrize(("z", "secret"), [(0.0, True), (2.0, False)])
def test_a_lifetime_pays_for_no_release_without_noise(
    tmp_path: Path, z: float, secret: bool
) -> None:
    with closing(opened(tmp_path / "ledger.db", lifetime=LIFETIME)) as ledger:
        with pytest.raises(BudgetSpent):
            ledger.charge(Q, z, "gaussian", secret=secret)
        assert ledger.charged().count == 0
