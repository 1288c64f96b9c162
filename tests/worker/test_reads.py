"""In which form a tensor travels: what its receiver reads.

Edges and aggregators of 0.1 read SHA-256 and int32.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from tacit_services.transport.mqtt import Connection, Inbound

from tacit.protocol import topics, wire, wire_down
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import GlobalModel
from tests.helpers.processes import PATIENCE
from tests.helpers.rig import STATUS, Hostile, Rig, part, run_file
from tests.helpers.servers import mosquitto, wait_for


def of_0_1(envelope: bytes) -> bytes:
    """The same message as 0.1 would have written it: nothing says what its sender reads."""
    received = wire.decode(envelope)
    received.meta.ClearField("reads")
    head = received.meta.SerializeToString()
    body = b"" if received.tensor is None else received.tensor.numpy().tobytes()
    return b"TCT1" + struct.pack("<I", len(head)) + head + bytes(-(8 + len(head)) % 64) + body


def forms(metas: list[pb.Meta]) -> set[tuple[str, int, int]]:
    """Of messages that have a tensor: what it is of, the bytes of its SHA-256 and of its XXH3."""
    return {(meta.dtype, len(meta.sha256), len(meta.xxh3)) for meta in metas if meta.dtype}


def test_an_edge_and_an_aggregator_of_today_use_the_fast_checksum_and_int16(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as broker:
        rig = Rig(run_file(updates=6), f"{broker.host}:{broker.port}", "fast")
        updates, models = list[pb.Meta](), list[pb.Meta]()

        def hear(inbound: Inbound) -> None:
            inbound.done()
            found = updates if "/up/" in inbound.topic else models
            payload = topics.read_numbered(0, inbound.payload)[1]
            if "/up/" in inbound.topic or "/model/" in inbound.topic:
                whole = wire.Assembler(1 << 24).add(payload)
                assert whole is not None
                found.append(wire.decode(whole).meta)

        heard = Connection(rig.broker, "hears", [f"tacit/v1/{rig.run_id}/#"], hear)
        heard.start(PATIENCE)
        rig.serve()
        rig.edge(0, tmp_path)
        rig.finished()
        wait_for(lambda: len([meta for meta in updates if meta.dtype]) >= 6)
        heard.stop()
    assert forms(updates) == {("i16", 0, 16)}
    assert forms(models) == {("f32", 0, 16)}


def test_an_edge_of_0_1_is_sent_what_it_reads(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as broker:
        rig = Rig(run_file(), f"{broker.host}:{broker.port}", "old-edge")
        rig.serve()
        edge = Hostile(rig, "edge-0")
        # Given an edge that says nothing of checksums, then one of today in its place:
        for older in (True, False):
            hello = edge.greeting()
            whole = hello.envelope()
            edge.publish(hello.seq, part(of_0_1(whole) if older else whole))
            # its model has the checksum that it reads.
            model = edge.receive("model").meta
            assert model.answer.status == STATUS.ACCEPTED
            assert forms([model]) == ({("f32", 32, 0)} if older else {("f32", 0, 16)})
        edge.connection.stop()
        rig.close()


@pytest.mark.parametrize("older", [True, False])
def test_an_aggregator_of_0_1_is_sent_what_it_reads(tmp_path: Path, older: bool) -> None:
    with mosquitto(tmp_path) as broker:
        rig = Rig(run_file(), f"{broker.host}:{broker.port}", "old-aggregator")
        updates, said = list[pb.Meta](), rig.model.init(1)

        def hear(inbound: Inbound) -> None:
            """Answer each message with a receipt and a model, as an aggregator does."""
            inbound.done()
            if "/up/" not in inbound.topic:
                return
            seq, payload = topics.read_numbered(0, inbound.payload)
            whole = wire.Assembler(1 << 24).add(payload)
            assert whole is not None
            meta = wire.decode(whole).meta
            if meta.dtype:
                updates.append(meta)
            receipt = pb.Receipt(status=pb.Receipt.ACCEPTED, last_seq=seq)
            model = GlobalModel(len(updates), said, 1.0)
            down = wire_down.down(rig.run_id, meta.edge, model, rig.schema, receipt, seq)
            payload = part(of_0_1(down) if older else down)
            server.publish(topics.down(rig.run_id, meta.edge, "model"), payload)

        server = Connection(rig.broker, "server", [f"tacit/v1/{rig.run_id}/up/#"], hear)
        server.start(PATIENCE)
        rig.edge(0, tmp_path)
        wait_for(lambda: len(updates) >= 3)
        rig.close()
        server.stop()
    assert not rig.failures
    assert forms(updates) == ({("i32", 32, 0)} if older else {("i16", 0, 16)})
