"""The journal file: every message that a run has accepted, in accept order.

`tacit replay` folds it again: it is the proof of a run. The store's journal is trimmed at every
snapshot, but this file never is. It begins at the run's start or, if it was asked for later, at the
state of the store's snapshot, which is then kept in the header.

    header   "TCTJRNL1" | u32 length of the JSON | u64 length of the state
             | u32 CRC-32 of both | JSON | state
    record   u32 length | u64 position | u32 CRC-32 of the payload
             | u32 CRC-32 of the 16 bytes before | payload

All numbers are little endian. The JSON has the keys run, fingerprint, parameters (the run file,
every value) and cursor. A payload is the envelope as the store accepted it. Positions rise by one.
The file only grows, except that a record which a crash has cut off is removed.
"""

from __future__ import annotations

import json
import os
import struct
import threading
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

from tacit import file_lock
from tacit.config import RunFile
from tacit.errors import OF_0_1, ConfigError, DataError, ServiceError, TacitError, WireError
from tacit.regular_file import opened
from tacit_services.disk import files
from tacit_services.journal.store import Snapshot

MAGIC = b"TCTJRNL1"
_HEADER = struct.Struct("<8sIQI")
_RECORD = struct.Struct("<IQI")
_CRC = struct.Struct("<I")
_HEAD = _RECORD.size + _CRC.size
MAX_JSON = 1 << 20


