"""The outbox: messages that are charged and not yet receipted, on disk before they are sent.

A retry sends the same bytes, so it costs no privacy. Messages leave one at a time, in order: the
next is sent only when the last has its receipt.

`Outbox` has `put` (store a message with the charge of the next task), `oldest` (what to send) and
`done` (its receipt has come). Below are the reading of messages after a restart, and the files.
Messages lie in the ledger's file, by their identity and run. An envelope above LARGE bytes has a
file of its own in the identity's folder, which is durable before the commit of its SHA-256.

Guarantee: with the store's rule that numbers rise, each message is accepted exactly once.

>>> outbox = Outbox(Ledger(":memory:", "demo"), run="demo")
>>> outbox.put(outbox.next_seq(), b"an envelope")
>>> outbox.oldest()
(1, b'an envelope')
>>> outbox.done(1)  # whether it was here
True
>>> outbox.oldest() is None
True
"""

from __future__ import annotations

import hashlib
import logging
import mmap
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tacit.errors import PrivacyError
from tacit.privacy.ledger import Ledger
from tacit.privacy.ledger.chain import Charge
from tacit.protocol import wire
from tacit.protocol._pb import wire_pb2 as pb
from tacit_services.disk import files
from tacit_services.statements.accepted_messages import AcceptedMessages

log = logging.getLogger("tacit.edge")
LARGE = 256 * 1024  # bytes
_FOLDER = "messages"
_KEEP_SENDER = """
INSERT INTO sender VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (owner, run) DO UPDATE SET
    seq = excluded.seq, receipt = excluded.receipt, proof = excluded.proof,
    state = COALESCE(excluded.state, state)
"""
_ACCEPTED = """
CREATE TABLE IF NOT EXISTS accepted (
    owner BLOB NOT NULL, run TEXT NOT NULL, count INTEGER NOT NULL, last INTEGER NOT NULL,
    head BLOB NOT NULL, PRIMARY KEY (owner, run)
) WITHOUT ROWID
"""
StoredEnvelope = bytes | mmap.mmap
EnvelopePieces = Sequence[bytes | memoryview]  # of an envelope, one after the other


