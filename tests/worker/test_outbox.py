"""The outbox: what an edge has paid for survives kill -9, and goes out again as the same bytes."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest
from tacit_services.worker.outbox import Outbox

from tacit.errors import PrivacyError
from tacit.privacy.ledger import Ledger
from tests.helpers.forked import Forked

WRITER = """
import sys
from tacit_services.worker.outbox import Outbox
box = Outbox(sys.argv[1], "run")
for seq in range(1, 100_000):
    box.put(seq, seq.to_bytes(8, "little") * 512)
    print(seq, flush=True)
"""


def test_a_new_one_is_empty_and_counts_from_one(tmp_path: Path) -> None:
    box = Outbox(tmp_path / "o.db", "run")
    assert (box.next_seq(), box.oldest()) == (1, None)
    box.close()


def test_messages_leave_in_order_and_each_is_final_once(tmp_path: Path) -> None:
    box = Outbox(tmp_path / "o.db", "run")
    for seq in (1, 2, 3):
        box.put(seq, b"%d" % seq)
    assert box.oldest() == (1, b"1")
    assert box.oldest() == (1, b"1")  # until its receipt
    assert (box.done(1), box.done(1), box.done(99)) == (True, False, False)
    assert box.oldest() == (2, b"2")
    box.close()


def test_what_has_no_receipt_is_there_again_byte_for_byte(tmp_path: Path) -> None:
    content = bytes(range(256)) * 500
    box = Outbox(tmp_path / "o.db", "run")
    box.put(1, b"first")
    box.done(1)
    box.put(2, content)
    box.close()
    again = Outbox(tmp_path / "o.db", "run")
    assert again.oldest() == (2, content)
    assert again.next_seq() == 3
    again.close()


def test_a_receipt_that_was_not_written_down_costs_one_duplicate_only(tmp_path: Path) -> None:
    box = Outbox(tmp_path / "o.db", "run")
    box.put(1, b"first")
    box.done(1)
    box.close()  # a crash before the next put
    again = Outbox(tmp_path / "o.db", "run")
    assert (again.oldest(), again.next_seq()) == ((1, b"first"), 2)
    again.done(1)
    again.put(2, b"second")
    again.close()
    last = Outbox(tmp_path / "o.db", "run")
    assert last.oldest() == (2, b"second")
    last.close()


def test_numbers_are_never_used_again_although_everything_was_receipted(tmp_path: Path) -> None:
    box = Outbox(tmp_path / "o.db", "run")
    for seq in (1, 2, 3):
        box.put(seq, b"x")
        box.done(seq)
    box.close()
    again = Outbox(tmp_path / "o.db", "run")
    assert again.next_seq() == 4
    with pytest.raises(AssertionError):
        again.put(3, b"y")
    again.close()


def test_runs_do_not_mix(tmp_path: Path) -> None:
    one = Outbox(tmp_path / "o.db", "one")
    one.put(1, b"of one")
    one.close()
    two = Outbox(tmp_path / "o.db", "two")
    assert (two.oldest(), two.next_seq()) == (None, 1)
    two.close()


def test_what_was_put_survives_kill_9(tmp_path: Path) -> None:
    with Forked(WRITER, tmp_path / "o.db") as writer:
        said = [int(writer.stdout.readline()) for _ in range(50)]
        writer.kill()
        said += [
            int(line)
            for line in writer.stdout.read().splitlines(keepends=True)
            if line.endswith("\n")
        ]
    box = Outbox(tmp_path / "o.db", "run")
    assert box.next_seq() > said[-1]
    for seq in range(1, box.next_seq()):
        assert box.oldest() == (seq, seq.to_bytes(8, "little") * 512)
        box.done(seq)
    assert box.oldest() is None
    box.close()


@pytest.mark.parametrize(
    "content", [b"not a database, and long enough to be sure " * 200, b"SQLite format 3\0" * 300]
)
def test_a_damaged_file_is_refused_in_one_line_that_names_it(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "o.db"
    path.write_bytes(content)
    with pytest.raises(PrivacyError, match=r"outbox .*o\.db: ") as failure:
        Outbox(path, "run")
    assert "\n" not in str(failure.value)


def test_a_place_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PrivacyError, match="unable to open"):
        Outbox(tmp_path / "missing" / "o.db", "run")


def test_a_failing_write_says_that_nothing_was_sent(tmp_path: Path) -> None:
    box = Outbox(tmp_path / "o.db", "run")
    box.put(1, b"first")
    other = Outbox(
        tmp_path / "o.db", "run"
    )  # a second process on the same identity: the lock prevents it
    other.put(2, b"theirs")
    with pytest.raises(PrivacyError, match="the update was not sent"):
        box.put(2, b"ours")
    assert box.next_seq() == 2
    box.close()
    other.close()


def test_it_remembers_how_far_the_ledger_was_that_paid(tmp_path: Path) -> None:
    # Given messages that were paid for, the last of them with 2 releases,
    path, copy = tmp_path / "ledger.db", tmp_path / "copy.db"
    for seq in (1, 2):
        with (
            closing(Ledger(path, "data")) as ledger,
            closing(Outbox(tmp_path / "o.db", "run")) as box,
        ):
            ledger.charge(0.1, 1.5, "gaussian", secret=True)
            box.check(ledger)
            box.put(seq, b"paid", ledger)
        if seq == 1:
            shutil.copy(path, copy)
    with (
        closing(Ledger(path, "data")) as ledger,
        closing(Outbox(tmp_path / "o.db", "another run")) as box,
    ):
        box.check(ledger)
    # then an older copy of the ledger is refused in any run, and so is one that went on from there
    # by itself.
    for count in (1, 2):
        with (
            closing(Ledger(copy, "data")) as ledger,
            closing(Outbox(tmp_path / "o.db", "another run")) as box,
        ):
            assert ledger.charged().count == count
            with pytest.raises(
                PrivacyError, match=f"it has {count} releases, messages were paid with 2"
            ):
                box.check(ledger)
            ledger.charge(0.1, 1.5, "gaussian", secret=True)
    # Another dataset's is another ledger.
    with closing(Ledger(path, "other")) as ledger, closing(Outbox(tmp_path / "o.db", "run")) as box:
        box.check(ledger)
