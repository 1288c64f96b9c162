"""The oracle of a vertical run's processes: parties that nobody kills, in this process."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from tacit_services.aggregator import entries
from tacit_services.aggregator.vertical import record_labels
from tacit_services.identity.folder import Identity
from tacit_services.journal.weights import weights
from tacit_services.party.main import build_role
from tacit_services.settings import EdgeSettings

from tacit import config
from tacit.algorithms import registry
from tacit.algorithms.vafl.label_server import LabelServer
from tacit.algorithms.vafl.party import Party
from tacit.algorithms.vafl.vertical_settings import vertical
from tacit.config import RunFile
from tacit.privacy.ledger import Ledger
from tacit.protocol.messages import Halt, Update
from tacit.protocol.vertical import Embed, Feedback, Request, Roster, UploadPart
from tests.helpers.processes import Accepted, Deployment, appended
from tests.helpers.run_files import Layer, toml

PARTIES = 3
Downward = Roster | Feedback | Request
RUN: Layer = {
    "run": {"snapshot_every": 40},
    "algorithm": {"name": "vafl", "learning_rate": 0.5},
    "privacy": {"batch": 64},
    "edges": {"count": 3},
    "evaluation": {"every": 60, "samples": 50},
}


def noiseless(updates: int) -> str:
    """Return a run file of `updates` iterations without noise, two parties to an iteration."""
    return toml(
        RUN,
        run={"updates": updates},
        algorithm={"t": 2, "max_delay": 40},
        privacy={"mechanism": "none"},
    )


def learned_once(run: Deployment, summary: dict[str, Any]) -> None:
    """Check that every answer is learned from once, in the order of the journal.

    Each is what an undisturbed party would send.
    """
    file, journal = journalled(run)
    assert all(numbers == list(range(len(numbers))) for numbers in steps(file, journal).values())
    # The oracle: parties that nobody kills, in this process, told the same in the order in which
    # those answered.
    server, downwards = (
        fresh_server(run, file),
        {f"edge-{number}": list[Downward]() for number in range(PARTIES)},
    )
    parties = {f"edge-{number}": in_process(run, file, number) for number in range(PARTIES)}
    for entry in journal:
        message = entries.read(entry.payload, server.head.schema_hash(), server.head.size)
        if isinstance(message, Update):
            expect(message, parties[message.edge], downwards[message.edge])
        for out in server.on_message(message):
            if not isinstance(out.message, Halt):
                assert isinstance(out.message, Roster | Feedback | Request)
                downwards[out.to].append(out.message)
    assert server.version == summary["applied"] == file.run.updates
    assert (
        summary["model_sha256"] == hashlib.sha256(weights(server.head, server.params)).hexdigest()
    )


def journalled(run: Deployment) -> tuple[RunFile, list[Accepted]]:
    journal = appended(run.folder)
    assert [entry.position for entry in journal] == list(range(1, len(journal) + 1))
    assert len({(entry.edge, entry.seq) for entry in journal}) == len(journal)
    return config.load(run.file), journal


def fresh_server(run: Deployment, file: RunFile) -> LabelServer:
    labels = run.folder / "labels.safetensors"
    definition = file.define()
    labelled_records = record_labels.load(vertical(definition), None, "tacit", labels)
    server = registry.server(definition, file.build_model(), labelled_records)
    assert isinstance(server, LabelServer)
    return server


def steps(file: RunFile, journal: list[Accepted]) -> dict[str, list[int]]:
    """Return the steps of every party's activations, as they were accepted."""
    model, edge_steps = (
        file.build_model(),
        {f"edge-{number}": list[int]() for number in range(PARTIES)},
    )
    for entry in journal:
        message = entries.read(entry.payload, model.schema_hash(), model.size)
        if isinstance(message, Update) and message.part is not None and not message.part.request:
            edge_steps[message.edge].append(message.part.step)
    return edge_steps


def in_process(run: Deployment, file: RunFile, number: int) -> Party:
    with (run.folder / f"lock-{number}").open("wb") as lock:
        identity = Identity(number, run.folder, lock)
        settings = EdgeSettings(run_file=str(run.file))
        return build_role(settings, vertical(file.define()), identity, Ledger(":memory:", "digits"))


def expect(message: Update, party: Party, downwards: list[Downward]) -> None:
    """Check that the journalled upload is what the undisturbed party answers."""
    part = message.part
    assert part is not None
    (reply,) = party.on_message(
        next(downward for downward in downwards if answered_by(part, downward))
    )
    assert isinstance(reply.message, Embed)
    reply_part, released = reply.message.part, reply.message.released
    assert (reply_part.step, reply_part.request) == (part.step, part.request)
    assert torch.equal(reply_part.rows, part.rows)
    assert released is not None
    assert torch.allclose(released.vectors.flatten(), message.vector, atol=1e-5)


def answered_by(part: UploadPart, downward: Downward) -> bool:
    """Check whether `part` answers this message of the server's."""
    match downward:
        case Request(number=number):
            return number == part.request
        case Feedback(step=step):
            return not part.request and step == part.step - 1
        case Roster():
            return not part.request and part.step == 0
