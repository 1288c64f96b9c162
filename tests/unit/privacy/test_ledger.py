"""The ledger: what was released stays on record, whoever dies when."""

from __future__ import annotations

import math
import shutil
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import DataError, PrivacyError
from tacit.privacy.accounting import Spend, epsilon_pld
from tacit.privacy.ledger import UNCHARGED, Charged, Ledger, read_chains
from tests.helpers import forked

steady = settings(derandomize=True, deadline=None, max_examples=60)


def filled(path: Path, count: int = 3) -> None:
    ledger = Ledger(path, "data")
    for _ in range(count):
        ledger.charge(0.1, 1.5, "gaussian", secret=True)
    ledger.close()


def refusal(path: Path) -> str:
    with pytest.raises(PrivacyError) as refused:
        Ledger(path, "data")
    message = str(refused.value)
    assert message.startswith(f"ledger {path}: ")
    assert "\n" not in message
    return message


def test_charges_are_there_when_the_file_is_opened_again(tmp_path: Path) -> None:
    filled(tmp_path / "ledger.db", 3)
    filled(tmp_path / "ledger.db", 2)
    assert Ledger(tmp_path / "ledger.db", "data").history() == (Spend(0.1, 1.5, 5),)


@steady
@given(st.floats(1e-300, 1.0), st.floats(0, 1e300))
def test_floats_come_back_to_the_last_bit(
    tmp_path_factory: pytest.TempPathFactory, q: float, z: float
) -> None:
    path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    ledger = Ledger(path, "data")
    ledger.charge(q, z, "gaussian", secret=True)
    ledger.close()
    again = Ledger(path, "data")
    assert again.history() == ledger.history() == (Spend(q, z, 1),)
    again.close()


