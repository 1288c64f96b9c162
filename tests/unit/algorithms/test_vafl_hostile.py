"""What neither side of VAFL takes from the other, whatever it says."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from tacit_services.aggregator.assembly import Surroundings, assemble
from tacit_services.journal.store import open_store
from tacit_services.transport.mqtt import Inbound
from torch import Tensor

from tacit.algorithms.vafl.label_server import LabelServer
from tacit.algorithms.vafl.step_rules import batch_rows
from tacit.privacy.release.embeddings import EmbeddingPlan
from tacit.protocol import topics, wire
from tacit.protocol._pb import wire_pb2 as pb
from tacit.protocol.messages import GlobalModel, Hello, Update
from tacit.protocol.vertical import Feedback, Request, UploadPart
from tests.helpers.rest import Silent
from tests.helpers.run_files import definition_text
from tests.helpers.vafl_rig import NONE, run_file, world

FRESH = EmbeddingPlan("fresh", 1.0, 5.0, 1e6, 1e-5)


def upload(server: LabelServer, edge: str, step: int, rows: Tensor, value: float = 0.1) -> Update:
    vector = torch.full((len(rows) * server.table.shape[2],), value)
    return Update(edge, server.version, vector, 1.0, (), part=UploadPart(step, 0, rows))


def test_no_gradient_is_given_for_rows_whose_labels_are_in_clear() -> None:
    server = world().after_tables().server
    beyond = torch.arange(server.labelled.records, server.labelled.records + 5)
    assert server.screen(upload(server, "edge-0", 1, beyond)) == "rows"
    assert server.screen(upload(server, "edge-0", 1, beyond - 5)) is None


def test_a_strangers_certificate_takes_no_partys_place() -> None:
    # Given a vertical run of four parties, with spare places for edges, which it has none of,
    run = run_file(parties=4)
    server = world().server
    surroundings = Surroundings("r", open_store("memory://", "r"), Silent(), 1 << 24, 1 << 18)
    live, pipeline, driver = assemble(run.define(), server, server.head, surroundings)
    driver.recover()
    # when three strangers say Hello before them,
    for name in ("edge-4", "edge-99", "stranger", *(f"edge-{number}" for number in range(4))):
        meta = pb.Meta(run="r", edge=name, seq=1, schema_hash=server.head.schema_hash())
        meta.hello.CopyFrom(pb.Hello(epsilon=1.0, delta=1e-5, definition=definition_text(run)))
        payload = topics.numbered(1, wire.part(wire.encode(meta), 1 << 18, 0))
        pipeline.hear(Inbound(topics.up_numbered("r", name), payload, lambda: None))
        pipeline.accept(0.0)
    # then the four places are the parties'.
    assert list(server.edges) == ["edge-0", "edge-1", "edge-2", "edge-3"]
    assert live.counts["rejected:name"] == 3


def test_an_embedding_out_of_all_bounds_is_refused() -> None:
    server = world().after_tables().server
    assert server.screen(upload(server, "edge-0", 1, torch.arange(32), 3e38)) == "norm"
    assert server.screen(upload(server, "edge-0", 1, torch.arange(32), -1e5)) is None


@pytest.mark.parametrize("plan", [FRESH, replace(FRESH, mode="trained")])
def test_what_a_party_says_of_its_noise_and_mode_moves_nothing(plan: EmbeddingPlan) -> None:
    # Given a party that says it has no noise, and is of another mode than the run,
    lying, honest = world(plan=plan).start(), world(plan=plan).start()
    lies = {
        "noise_variance": 0.0,
        "mechanism": "embedding:dp_sgd" if plan is FRESH else "embedding:cached",
    }
    lying.under_way = [replace(m, **lies) if isinstance(m, Hello) else m for m in lying.under_way]  # type: ignore[arg-type]
    # then its embeddings are weighted as the run says, and it is given a gradient only where its
    # mode learns.
    for federation in (lying, honest):
        federation.run(until=lambda federation=federation: federation.server.version >= 8)  # type: ignore[misc]
    assert torch.equal(lying.server.scales(), honest.server.scales())
    assert bool((lying.server.scales() < 1.0).all())
    learnt = [edge for edge, answer in lying.server.answers.items() if answer.gradient is not None]
    assert learnt == [
        edge for edge, answer in honest.server.answers.items() if answer.gradient is not None
    ]
    assert bool(learnt) == (plan is not FRESH)


def test_one_party_alone_makes_no_iteration_of_several() -> None:
    federation = world(run_file(synchronous=True)).after_tables()
    server = federation.server
    table = server.table.clone()
    for step in range(1, 20):
        server.on_message(upload(server, "edge-0", step, torch.arange(32)))
    assert server.version == 0
    assert len(server.gathered) == 1
    # and before all tables are there, nobody's batch counts.
    early = world(run_file(synchronous=True)).start()
    early.deliver(next(m for m in early.under_way if isinstance(m, Hello) and m.edge == "edge-0"))
    early.server.on_message(upload(early.server, "edge-0", 1, torch.arange(32)))
    assert not early.server.gathered
    assert bool((early.server.table == 0).all())
    assert not torch.equal(server.table, table)  # its first was taken


@pytest.mark.parametrize("plan", [NONE, FRESH, replace(FRESH, mode="dp_sgd", step_multiplier=5.0)])
def test_a_servers_word_that_fits_nothing_is_refused_before_anything_is_paid_for(
    plan: EmbeddingPlan,
) -> None:
    federation = world(plan=plan).after_tables()
    party = federation.parties["edge-0"]
    paid, records = (
        party.releaser.ledger.charged(),
        len(party.place) if party.place is not None else 0,
    )
    width, batch = (
        party.embedding.classes,
        len(batch_rows(party.protocol, 0, party.step, party.records)),
    )
    hostile: list[Feedback | Request | GlobalModel] = [
        GlobalModel(1, torch.zeros(party.embedding.size), 1.0),
        Feedback(1, party.step, torch.ones(batch + 1, width)),
        Feedback(1, party.step, torch.ones(batch, width + 1)),
        Feedback(1, party.step, torch.ones(batch * width)),
        Feedback(1, party.step, torch.full((batch, width), math.nan)),
        Request(9, torch.arange(0)),
        Request(9, torch.tensor([records])),
        Request(9, torch.tensor([-1])),
    ]
    for refused, word in enumerate(hostile, 1):
        assert party.on_message(word) == []
        assert party.refusals == refused
    assert party.releaser.ledger.charged() == paid
    assert party.on_message(Feedback(1, party.step, torch.ones(batch, width)))
