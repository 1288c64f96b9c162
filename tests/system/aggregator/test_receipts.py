"""A receipt proves what the store has accepted, to whoever has the key and to nobody else."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tacit_services.aggregator.ingest.receipts import Receipts

from tacit.errors import StoreLost
from tacit.protocol._pb import wire_pb2 as pb
from tests.helpers.rest import Rig

KEY = b"a key for the tests only"
ACCEPTED, REJECTED = pb.Receipt.ACCEPTED, pb.Receipt.REJECTED


def held(receipts: Receipts, edge: str = "edge-0", seq: int = 9) -> pb.Held:
    receipt = receipts.proven(edge, pb.Receipt(status=ACCEPTED, last_seq=seq))
    return pb.Held(seq=receipt.last_seq, proof=receipt.proof)


def test_a_receipt_ahead_of_the_store_is_the_stores_loss() -> None:
    receipts = Receipts(KEY, "run")
    with pytest.raises(StoreLost, match=r"edge-0 holds a receipt for its message 9, .* at its 8"):
        receipts.check("edge-0", held(receipts), 8)
    receipts.check("edge-0", held(receipts), 9)
    receipts.check("edge-0", held(receipts), 10)


@pytest.mark.parametrize(
    "forged",
    [
        pb.Held(seq=9),
        pb.Held(seq=9, proof=bytes(32)),
        pb.Held(seq=2**64 - 1, proof=held(Receipts(KEY, "run")).proof),
        held(Receipts(KEY, "run"), edge="edge-1"),
        held(Receipts(KEY, "another")),
        held(Receipts(b"another key", "run")),
    ],
)
def test_an_edge_that_lies_stops_nothing(forged: pb.Held, caplog: pytest.LogCaptureFixture) -> None:
    receipts = Receipts(KEY, "run")
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            receipts.check("edge-0", forged, 0)
    assert [record.getMessage().startswith("edge-0 shows") for record in caplog.records] == [True]


def test_what_was_refused_proves_nothing() -> None:
    receipts = Receipts(KEY, "run")
    assert receipts.proven("edge-0", pb.Receipt(status=REJECTED, last_seq=9)).proof == b""
    assert receipts.proven("edge-0", pb.Receipt(status=ACCEPTED)).proof == b""


def test_a_message_with_a_forged_receipt_counts_as_any_other(rig: Rig) -> None:
    rig.hello("edge-0")
    meta = pb.Meta(retired=pb.Retired(reason="enough"), held=pb.Held(seq=10**6, proof=b"x"))
    rig.send("edge-0", meta)
    assert rig.live.journal.last_seqs == {"edge-0": 2}


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_refused_messages_are_counted_and_seldom_logged(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.hello("edge-0")
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            rig.send("edge-0", pb.Meta(update=pb.Update(base_version=99)))
        for _ in range(100):
            rig.send("stranger", pb.Meta(halt=pb.Halt()))
    assert sum(rig.live.counts[f"rejected:{why}"] for why in ("shape", "name")) == 200
    assert len(caplog.records) == 2
