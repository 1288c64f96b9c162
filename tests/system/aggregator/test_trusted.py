"""Tests of noise_at = "server": what an edge sends is cut and noised before it is stored.

Its budget is recorded at the aggregator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from tacit_services.aggregator.ingest.trusted_noise import TrustedNoise
from tacit_services.aggregator.pipeline import Pipeline
from tacit_services.aggregator.reporting.run_status import RunStatus
from tacit_services.journal.store import Appended, NewEntry
from tacit_services.journal.store.memory import MemoryStore
from tacit_services.transport.mqtt import Inbound
from torch import Tensor

from tacit import config
from tacit.config import RunFile
from tacit.errors import PrivacyError, ServiceError
from tacit.privacy.accounting import History, Spend, epsilon_pld
from tacit.protocol import topics, wire
from tacit.protocol._pb import wire_pb2 as pb
from tests.golden.harness import sha256
from tests.helpers.processes import Watcher, refold
from tests.helpers.rig import ROOMY, STATUS, Hostile, Message, Rig, run_text, take
from tests.helpers.run_files import Layer
from tests.helpers.servers import PATIENCE, Mosquitto, wait_for

CLIP = 1.0


def run_file(updates: int = 1000, z: float = 1.0, epsilon: Sequence[float] = ()) -> RunFile:
    server = {"mechanism": "gaussian", "noise_at": "server", "noise_multiplier": z}
    more: Layer = {"privacy": server, "edges": {"epsilon": list(epsilon)}}
    return config.parse(run_text(updates, more=more), "test")


def make_rig(
    run: RunFile, broker: Mosquitto, run_id: str, folder: Path, store: MemoryStore | None = None
) -> Rig:
    rig = Rig(run, f"{broker.host}:{broker.port}", run_id, store, ledger=folder / "trusted.db")
    rig.store.save = lambda snapshot: None  # type: ignore[method-assign]  # keep the whole journal
    rig.ended = rig.driver.close
    return rig


def journal(rig: Rig) -> dict[tuple[str, int], wire.Received]:
    """Return every update in the journal."""
    messages = {
        (record.edge, record.seq): wire.decode(bytearray(record.payload))
        for record in rig.store.read(0, 10**6)
    }
    return {
        key: received
        for key, received in messages.items()
        if received.meta.WhichOneof("kind") == "update"
    }


def sniffed(watcher: Watcher) -> dict[tuple[str, int], Tensor]:
    """Return every update as an edge sent it."""
    sent = {}
    for (edge, seq, _), copies in list(watcher.copies.items()):
        envelope = wire.Assembler(1 << 24).add(copies[0])
        assert envelope is not None
        if (tensor := wire.decode(envelope).tensor) is not None:
            sent[edge, seq] = tensor
    return sent


def is_normal(noise: Tensor, std: float) -> bool:
    """Check whether the standard deviation of `noise` is `std`, to 4 %.

    With n = 39,000 that is eleven times its own deviation.
    """
    return bool(abs(noise.std() / std - 1) < 0.04) and bool(
        abs(noise.mean()) < 5 * std / math.sqrt(noise.numel())
    )


def test_what_was_sent_is_noised_in_the_journal_and_replays_to_the_same_bits(
    broker: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One that comes in a batch with the last would be journalled beside it, and not be in the
    # model.
    monkeypatch.setattr("tacit_services.transport.inbox.BATCH", 1)
    # Given a run whose aggregator adds the noise, and somebody who listens to what edges send,
    rig = make_rig(run_file(updates=60, z=2.5), broker, "noised", tmp_path)
    watcher = Watcher(rig.broker, rig.run_id)
    watcher.connection.start(PATIENCE)
    rig.serve()
    for number in range(2):
        rig.edge(number, tmp_path)
    role = rig.finished()
    watcher.connection.stop()
    sent, noised = sniffed(watcher), journal(rig)
    # then edges send one vector of norm C at most, without noise,
    assert all(float(vector.norm()) <= CLIP for vector in sent.values())
    assert len(noised) == 60
    # the journal has each with noise of standard deviation zC on every coordinate, all of it
    # different,
    noise = torch.stack(
        [
            received.tensor - sent[key]
            for key, received in noised.items()
            if received.tensor is not None
        ]
    )
    assert is_normal(noise, 2.5 * CLIP), (noise.std(1), noise.mean(1))
    assert not is_normal(noise * 2 / 3, 2.5 * CLIP)
    assert not is_normal(noise * 3 / 2, 2.5 * CLIP)
    assert (
        float((noise.std(0) / (2.5 * CLIP) - 1).abs().max()) < 0.55
    )  # none is left out; 650 estimates, 9 % each
    assert (
        float(torch.corrcoef(noise).fill_diagonal_(0).abs().max()) < 0.25
    )  # no two updates share their noise
    # and its fold, which knows nothing of noise, is the model to the last bit.
    records = [record.payload for record in rig.store.read(0, 10**6)]
    assert sha256(refold(rig.run, records)[0]) == sha256(role)
    again = rig.assembled(rig.store)
    again.driver.recover()
    assert sha256(again.run.role) == sha256(role)


def test_the_report_is_the_aggregators_ledger_and_says_who_is_trusted(
    broker: Mosquitto, tmp_path: Path
) -> None:
    rig = make_rig(run_file(updates=12, z=3.0), broker, "reported", tmp_path)
    rig.serve()
    rig.edge(0, tmp_path, seed=None)
    rig.finished()
    run_status = RunStatus(rig.run.define(), rig.live, tmp_path / "metrics.jsonl")
    privacy = run_status.privacy()
    assert (privacy["unit"], privacy["noise_at"]) == ("edge", "server")
    assert "not against the aggregator" in privacy["guarantee"]
    assert privacy["trusted"].startswith("the aggregator")
    edge = privacy["edges"]["edge-0"]
    assert (edge["pushes"], edge["sampling_rate"], edge["noise_multiplier"]) == (12, 1.0, 3.0)
    assert edge["mechanism"] == "gaussian@server"
    assert edge["adjacency"] == privacy["adjacency"] == "replace-an-edges-updates-by-zero"
    assert privacy["epsilon"] == edge["epsilon_pld"] == epsilon_pld([Spend(1.0, 3.0, 12)], 1e-5)


def test_an_edge_whose_budget_is_spent_at_the_aggregator_retires_and_the_run_goes_on(
    broker: Mosquitto, tmp_path: Path
) -> None:
    # Given one edge with a small budget,
    run = run_file(updates=60, z=3.0, epsilon=[6.0, 100.0])
    pushes = run.plan(0).central().pushes_left(())
    assert pushes is not None
    assert 5 < pushes < 30
    rig = make_rig(run, broker, "spent", tmp_path)
    rig.serve()
    rig.edge(0, tmp_path)
    # when it is spent, then its next push is refused and never kept, and it retires.
    wait_for(
        lambda: bool(rig.live.role.edges.get("edge-0") and rig.live.role.edges["edge-0"].retired)
    )
    assert rig.live.role.version == pushes
    assert rig.live.counts["rejected:budget"] == 1
    wait_for(lambda: rig.live.presence.get("edge-0") == "retired")
    (row,) = RunStatus(run.define(), rig.live, tmp_path / "metrics.jsonl").edges()
    assert (row["state"], row["pushes"], row["retired"][:10]) == ("retired", pushes, "the budget")
    assert 5.0 < row["epsilon_pld"] <= 6.0
    # The other one takes the run to its end.
    rig.edge(1, tmp_path)
    role = rig.finished()
    assert (role.version, role.edges["edge-0"].updates) == (60, pushes)


def caller(rig: Rig, edge: str = "edge-0", delta: float = 1e-5) -> Hostile:
    member = Hostile(rig, edge)
    hello = member.greeting(delta=delta, mechanism="gaussian@server", noise_variance=1.0)
    assert member.said(hello) == STATUS.ACCEPTED
    return member


def test_the_aggregator_cuts_for_itself_and_counts_for_itself(
    broker: Mosquitto, tmp_path: Path
) -> None:
    # Given little noise, and an edge that sends 25,000 times the norm it should, with a history of
    # its own,
    rig = make_rig(run_file(z=0.5), broker, "cuts", tmp_path)
    rig.serve()
    liar = caller(rig, delta=0.9)
    message = liar.update(1000.0)
    message.meta.update.clip = 1e9
    assert liar.said(message) == STATUS.ACCEPTED
    # then what is applied is no longer than C and the noise, and says what the aggregator has
    # charged.
    (entry,) = journal(rig).values()
    assert entry.tensor is not None
    assert float(entry.tensor.norm()) < CLIP + 0.5 * CLIP * 2 * math.sqrt(rig.model.size)
    assert entry.meta.update.clip == CLIP
    assert [(s.sampling_rate, s.noise_multiplier, s.count) for s in entry.meta.update.spent] == [
        (1.0, 0.5, 1)
    ]
    liar.connection.stop()
    rig.close()
    assert not rig.failures


def test_a_message_that_comes_again_is_not_charged_again(broker: Mosquitto, tmp_path: Path) -> None:
    rig = make_rig(run_file(), broker, "again", tmp_path)
    rig.serve()
    edge = caller(rig)
    message = edge.update(0.01)
    assert edge.said(message) == STATUS.ACCEPTED
    before = {key: received.meta.xxh3 for key, received in journal(rig).items()}
    for _ in range(3):
        assert edge.said(message) == STATUS.DUPLICATE
    edge.seq = 0
    assert (
        edge.said(edge.message(pb.Meta(retired=pb.Retired()))) == STATUS.DUPLICATE
    )  # an older one
    edge.seq = 2
    assert edge.said(edge.update(0.01)) == STATUS.ACCEPTED
    after = {key: received.meta.xxh3 for key, received in journal(rig).items()}
    assert len(after) == 2
    assert {key: after[key] for key in before} == before
    assert spent(rig) == 2
    # Nor is one that comes to the aggregator's successor.
    rig.close()
    successor = rig.assembled(rig.store)
    successor.driver.recover()
    rig.assembly = successor
    connection = rig.connect()
    count = len(rig.store.read(0, 10**6))
    take(successor.pipeline, [delivered(edge, message)])
    assert edge.receipt(message.seq).status == STATUS.DUPLICATE
    assert len(rig.store.read(0, 10**6)) == count
    assert charged(successor.pipeline, "edge-0") == (Spend(1.0, 1.0, 2),)
    successor.driver.close()
    connection.stop()
    edge.connection.stop()
    assert not rig.failures


def delivered(edge: Hostile, message: Message) -> Inbound:
    """Return the message as the broker would deliver it."""
    return Inbound(
        topics.up(edge.run_id, edge.edge, message.seq, 0), edge.parts(message)[0], lambda: None
    )


def charged(pipeline: Pipeline, edge: str) -> History:
    assert isinstance(pipeline._noise, TrustedNoise)
    return pipeline._noise._trusted.history(edge)


def spent(rig: Rig) -> int:
    return sum(row.count for row in rig.live.role.edges["edge-0"].spent)


class Failing(MemoryStore):
    """A store whose next append fails as often as `failures` says."""

    failures = 0

    def begin(self, entries: Sequence[NewEntry]) -> Callable[[], list[Appended]]:
        if self.failures and entries:
            self.failures -= 1
            raise ServiceError("store: gone")
        return super().begin(entries)


def test_a_store_that_was_away_costs_no_second_charge(broker: Mosquitto, tmp_path: Path) -> None:
    store = Failing("away", ROOMY)
    rig = make_rig(run_file(), broker, "away", tmp_path, store)
    rig.serve()
    edge = caller(rig)
    store.failures = 1
    message = edge.update(0.01)
    assert edge.said(message) == STATUS.BUSY
    wait_for(lambda: rig.live.store_up)
    assert edge.said(message) == STATUS.ACCEPTED
    assert spent(rig) == 1
    edge.connection.stop()
    rig.close()
    assert not rig.failures


def test_an_aggregator_without_its_ledger_does_not_go_on(broker: Mosquitto, tmp_path: Path) -> None:
    rig = make_rig(run_file(), broker, "lost", tmp_path)
    rig.serve()
    edge = caller(rig)
    assert edge.said(edge.update(0.01)) == STATUS.ACCEPTED
    rig.close()
    rig.ledger = tmp_path / "another.db"
    successor = rig.assembled(rig.store)
    successor.driver.recover()
    rig.assembly = successor
    connection = rig.connect()
    update = edge.update(0.01)
    with pytest.raises(
        PrivacyError,
        match=r"trusted ledger: edge-0 has fewer charges than the journal knows of \(1\)",
    ):
        take(successor.pipeline, [delivered(edge, update)])
    successor.driver.close()
    connection.stop()
    edge.connection.stop()
    assert not rig.failures
