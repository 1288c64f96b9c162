"""How a driver takes a run over from its store, whatever happened to the one before."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tacit_services.journal.store import StoredEntry
from tacit_services.journal.store.memory import MemoryRun, MemoryStore

from tacit.errors import Fenced, ServiceError, StoreLost, WireError
from tacit.protocol import wire
from tests.golden.harness import sha256
from tests.helpers.rig import ROOMY, Rig, hello_meta, inbound, run_file, take, update_meta
from tests.unit.protocol.test_wire import of_0_1

METAS = [
    hello_meta(run_file()),
    update_meta(0),
    update_meta(0),
    update_meta(2),
    update_meta(1),
    update_meta(2),
]


def everything(rig: Rig) -> list[StoredEntry]:
    """Return the journal of the `first` fixture as it was before its snapshot."""
    return [
        StoredEntry(seq, "edge-0", seq, message.payload[wire.PART_HEADER :])
        for seq, message in enumerate(inbound(rig, METAS), 1)
    ]


class Interrupted(MemoryStore):
    """A memory store that fails at its second read, once.

    A part of the journal has been folded then.
    """

    reads = 0

    def read(self, after: int, limit: int) -> list[StoredEntry]:
        self.reads += 1
        if self.reads == 2:
            raise ServiceError("store: gone")
        return super().read(after, min(limit, 3))


class TestTakeOver:
    @pytest.fixture
    def shared(self) -> dict[str, MemoryRun]:
        return {}

    @pytest.fixture
    def first(self, address: str, shared: dict[str, MemoryRun]) -> Iterator[Rig]:
        """Yield a driver that has accepted Hello and five updates; a snapshot is at 3."""
        rig = Rig(run_file(), address, "take-over", MemoryStore("take-over", ROOMY, shared))
        rig.driver.recover()
        connection = rig.connect()
        for message in inbound(rig, METAS[:3]):
            take(rig.pipeline, [message])
        rig.driver.save()
        take(rig.pipeline, inbound(rig, METAS[3:], 4))
        yield rig
        connection.stop()

    def test_a_recovery_that_was_interrupted_is_repeated_to_the_same_bits(
        self, first: Rig, shared: dict[str, MemoryRun]
    ) -> None:
        for snapshot in (True, False):
            if not snapshot:
                shared[
                    "take-over"
                ].snapshot = None  # and the whole journal, as if none had been taken
                shared["take-over"].journal = everything(first)
            run, _, driver = first.assembled(Interrupted("take-over", ROOMY, shared))
            with pytest.raises(ServiceError, match="gone"):
                driver.recover()
            driver.recover()
            assert run.role.state()[1] == first.live.role.state()[1]
            assert sha256(run.role) == sha256(first.live.role)
            assert run.counts["accepted"] == (3 if snapshot else 0)

    def test_one_that_was_overtaken_does_not_go_on_with_a_gap(
        self, first: Rig, shared: dict[str, MemoryRun]
    ) -> None:
        # Given a second aggregator that has accepted more, and saved, and is gone,
        second = first.assembled(MemoryStore("take-over", ROOMY, shared))
        second.driver.recover()
        take(second.pipeline, inbound(first, [update_meta(3), update_meta(3)], 7))
        second.driver.save()
        # when the first comes back to the store, as after a network failure, then it leaves, and
        # has not written.
        with pytest.raises(Fenced, match="another aggregator has gone on"):
            first.driver.recover()
        assert shared["take-over"].snapshot is not None
        assert shared["take-over"].snapshot.cursor == 8

    def test_what_another_one_accepted_without_saving_is_folded(
        self, first: Rig, shared: dict[str, MemoryRun]
    ) -> None:
        second = first.assembled(MemoryStore("take-over", ROOMY, shared))
        second.driver.recover()
        take(second.pipeline, inbound(first, [update_meta(3), update_meta(3)], 7))
        first.driver.recover()
        assert sha256(first.live.role) == sha256(second.run.role)

    @pytest.mark.parametrize("stored", [0, 3, 5])
    def test_a_store_that_has_lost_accepted_messages_is_noticed(
        self, first: Rig, shared: dict[str, MemoryRun], stored: int
    ) -> None:
        data = shared["take-over"]
        data.position, data.journal = (
            stored,
            [record for record in data.journal if record.position <= stored],
        )
        if stored < 3:
            data.snapshot = None
        with pytest.raises(StoreLost, match=r"has lost accepted messages .* applied 6"):
            first.driver.recover()

    @pytest.mark.parametrize(
        ("record", "message"),
        [
            (
                lambda r: StoredEntry(r.position + 1, r.edge, r.seq, r.payload),
                "entry 6: comes after 4",
            ),
            (lambda r: StoredEntry(r.position, r.edge, r.seq, b""), "entry 5: magic: 0 bytes"),
            (
                lambda r: StoredEntry(r.position, r.edge, r.seq, r.payload[:-1] + b"?"),
                "entry 5: xxh3: ",
            ),
            (
                lambda r: StoredEntry(r.position, r.edge, r.seq, of_0_1(r.payload)),
                "entry 5: format: the message has no format",
            ),
            (
                lambda r: StoredEntry(
                    r.position, r.edge, r.seq, r.payload.replace(b"edge-0", b"edge-9")
                ),
                "entry 5: the fold",
            ),
        ],
    )
    def test_an_entry_that_nobody_has_accepted_is_named(
        self,
        first: Rig,
        shared: dict[str, MemoryRun],
        record: Callable[[StoredEntry], StoredEntry],
        message: str,
    ) -> None:
        journal = shared["take-over"].journal
        journal[1] = record(journal[1])
        second = first.assembled(MemoryStore("take-over", ROOMY, shared))
        with pytest.raises(WireError, match=f"run 'take-over': {message}"):
            second.driver.recover()
        assert second.run.epoch == 0

    def test_the_older_one_writes_nothing(self, first: Rig, shared: dict[str, MemoryRun]) -> None:
        first.assembled(MemoryStore("take-over", ROOMY, shared)).driver.recover()
        with pytest.raises(Fenced, match="newer aggregator has taken over"):
            take(first.pipeline, inbound(first, [update_meta(3)], 7))
        assert len(shared["take-over"].journal) == 3