def test_the_history_never_shrinks(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db", "data")
    epsilons = [0.0]
    for z in (1.5, 2.0, 1.5, 4.0, 1.5):
        ledger.charge(0.1, z, "gaussian", secret=True)
        epsilons.append(epsilon_pld(ledger.history(), 1e-5))
        assert sum(row.count for row in ledger.history()) == len(epsilons) - 1
        assert Ledger(tmp_path / "ledger.db", "data").history() == ledger.history()
    assert epsilons == sorted(epsilons)


def test_two_datasets_in_one_file_are_separate(tmp_path: Path) -> None:
    first, second = Ledger(tmp_path / "ledger.db", "a"), Ledger(tmp_path / "ledger.db", "b")
    first.charge(0.1, 1.5, "gaussian", secret=True)
    second.charge(0.2, 1.5, "gaussian", secret=True)
    assert Ledger(tmp_path / "ledger.db", "a").history() == (Spend(0.1, 1.5, 1),)
    assert Ledger(tmp_path / "ledger.db", "b").history() == (Spend(0.2, 1.5, 1),)


def test_noise_from_a_known_seed_counts_as_no_noise(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db", "data")
    ledger.charge(0.1, 1.5, "gaussian", secret=True)
    ledger.charge(0.1, 1.5, "gaussian", secret=False)
    again = Ledger(tmp_path / "ledger.db", "data")
    assert ledger.history() == again.history() == (Spend(0.1, 0.0, 1), Spend(0.1, 1.5, 1))
    assert epsilon_pld(again.history(), 1e-5) == math.inf


def test_its_size_does_not_grow_with_the_number_of_pushes(tmp_path: Path) -> None:
    filled(tmp_path / "ledger.db", 1)
    small = (tmp_path / "ledger.db").stat().st_size
    filled(tmp_path / "ledger.db", 200)
    assert (tmp_path / "ledger.db").stat().st_size == small


CHARGE_AND_DIE = """
import os, signal, sys
from tacit.privacy.ledger import Ledger
Ledger(sys.argv[1], "data").charge(0.1, 1.5, "gaussian", secret=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_charge_outlives_kill_9_right_after_it(tmp_path: Path) -> None:
    for count in (1, 2):
        completed = forked.finished(CHARGE_AND_DIE, tmp_path / "ledger.db")
        assert completed.returncode == -signal.SIGKILL
        assert Ledger(tmp_path / "ledger.db", "data").history() == (Spend(0.1, 1.5, count),)


RELEASE_ON_A_FULL_DISK = """
import resource, sys
from tacit.errors import PrivacyError
from tacit.privacy.ledger import Ledger
from tests.helpers.paid import plan, releaser
ledger = Ledger(sys.argv[1], "data")
sender = releaser(plan(), ledger=ledger)
before = ledger.history()
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
try:
    sender.release(1.0, lambda: print("COMPUTED"))
except PrivacyError as error:
    print(error)
    assert ledger.history() == before
"""


def test_on_a_full_disk_nothing_is_computed(tmp_path: Path) -> None:
    filled(tmp_path / "ledger.db")
    completed = forked.finished(RELEASE_ON_A_FULL_DISK, tmp_path / "ledger.db")
    assert completed.returncode == 0, completed.stderr
    assert "COMPUTED" not in completed.stdout
    assert completed.stdout.startswith(f"ledger {tmp_path / 'ledger.db'}: ")
    assert completed.stdout.rstrip().endswith("the release was not computed")
    assert Ledger(tmp_path / "ledger.db", "data").history() == (Spend(0.1, 1.5, 3),)


@pytest.mark.parametrize("content", [b"not a database" * 100, b"SQLite format 3\x00" + bytes(4000)])
def test_a_file_that_is_no_ledger_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "ledger.db").write_bytes(content)
    assert "refusing to train" in refusal(tmp_path / "ledger.db")


def test_a_place_that_cannot_hold_a_ledger_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    refusal(tmp_path / "folder")
    refusal(tmp_path / "missing" / "ledger.db")


def test_a_ledger_cut_short_is_refused(tmp_path: Path) -> None:
    filled(tmp_path / "ledger.db")
    content = (tmp_path / "ledger.db").read_bytes()
    for size in (100, 2000, len(content) - 4096, len(content) - 200):
        (tmp_path / "ledger.db").write_bytes(content[:size])
        refusal(tmp_path / "ledger.db")


EDITS = [
    "UPDATE entry SET count = count - 1 WHERE number = 2",
    "UPDATE entry SET count = 1",
    "UPDATE entry SET count = 'three' WHERE number = 1",
    "UPDATE entry SET count = 1 << 60 WHERE number = 1",
    "UPDATE entry SET sampling_rate = 'spoilt'",
    "UPDATE entry SET noise_multiplier = '0x1.8p+9999'",
    "UPDATE entry SET noise_multiplier = 'nan'",
    "UPDATE entry SET noise_multiplier = '0x1.8000000000001p+0' WHERE number = 1",
    "UPDATE entry SET mechanism = 'knorm' WHERE number = 2",
    "UPDATE entry SET secret = 0 WHERE number = 1",
    "UPDATE entry SET secret = 7",
    "UPDATE entry SET session = zeroblob(16) WHERE number = 2",
    "UPDATE entry SET head = zeroblob(32) WHERE number = 1",
    "UPDATE entry SET dataset = 'other' WHERE number = 2",
    "UPDATE entry SET number = 9 WHERE number = 2",
    "UPDATE entry SET number = 13 - number; UPDATE entry SET number = number - 10",
    "DELETE FROM entry WHERE number = 1",
    "DELETE FROM entry WHERE number = 2",
    "DELETE FROM entry",
    "INSERT INTO entry SELECT dataset, 3, session, sampling_rate, noise_multiplier, mechanism, "
    "secret, 1, head"
    " FROM entry WHERE number = 2",
    "UPDATE chain SET count = count - 1",
    "UPDATE chain SET head = zeroblob(32)",
    "UPDATE chain SET lineage = zeroblob(16)",
    "DROP TABLE entry",
    "PRAGMA user_version = 4",
]


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_row_is_refused(tmp_path: Path, edit: str) -> None:
    filled(tmp_path / "ledger.db", 3)
    filled(tmp_path / "ledger.db", 2)  # another session, another row
    altered(tmp_path / "ledger.db", edit)
    refusal(tmp_path / "ledger.db")


def altered(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.executescript(script)


def test_one_that_is_open_notices_what_is_edited_under_it(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db", "data")
    for _ in range(3):
        ledger.charge(0.1, 1.5, "gaussian", secret=True)
    ledger.verify()
    altered(tmp_path / "ledger.db", "UPDATE entry SET count = 2")
    with pytest.raises(PrivacyError, match=r"row 1 of data: the chain is broken"):
        ledger.verify()
    ledger.close()


def test_a_second_process_on_the_same_file_cannot_charge(tmp_path: Path) -> None:
    ours, theirs = Ledger(tmp_path / "ledger.db", "data"), Ledger(tmp_path / "ledger.db", "data")
    ours.charge(0.1, 1.5, "gaussian", secret=True)
    with pytest.raises(
        PrivacyError, match="another process has charged it; the release was not computed"
    ):
        theirs.charge(0.1, 1.5, "gaussian", secret=True)
    with pytest.raises(PrivacyError, match="has 1 charges, this process has made it 0"):
        theirs.verify()
    ours.charge(0.1, 1.5, "gaussian", secret=True)
    assert Ledger(tmp_path / "ledger.db", "data").history() == (Spend(0.1, 1.5, 2),)


def position(path: Path) -> Charged:
    with closing(Ledger(path, "data")) as ledger:
        return ledger.charged()


def test_it_says_how_far_it_has_come_and_copies_differ_from_their_first_charge_on(
    tmp_path: Path,
) -> None:
    path, copy = tmp_path / "ledger.db", tmp_path / "copy.db"
    assert position(path) == UNCHARGED
    filled(path, 3)
    before = position(path)
    shutil.copy(path, copy)
    assert before.count == 3
    assert position(copy) == before
    filled(path, 1)
    filled(copy, 1)
    ours, theirs = position(path), position(copy)
    assert ours.count == theirs.count == 4
    assert len({ours.head, theirs.head, before.head}) == 3


def test_rows_are_run_length_coded_within_one_opening(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = Ledger(path, "data")
    for z in (1.5, 1.5, 2.0, 1.5, 1.5):
        ledger.charge(0.1, z, "gaussian", secret=True)
    ledger.close()
    filled(path, 2)
    (chain,) = read_chains(path)
    assert [entry.count for entry in chain.rows] == [2, 1, 2, 2]
    assert len({entry.session for entry in chain.rows}) == 2
    chain.verify()


def test_the_ledger_that_is_meant_must_be_there(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    filled(path, 2)
    first = Ledger(path, "data")
    lineage = first.lineage
    first.close()
    assert Ledger(path, "data", lineage=lineage).charged().count == 2
    with pytest.raises(PrivacyError, match="is not the ledger that data was trained with here"):
        Ledger(path, "data", lineage=bytes(16))
    with pytest.raises(PrivacyError, match="has no charges of other"):
        Ledger(path, "other", lineage=lineage)
    path.write_bytes(b"")
    with pytest.raises(PrivacyError, match="is missing or empty"):
        Ledger(path, "data", lineage=lineage)
    path.unlink()
    with pytest.raises(PrivacyError, match=r"is missing or empty.*refusing to train"):
        Ledger(path, "data", lineage=lineage)
    assert not path.exists()


def test_reading_makes_no_files_and_sees_what_an_open_one_has_charged(tmp_path: Path) -> None:
    filled(tmp_path / "ledger.db", 3)
    assert read_chains(tmp_path / "ledger.db")[0].count == 3
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.db"]
    with closing(Ledger(tmp_path / "ledger.db", "data")) as ledger:
        ledger.charge(0.1, 1.5, "gaussian", secret=True)
        assert read_chains(tmp_path / "ledger.db")[0].count == 4


def test_reading_changes_nothing_and_needs_a_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no such file"):
        read_chains(tmp_path / "ledger.db")
    (tmp_path / "ledger.db").write_bytes(b"")
    with pytest.raises(PrivacyError):
        read_chains(tmp_path / "ledger.db")
    assert (tmp_path / "ledger.db").read_bytes() == b""


def test_overwritten_pages_are_refused_or_still_say_the_same(tmp_path: Path) -> None:
    filled(tmp_path / "ledger.db")
    content = (tmp_path / "ledger.db").read_bytes()
    refused = 0
    for start in range(0, len(content), 64):
        damaged = tmp_path / f"damaged-{start}.db"
        damaged.write_bytes(content[:start] + b"\xa5" * 64 + content[start + 64 :])
        try:
            ledger = Ledger(damaged, "data")
        except PrivacyError:
            refused += 1
            continue
        assert ledger.history() == (Spend(0.1, 1.5, 3),)
        ledger.close()
    assert refused > 3


def test_closing_twice_is_closing_once() -> None:
    ledger = Ledger(":memory:", "data")
    ledger.close()
    ledger.close()
    with pytest.raises(PrivacyError, match="was not computed"):
        ledger.charge(0.1, 1.0, "gaussian", secret=True)