@dataclass(frozen=True, slots=True)
class Header:
    """The run that a journal file is of, and where the file begins.

    The first record comes after `base.cursor` entries, and applies to the role's state
    `base.state`; an empty state is that of a new run.
    """

    run: str
    parameters: RunFile
    base: Snapshot

    def encode(self) -> bytes:
        """Return the bytes of the header."""
        content = {
            "run": self.run,
            "fingerprint": self.parameters.fingerprint(),
            "cursor": self.base.cursor,
            "parameters": self.parameters.model_dump(mode="json"),
        }
        text = json.dumps(content).encode()
        state = bytes(self.base.state)
        return (
            _HEADER.pack(MAGIC, len(text), len(state), zlib.crc32(state, zlib.crc32(text)))
            + text
            + state
        )


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One record of a journal file; `end` is the offset of the byte behind it."""

    position: int
    payload: bytes
    end: int


def encode_record(position: int, payload: bytes | memoryview) -> bytes:
    """Return the bytes of one record."""
    head = _RECORD.pack(len(payload), position, zlib.crc32(payload))
    return b"".join((head, _CRC.pack(zlib.crc32(head)), payload))


class JournalReader:
    """A reader of a journal file, record by record.

    After the last record `torn` is the number of bytes of an unfinished one, which a crash has cut
    off; `end`: the byte after the last whole one so far. See Writer for an example.
    """

    def __init__(self, file: BinaryIO, name: str, code: Path = Path()) -> None:
        """Read the header. code: the folder of a user's own module.

        Raises WireError ("journal") unless it is whole and right.
        """
        self._file = file
        self._name = name
        self._code = code
        self._size = os.fstat(file.fileno()).st_size
        self.header = self._read_header()
        self.start = self.end = file.tell()
        self._position = self.header.base.cursor
        self.torn = 0

    def __iter__(self) -> Iterator[FileRecord]:
        """Yield every whole record. Raises WireError ("journal") where the file was altered."""
        while self.end < self._size:
            head = self._file.read(_HEAD)
            if len(head) < _HEAD:
                break
            length, position, crc = _RECORD.unpack_from(head)
            if _CRC.unpack_from(head, _RECORD.size)[0] != zlib.crc32(head[: _RECORD.size]):
                raise self._altered("the record's head does not match its checksum")
            if position != self._position + 1:
                raise self._altered(f"it says {position}")
            if self.end + _HEAD + length > self._size:
                break
            payload = self._file.read(length)
            if zlib.crc32(payload) != crc:
                raise self._altered("the payload does not match its checksum")
            self._position = position
            self.end = self.end + _HEAD + length
            yield FileRecord(position, payload, self.end)
        self.torn = self._size - self.end

    def _altered(self, what: str) -> WireError:
        return WireError(
            "journal", f"{self._name}: record {self._position + 1} at byte {self.end}: {what}"
        )

    def _read_header(self) -> Header:
        head = self._file.read(_HEADER.size)
        if len(head) < _HEADER.size or head[: len(MAGIC)] != MAGIC:
            raise WireError("journal", f"{self._name}: not a journal of this version of tacit")
        _, length, state_length, crc = _HEADER.unpack(head)
        if length > MAX_JSON or _HEADER.size + length + state_length > self._size:
            raise WireError("journal", f"{self._name}: the header is cut")
        text = self._file.read(length)
        state = self._file.read(state_length)
        if zlib.crc32(state, zlib.crc32(text)) != crc:
            raise WireError("journal", f"{self._name}: the header does not match its checksum")
        try:
            content: dict[str, Any] = json.loads(text)
            parameters = RunFile.model_validate_json(
                json.dumps(content["parameters"]), context={"folder": self._code}
            )
            header = Header(content["run"], parameters, Snapshot(content["cursor"], state))
            if (
                not isinstance(header.run, str)
                or type(header.base.cursor) is not int
                or header.base.cursor < 0
            ):
                raise ValueError("run is not a name, or cursor no number of messages")
        except (ValueError, KeyError, TypeError, RecursionError, ConfigError) as error:
            if isinstance(error, KeyError) or not str(error):
                reason = str(error)
            else:
                reason = str(error).splitlines()[0]
            raise WireError(
                "journal", f"{self._name}: the header cannot be understood: {reason}"
            ) from error
        if content.get("fingerprint") != parameters.fingerprint():
            reason = "its parameters do not have the fingerprint that it names: it was altered, or"
            raise WireError(
                "journal", f"{self._name}: {reason} is of a run that tacit 0.1 began: {OF_0_1}"
            )
        return header


def open_journal(path: Path) -> BinaryIO:
    """Open a journal file for reading. Raises DataError."""
    try:
        return opened(path)
    except OSError as error:
        raise DataError(f"journal {path}: {error.strerror or error}") from error


class Writer:
    """The writer of a journal file.

    A second writer, in any process, is refused while this one has the file open.

    What `append` was given has been handed to the system when it returns, and so outlives kill -9.
    It has reached the disk when `sync` returns, which is called before the store forgets its own
    copy.

    >>> from tempfile import TemporaryDirectory
    >>> run = RunFile.model_validate(
    ...     {
    ...         "run": {"updates": 2},
    ...         "data": {"dataset": "digits"},
    ...         "model": {"name": "logistic"},
    ...         "algorithm": {"name": "mapa"},
    ...     }
    ... )
    >>> folder = TemporaryDirectory()
    >>> path = Path(folder.name) / "run.journal"
    >>> writer = Writer(path)
    >>> writer.open(Header("demo", run, Snapshot(0, b"")))
    >>> writer.append([(1, b"first message"), (2, b"second message")])
    >>> writer.close()
    >>> with open_journal(path) as file:
    ...     [record.payload for record in JournalReader(file, str(path))]
    [b'first message', b'second message']
    >>> folder.cleanup()
    """

    def __init__(self, path: Path, disk: files.Disk | None = None) -> None:
        self.path = path
        self._disk = disk or files.Disk()
        self._file: FileIO | None = None  # unbuffered: what is written has left this process
        self._end = 0  # end of the whole records; behind it may be one that did not fit the disk
        self.last = 0  # position of the last record
        self._tail: dict[int, int] = {}  # CRC-32 of the records after the store's snapshot
        self._trimming = threading.Lock()

    def open(self, begin: Header) -> None:
        """Open the file, cut a torn record off, and get ready to write behind its last record.

        A file that does not exist is made, and begins with `begin`. An existing one must be of the
        same run and parameters. After a failure this may be called again. Raises ServiceError if
        the file is in use or cannot be written. Raises ConfigError if it is another run's or ends
        before the store's snapshot, and WireError if it was altered.
        """
        if self._file is None:
            try:
                self._take(begin)
            except OSError as error:
                raise self._failure(error) from error
            try:
                self._check(begin)
            except (WireError, ConfigError):
                self.close()
                raise
        if self.last < begin.base.cursor:
            raise ConfigError(
                f"journal {self.path}: ends at {self.last}, but the store goes on from "
                f"{begin.base.cursor} and has forgotten what lies between; move the file away, "
                "a new one begins at the store's snapshot"
            )

    def append(self, records: Iterable[tuple[int, bytes | memoryview]]) -> None:
        """Write records of consecutive positions; those that the file has are compared instead.

        Raises ServiceError when the disk refuses (then nothing half-written stays), ConfigError
        where the file has other bytes at a position.
        """
        assert self._file is not None
        data = bytearray()
        last = self.last
        fresh = dict[int, int]()
        for position, payload in records:
            if position <= last:
                if self._tail.get(position, zlib.crc32(payload)) != zlib.crc32(payload):
                    raise ConfigError(
                        f"journal {self.path}: position {position} is another message in "
                        "the store, which has lost accepted messages and gone on; "
                        "move the file away"
                    )
                continue
            assert position == last + 1, (position, last)
            last, fresh[position] = position, zlib.crc32(payload)
            data += encode_record(position, payload)
        if not data:
            return
        try:
            self._file.truncate(self._end)
            self._file.seek(self._end)
            remaining = memoryview(data)
            while remaining:  # a disk that fills up takes a part
                remaining = remaining[self._file.write(remaining) :]
        except OSError as error:
            raise self._failure(error) from error
        self._end = self._end + len(data)
        self.last = last
        with self._trimming:
            self._tail |= fresh

    def sync(self, upto: int) -> None:
        """Make everything durable, because the store is about to forget what lies up to `upto`.

        For any thread. Raises ServiceError.
        """
        assert self._file is not None
        try:
            self._disk.sync_file(self._file)
        except OSError as error:
            raise self._failure(error) from error
        with self._trimming:
            self._tail = {at: crc for at, crc in self._tail.items() if at > upto}

    def close(self) -> None:
        """Sync, if the disk lets us, and close. Idempotent."""
        if self._file is not None:
            try:
                self._disk.sync_file(self._file)
            except OSError:  # the store still has what is not on disk
                pass
            self._file.close()
            self._file = None

    def _take(self, begin: Header) -> None:
        """Open the file and lock it.

        A new one is written beside and renamed, so it has a whole header or is not.
        """
        if not self.path.exists():
            new = self.path.with_name(self.path.name + ".new")
            with os.fdopen(
                os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb"
            ) as new_file:
                new_file.write(begin.encode())
                new_file.flush()
                self._disk.sync_file(new_file)
            new.replace(self.path)
            self._disk.sync(self.path.parent)
        file = FileIO(self.path, "r+")
        try:
            file_lock.take(file, BlockingIOError())
        except OSError:
            file.close()
            raise
        self._file = file

    def _check(self, begin: Header) -> None:
        assert self._file is not None
        with open_journal(self.path) as file:
            reader = JournalReader(file, f"journal {self.path}", begin.parameters.folder)
            header = reader.header
            if (header.run, header.parameters.fingerprint()) != (
                begin.run,
                begin.parameters.fingerprint(),
            ):
                raise ConfigError(
                    f"journal {self.path}: is of run {header.run!r} with other parameters, or of "
                    f"another"
                )
            self._end = reader.start
            self.last = header.base.cursor
            self._tail = {}
            for record in reader:
                self._end = record.end
                self.last = record.position
                if record.position > begin.base.cursor:
                    self._tail[record.position] = zlib.crc32(record.payload)

    def _failure(self, error: OSError) -> TacitError:
        if isinstance(
            error, FileNotFoundError | PermissionError | IsADirectoryError | NotADirectoryError
        ):
            return ConfigError(f"TACIT_JOURNAL_FILE={str(self.path)!r}: {error.strerror}")
        if isinstance(error, BlockingIOError):
            return ServiceError(f"journal {self.path}: another aggregator is writing it")
        return ServiceError(f"journal {self.path}: {error.strerror or error}")
