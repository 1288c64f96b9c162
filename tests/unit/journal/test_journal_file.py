"""The journal file: contents come back, torn bytes are left out, alterations are noticed."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tacit_services.cli.replay import fold
from tacit_services.journal import journal_file, snapshot_file
from tacit_services.journal.journal_file import Header, JournalReader, Writer
from tacit_services.journal.store import Appended, NewEntry, Snapshot, Verdict
from tacit_services.journal.store.append_rules import JournalLimits
from tacit_services.journal.store.memory import MemoryRun, MemoryStore
from tacit_services.journal.store_with_file import StoreWithJournalFile

from tacit import config
from tacit.algorithms import registry
from tacit.errors import ConfigError, DataError, ServiceError, StoreLost, WireError
from tacit.protocol import wire, wire_up
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import Hello
from tests.system.journal.test_store_servers import file_size_limit

RUN = config.parse(
    '[run]\nupdates=9\n[data]\ndataset="digits"\n[model]\nname="logistic"\n[algorithm]\nname="mapa"',
    "t",
)
NEW = Header("run", RUN, Snapshot(0, b""))
steady = settings(derandomize=True, deadline=None, max_examples=60)
payloads = st.lists(st.binary(max_size=50), max_size=6)


def written(path: Path, *contents: bytes, header: Header = NEW) -> bytes:
    """Write the file with these payloads, and return its bytes."""
    writer = Writer(path)
    writer.open(header)
    writer.append(enumerate(contents, header.base.cursor + 1))
    writer.close()
    return path.read_bytes()


def read(path: Path) -> tuple[list[tuple[int, bytes]], int]:
    """Return the (position, payload) of every record, and the number of torn bytes."""
    with journal_file.open_journal(path) as file:
        reader = JournalReader(file, "file")
        records = [(record.position, record.payload) for record in reader]
        return records, reader.torn


@steady
@given(payloads, st.integers(0, 2**40), st.binary(max_size=200))
def test_what_is_written_comes_back(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes], cursor: int, state: bytes
) -> None:
    path = tmp_path_factory.mktemp("journal") / "run.journal"
    header = Header("run", RUN, Snapshot(cursor, state))
    written(path, *contents, header=header)
    assert read(path) == (list(enumerate(contents, cursor + 1)), 0)
    with journal_file.open_journal(path) as file:
        assert JournalReader(file, "file").header == header


@steady
@given(payloads.filter(bool), st.data())
def test_a_file_cut_anywhere_gives_the_whole_records_before_the_cut(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("journal") / "run.journal"
    intact = written(path, *contents)
    starts = [len(NEW.encode())]
    for position, content in enumerate(contents, 1):
        starts.append(starts[-1] + len(journal_file.encode_record(position, content)))
    cut = data.draw(st.integers(starts[0], len(intact)))
    path.write_bytes(intact[:cut])
    complete = sum(start <= cut for start in starts) - 1
    assert read(path) == (list(enumerate(contents[:complete], 1)), cut - starts[complete])
    # And the next writer goes on behind them, as if the torn one had never begun.
    assert written_again(path, contents[complete:], complete) == intact


def written_again(path: Path, contents: list[bytes], after: int) -> bytes:
    writer = Writer(path)
    writer.open(NEW)
    assert writer.last == after
    writer.append(enumerate(contents, after + 1))
    writer.close()
    return path.read_bytes()


@steady
@given(st.lists(st.binary(min_size=1, max_size=50), min_size=1, max_size=4), st.data())
def test_any_altered_byte_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("journal") / "run.journal"
    content = bytearray(written(path, *contents))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    with pytest.raises(WireError, match=r"^journal: file: ") as refused:
        read(path)
    assert refused.value.exit_code == 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: b"", "not a journal"),
        (lambda data: b"TCTJRNL2" + data[8:], "not a journal"),
        (lambda data: data[:60], "the header is cut"),
        (
            lambda data: data[: len(NEW.encode())] + journal_file.encode_record(2, b"x"),
            "record 1 at byte .*: it says 2",
        ),
        (lambda data: data + journal_file.encode_record(1, b"x"), "record 3 at byte .*: it says 1"),
    ],
)
def test_what_is_wrong_is_said(
    tmp_path: Path, change: Callable[[bytes], bytes], message: str
) -> None:
    path = tmp_path / "run.journal"
    path.write_bytes(change(written(path, b"one", b"two")))
    with pytest.raises(WireError, match=message):
        read(path)


def test_a_header_whose_parameters_are_not_those_of_its_fingerprint(tmp_path: Path) -> None:
    # A right checksum does not help: whoever edits the parameters has another run.
    content = json.loads(NEW.encode()[24:])
    content["parameters"]["run"]["seed"] = 7
    text = json.dumps(content).encode()
    head = journal_file._HEADER.pack(journal_file.MAGIC, len(text), 0, zlib.crc32(text))
    (tmp_path / "file").write_bytes(head + text)
    with pytest.raises(WireError, match="fingerprint"):
        read(tmp_path / "file")


def header(
    path: Path, changes: dict[str, Any], text: bytes | None = None, state: bytes = b""
) -> Path:
    """Write a file of a header alone, with a right checksum.

    `changes` go into its JSON, or `text` replaces it.
    """
    text = json.dumps(json.loads(NEW.encode()[24:]) | changes).encode() if text is None else text
    crc = zlib.crc32(state, zlib.crc32(text))
    path.write_bytes(
        journal_file._HEADER.pack(journal_file.MAGIC, len(text), len(state), crc) + text + state
    )
    return path


@pytest.mark.parametrize(
    "changes",
    [
        {"cursor": "0"},
        {"cursor": None},
        {"cursor": []},
        {"cursor": True},
        {"cursor": -1},
        {"run": 5},
        {"parameters": json.loads(RUN.model_dump_json()) | {"data": {"dataset": "nothing"}}},
    ],
)
def test_a_header_of_other_types_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(WireError, match=r"^journal: file: the header cannot be understood: .*$"):
        read(header(tmp_path / "file", changes))


@pytest.mark.parametrize("text", [b"[" * 200_000, b"[]", b"{", b"{}"])
def test_a_header_that_is_none_is_refused(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(WireError, match=r"^journal: file: the header cannot be understood: .*$"):
        read(header(tmp_path / "file", {}, text))


class TestFold:
    """Journals with right checksums that no aggregator has written."""

    HELLO = Hello("edge", 2.0, 1e-5, "gaussian", 1.0, 0.1, 10.0, ())
    MODEL = RUN.build_model()

    def hello(self, seq: int) -> bytes:
        return wire_up.up("run", seq, self.HELLO, self.MODEL.schema_hash())

    def push(self, seq: int) -> bytes:
        update = pb.Update(
            base_version=0,
            clip=1.0,
            spent=[pb.Spend(sampling_rate=0.1, noise_multiplier=1.0, count=1)],
        )
        meta = pb.Meta(
            run="run", edge="edge", seq=seq, schema_hash=self.MODEL.schema_hash(), update=update
        )
        return wire.encode(meta, torch.zeros(self.MODEL.size))

    @pytest.mark.parametrize(
        ("seqs", "message"),
        [
            ((1, 2, 3), ""),
            ((2, 1), "record 2: message 1 of edge comes after its message 2"),
            ((1, 1), "record 2"),
        ],
    )
    def test_a_message_comes_once(
        self, tmp_path: Path, seqs: tuple[int, ...], message: str
    ) -> None:
        written(tmp_path / "file", *(self.hello(seq) for seq in seqs))
        if not message:
            assert fold(tmp_path / "file").records == len(seqs)
            return
        with pytest.raises(WireError, match=f"^journal: .*/file: {message}"):
            fold(tmp_path / "file")

    def test_an_update_of_nobody(self, tmp_path: Path) -> None:
        written(tmp_path / "file", self.push(1))
        with pytest.raises(WireError, match=r"record 1: an update that is refused \(unknown\)"):
            fold(tmp_path / "file")
        written(tmp_path / "good", self.hello(1), self.push(2))
        assert fold(tmp_path / "good").version == 1

    @pytest.mark.parametrize("lost", ["params", "version", "edges", "role", "shape", "kind"])
    def test_a_state_without_its_parts(self, tmp_path: Path, lost: str) -> None:
        tensors, values = registry.server(RUN.define(), RUN.build_model()).state()
        tensors = {
            name: torch.zeros(3) if lost == "shape" else tensor for name, tensor in tensors.items()
        }
        tensors = {name: tensor for name, tensor in tensors.items() if name != lost} or {
            "other": torch.zeros(1)
        }
        values = {name: value for name, value in values.items() if name != lost}
        values |= {"edges": []} if lost == "kind" else {}
        snapshot = snapshot_file.dumps(tensors, {} if lost == "role" else {"role": values})
        with pytest.raises(WireError, match=r"^journal: .*/file: its state "):
            fold(header(tmp_path / "file", {}, state=snapshot))


def test_a_missing_file_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        journal_file.open_journal(tmp_path / "none")


class TestWriter:
    def test_one_at_a_time(self, tmp_path: Path) -> None:
        first, second = Writer(tmp_path / "file"), Writer(tmp_path / "file")
        first.open(NEW)
        with pytest.raises(ServiceError, match="another aggregator is writing it"):
            second.open(NEW)
        first.close()
        second.open(NEW)
        second.close()

    def test_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"TACIT_JOURNAL_FILE=.*No such file"):
            Writer(tmp_path / "none" / "file").open(NEW)

    def test_another_run_is_refused_and_the_file_is_free_again(self, tmp_path: Path) -> None:
        before = written(tmp_path / "file", b"one")
        for other in (
            replace(NEW, run="other"),
            replace(
                NEW,
                parameters=config.RunFile.model_validate(
                    RUN.model_dump() | {"run": {"updates": 10}}
                ),
            ),
        ):
            with pytest.raises(ConfigError, match="is of run 'run'"):
                Writer(tmp_path / "file").open(other)
        assert written(tmp_path / "file") == before

    def test_records_that_are_there_are_compared_not_written_again(self, tmp_path: Path) -> None:
        before = written(tmp_path / "file", b"one", b"two")
        writer = Writer(tmp_path / "file")
        writer.open(NEW)
        writer.append([(1, b"one"), (2, b"two")])
        assert (tmp_path / "file").read_bytes() == before
        with pytest.raises(ConfigError, match="position 2 is another message"):
            writer.append([(1, b"one"), (2, b"TWO"), (3, b"three")])
        assert (tmp_path / "file").read_bytes() == before
        writer.close()

    def test_nothing_half_written_stays_when_the_disk_is_full(self, tmp_path: Path) -> None:
        writer = Writer(tmp_path / "file")
        writer.open(NEW)
        writer.append([(1, b"one")])
        before = (tmp_path / "file").read_bytes()
        with file_size_limit(len(before) + 10), pytest.raises(ServiceError, match="File too large"):
            writer.append([(2, b"two" * 50)])
        assert len((tmp_path / "file").read_bytes()) == len(before) + 10
        writer.append([(2, b"2")])
        writer.close()
        assert read(tmp_path / "file") == ([(1, b"one"), (2, b"2")], 0)


class TestStoreWithJournalFile:
    """The file has what the store has accepted, whoever dies in between."""

    @pytest.fixture
    def shared(self) -> dict[str, MemoryRun]:
        return {}

    def opened(self, path: Path, shared: dict[str, MemoryRun]) -> StoreWithJournalFile:
        store = StoreWithJournalFile(
            MemoryStore("run", JournalLimits(100, 1 << 20), shared), Writer(path), "run", RUN
        )
        try:
            store.open(RUN.fingerprint())
        except ConfigError:
            store.close()
            raise
        return store

    def put(self, store: StoreWithJournalFile | MemoryStore, *seqs: int) -> list[Appended]:
        return store.append([NewEntry("edge", seq, b"%d" % seq) for seq in seqs])

    def test_only_what_was_accepted_in_accept_order(
        self, tmp_path: Path, shared: dict[str, MemoryRun]
    ) -> None:
        store = self.opened(tmp_path / "file", shared)
        self.put(store, 1, 3)
        assert [answer.verdict for answer in self.put(store, 3, 4, 2)] == [
            Verdict.DUPLICATE,
            Verdict.ACCEPTED,
            Verdict.DUPLICATE,
        ]
        store.save(Snapshot(3, b"state"))
        self.put(store, 5)
        store.close()
        assert read(tmp_path / "file")[0] == [(1, b"1"), (2, b"3"), (3, b"4"), (4, b"5")]

    @pytest.mark.parametrize("saved", [0, 1, 2])
    @pytest.mark.parametrize("written_of_last", [0, 5, 10**6])
    def test_a_death_between_store_and_file(
        self, tmp_path: Path, shared: dict[str, MemoryRun], saved: int, written_of_last: int
    ) -> None:
        # Given two messages in both, a snapshot, and a third that the store has accepted and the
        # file in part,
        store = self.opened(tmp_path / "file", shared)
        self.put(store, 1, 2)
        if saved:
            store.save(Snapshot(saved, b"state"))
        inner = store._inner
        assert isinstance(inner, MemoryStore)
        self.put(inner, 3)
        store.close()
        with (tmp_path / "file").open("ab") as file:
            file.write(journal_file.encode_record(3, b"3")[:written_of_last])
        # when another process takes over, then the file has it once, and goes on.
        again = self.opened(tmp_path / "file", shared)
        self.put(again, 4)
        again.close()
        assert read(tmp_path / "file") == ([(n, b"%d" % n) for n in range(1, 5)], 0)

    def test_a_file_asked_for_later_begins_at_the_snapshot(
        self, tmp_path: Path, shared: dict[str, MemoryRun]
    ) -> None:
        inner = MemoryStore("run", JournalLimits(100, 1 << 20), shared)
        inner.open(RUN.fingerprint())
        self.put(inner, 1, 2, 3)
        inner.save(Snapshot(2, b"state at 2"))
        self.opened(tmp_path / "file", shared).close()
        assert read(tmp_path / "file")[0] == [(3, b"3")]
        with journal_file.open_journal(tmp_path / "file") as file:
            assert JournalReader(file, "file").header.base == Snapshot(2, b"state at 2")

    def test_a_file_that_misses_what_the_store_has_forgotten(
        self, tmp_path: Path, shared: dict[str, MemoryRun]
    ) -> None:
        store = self.opened(tmp_path / "file", shared)
        self.put(store, 1)
        store.close()
        inner = MemoryStore(
            "run", JournalLimits(100, 1 << 20), shared
        )  # an aggregator without the setting
        inner.open(RUN.fingerprint())
        self.put(inner, 2)
        inner.save(Snapshot(2, b"state"))
        with pytest.raises(ConfigError, match="ends at 1, but the store goes on from 2"):
            self.opened(tmp_path / "file", shared)

    def test_a_store_that_has_lost_messages_does_not_shorten_the_file(
        self, tmp_path: Path, shared: dict[str, MemoryRun]
    ) -> None:
        store = self.opened(tmp_path / "file", shared)
        self.put(store, 1, 2, 3)
        store.close()
        with pytest.raises(StoreLost, match="has 3 messages more than the store"):
            self.opened(tmp_path / "file", {})
        data = shared["run"]
        data.position, data.journal, data.last_seqs["edge"] = 1, data.journal[:1], 1
        inner = MemoryStore("run", JournalLimits(100, 1 << 20), shared)
        inner.open(RUN.fingerprint())
        inner.append([NewEntry("edge", 2, b"another two")])
        with pytest.raises(ConfigError, match="position 2 is another message"):
            self.opened(tmp_path / "file", shared)
        assert len(read(tmp_path / "file")[0]) == 3
