"""A deployment in real processes.

Aggregator and edges as `tacit` starts them, and what they leave on disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit_services.aggregator import entries
from tacit_services.children.preload import ForkedService
from tacit_services.journal import journal_file
from tacit_services.journal.store import open_store
from tacit_services.journal.weights import weights
from tacit_services.launch import SERVICES
from tacit_services.transport.mqtt import Connection, Inbound

from tacit import config
from tacit.algorithms import registry
from tacit.algorithms.base.labelled_records import LabelledRecords
from tacit.algorithms.base.server import ServerRole
from tacit.config import RunFile
from tacit.errors import ServiceError
from tacit.protocol import topics, wire
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import Update
from tests.helpers.servers import HOST, wait_for
from tests.helpers.servers import PATIENCE as PATIENCE


def environment(**variables: str) -> dict[str, str]:
    """Return this process's environment with `variables`, one thread for torch, and no TACIT_*."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TACIT_")}
    return inherited | {"OMP_NUM_THREADS": "1"} | variables


class Service:
    """One `tacit` service process; started again under the same settings by `start`."""

    def __init__(self, command: str, settings: dict[str, str], log: Path) -> None:
        self._command, self._settings, self._log = command, settings, log
        self.process: ForkedService | subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str) -> None:
        """Start it; its log grows."""
        command, settings = [self._command, *arguments], environment(**self._settings)
        if self._command in SERVICES:
            self.process = ForkedService(command, settings, self._log)
            return
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tacit_services.cli.main", *command],
                env=settings,
                stdout=log,
                stderr=log,
            )

    def signal(self, number: int) -> int:
        """Send it a signal and return its exit code once it has ended."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.wait()

    def kill(self) -> None:
        """Kill the service with `kill -9`."""
        assert self.signal(signal.SIGKILL) == -signal.SIGKILL, self.log

    def wait(self) -> int:
        """Return the exit code of the service once it ends by itself."""
        assert self.process is not None
        return self.process.wait(PATIENCE)

    @property
    def log(self) -> str:
        """All it has said."""
        return self._log.read_text()


@dataclass(frozen=True, slots=True)
class Accepted:
    """One journal entry, as the oracle reads it."""

    position: int
    edge: str
    seq: int
    payload: bytes


class Deployment:
    """The services of one run, and their files."""

    def __init__(self, folder: Path, run_file: str, broker: str, store: str, run_id: str) -> None:
        self.folder, self.run_id, self.broker, self.url = folder, run_id, broker, store
        self.file = folder / "run.toml"
        self.file.write_text(run_file)
        self.out = folder / "out"
        self.services: list[Service] = []

    def aggregator(self, **more: str) -> Service:
        """Start an aggregator."""
        settings = {
            "TACIT_STORE": self.url,
            "TACIT_OUT": str(self.out),
            "TACIT_HTTP": f"{HOST}:0",
            "TACIT_LABELS": str(self.folder / "labels.safetensors"),
            "TACIT_RECEIPTS": str(self.folder / "receipts.key"),
        }
        return self._started("aggregator", settings | more, "aggregator")

    def edge(self, number: int | None = None, command: str = "edge", **more: str) -> Service:
        """Start the edge (or party) with identity `number` (None: with any that is free)."""
        settings = {
            "TACIT_IDENTITIES": str(self.folder / "identities"),
            "TACIT_PATIENCE": "2",
        } | more
        return self._started(
            command, settings | ({} if number is None else {"TACIT_IDENTITY": str(number)}), "edge"
        )

    def _started(self, command: str, settings: dict[str, str], name: str) -> Service:
        shared = {
            "TACIT_RUN_FILE": str(self.file),
            "TACIT_RUN_ID": self.run_id,
            "TACIT_BROKER": self.broker,
        }
        service = Service(
            command, shared | settings, self.folder / f"{name}-{len(self.services)}.log"
        )
        self.services.append(service)
        service.start()
        return service

    def accepted(self) -> int:
        """Return about how many messages were accepted: the sum of all last numbers.

        0: there is no store now.
        """
        try:
            with closing(open_store(self.url, self.run_id)) as store:
                return sum(store.last_seqs().values())
        except ServiceError:
            return 0

    def wait_accepted(self, count: int) -> None:
        """Wait until `count` messages have been accepted.

        Fail early when a service has ended with an error.
        """

        def so() -> bool:
            self.check_services()
            return self.accepted() >= count

        wait_for(so, PATIENCE)

    def check_services(self) -> None:
        """Raise AssertionError, with its log, when a service has ended with an error."""
        for service in self.services:
            code = service.process.poll() if service.process else None
            assert code in (None, 0, -signal.SIGKILL), f"exit code {code}: {service.log}"

    def ended(self) -> dict[str, Any]:
        """Wait until every service has ended well; the summary."""
        for service in self.services:
            assert service.wait() == 0, service.log
        return self.summary()

    def summary(self) -> dict[str, Any]:
        """Return the content of summary.json."""
        content: dict[str, Any] = json.loads((self.out / "summary.json").read_text())
        return content

    def pushes(self, number: int) -> int:
        """Return how many releases the ledger file of identity `number` has (0: there is none yet)."""
        return int(self._query(number, "SELECT COALESCE(SUM(count), 0) FROM chain")[0][0])

    def pending(self, number: int) -> dict[int, bytes]:
        """Return the messages in the ledger's file of identity `number`.

        The latest has no receipt, or a very new one.
        """
        return dict(self._query(number, "SELECT seq, envelope FROM message ORDER BY seq"))

    def _query(self, number: int, query: str) -> list[Any]:
        path = self.folder / "identities" / str(number) / "ledger.db"
        with closing(sqlite3.connect(path)) as db:
            return db.execute(query).fetchall()


@contextmanager
def deployment(
    folder: Path, run_file: str, broker: str, store: str, run_id: str
) -> Iterator[Deployment]:
    """Yield a deployment; all of its processes have ended when the block is left."""
    run = Deployment(folder, run_file, broker, store, run_id)
    try:
        yield run
    finally:
        for service in run.services:
            if service.process is not None and service.process.poll() is None:
                service.process.kill()
                service.process.wait()


class Watcher:
    """Sees all that edges send and say of themselves, as somebody with the broker's password
    would.
    """

    def __init__(self, broker: str, run_id: str, ignored: str = "") -> None:
        """Watch the run; of the edge `ignored` nothing is stored."""
        self._ignored = ignored
        self.copies: dict[tuple[str, int, int], list[bytes]] = {}
        self.presence: dict[str, str] = {}
        self._run_id, self._lock = run_id, threading.Lock()
        names = [topics.up_all(run_id), topics.presence_all(run_id)]
        self.connection = Connection(broker, f"{run_id}-watcher", names, self._seen)

    def _seen(self, inbound: Inbound) -> None:
        with self._lock:
            if f"/{self._ignored}" in inbound.topic and self._ignored:
                pass
            elif f"/{self._run_id}/up/" in inbound.topic:
                edge, seq, part = topics.parse_up(inbound.topic)
                seq, payload = topics.read_numbered(seq, inbound.payload)
                if payload is not inbound.payload:  # of an edge, not of a test that plays one
                    part = int.from_bytes(payload[4:8], "little")
                self.copies.setdefault((edge, seq, part), []).append(bytes(payload))
            else:
                self.presence[inbound.topic.rsplit("/", 1)[1]] = inbound.payload.decode(
                    "ascii", "replace"
                )
        inbound.done()

    def sent(self, edge: str, seq: int) -> int:
        """Return how often the first part of this message was seen."""
        return len(self.copies.get((edge, seq, 0), []))

    def differing(self) -> list[tuple[str, int, int]]:
        """Return the parts of messages of which two copies were not the same bytes.

        Questions are not parts.
        """
        with self._lock:
            sent = {
                key: {copy for copy in copies if not wire.read_question(copy)}
                for key, copies in self.copies.items()
            }
        return [key for key, copies in sent.items() if key[1] and len(copies) > 1]


class Caller:
    """An edge made by hand: it can say anything, on any topic."""

    def __init__(self, broker: str, run_id: str, edge: str) -> None:
        self.run_id, self.edge, self.inbox = run_id, edge, queue.SimpleQueue[Inbound]()
        self._waiting: deque[wire.Received] = deque()
        down = [topics.down_all(run_id, edge), topics.model(run_id)]
        self.connection = Connection(broker, f"{run_id}-{edge}", down, self.inbox.put)
        self.connection.start(PATIENCE)
        ready = topics.down(run_id, edge, "ready")
        self.connection.publish(ready, b"")  # it comes back once the subscriptions are in force
        while self.inbox.get(timeout=PATIENCE).topic != ready:
            pass

    def receive(self, kind: str, seconds: float = PATIENCE) -> wire.Received:
        """Return the next message of this kind, and skip others; a receipt in a model counts.

        Raise TimeoutError where none comes.
        """
        while True:
            while self._waiting:
                if (received := self._waiting.popleft()).meta.WhichOneof("kind") == kind:
                    return received
            try:
                inbound = self.inbox.get(timeout=seconds)
            except queue.Empty:
                raise TimeoutError(f"no {kind} came") from None
            inbound.done()
            payload = inbound.payload
            envelope = (
                payload if payload[:4] == wire.MAGIC else wire.Assembler(1 << 24).add(payload)
            )
            if envelope is not None:
                self._waiting.extend(apart(wire.decode(envelope)))


def apart(received: wire.Received) -> list[wire.Received]:
    """Split a model that carries a receipt into two messages."""
    meta = received.meta
    if not meta.HasField("answer"):
        return [received]
    receipt = pb.Meta(run=meta.run, edge=meta.edge, seq=meta.answered, receipt=meta.answer)
    return [wire.Received(receipt, None), received]


def appended(directory: Path) -> list[Accepted]:
    """Return every XADD in redis's append-only file.

    That is the whole accept order, although snapshots have trimmed the stream.
    """
    journal_entries = []
    for path in sorted((directory / "appendonlydir").glob("*.incr.aof")):
        for command in _commands(path.read_bytes()):
            if command[0].upper() == b"XADD":
                fields = dict(zip(command[3::2], command[4::2], strict=True))
                position = int(command[2].partition(b"-")[0])
                entry = Accepted(
                    position, fields[b"edge"].decode(), int(fields[b"seq"]), fields[b"payload"]
                )
                journal_entries.append(entry)
    return journal_entries


def journalled(run: Deployment) -> list[Accepted]:
    """Return everything that the run has accepted, as its journal file has it."""
    with journal_file.open_journal(run.folder / "journal") as file:
        records = [
            (entry.position, entry.payload) for entry in journal_file.JournalReader(file, "journal")
        ]
    return [_accepted(*record) for record in records]


def _accepted(position: int, payload: bytes) -> Accepted:
    meta = wire.decode(payload).meta
    return Accepted(position, meta.edge, meta.seq, payload)


def _commands(data: bytes) -> Iterator[list[bytes]]:
    at = 0
    while at < len(data):
        end = data.index(b"\r\n", at)
        count, at = int(data[at + 1 : end]), end + 2  # *3
        command = []
        for _ in range(count):
            end = data.index(b"\r\n", at)
            length = int(data[at + 1 : end])  # $5
            command.append(data[end + 2 : end + 2 + length])
            at = end + 2 + length + 2
        yield command


def refold(
    run: RunFile, payloads: Iterable[bytes], labelled_records: LabelledRecords | None = None
) -> tuple[ServerRole, Counter[str]]:
    """Fold these journal entries again from the start: the oracle.

    Return the role, and how many updates each edge has there.
    """
    model = run.build_model()
    role, schema, updates = (
        registry.server(run.define(), model, labelled_records),
        model.schema_hash(),
        Counter[str](),
    )
    for payload in payloads:
        message = entries.read(payload, schema, model.size)
        if isinstance(message, Update):
            updates[message.edge] += 1
        role.on_message(message)
    return role, updates


def check(
    run: Deployment, summary: dict[str, Any], journal: list[Accepted], numbers: range
) -> None:
    """Check the promise: the model is the fold of what was accepted, each once.

    Nor is anybody's spend understated.
    """
    assert [entry.position for entry in journal] == list(range(1, len(journal) + 1))
    assert len({(entry.edge, entry.seq) for entry in journal}) == len(journal)
    file = config.load(run.file)
    model = file.build_model()
    role, updates = refold(file, [entry.payload for entry in journal])
    assert summary["applied"] == summary["model_version"] == role.version == file.run.updates
    applied = sum(record.updates for record in role.edges.values())
    assert applied == sum(role.staleness.values())
    assert applied == role.version or file.algorithm.traits(file.edges.count).uploads > 1
    assert summary["model_sha256"] == hashlib.sha256(weights(model, role.params)).hexdigest()
    for number in numbers:
        reported = summary["privacy"]["edges"][f"edge-{number}"]["pushes"]
        assert updates[f"edge-{number}"] <= reported <= run.pushes(number)
