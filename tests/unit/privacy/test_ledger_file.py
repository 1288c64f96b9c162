"""The ledger is one file.

Whole alone whenever it was charged, also after kill -9, and moved as a whole.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tacit_services.identity import moving
from tacit_services.identity.ledger_place import LedgerPlace

from tacit.errors import OF_0_1, PrivacyError
from tacit.privacy.ledger import Ledger, locked_chains, read_chains
from tests.helpers import forked
from tests.helpers.forked import Forked
from tests.system.cli.test_main import Captured, tacit

PAGE = 4096
# For each line: charges the file of that name in a child, which says every charge that is
# acknowledged, until killed. The line's first word: how long it rests after each charge, in times
# that the charge took.
NURSERY = """
import os, sys, time
from threading import Event
from tacit.privacy.ledger import Ledger
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        rest, path = line.strip().split(" ", 1)
        ledger = Ledger(path, "data")
        print(os.getpid(), flush=True)
        while True:
            began = time.monotonic()
            ledger.charge(0.1, 1.0 + ledger.charged().count // 7, "gaussian", secret=True)
            os.write(1, b"%d\\n" % ledger.charged().count)  # whole, or not at all
            Event().wait(float(rest) * (time.monotonic() - began))
    os.waitpid(child, 0)
    print("dead", flush=True)
"""


class Nursery:
    """Makes processes that charge a ledger, one at a time, and kills them."""

    def __init__(self) -> None:
        self._process = Forked(NURSERY)
        self._child = 0

    def start(self, path: Path, pause: float = 0.0) -> None:
        self._process.stdin.write(f"{pause} {path}\n")
        self._process.stdin.flush()
        self._child = int(self.line())

    def line(self) -> str:
        return self._process.stdout.readline().strip()

    def kill(self, *, charges: int, spins: int = 0) -> int:
        """Kill the child a while after `charges` more charges.

        Return the number of the last one that was acknowledged, or 0.
        """
        acknowledged = 0
        for _ in range(charges):
            acknowledged = int(self.line())
        for _ in range(spins):
            pass
        os.kill(self._child, signal.SIGKILL)
        while (line := self.line()) != "dead":
            acknowledged = int(line)
        self._child = 0
        return acknowledged

    def close(self) -> None:
        if self._child:  # a test has failed
            os.kill(self._child, signal.SIGKILL)
        self._process.close()


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    with closing(Nursery()) as new_nursery:
        yield new_nursery


def filled(path: Path, count: int) -> None:
    with closing(Ledger(path, "data")) as ledger:
        for _ in range(count):
            ledger.charge(0.1, 1.5, "gaussian", secret=True)


def count(path: Path) -> int:
    with closing(Ledger(path, "data")) as ledger:
        return ledger.charged().count


def test_the_file_alone_has_every_acknowledged_charge_after_kill_9(
    tmp_path: Path, nursery: Nursery
) -> None:
    chance, refused = random.Random(20), 0
    path, acknowledged = tmp_path / "ledger.db", 0
    for kill in range(60):
        if kill % 10 == 0:
            path, acknowledged = tmp_path / f"ledger-{kill}.db", 0
        # Given a process that is killed somewhere in a charge,
        nursery.start(path)
        acknowledged = max(
            acknowledged, nursery.kill(charges=chance.randrange(4), spins=chance.randrange(40_000))
        )
        # when the file alone is taken elsewhere,
        shutil.copy(path, tmp_path / "alone.db")
        try:
            assert count(tmp_path / "alone.db") >= acknowledged
        except PrivacyError:
            refused += (
                1  # cut in the middle of a write: then it is whole with the journal beside it only
            )
            assert Path(f"{path}-journal").stat().st_size
        # then it has what was acknowledged; and where it lay nothing is missing, either.
        assert count(path) >= acknowledged
    assert refused <= 6


def test_a_charge_that_was_cut_is_told_to_whoever_reads_and_taken_back_by_who_opens(
    tmp_path: Path, capsys: Captured
) -> None:
    # Given a file as it is in the middle of a charge, with its journal,
    path, journal = tmp_path / "ledger.db", tmp_path / "ledger.db-journal"
    filled(tmp_path / "open.db", 3)
    with closing(sqlite3.connect(tmp_path / "open.db", isolation_level=None)) as db:
        db.executescript(
            "PRAGMA synchronous = OFF; BEGIN IMMEDIATE; UPDATE chain SET count = count + 1"
        )
        shutil.copy(tmp_path / "open.db", path)
        shutil.copy(tmp_path / "open.db-journal", journal)
    # when somebody reads it, then it says so;
    assert tacit("ledger", "show", str(path)) == 5
    errors = capsys.readouterr().err
    assert "a charge was under way when its edge was killed" in errors
    assert errors.count("\n") == 1
    # and the next edge takes the half charge back.
    assert count(path) == 3
    assert not journal.exists()


@pytest.mark.parametrize("row", ["the same", "another"])
def test_a_file_cut_anywhere_in_a_charge_has_what_was_acknowledged_or_is_refused(
    tmp_path: Path, row: str
) -> None:
    # Given the pages before and after a charge,
    filled(tmp_path / "ledger.db", 3)
    with closing(Ledger(tmp_path / "ledger.db", "data")) as ledger:
        ledger.charge(0.1, 1.5, "gaussian", secret=True)
        before = pages(tmp_path / "ledger.db")
        ledger.charge(0.1, 1.5 if row == "the same" else 2.0, "gaussian", secret=True)
        after = pages(tmp_path / "ledger.db")
    changed = [number for number, page in enumerate(after) if before[number : number + 1] != [page]]
    assert len(changed) == 3
    # when any part of them is on the disk,
    complete_states = 0
    for some in itertools.product([False, True], repeat=len(changed)):
        written = dict(zip(changed, some, strict=True))
        mixed = tmp_path / f"mixed-{some}.db"
        mixed.write_bytes(
            b"".join(after[n] if written.get(n) else before[n] for n in range(len(before)))
        )
        # then nothing that was acknowledged is missing.
        try:
            assert count(mixed) >= 4
            complete_states += 1
        except PrivacyError:
            pass
    assert complete_states == 4  # page 1, a counter, says nothing about charges


def pages(path: Path) -> list[bytes]:
    content = path.read_bytes()
    return [content[start : start + PAGE] for start in range(0, len(content), PAGE)]


def test_a_ledger_in_use_may_be_copied_alone_and_one_that_was_closed_is_alone(
    tmp_path: Path,
) -> None:
    with closing(Ledger(tmp_path / "ledger.db", "data")) as ledger:
        for charges in (1, 2, 3):
            ledger.charge(0.1, 1.5, "gaussian", secret=True)
            shutil.copy(tmp_path / "ledger.db", tmp_path / "copy.db")
            assert count(tmp_path / "copy.db") == charges
        # The emptied rollback journal, which SQLite takes for nothing to take back.
        assert (tmp_path / "ledger.db-journal").read_bytes()[:8] == bytes(8)
    assert {path.name for path in tmp_path.iterdir()} == {"ledger.db", "copy.db"}


def test_readers_see_one_state_of_a_ledger_that_is_being_charged(
    tmp_path: Path, nursery: Nursery
) -> None:
    nursery.start(
        tmp_path / "ledger.db", pause=2.0
    )  # as an edge computes in between: without, no reader has a turn
    counts = [0]
    for _ in range(60):
        nursery.line()
        (chain,) = read_chains(tmp_path / "ledger.db")
        chain.verify()
        counts.append(chain.count)
    nursery.kill(charges=0)
    assert counts == sorted(counts)
    assert counts[-1] >= 60


# -- files of other formats ------------------------------------------------------------------------


def logged(path: Path) -> None:
    """Write what tacit 0.1 leaves behind after `kill -9`.

    That is a file with nothing in it, and everything in the log.
    """
    db = sqlite3.connect(path, isolation_level=None)
    db.executescript("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;")
    db.executescript("CREATE TABLE chain (dataset TEXT); PRAGMA user_version = 2;")
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", f"{path}{suffix}.kept")
    db.close()
    for suffix in ("", "-wal"):
        Path(f"{path}{suffix}.kept").replace(f"{path}{suffix}")


@pytest.mark.parametrize("kind", ["in use", "closed", "without its log", "newer"])
def test_a_ledger_of_another_format_is_refused_in_a_line_and_stays_as_it_is(
    tmp_path: Path, capsys: Captured, kind: str
) -> None:
    path = tmp_path / "ledger.db"
    if kind == "newer":
        filled(path, 3)
        with closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA user_version = 4")
    else:
        logged(path)
    if kind == "closed":
        with closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA user_version")  # the last to close puts the log into the file
        assert not Path(f"{path}-wal").exists()
    if kind == "without its log":
        Path(f"{path}-wal").unlink()
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    format_in_file = {"closed": "format 2", "newer": "format 4"}.get(kind, "no format")
    message = f"ledger {path}: has {format_in_file}, this tacit reads 3: "
    message += "a newer one has written it" if kind == "newer" else OF_0_1
    for look in (lambda: Ledger(path, "data"), lambda: read_chains(path)):
        with pytest.raises(PrivacyError) as refused:
            look()
        assert str(refused.value).removesuffix("; refusing to train without its history") == message
    for command in (["show", str(path)], ["move", str(path), str(tmp_path / "there.db")]):
        assert tacit("ledger", *command) == 5
        errors = capsys.readouterr().err
        assert " ".join(errors.split()).endswith(message)
    for name in ("ledger.db.lock", "there.db.lock"):  # all that a move leaves
        (tmp_path / name).unlink()
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_file_with_no_tables_in_it_is_refused_and_an_empty_one_is_a_new_ledger(
    tmp_path: Path,
) -> None:
    (tmp_path / "ledger.db").touch()
    assert count(tmp_path / "ledger.db") == 0
    with closing(sqlite3.connect(tmp_path / "bare.db")) as db:
        db.executescript("CREATE TABLE t (x); DROP TABLE t;")
    with pytest.raises(PrivacyError, match="has no format, this tacit reads 3"):
        Ledger(tmp_path / "bare.db", "data")


# -- tacit ledger move -----------------------------------------------------------------------------


def test_a_ledger_is_moved_with_all_that_it_has(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "there").mkdir()
    filled(tmp_path / "ledger.db", 3)
    with closing(Ledger(tmp_path / "ledger.db", "other")):
        pass
    before = read_chains(tmp_path / "ledger.db")
    assert tacit("ledger", "move", str(tmp_path), str(tmp_path / "there")) == 0
    assert capsys.readouterr().out.startswith(
        f"{tmp_path / 'there' / 'ledger.db'}: data: 3 releases, moved from "
    )
    assert read_chains(tmp_path / "there" / "ledger.db") == before
    assert ledgers(tmp_path) == {"ledger.db.lock"}
    filled(tmp_path / "there" / "ledger.db", 1)
    assert (
        tacit("ledger", "move", str(tmp_path / "there"), str(tmp_path / "data.db"), "--json") == 0
    )
    assert '"count": 4' in capsys.readouterr().out


def ledgers(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize(
    ("case", "code"),
    [
        ("in use", 5),
        ("there", 5),
        ("journal", 5),
        ("missing", 3),
        ("itself", 5),
        ("link", 5),
        ("edited", 5),
        ("no folder", 5),
    ],
)
def test_a_move_is_refused_and_changes_nothing(
    tmp_path: Path, capsys: Captured, case: str, code: int
) -> None:
    source, target = tmp_path / "ledger.db", tmp_path / "new.db"
    filled(source, 3)
    if case == "there":
        filled(target, 1)
    if case == "journal":
        Path(f"{target}-journal").write_bytes(b"of somebody")
    if case == "edited":
        with closing(sqlite3.connect(source)) as db:
            db.executescript("UPDATE entry SET count = 1")
    if case == "link":
        (tmp_path / "link").symlink_to(source)
    before = source.read_bytes()
    source = {"missing": tmp_path / "missing.db", "link": tmp_path / "link"}.get(case, source)
    target = {"itself": source, "no folder": tmp_path / "none" / "new.db"}.get(case, target)
    with LedgerPlace(source if case == "in use" else tmp_path / "another").locked():
        assert tacit("ledger", "move", str(source), str(target)) == code
    errors = capsys.readouterr().err
    assert errors.startswith("tacit: ledger ")
    assert errors.count("\n") == 1
    assert (tmp_path / "ledger.db").read_bytes() == before
    assert not {"new.db.moving", "ledger.db.moved"} & ledgers(tmp_path)
    assert case == "there" or not (tmp_path / "new.db").exists()


# Moves FOLDER/1/old.db, FOLDER/2/old.db, ...: the n-th dies before its n-th operation on files,
# until one does not.
MOVE_AND_DIE = """
import itertools, os, signal, sys
from pathlib import Path
from tacit_services.identity import moving
left = 0
def count(event, arguments):
    global left
    if event in ("open", "os.rename", "os.remove", "sqlite3.connect"):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(count)
for step in itertools.count(1):
    folder = Path(sys.argv[1], str(step))
    child = os.fork()
    if child == 0:
        left = step
        moving.move(folder / "old.db", folder / "new.db")
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        break
print(step)
"""


def test_a_move_that_is_killed_loses_nothing_and_is_finished_by_the_same_command(
    tmp_path: Path,
) -> None:
    # Given moves that were killed at every step,
    for step in range(1, 40):
        (tmp_path / str(step)).mkdir()
        filled(tmp_path / str(step) / "old.db", 3)
    steps = int(forked.finished(MOVE_AND_DIE, tmp_path).stdout)
    assert steps > 10
    states = set()
    for step in range(1, steps):
        old, new = tmp_path / str(step) / "old.db", tmp_path / str(step) / "new.db"
        # then at most one of the two can be used, and no new ledger is made where the other is;
        usable = {path.name for path in (old, new) if path.exists() and not refused(path)}
        assert usable or (refused(old) and refused(new))
        states.add(tuple(usable))
        # and when it is made again it is there, once, whole.
        if old.exists() or refused(old):
            moving.move(old, new)
        assert count(new) == 3
        assert {"new.db"} == {
            name for name in ledgers(new.parent) if not name.endswith((".lock", ".new"))
        }
    assert states == {("old.db",), ("new.db",), ()}


def refused(path: Path) -> bool:
    try:
        LedgerPlace(path).refuse_unfinished()
    except PrivacyError:
        return True
    return False


def test_whoever_had_it_open_can_charge_nothing_any_more(tmp_path: Path) -> None:
    # An aggregator's ledger of its edges (TACIT_TRUSTED) has no lock.
    with closing(Ledger(tmp_path / "ledger.db", "data")) as ledger:
        ledger.charge(0.1, 1.5, "gaussian", secret=True)
        moving.move(tmp_path / "ledger.db", tmp_path / "new.db")
        with pytest.raises(PrivacyError, match="the release was not computed"):
            ledger.charge(0.1, 1.5, "gaussian", secret=True)
    assert count(tmp_path / "new.db") == 1


def test_nobody_charges_while_it_is_held(tmp_path: Path) -> None:
    filled(tmp_path / "ledger.db", 2)
    with locked_chains(tmp_path / "ledger.db") as (chains, content):
        assert chains == read_chains(tmp_path / "ledger.db")
        assert content == (tmp_path / "ledger.db").read_bytes()
        with (
            closing(sqlite3.connect(tmp_path / "ledger.db", timeout=0)) as db,
            pytest.raises(sqlite3.OperationalError),
        ):
            db.execute("BEGIN IMMEDIATE")