class Outbox:
    """One identity's unreceipted messages of one run."""

    def __init__(
        self,
        ledger: Ledger,
        run: str,
        owner: bytes = b"",
        folder: Path | None = None,
        *,
        large: int = LARGE,
        disk: files.Disk | None = None,
    ) -> None:
        """Read what is in the file of `ledger`, which must be open as long as this is used.

        owner: the identity's random id. folder: the identity's; None: large messages lie in the
        ledger's file like all. large: bytes above which one has a file. Raises PrivacyError when it
        is damaged, or cannot be written.
        """
        self._ledger = ledger
        self._key = (owner, run)
        self._folder = folder
        self._large = large
        self._disk = disk or files.Disk()
        self._finished: list[int] = []
        self._digests: dict[int, bytes] = {}  # of messages that lack a receipt
        self._unanswered: dict[int, bytes] = {}  # of those that were given up without one
        self._accepted_table = False  # whether this process has seen to its table
        self._alone: set[int] = set()  # messages with a file of their own
        try:
            self._last, self._receipt = self._sender()
            self._accepted = self._stored_accepted()
            self._pending = self._read()
            self._sweep()
        except (sqlite3.Error, OSError) as error:
            raise PrivacyError(f"outbox of run {run}: {error}") from error

    @property
    def accepted(self) -> AcceptedMessages:
        """The messages of this run that have a receipt which says that it has them."""
        return self._accepted

    @property
    def unanswered(self) -> dict[int, bytes]:
        """The numbers and SHA-256 of messages without a receipt: the run may have them.

        They wait for one, as where the owner ends the worker, or were given up.
        """
        return self._unanswered | self._digests

    @property
    def receipt(self) -> pb.Held | None:
        """The newest receipt, by which the aggregator sees that its store has lost messages."""
        return self._receipt

    def hold(self, receipt: pb.Held) -> None:
        """Keep a receipt; it is on disk with the next message, or comes again with a duplicate."""
        if self._receipt is None or receipt.seq >= self._receipt.seq:
            self._receipt = receipt

    def next_seq(self) -> int:
        """Return the number that the next message must carry."""
        return self._last + 1

    def put(
        self,
        seq: int,
        envelope: bytes | wire.InPlace,
        state: bytes | None = None,
        ahead: Charge | None = None,
    ) -> None:
        """Make the message durable, in one commit with what is charged `ahead`.

        state: the sender's own, if it has one, is kept as well. Raises PrivacyError when that
        fails; then the message must not be sent, and nothing was charged.
        """
        assert seq == self._last + 1
        pieces = envelope.pieces if isinstance(envelope, wire.InPlace) else (envelope,)
        alone = self._folder is not None and len(envelope) > self._large
        if alone:
            inline = None
        else:
            inline = b"".join(pieces)
        receipt = (
            (None, None) if self._receipt is None else (self._receipt.seq, self._receipt.proof)
        )
        try:
            if alone:
                digest = self._written(seq, pieces)
            else:
                digest = _digest(*pieces)
            with self._ledger.transaction(ahead) as db:
                # Deleting the receipted ones here, not in done(), saves a commit; a crash between
                # costs one duplicate.
                self._delete_finished(db)
                row = (*self._key, seq, digest, inline)
                db.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", row)
                db.execute(_KEEP_SENDER, (*self._key, seq, *receipt, state))
        except (sqlite3.Error, OSError) as error:
            run = self._key[1]
            raise PrivacyError(f"outbox of run {run}: {error}; the update was not sent") from error
        self._digests[seq] = digest
        self._committed(seq, inline)

    def state(self) -> bytes | None:
        """Return the sender's state as of the last message that came with one.

        Raises PrivacyError.
        """
        query = "SELECT state FROM sender WHERE owner = ? AND run = ?"
        try:
            rows = self._ledger.read(query, *self._key)
        except sqlite3.Error as error:
            raise PrivacyError(f"outbox of run {self._key[1]}: {error}") from error
        return rows[0][0] if rows else None

    def oldest(self) -> tuple[int, StoredEnvelope] | None:
        """Return the message to send (again), if any."""
        for seq, envelope in self._pending.items():
            return seq, envelope
        return None

    def done(self, seq: int, *, accepted: bool = False) -> bool:
        """Remove a message that has a final receipt; False if it was removed before.

        accepted: whether the receipt says that the run has it. That is on disk no later than the
        message's removal.
        """
        if self._pending.pop(seq, None) is None:
            return False
        self._finished.append(seq)
        digest = self._digests.pop(seq)
        if accepted:
            self._accepted = self._accepted.then(seq, digest)
        return True

    def give_up(self) -> None:
        """Remove all messages that have no receipt, as the run is over."""
        for seq in list(self._pending):
            self._unanswered[seq] = self._digests[seq]
            self.done(seq)

    def settle(self) -> None:
        """Delete what has a final receipt now, for a process that ends without another message.

        A refused Hello would otherwise be sent again by the next one. Raises PrivacyError.
        """
        try:
            with self._ledger.transaction() as db:
                self._delete_finished(db)
        except sqlite3.Error as error:
            raise PrivacyError(f"outbox of run {self._key[1]}: {error}") from error

    def _delete_finished(self, db: sqlite3.Connection) -> None:
        if not self._finished:
            return
        if not self._accepted_table:
            db.execute(_ACCEPTED)
            self._accepted_table = True
        accepted = self._accepted
        row = (*self._key, accepted.count, accepted.last, accepted.head)
        db.execute("INSERT OR REPLACE INTO accepted VALUES (?, ?, ?, ?, ?)", row)
        delete = "DELETE FROM message WHERE owner = ? AND run = ? AND seq = ?"
        db.executemany(delete, [(*self._key, number) for number in self._finished])

    def _written(self, seq: int, pieces: EnvelopePieces) -> bytes:
        """Return the digest of a large envelope, computed while its file is written and synced."""
        with ThreadPoolExecutor(1) as beside:
            digest = beside.submit(_digest, *pieces)
            self._write(self._file(seq), pieces)
            return digest.result()

    def _write(self, path: Path, pieces: EnvelopePieces) -> None:
        """Write `pieces` durably to `path`."""
        if not path.parent.exists():
            path.parent.mkdir(exist_ok=True)  # another run's worker may have made it since
            self._disk.sync(path.parent.parent)
        files.write_pieces(path, pieces, files.SECRET, self._disk)

    def _committed(self, seq: int, inline: bytes | None) -> None:
        """Do in memory, and to files, what the commit has made true; None: it is in its file."""
        for number in self._alone.intersection(self._finished):
            self._file(number).unlink(missing_ok=True)
        self._alone.difference_update(self._finished)
        self._finished.clear()
        self._last = seq
        if inline is None:
            self._alone.add(seq)
            self._pending[seq] = _mapped(self._file(seq))  # this process holds no copy
        else:
            self._pending[seq] = inline

    def _sender(self) -> tuple[int, pb.Held | None]:
        query = "SELECT seq, receipt, proof FROM sender WHERE owner = ? AND run = ?"
        for seq, receipt, proof in self._ledger.read(query, *self._key):
            return seq, None if receipt is None else pb.Held(seq=receipt, proof=proof)
        return 0, None

    def _stored_accepted(self) -> AcceptedMessages:
        (table,) = self._ledger.read("SELECT count(*) FROM sqlite_master WHERE name = 'accepted'")
        if not table[0]:
            return AcceptedMessages()
        query = "SELECT count, last, head FROM accepted WHERE owner = ? AND run = ?"
        for row in self._ledger.read(query, *self._key):
            return AcceptedMessages(*row)
        return AcceptedMessages()

    def _read(self) -> dict[int, StoredEnvelope]:
        pending: dict[int, StoredEnvelope] = {}
        query = "SELECT seq, digest, envelope FROM message WHERE owner = ? AND run = ? ORDER BY seq"
        for seq, digest, envelope in self._ledger.read(query, *self._key):
            content = envelope
            if envelope is None and self._folder is not None:
                self._alone.add(seq)
                if self._file(seq).is_file():
                    content = _mapped(self._file(seq))
                else:
                    content = None
            if content is None or _digest(content) != digest:
                self._finished.append(seq)
                log.warning(
                    "message %d of run %s is not on the disk as it was stored: it is not sent, and "
                    "what it cost stays charged",
                    seq,
                    self._key[1],
                )
            else:
                pending[seq] = content
                self._digests[seq] = digest
        return pending

    def _sweep(self) -> None:
        """Delete files of messages that a crash has kept from being stored, or from deletion.

        On a shared ledger those of this run: other workers of the identity write theirs meanwhile.
        """
        if self._folder is None or not (self._folder / _FOLDER).is_dir():
            return
        query = "SELECT run, seq FROM message WHERE owner = ? AND envelope IS NULL"
        names = {_name(*row) for row in self._ledger.read(query, self._key[0])}
        for path in (self._folder / _FOLDER).iterdir():
            others = self._ledger.shared and path.name.rpartition(".")[0] != self._key[1]
            if path.name not in names and not others:
                path.unlink()

    def _file(self, seq: int) -> Path:
        assert self._folder is not None
        return self._folder / _FOLDER / _name(self._key[1], seq)


def _digest(*pieces: StoredEnvelope | memoryview) -> bytes:
    hasher = hashlib.sha256()
    for piece in pieces:
        hasher.update(piece)
    return hasher.digest()


def _name(run: str, seq: int) -> str:
    return f"{run}.{seq}"


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
