"""The outbox of an older tacit is taken over, run by run, and what it knows of ledgers counts."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest
from tacit_services.identity import lineage, old_outbox
from tacit_services.identity.folder import Identities, Identity
from tacit_services.worker.resources import outbox_of

from tacit.errors import PrivacyError
from tacit.privacy.ledger import Ledger
from tests.helpers.older import identity_of_two_files, unpacked


def identity(root: Path) -> Identity:
    found = Identities(root).acquire(1, threading.Event())
    assert found is not None
    return found


@pytest.fixture
def two_files(tmp_path: Path) -> Iterator[Identity]:
    """As c8008bd left it after kill -9: see tests/kept/README.md."""
    with closing(identity(identity_of_two_files(tmp_path))) as found:
        yield found


def test_everything_of_a_run_goes_on_in_the_ledgers_file(two_files: Identity) -> None:
    path = two_files.path
    for _ in range(2):  # and again, in the file itself
        with _opened(two_files) as ledger:
            box = outbox_of(two_files, ledger, "run")
            assert (box.oldest(), box.next_seq()) == ((4, b"push 4" * 100), 5)
            assert box.state() == b"state of 4"
            assert box.receipt is not None
            assert (box.receipt.seq, box.receipt.proof) == (3, b"proof of 3")
            assert ledger.charged().count == 3
    # What is left is another run's, which takes it over when it goes on.
    assert (path / "outbox.db").exists()
    with _opened(two_files) as ledger:
        other = outbox_of(two_files, ledger, "another")
        assert (other.oldest(), other.next_seq()) == ((1, b"hello of another run"), 3)
        other.done(1)
        assert other.oldest() == (2, b"push of another run")
    assert not list(path.glob("outbox.db*"))


@pytest.mark.parametrize("run", ["mapa", "fedasync", "gossip", "vafl"])
def test_an_outbox_of_0_1_goes_on(tmp_path: Path, run: str) -> None:
    folder = unpacked(run, tmp_path) / "identities"
    with closing(sqlite3.connect(folder / "0" / "outbox.db")) as db:
        pending = dict(db.execute("SELECT seq, envelope FROM message ORDER BY seq"))
    with closing(identity(folder)) as edge, _opened(edge) as ledger:
        box = outbox_of(edge, ledger, run)
        assert pending
        assert box.next_seq() == max(pending) + 1
        for seq, envelope in pending.items():
            assert box.oldest() == (seq, envelope)
            box.done(seq)
        assert box.oldest() is None
        assert (box.state() is not None) == (run == "vafl")
    assert not list(edge.path.glob("outbox.db*"))


def test_killed_before_it_was_deleted_it_is_taken_over_once(
    two_files: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a death right after the commit in the ledger's file,
    path = two_files.path
    monkeypatch.setattr(old_outbox, "_FORGET", ("DELETE FROM no_such_table WHERE run = ?",))
    with _opened(two_files) as ledger:
        with pytest.raises(PrivacyError, match="no_such_table"):
            outbox_of(two_files, ledger, "run")
        assert ledger.read("SELECT seq FROM sender") == [(4,)]
    monkeypatch.undo()
    # when the next one goes on, then it is all there, once;
    with _opened(two_files) as ledger:
        box = outbox_of(two_files, ledger, "run")
        assert (box.oldest(), box.next_seq()) == ((4, b"push 4" * 100), 5)
        box.done(4)
        box.put(5, b"push 5")
    # and an old file that is put back takes nothing back.
    shutil.copy(identity_of_two_files(path / "again") / "0" / "outbox.db", path)
    with _opened(two_files) as ledger:
        box = outbox_of(two_files, ledger, "run")
        assert (box.oldest(), box.next_seq()) == ((5, b"push 5"), 6)


def test_an_older_ledger_beside_it_is_noticed(two_files: Identity) -> None:
    path = two_files.path / "ledger.db"
    with closing(sqlite3.connect(path)) as db:
        (lineage_,) = db.execute("SELECT lineage FROM chain").fetchone()
    with closing(Ledger(two_files.path / "older.db", "digits")) as ledger:
        ledger._db.execute("UPDATE chain SET lineage = ?", (lineage_,))  # one without charges
    (two_files.path / "older.db").replace(path)
    with pytest.raises(PrivacyError, match="refusing to train"), _opened(two_files):
        pass


@pytest.mark.parametrize("marker", ["exchanged too", "deleted", "without the dataset"])
def test_a_ledger_that_is_exchanged_with_its_marker_is_noticed(
    two_files: Identity, tmp_path: Path, marker: str
) -> None:
    (two_files.path / "enrolled.json").unlink()
    (two_files.path / "ledger.db").unlink()
    with closing(identity(tmp_path / "others")) as another:
        with _opened(another) as ledger:
            ledger.charge(0.1, 1.5, "gaussian", secret=True)
        shutil.copy(another.path / "ledger.db", two_files.path)
        if marker == "exchanged too":
            shutil.copy(another.path / "enrolled.json", two_files.path)
    if marker == "without the dataset":
        (two_files.path / "enrolled.json").write_text("{}")
    for _ in range(2):
        with (
            pytest.raises(PrivacyError, match="it was exchanged, refusing to train"),
            _opened(two_files),
        ):
            pass


def test_an_identity_from_before_the_marker_is_known_by_its_outbox(two_files: Identity) -> None:
    (two_files.path / "enrolled.json").unlink()
    (two_files.path / "ledger.db").rename(two_files.path / "kept.db")
    with pytest.raises(PrivacyError, match="edge-0 has sent messages before"), _opened(two_files):
        pass
    # One that still has its ledger is enrolled as it is.
    (two_files.path / "kept.db").rename(two_files.path / "ledger.db")
    with _opened(two_files) as ledger:
        assert ledger.charged().count == 3


def test_a_damaged_one_is_refused_in_one_line_that_names_it(two_files: Identity) -> None:
    for file in two_files.path.glob("outbox.db*"):
        file.unlink()
    (two_files.path / "outbox.db").write_bytes(b"not a database, and long enough to be sure " * 200)
    with pytest.raises(PrivacyError, match=r"outbox .*outbox\.db: ") as failure, _opened(two_files):
        pass
    assert "\n" not in str(failure.value)


def _opened(edge: Identity) -> AbstractContextManager[Ledger]:
    return lineage.ledger(edge, edge.ledger_place, "digits")
