"""What an update costs the aggregator, counted in steps of the interpreter: the same with ten edges
as with ten thousand.
"""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

import pytest
import torch
from tacit_services.aggregator.assembly import Surroundings, assemble
from tacit_services.journal.store import open_store
from tacit_services.transport.mqtt import Inbound

from tacit.algorithms import registry
from tacit.algorithms.base.records import EdgeRecord
from tacit.privacy.accounting import Spend
from tacit.protocol import topics, wire
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import Hello
from tests.helpers.rest import Silent
from tests.helpers.run_files import MAPA, roomy, run_file

SNAPSHOT_EVERY = 100
UPDATES = 2 * SNAPSHOT_EVERY  # so that two snapshots are among what is counted


RATE = 250.0  # updates a second
MIXING: dict[str, Any] = {"smoothness": None, "deviation": None}


class Steps:
    """Counts the bytecodes that this thread, and threads begun meanwhile, execute."""

    def __init__(self) -> None:
        self.count = 0

    def _trace(self, frame: FrameType, event: str, _argument: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.count += event == "opcode"
        return self._trace

    def __enter__(self) -> Steps:
        self._before = sys.gettrace()
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)
        threading.settrace(self._before)


class Run:
    """The driver of a run with `edges` edges at work, and updates of a few of them."""

    def __init__(self, edges: int, algorithm: str) -> None:
        run = run_file(
            MAPA,
            # Few enough that edges which push are ahead of others, and wait for their next task.
            run={"updates": 2 * UPDATES, "snapshot_every": SNAPSHOT_EVERY},
            algorithm={"name": algorithm} | ({} if algorithm == "mapa" else MIXING),
            edges={"count": 10},
        )
        definition = roomy(run, edges)
        self.model = definition.build_model()
        role = registry.server(definition, self.model)
        store = open_store("memory://", "cost")
        self.now = 1000.0
        surroundings = Surroundings(
            "cost", store, Silent(), 1 << 24, 1 << 18, clock=lambda: self.now
        )
        self.live, self.pipeline, self.driver = assemble(definition, role, self.model, surroundings)
        for name in definition.worker_names[:edges]:
            self.live.presence[name] = "online"
            hello = Hello(name, 8.0, 1e-5, "gaussian", 0.1, 0.1, 10.0, ())
            role.edges[name] = EdgeRecord(hello, 1, (Spend(0.1, 1.0, 1),))
        self.driver.recover()
        role.state()  # what a run that has gone on for a while has dumped before

    def update(self, number: int) -> Inbound:
        edge, role = f"edge-{number % 10}", self.live.role
        meta = pb.Meta(run="cost", edge=edge, seq=number + 1, schema_hash=self.model.schema_hash())
        spent = [pb.Spend(sampling_rate=0.1, noise_multiplier=1.0, count=number)]
        meta.update.CopyFrom(pb.Update(base_version=role.version, clip=1.0, spent=spent))
        payload = wire.part(wire.encode(meta, torch.full((self.model.size,), 1e-3)), 1 << 18, 0)
        return Inbound(topics.up("cost", edge, number + 1, 0), payload, lambda: None)

    def take(self, updates: range) -> None:
        """Take updates as the driver's loop does, one by one."""
        for number in updates:
            self.now += 1 / RATE
            self.pipeline.hear(self.update(number))
            self.driver.turn()


def steps(edges: int, algorithm: str) -> float:
    """Return the steps of one update, on average."""
    run = Run(edges, algorithm)
    run.take(range(20))  # whatever is done once
    with Steps() as counted:
        run.take(range(20, 20 + UPDATES))
        run.live.journal.save()
    assert run.live.role.version == 20 + UPDATES
    assert run.live.journal.counts["snapshots"] >= 2
    run.driver.close()
    return counted.count / UPDATES


@pytest.mark.parametrize("algorithm", ["mapa", "fedasync"])
def test_an_update_costs_the_same_with_ten_edges_and_with_ten_thousand(algorithm: str) -> None:
    few, many = steps(10, algorithm), steps(10_000, algorithm)
    assert few > 1000
    assert abs(many - few) < few / 10
