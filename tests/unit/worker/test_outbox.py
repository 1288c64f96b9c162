"""The outbox: what an edge has paid for survives kill -9, and goes out again as the same bytes."""

from __future__ import annotations

import hashlib
import mmap
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import torch
from tacit_services.worker.outbox import LARGE, Outbox

from tacit.errors import PrivacyError
from tacit.privacy.ledger import Ledger, SharedLedger, read_chains
from tacit.privacy.ledger.chain import Charge
from tacit.protocol import envelope as wire
from tacit.protocol._pb import wire_pb2 as pb
from tests.helpers import forked
from tests.helpers.forked import Forked

ONE = Charge(0.1, 1.5, "gaussian", secret=True)
OWNER = b"an identity's id"
WRITER = """
import sys
from pathlib import Path
from tacit.privacy.ledger import Ledger
from tacit_services.worker.outbox import Outbox
size = int(sys.argv[2])
folder = Path(sys.argv[1])
box = Outbox(Ledger(folder / "ledger.db", "data"), "run", b"an identity's id", folder)
for seq in range(1, 100_000):
    box.put(seq, seq.to_bytes(8, "little") * (size // 8))
    print(seq, flush=True)
"""


@contextmanager
def opened(
    folder: Path, run: str = "run", owner: bytes = OWNER, *, large: bool = True
) -> Iterator[Outbox]:
    with closing(Ledger(folder / "ledger.db", "data")) as ledger:
        yield Outbox(ledger, run, owner, folder if large else None)


def test_a_new_one_is_empty_and_counts_from_one(tmp_path: Path) -> None:
    with opened(tmp_path) as box:
        assert (box.next_seq(), box.oldest()) == (1, None)


def test_messages_leave_in_order_and_each_is_final_once(tmp_path: Path) -> None:
    with opened(tmp_path) as box:
        for seq in (1, 2, 3):
            box.put(seq, b"%d" % seq)
        assert box.oldest() == (1, b"1")
        assert box.oldest() == (1, b"1")  # until its receipt
        assert (box.done(1), box.done(1), box.done(99)) == (True, False, False)
        assert box.oldest() == (2, b"2")


