"""The chain of a run's accepted messages: a line for each, and a hash over all of them.

    position,edge,number,kind,sha256,charges,head
    1,edge-0,1,hello,9f2c…,0,
    2,edge-0,2,update,41aa…,1,77d0…

number: of the edge's message. kind: as in wire.proto. sha256: of the envelope. charges, head: how
far its ledger had come, by its own report. The chain's own head is

    head_0 = SHA-256("tacit journal" ‖ 0 ‖ run ‖ 0 ‖ SHA-256 of the state that it begins at)
    head_n = SHA-256(head_{n-1} ‖ line, with its line feed)
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import DataError
from tacit.protocol import wire
from tacit.protocol._pb import wire_pb2 as pb
from tacit_services.journal import journal_file

TITLE = "position,edge,number,kind,sha256,charges,head\n"
_LINE = re.compile(
    r"(\d{1,19}),([A-Za-z0-9_.-]{1,64}),(\d{1,19}),([a-z_]{1,20}),([0-9a-f]{64}),(\d{1,19}),"
    r"((?:[0-9a-f]{64})?)\n"
)


@dataclass(frozen=True, slots=True)
class ChainEntry:
    """One accepted message. charges: of its edge's ledger by then, and `head` the chain's."""

    position: int
    edge: str
    number: int
    kind: str
    sha256: str
    charges: int
    head: str

    def line(self) -> str:
        """Return its line."""
        return (
            f"{self.position},{self.edge},{self.number},{self.kind},{self.sha256},"
            f"{self.charges},{self.head}\n"
        )


@dataclass(frozen=True, slots=True)
class JournalChain:
    """The chain of one run. begins_after: messages before its first; state: of then."""

    run: str
    begins_after: int
    state: str
    entries: tuple[ChainEntry, ...]

    def head(self) -> str:
        """Return the hash over all entries."""
        first = b"tacit journal\0" + self.run.encode() + b"\0" + bytes.fromhex(self.state)
        head = hashlib.sha256(first).digest()
        for entry in self.entries:
            head = hashlib.sha256(head + entry.line().encode()).digest()
        return head.hex()

    def text(self) -> str:
        """Return the file of all entries."""
        return TITLE + "".join(entry.line() for entry in self.entries)


def chain_of(path: Path, code: Path = Path()) -> JournalChain:
    """Return the chain of a journal file. code: the folder of own code, which is not run.

    Raises DataError, WireError.
    """
    with journal_file.open_journal(path) as file:
        reader = journal_file.JournalReader(file, str(path), code)
        base = reader.header.base
        entries = tuple(_entry(record.position, record.payload) for record in reader)
    state = hashlib.sha256(bytes(base.state)).hexdigest()
    return JournalChain(reader.header.run, base.cursor, state, entries)


def read_entries(text: str) -> tuple[ChainEntry, ...]:
    """Return the entries of a file. Raises DataError for another, or a gap in the positions."""
    lines = text.splitlines(keepends=True)
    if not lines or lines[0] != TITLE:
        raise DataError("the journal's chain does not begin with its title")
    return tuple(_read(lines[1:]))


def _read(lines: Iterable[str]) -> Iterable[ChainEntry]:
    before: int | None = None
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None:
            raise DataError(
                f"the journal's chain has a line that is none: {wire.printable(line, 80)}"
            )
        position, edge, number, kind, sha256, charges, head = match.groups()
        entry = ChainEntry(int(position), edge, int(number), kind, sha256, int(charges), head)
        if entry.line() != line or (before is not None and entry.position != before + 1):
            raise DataError(f"the journal's chain has a gap, or an entry twice, at {position}")
        before = entry.position
        yield entry


def _entry(position: int, payload: bytes) -> ChainEntry:
    meta = wire.decode(payload).meta
    kind = meta.WhichOneof("kind")
    charged = _charged(meta, kind)
    digest = hashlib.sha256(payload).hexdigest()
    head = charged.head.hex()
    return ChainEntry(position, meta.edge, meta.seq, kind or "", digest, charged.count, head)


def _charged(meta: pb.Meta, kind: str | None) -> pb.Charged:
    stated = getattr(meta, kind) if kind else None
    if stated is not None and "charged" in stated.DESCRIPTOR.fields_by_name:
        charged: pb.Charged = stated.charged
        return charged
    return pb.Charged()
