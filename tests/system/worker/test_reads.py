"""In which form a tensor travels, and what becomes of a message of tacit 0.1."""

from __future__ import annotations

from pathlib import Path

from tacit_services.transport.mqtt import Connection, Inbound

from tacit.errors import OF_0_1
from tacit.protocol import topics, wire
from tacit.protocol._pb import wire_pb2 as pb
from tests.helpers.processes import PATIENCE
from tests.helpers.rig import STATUS, Hostile, Rig, part, run_file
from tests.helpers.servers import mosquitto, wait_for
from tests.unit.protocol.test_wire import of_0_1


def forms(metas: list[pb.Meta]) -> set[tuple[str, int, int]]:
    """Return the form of each message with a tensor: its dtype, and the lengths of its digests.

    The digests are SHA-256 and XXH3, in bytes.
    """
    return {(meta.dtype, len(meta.sha256), len(meta.xxh3)) for meta in metas if meta.dtype}


def test_an_edge_and_an_aggregator_use_the_fast_checksum_and_int16(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as broker:
        rig = Rig(run_file(updates=6), f"{broker.host}:{broker.port}", "fast")
        updates, models = list[pb.Meta](), list[pb.Meta]()

        def hear(inbound: Inbound) -> None:
            inbound.done()
            metas = updates if "/up/" in inbound.topic else models
            payload = topics.read_numbered(0, inbound.payload)[1]
            if "/up/" in inbound.topic or "/model/" in inbound.topic:
                envelope = wire.Assembler(1 << 24).add(payload)
                assert envelope is not None
                metas.append(wire.decode(envelope).meta)

        heard = Connection(rig.broker, "hears", [f"tacit/v1/{rig.run_id}/#"], hear)
        heard.start(PATIENCE)
        rig.serve()
        rig.edge(0, tmp_path)
        rig.finished()
        wait_for(lambda: len([meta for meta in updates if meta.dtype]) >= 6)
        heard.stop()
    assert forms(updates) == {("i16", 0, 16)}
    assert forms(models) == {("f32", 0, 16)}


def test_an_edge_of_0_1_is_told_why_it_is_refused(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as broker:
        rig = Rig(run_file(), f"{broker.host}:{broker.port}", "old-edge")
        rig.serve()
        edge = Hostile(rig, "edge-0")
        # Given a Hello of 0.1, and one that states no definition,
        hello, silent = edge.greeting(), edge.greeting()
        silent.meta.hello.ClearField("definition")
        edge.publish(hello.seq, part(of_0_1(hello.envelope())))
        refused = edge.receipt(hello.seq)
        # then each is refused with its reason, which is counted,
        reason = f"format: the message has no format, this tacit reads 2: {OF_0_1}"
        assert (refused.status, refused.reason) == (STATUS.REJECTED, reason)
        edge.publish(silent.seq, part(silent.envelope()))
        refused = edge.receipt(silent.seq)
        reason = "definition: the Hello has none"
        assert (refused.status, refused.reason) == (STATUS.REJECTED, reason)
        counts = rig.live.counts
        assert (counts["rejected:format"], counts["rejected:definition"]) == (1, 1)
        # and one of today in its place is not.
        assert edge.hello() == STATUS.ACCEPTED
        edge.connection.stop()
        rig.close()
