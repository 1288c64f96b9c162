"""One append is written while the next messages are judged.

Whatever fails, nothing is lost or folded twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from tacit_services.journal.store import Appended, NewEntry
from tacit_services.journal.store.memory import MemoryRun, MemoryStore
from tacit_services.transport.mqtt import Inbound

from tacit.errors import ServiceError
from tacit.protocol._pb import wire_pb2 as pb
from tests.golden.harness import sha256
from tests.helpers.processes import Caller
from tests.helpers.rig import ROOMY, STATUS, Rig, hello_meta, inbound, run_file, take, update_meta
from tests.helpers.servers import mosquitto

EDGES = ("edge-0", "edge-1", "edge-2")


class Slow(MemoryStore):
    """A store that calls `meanwhile` between the two steps of every append.

    `fails` names the steps ("begin 2") that fail.
    """

    def __init__(self, shared: dict[str, MemoryRun]) -> None:
        super().__init__("intake", ROOMY, shared)
        self.meanwhile: Callable[[], None] = lambda: None
        self.fails: set[str] = set()
        self.steps: list[str] = []

    def begin(self, entries: Sequence[NewEntry]) -> Callable[[], list[Appended]]:
        if not entries:
            return list
        self._step("begin")
        answers = super().begin(entries)
        self.meanwhile()

        def found() -> list[Appended]:
            self._step("answers")
            return answers()

        return found

    def _step(self, kind: str) -> None:
        name = f"{kind} {sum(step.startswith(kind) for step in self.steps) + 1}"
        self.steps.append(name)
        if name in self.fails:
            raise ServiceError(f"store: gone at {name}")


class Aggregator:
    """A driver whose three edges have sent Hello.

    Their next messages come one by one, each while the one before is written.
    """

    def __init__(self, broker: str, updates: int = 1000) -> None:
        self.shared: dict[str, MemoryRun] = {}
        self.store = Slow(self.shared)
        self.rig = Rig(run_file(updates), broker, "intake", self.store)
        self.rig.driver.recover()
        self.connection = self.rig.connect()
        self.callers = {name: Caller(broker, "intake", name) for name in EDGES}
        self.done: list[str] = []
        for name in EDGES:
            take(self.rig.pipeline, self.messages(name, [hello_meta(self.rig.run)]))
            assert self.told(name) == STATUS.ACCEPTED
        self.store.steps.clear()
        self.store.meanwhile = self.come
        self.coming = [self.messages(name, [update_meta(0)], 2) for name in EDGES]

    def messages(self, edge: str, metas: list[pb.Meta], first: int = 1) -> list[Inbound]:
        arrivals = inbound(self.rig, metas, first, edge)
        return [
            Inbound(message.topic, message.payload, lambda: self.done.append(edge))
            for message in arrivals
        ]

    def come(self) -> None:
        for message in self.coming.pop(0) if self.coming else ():
            self.rig.pipeline.hear(message)

    def start(self) -> None:
        """Accept the first of what is coming."""
        self.done.clear()
        take(self.rig.pipeline, self.coming.pop(0))

    def told(self, edge: str) -> int:
        return int(self.callers[edge].receive("receipt").meta.receipt.status)

    def recovered(self) -> str:
        """Return the digest of the model that another aggregator makes of what is in the store."""
        again = self.rig.assembled(MemoryStore("intake", ROOMY, self.shared))
        again.driver.recover()
        return sha256(again.run.role)

    def close(self) -> None:
        for caller in self.callers.values():
            caller.connection.stop()
        self.connection.stop()


@pytest.fixture
def aggregator(tmp_path: Path) -> Iterator[Aggregator]:
    with mosquitto(tmp_path) as broker:
        aggregator = Aggregator(f"{broker.host}:{broker.port}")
        yield aggregator
        aggregator.close()


def test_what_comes_while_the_store_writes_is_on_its_way_before_the_first_is_folded(
    aggregator: Aggregator,
) -> None:
    versions: list[int] = []

    def meanwhile() -> None:
        versions.append(aggregator.rig.live.role.version)
        aggregator.come()

    aggregator.store.meanwhile = meanwhile
    aggregator.start()
    assert aggregator.store.steps == [
        "begin 1",
        "answers 1",
        "begin 2",
        "answers 2",
        "begin 3",
        "answers 3",
    ]
    assert versions == [0, 0, 1]  # of the model when each append had begun
    assert [aggregator.told(name) for name in EDGES] == [STATUS.ACCEPTED] * 3
    assert aggregator.done == list(EDGES)
    assert (aggregator.rig.live.role.version, aggregator.recovered()) == (
        3,
        sha256(aggregator.rig.live.role),
    )


@pytest.mark.parametrize(
    ("step", "folded", "busy"),
    [
        ("begin 1", 0, ["edge-0"]),
        ("answers 1", 0, ["edge-0", "edge-1"]),  # the second has been judged by then
        ("begin 2", 1, ["edge-1"]),
        ("answers 2", 1, ["edge-1", "edge-2"]),
        ("begin 3", 2, ["edge-2"]),
    ],
)
def test_where_the_store_fails_everybody_is_told_to_wait_and_nothing_is_lost(
    aggregator: Aggregator, step: str, folded: int, busy: list[str]
) -> None:
    # When the store fails at any step, then what it had answered before is in the model, and its
    # edge knows,
    aggregator.store.fails = {step}
    with pytest.raises(ServiceError, match=step):
        aggregator.start()
    assert aggregator.rig.live.role.version == folded
    assert [aggregator.told(name) for name in EDGES[:folded]] == [STATUS.ACCEPTED] * folded
    # and all others whose message was taken in hand are told to wait.
    assert [aggregator.told(name) for name in busy] == [STATUS.BUSY] * len(busy)
    assert sorted(aggregator.done) == [*EDGES[:folded], *busy]
    # What was written without an answer is folded when the store is back, and the same bytes are a
    # duplicate then.
    aggregator.store.fails = set()
    aggregator.rig.driver.recover()
    aggregator.store.meanwhile = lambda: None
    for name in EDGES:
        take(aggregator.rig.pipeline, aggregator.messages(name, [update_meta(0)], 2))
    assert aggregator.rig.live.role.version == 3
    assert [record.edge for record in aggregator.store.read(0, 10)[3:]] == list(EDGES)
    assert aggregator.recovered() == sha256(aggregator.rig.live.role)


def test_nothing_is_journalled_beside_what_ends_the_run(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as broker:
        ending = Aggregator(f"{broker.host}:{broker.port}", updates=2)
        ending.start()
        take(ending.rig.pipeline, [])
        assert [ending.told(name) for name in EDGES] == [
            STATUS.ACCEPTED,
            STATUS.ACCEPTED,
            STATUS.REJECTED,
        ]
        assert ending.rig.live.counts["late"] == 1
        assert len(ending.store.read(0, 10)) == 3 + 2
        ending.close()


def test_a_stream_that_does_not_end_is_left_for_the_loop_now_and_then(
    aggregator: Aggregator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit_services.aggregator.pipeline.ROUND_SECONDS", 0.0)
    aggregator.start()
    assert aggregator.rig.live.role.version == 1
    assert len(aggregator.rig.pipeline._inbox) == 1  # nothing that came is lost