@pytest.mark.parametrize("size", [500, LARGE, LARGE + 1, 3 * LARGE])
def test_what_has_no_receipt_is_there_again_byte_for_byte(tmp_path: Path, size: int) -> None:
    content = (bytes(range(256)) * (size // 256 + 1))[:size]
    with opened(tmp_path) as box:
        box.put(1, b"first")
        box.done(1)
        box.put(2, content)
    with opened(tmp_path) as again:
        pending = again.oldest()
        assert pending is not None
        assert (pending[0], bytes(pending[1])) == (2, content)
        assert again.next_seq() == 3


def test_a_receipt_that_was_not_written_down_costs_one_duplicate_only(tmp_path: Path) -> None:
    with opened(tmp_path) as box:
        box.put(1, b"first")
        box.done(1)  # a crash before the next put
    with opened(tmp_path) as again:
        assert (again.oldest(), again.next_seq()) == ((1, b"first"), 2)
        again.done(1)
        again.put(2, b"second")
    with opened(tmp_path) as last:
        assert last.oldest() == (2, b"second")


def test_numbers_are_never_used_again_although_everything_was_receipted(tmp_path: Path) -> None:
    with opened(tmp_path) as box:
        for seq in (1, 2, 3):
            box.put(seq, b"x")
            box.done(seq)
    with opened(tmp_path) as again:
        assert again.next_seq() == 4
        with pytest.raises(AssertionError):
            again.put(3, b"y")


def test_neither_runs_nor_identities_mix(tmp_path: Path) -> None:
    with opened(tmp_path, "one") as outbox:
        outbox.put(1, b"of one")
    for run, owner in (("two", OWNER), ("one", b"another identity")):
        with opened(tmp_path, run, owner) as two:
            assert (two.oldest(), two.next_seq()) == (None, 1)
    with opened(tmp_path, "one") as outbox:
        assert outbox.oldest() == (1, b"of one")


@pytest.mark.parametrize("size", [4096, LARGE + 8])
def test_what_was_put_survives_kill_9(tmp_path: Path, size: int) -> None:
    with Forked(WRITER, tmp_path, str(size)) as writer:
        seqs = [int(writer.stdout.readline()) for _ in range(20)]
        writer.kill()
        seqs += [
            int(line)
            for line in writer.stdout.read().splitlines(keepends=True)
            if line.endswith("\n")
        ]
    with opened(tmp_path) as box:
        assert box.next_seq() > seqs[-1]
        for seq in range(1, box.next_seq()):
            pending = box.oldest()
            assert pending is not None
            assert (pending[0], bytes(pending[1])) == (seq, seq.to_bytes(8, "little") * (size // 8))
            box.done(seq)
        assert box.oldest() is None


# -- one commit with the charges -------------------------------------------------------------------


def test_a_message_and_the_charge_of_the_next_are_one_commit(tmp_path: Path) -> None:
    with opened(tmp_path) as box:
        box._ledger.charge(0.1, 1.5, "gaussian", secret=True)
        box.put(1, b"push", ahead=ONE)
        # In the file there is what comes next; of what has been released nobody is told of it.
        (chain,) = read_chains(tmp_path / "ledger.db")
        assert (chain.count, box._ledger.ahead, box._ledger.charged().count) == (2, 1, 1)
        box._ledger.charge(0.1, 1.5, "gaussian", secret=True)
        assert read_chains(tmp_path / "ledger.db") == [chain]  # no commit of its own
        assert (box._ledger.ahead, box._ledger.charged().head) == (0, chain.head)


FULL = """
import resource, sys
from pathlib import Path
from tacit.errors import PrivacyError
from tacit.privacy.ledger import Ledger
from tacit.privacy.ledger.chain import Charge
from tacit_services.worker.outbox import Outbox
ledger = Ledger(Path(sys.argv[1], "ledger.db"), "data")
box = Outbox(ledger, "run", b"an identity's id", Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
try:
    box.put(2, bytes(int(sys.argv[2])), ahead=Charge(0.1, 1.5, "gaussian", True))
except PrivacyError as error:
    print(error)
    assert (ledger.ahead, box.next_seq(), box.oldest()) == (0, 2, (1, b"first"))
"""


@pytest.mark.parametrize("size", [100, LARGE + 1])
def test_on_a_full_disk_neither_is_written(tmp_path: Path, size: int) -> None:
    with opened(tmp_path) as box:
        box.put(1, b"first")
    completed = forked.finished(FULL, tmp_path, str(size))
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.startswith("outbox of run run: ")
    assert completed.stdout.rstrip().endswith("the update was not sent")
    with opened(tmp_path) as box:
        assert (box.oldest(), box.next_seq()) == ((1, b"first"), 2)
        assert box._ledger.charged().count == 0


def test_a_failing_write_says_that_nothing_was_sent(tmp_path: Path) -> None:
    with opened(tmp_path) as box, opened(tmp_path) as other:
        box.put(1, b"first")
        # A second process on the same identity, which the lock prevents.
        other._last = 1
        other.put(2, b"theirs", ahead=ONE)
        with pytest.raises(PrivacyError, match="the update was not sent"):
            box.put(2, b"ours")
        assert box.next_seq() == 2


# -- large messages --------------------------------------------------------------------------------


def large(folder: Path) -> list[Path]:
    return sorted((folder / "messages").iterdir())


def test_a_large_message_is_a_file_until_its_receipt(tmp_path: Path) -> None:
    with opened(tmp_path) as box:
        box.put(1, bytes(LARGE + 1))
        (path,) = large(tmp_path)
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.read_bytes() == bytes(LARGE + 1)
        box.done(1)
        assert large(tmp_path) == [path]
        box.put(2, bytes(LARGE + 1))  # its commit forgets the first, although it is the same bytes
        (path,) = large(tmp_path)
        box.done(2)
        box.put(3, b"small")
        assert large(tmp_path) == []
    assert (tmp_path / "ledger.db").stat().st_size < LARGE


def test_a_file_without_its_message_is_deleted_at_the_next_opening(tmp_path: Path) -> None:
    with opened(tmp_path) as box:
        box.put(1, bytes(LARGE + 1))
    (tmp_path / "messages" / "a crash before the commit").write_bytes(b"x")
    with opened(tmp_path) as box:
        assert box.oldest() is not None
        assert len(large(tmp_path)) == 1


@pytest.mark.parametrize("loss", ["missing", "changed"])
def test_a_message_without_its_bytes_is_not_sent_and_is_told_once(
    tmp_path: Path, loss: str, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path) as box:
        box.put(1, bytes(LARGE + 1), ahead=ONE)
        box._ledger.charge(0.1, 1.5, "gaussian", secret=True)
    (path,) = large(tmp_path)
    path.unlink() if loss == "missing" else path.write_bytes(bytes(LARGE) + b"1")
    with opened(tmp_path) as box:
        assert (box.oldest(), box.next_seq()) == (None, 2)
        assert box._ledger.charged().count == 1
        box.put(2, b"second")
    assert "message 1 of run run is not on the disk as it was stored" in caplog.text
    caplog.clear()
    with opened(tmp_path) as box:
        assert box.oldest() == (2, b"second")
    assert not caplog.records


def test_the_commit_has_the_sha_256_of_every_message(tmp_path: Path) -> None:
    messages = [bytes(9), bytes(LARGE + 1)]
    with opened(tmp_path) as box:
        for seq, message in enumerate(messages, 1):
            box.put(seq, message)
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as db:
        stored = [row[0] for row in db.execute("SELECT digest FROM message ORDER BY seq")]
    assert stored == [hashlib.sha256(message).digest() for message in messages]


def test_the_ledger_may_be_copied_alone(tmp_path: Path) -> None:
    with opened(tmp_path) as box:
        box._ledger.charge(0.1, 1.5, "gaussian", secret=True)
        box.put(1, bytes(LARGE + 1), ahead=ONE)
        (tmp_path / "there").mkdir()
        shutil.copy(tmp_path / "ledger.db", tmp_path / "there")
    with opened(tmp_path / "there") as box:
        assert box._ledger.charged().count == 2
        assert (box.oldest(), box.next_seq()) == (None, 2)


def test_without_a_folder_it_lies_in_the_ledgers_file(tmp_path: Path) -> None:
    with opened(tmp_path, large=False) as box:
        box.put(1, bytes(LARGE + 1))
    assert not (tmp_path / "messages").exists()
    with opened(tmp_path, large=False) as box:
        assert box.oldest() == (1, bytes(LARGE + 1))


def test_a_message_that_was_changed_in_the_file_is_not_sent(tmp_path: Path) -> None:
    with opened(tmp_path) as box:
        box.put(1, b"first")
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as db:
        db.executescript("UPDATE message SET envelope = x'00'")
    with opened(tmp_path) as box:
        assert (box.oldest(), box.next_seq()) == (None, 2)


def test_a_large_message_is_held_once(tmp_path: Path) -> None:
    with opened(tmp_path) as box:
        box.put(1, bytes(LARGE + 1))
        pending = box.oldest()
        assert pending is not None
        assert isinstance(pending[1], mmap.mmap)


@pytest.mark.parametrize("numbers", [10, LARGE])
def test_an_envelope_in_place_is_stored_as_the_same_bytes(tmp_path: Path, numbers: int) -> None:
    envelope = wire.encode_in_place(pb.Meta(run="run", share=pb.Share()), torch.ones(numbers))
    with opened(tmp_path) as box:
        box.put(1, envelope)
        seq, stored = box.oldest() or (0, b"")
        assert (seq, bytes(stored)) == (1, envelope.whole())
        del stored
    with opened(tmp_path) as again:  # its digest is of the whole
        seq, stored = again.oldest() or (0, b"")
        assert (seq, bytes(stored)) == (1, envelope.whole())


COPIES = """
import re, sys
from pathlib import Path
import torch
from tacit.privacy.private_sum.clipping import clipped_sum
from tacit.privacy.ledger import Ledger
from tacit.protocol import wire, wire_up
from tacit.protocol.messages import Push
from tacit_services.transport.transfer import Transfer
from tacit_services.worker.outbox import Outbox
from tests.helpers.paid import released
folder, numbers = Path(sys.argv[1]), int(sys.argv[2])
def bytes_of(name):
    return 1024 * int(re.search(name + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
update = [Push("edge-0", 0, released(torch.zeros(numbers)))]
Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
base = bytes_of("VmRSS") - 4 * numbers
box = Outbox(Ledger(folder / "ledger.db", "data"), "run", b"an identity's id", folder)
box.put(1, wire_up.up_in_place("run", 1, update.pop(), b"schema"))
transfer = Transfer(box.oldest()[1], 256 * 1024)
sent = sum(len(payload) for number in range(transfer.parts) for _, payload in transfer.more([number]))
assert sent > 4 * numbers
print((bytes_of("VmHWM") - base) / (4 * numbers))
"""


def test_an_update_is_held_once_while_it_is_stored_and_sent(tmp_path: Path) -> None:
    """Hold the update as its vector, then as its file, which is mapped."""
    completed = forked.finished(COPIES, tmp_path, str(10_000_000))
    assert completed.returncode == 0, completed.stderr
    assert 0.9 < float(completed.stdout) < 1.7


def test_workers_of_two_runs_have_their_messages_in_one_shared_ledger(tmp_path: Path) -> None:
    @contextmanager
    def at_work(run: str) -> Iterator[Outbox]:
        with closing(SharedLedger(tmp_path / "ledger.db", "data", run=run)) as ledger:
            yield Outbox(ledger, run, OWNER, tmp_path)

    content = bytes(LARGE + 1)
    with at_work("a") as ours, at_work("a.1") as theirs:
        for box in (ours, theirs):
            box.put(1, content)
            box.put(2, b"small")
    # Given a message of one run whose file is there, and whose commit is yet to come,
    (tmp_path / "messages" / "a.1.3").write_bytes(content)
    (tmp_path / "messages" / "a.3").write_bytes(b"left by a crash of this run")
    # when a worker of another run starts, then it deletes what its own run has left alone,
    with at_work("a") as ours:
        assert [path.name for path in large(tmp_path)] == ["a.1", "a.1.1", "a.1.3"]
        assert (ours.next_seq(), taken(ours)) == (3, content)
        ours.done(1)
        ours.settle()
    # and each has its own messages.
    with at_work("a") as ours, at_work("a.1") as theirs:
        assert [taken(box) for box in (ours, theirs)] == [b"small", content]


def taken(box: Outbox) -> bytes:
    oldest = box.oldest()
    assert oldest is not None
    return bytes(oldest[1])
