"""A large update goes into Redis while its last parts are still to come: whose, and until when."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from tacit_services.journal.store.redis_store import RedisStore

from tacit import config
from tacit.protocol import wire
from tacit.protocol._pb import wire_pb2 as pb
from tests.helpers.rig import ROOMY, STATUS, Hostile, Message, Rig, part, run_text
from tests.helpers.run_files import Layer
from tests.helpers.servers import Mosquitto, RedisServer, mosquitto, redis_server, wait_for

MODEL = {"name": "mlp", "hidden": [1000, 900]}  # 4 MB
LARGE_MODEL: Layer = {"model": MODEL}
AT_SERVER: Layer = {
    "model": MODEL,
    "privacy": {"mechanism": "gaussian", "noise_at": "server", "noise_multiplier": 1.0},
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    with mosquitto(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as running:
        yield running


class Scene:
    """A served run on Redis, an edge that has said Hello, and an operator's look at the store."""

    def __init__(self, rig: Rig, edge: Hostile, client: Any) -> None:
        self.rig, self.edge, self._client = rig, edge, client

    def lists(self) -> set[str]:
        """Return the keys of the payloads in the store, whole or begun."""
        index_key = f"tacit:{{{self.rig.run_id}}}:large"
        return {key.decode() for key in self._client.zrange(index_key, 0, -1)}

    def begin(self, *, damaged: bool = False) -> tuple[Message, bytes]:
        """Send all of an update but its last part, and wait until the aggregator has them.

        Returns the message and its last part. damaged: a byte of it is another.
        """
        message = self.edge.update()
        envelope = bytearray(message.envelope())
        envelope[-1] ^= damaged
        *first, last = wire.split(bytes(envelope), 1 << 18)
        for payload in first:
            self.edge.publish(message.seq, payload)
        question = part(b"", parts=len(first) + 1, total=len(envelope))
        self.edge.publish(message.seq, question)
        while len((answer := self.edge.receipt(message.seq)).missing) > 1:
            pass  # of parts before: the question comes last
        assert (answer.status, list(answer.missing)) == (STATUS.PARTIAL, [len(first)])
        return message, last

    def finish(self, message: Message, last: bytes) -> pb.Receipt:
        """Send the last part; the receipt of the whole."""
        self.edge.publish(message.seq, last)
        return self.final(message)

    def final(self, message: Message) -> pb.Receipt:
        """Return the receipt of a whole message."""
        while (receipt := self.edge.receipt(message.seq)).status == STATUS.PARTIAL:
            pass
        return receipt

    def accepted(self) -> None:
        """Have one update accepted."""
        assert self.finish(*self.begin()).status == STATUS.ACCEPTED


@contextmanager
def scene(
    broker: Mosquitto, server: RedisServer, run_id: str, more: Layer, folder: Path
) -> Iterator[Scene]:
    store = RedisStore(server.url, run_id, ROOMY)
    run = config.parse(run_text(more=more), "test")
    rig = Rig(run, f"{broker.host}:{broker.port}", run_id, store, ledger=folder / "trusted.db")
    rig.ended = rig.driver.close
    rig.serve()
    edge = Hostile(rig, "edge-0")
    with redis.Redis.from_url(server.url) as client, closing(store):
        assert edge.hello() == STATUS.ACCEPTED
        yield Scene(rig, edge, client)
        edge.connection.stop()
        rig.close()
    assert not rig.failures


def test_an_update_is_in_the_store_before_its_last_part_once_one_was_accepted(
    broker: Mosquitto, server: RedisServer, tmp_path: Path
) -> None:
    with scene(broker, server, "staged", LARGE_MODEL, tmp_path) as now:
        # Given an edge of which nothing but a Hello was accepted, nothing is staged:
        first = now.begin()
        assert now.lists() == set()
        assert now.finish(*first).status == STATUS.ACCEPTED
        (key,) = now.lists()
        # of its next update all is there that has come,
        second = now.begin()
        wait_for(lambda: len(now.lists()) == 2)
        # and it becomes the entry.
        staged = now.lists()
        assert now.finish(*second).status == STATUS.ACCEPTED
        assert now.lists() == staged
        assert key in staged
        entries = [wire.decode(entry.payload, checked=False) for entry in now.rig.store.read(1, 9)]
        assert [entry.meta.seq for entry in entries] == [2, 3]


def test_what_is_refused_is_gone_and_what_follows_is_not_staged(
    broker: Mosquitto, server: RedisServer, tmp_path: Path
) -> None:
    with scene(broker, server, "refused", LARGE_MODEL, tmp_path) as now:
        now.accepted()
        before = now.lists()
        damaged = now.begin(damaged=True)
        wait_for(lambda: len(now.lists()) == 2)
        assert now.finish(*damaged).status == STATUS.REJECTED
        wait_for(lambda: now.lists() == before)
        following = now.begin()
        assert now.lists() == before
        assert now.finish(*following).status == STATUS.ACCEPTED


def test_one_that_its_edge_gives_up_is_gone_and_what_follows_is_not_staged(
    broker: Mosquitto, server: RedisServer, tmp_path: Path
) -> None:
    with scene(broker, server, "given-up", LARGE_MODEL, tmp_path) as now:
        now.accepted()
        before = now.lists()
        now.begin()
        wait_for(lambda: len(now.lists()) == 2)
        newer = now.begin()
        assert now.lists() == before
        assert now.finish(*newer).status == STATUS.ACCEPTED
        assert len(now.lists()) == 2
        assert before < now.lists()


def test_who_is_told_to_wait_cannot_have_the_same_bytes_staged_again_and_again(
    broker: Mosquitto, server: RedisServer, tmp_path: Path
) -> None:
    with scene(broker, server, "again", LARGE_MODEL, tmp_path) as now:
        now.accepted()
        edge, before = now.edge, now.lists()
        message, last = now.begin()
        wait_for(lambda: len(now.lists()) == 2)
        parts, total = len(edge.parts(message)), len(message.envelope())
        # Given Wants of many bytes, until one has to wait (the answer to a question follows them),
        want = edge.message(pb.Meta(want=pb.Want(head=b"x" * 60_000)))
        for _ in range(40):
            edge.publish(want.seq, edge.parts(want)[0])
            edge.publish(message.seq, part(b"", parts=parts, total=total))
        wait_for(lambda: now.rig.live.counts["throttled"] > 10)
        # then nothing of it is in the store any more, and the update is accepted all the same.
        edge.publish(message.seq, part(b"", parts=parts, total=total))
        wait_for(lambda: now.lists() == before)
        assert now.finish(message, last).status == STATUS.ACCEPTED


def test_the_end_of_a_run_leaves_nothing_that_was_begun(
    broker: Mosquitto, server: RedisServer, tmp_path: Path
) -> None:
    with scene(broker, server, "ended", LARGE_MODEL, tmp_path) as now:
        now.accepted()
        now.begin()
        wait_for(lambda: len(now.lists()) == 2)
        now.rig.close()
        now.rig.driver.close()
        now.rig.store.close()
        assert now.lists() == set()  # the accepted one went with the last snapshot


def test_no_more_is_staged_than_the_store_was_said_to_need(
    broker: Mosquitto, server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit_services.aggregator.ingest.staging.TOTAL_BYTES", 1 << 21)
    with scene(broker, server, "bounded", LARGE_MODEL, tmp_path) as now:
        now.accepted()
        second = now.begin()
        assert len(now.lists()) <= 2
        assert now.finish(*second).status == STATUS.ACCEPTED
        now.accepted()  # and nothing is counted for ever
        assert now.rig.pipeline._staging._bytes == 0


def test_other_bytes_under_the_same_number_are_not_mixed_with_what_was_begun(
    broker: Mosquitto, server: RedisServer, tmp_path: Path
) -> None:
    with scene(broker, server, "other-bytes", LARGE_MODEL, tmp_path) as now:
        now.accepted()
        edge = now.edge
        # Given the beginning of a message that is 64 bytes longer than an update,
        other = edge.update(-1.0)
        for payload in list(wire.split(other.envelope() + bytes(64), 1 << 18))[:-1]:
            edge.publish(other.seq, payload)
        wait_for(lambda: len(now.lists()) == 2)
        # when a question makes the aggregator forget it, and an update comes under its number,
        edge.seq -= 1
        message = edge.update()
        parts = edge.parts(message)
        total = len(message.envelope())
        edge.publish(message.seq, part(b"", parts=len(parts), total=total))
        for payload in parts:
            edge.publish(message.seq, payload)
        # then the journal has the update, and can be read.
        assert now.final(message).status == STATUS.ACCEPTED
        (entry,) = now.rig.store.read(2, 9)
        assert entry.payload == message.envelope()
        assert len(now.lists()) == 2


def test_a_late_part_of_an_older_message_has_nothing_sent_again(
    broker: Mosquitto, server: RedisServer, tmp_path: Path
) -> None:
    with scene(broker, server, "late-part", LARGE_MODEL, tmp_path) as now:
        now.accepted()
        older, newer = now.edge.update(), now.begin()
        wait_for(lambda: len(now.lists()) == 2)
        before = now.lists()
        now.edge.publish(older.seq, now.edge.parts(older)[0])
        assert now.finish(*newer).status == STATUS.ACCEPTED
        assert now.lists() == before


def test_an_update_without_noise_never_reaches_the_store(
    broker: Mosquitto, server: RedisServer, tmp_path: Path
) -> None:
    with scene(broker, server, "at-server", AT_SERVER, tmp_path) as now:
        now.accepted()
        before = now.lists()
        assert len(before) == 1  # with noise
        second = now.begin()
        assert now.lists() == before
        assert now.finish(*second).status == STATUS.ACCEPTED


def test_what_was_begun_before_the_store_is_taken_over_goes_whole(
    broker: Mosquitto, server: RedisServer, tmp_path: Path
) -> None:
    with scene(broker, server, "taken-over", LARGE_MODEL, tmp_path) as now:
        now.accepted()
        second = now.begin()
        wait_for(lambda: len(now.lists()) == 2)
        # Given a store that fails under the driver, and is taken over again by it,
        client = now._client
        client.client_kill_filter(_type="normal", skipme=True)
        message, last = second
        receipt = now.finish(message, last)
        # then the update is accepted, at once or when it is sent again.
        if receipt.status == STATUS.BUSY:
            for payload in now.edge.parts(message):
                now.edge.publish(message.seq, payload)
            while (receipt := now.edge.receipt(message.seq)).status in (
                STATUS.PARTIAL,
                STATUS.BUSY,
            ):
                pass
        assert receipt.status in (STATUS.ACCEPTED, STATUS.DUPLICATE)
        assert now.rig.live.role.version == 2
        assert len(now.lists()) == 2
