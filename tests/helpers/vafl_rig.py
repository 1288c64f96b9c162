"""VAFL's roles in one process.

Digits cut into blocks of rows, messages delivered in an order drawn from a seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from tacit import datasets
from tacit.algorithms.base.labelled_records import LabelledRecords
from tacit.algorithms.vafl import vertical_settings
from tacit.algorithms.vafl.label_server import LabelServer
from tacit.algorithms.vafl.party import Party
from tacit.config import RunFile
from tacit.datasets.alignment import names
from tacit.models.zoo.embedding_networks import embedding, head
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.release.embeddings import EmbeddingPlan, EmbeddingReleaser
from tacit.protocol.messages import EVERYONE, Halt, Hello, Outgoing, Retired, Update
from tacit.protocol.vertical import Embed, Feedback, Request, Roster, UploadPart
from tests.helpers.run_files import Layer
from tests.helpers.run_files import run_file as made

NONE = EmbeddingPlan("none", 1.0, 0.0, 1.0, 1e-5)
Uplink = Hello | Update | Retired
FILE: Layer = {
    "algorithm": {"name": "vafl"},
    "privacy": {"mechanism": "none"},
    "evaluation": {"samples": 20},
}


def run_file(
    *,
    algorithm: str = "",
    updates: int = 200,
    seed: int = 1,
    rate: float = 0.5,
    t: int = 1,
    synchronous: bool = False,
    batch: float = 32.0,
    parties: int = 4,
    every: int = 10**6,
) -> RunFile:
    """Return a vertical run over four parties with digits' rows; `algorithm` adds to its section."""
    return made(
        FILE,
        {"algorithm": algorithm},
        run={"updates": updates, "seed": seed},
        algorithm={"learning_rate": rate, "t": t, "synchronous": synchronous},
        privacy={"batch": batch},
        edges={"count": parties},
        evaluation={"every": every},
    )


@dataclass
class World:
    """A server and its parties, and what is on its way to the server."""

    server: LabelServer
    parties: dict[str, Party]

    def __post_init__(self) -> None:
        self.under_way: list[Uplink] = []

    def say(self, outgoing: list[Outgoing]) -> None:
        """Put what a party says on its way."""
        self.under_way += [received(out.message) for out in outgoing]

    def deliver(self, message: Uplink) -> list[Outgoing]:
        """Fold one message, and let the parties that are answered work. Returns the answers."""
        replies = self.answered(message)
        for reply in replies:
            for name in self.parties if reply.to == EVERYONE else [reply.to]:
                assert isinstance(reply.message, Roster | Feedback | Request | Halt)
                self.say(self.parties[name].on_message(reply.message))
        return replies

    def answered(self, message: Uplink) -> list[Outgoing]:
        """Return what reaches the parties of the server's answer to `message`: all."""
        return self.server.on_message(message)

    def run(self, order: int = 1, until: Callable[[], bool] = lambda: False) -> LabelServer:
        """Deliver what is under way in a random order until nothing is, or `until` says so."""
        drawn = random.Random(order)
        while self.under_way and not self.server.halted and not until():
            self.deliver(self.under_way.pop(drawn.randrange(len(self.under_way))))
        return self.server

    def start(self) -> World:
        """Send every party's Hello, and its table."""
        for party in self.parties.values():
            self.say(party.start())
        return self

    def after_tables(self) -> World:
        """Start, and go on to where the first batches are under way."""
        self.start().run(until=lambda: bool(self.server.answers))
        return self

    def accuracy(self) -> float:
        """Return the accuracy of the last evaluation."""
        server = self.server
        assert server.evaluation.latest is not None
        version, params, examples = server.evaluation.latest
        assert version == server.version == server.horizon
        return float(
            (server.head.logits(params, examples.x).argmax(1) == examples.y).float().mean()
        )


def received(message: Any) -> Uplink:
    """Return what the server role gets for a party's message."""
    if not isinstance(message, Embed):
        assert isinstance(message, Hello | Retired)
        return message
    vector = torch.zeros(0) if message.released is None else message.released.vectors.flatten()
    return Update(
        message.edge,
        message.iteration,
        vector,
        1.0,
        message.spent,
        message.charged,
        part=message.part,
    )


@lru_cache(maxsize=4)
def table(name: str, root: Any, records: int | None = None) -> tuple[Tensor, Tensor, int]:
    """Return (x, y, training rows) of a dataset: `records` training rows, then its test rows."""
    train, test = datasets.load(name, "train", root), datasets.load(name, "test", root)
    train_count = len(train) if records is None else records
    return (
        torch.cat([train.x[:train_count], test.x]),
        torch.cat([train.y[:train_count], test.y]),
        train_count,
    )


def blocks(x: Tensor, parties: int) -> list[Tensor]:
    """Return every party's columns."""
    return [datasets.party_view(x, party, parties) for party in range(parties)]


def world(
    run: RunFile | None = None,
    plan: EmbeddingPlan = NONE,
    *,
    data: tuple[Tensor, Tensor, int] | None = None,
    kind: Any = "linear",
    width: int = 10,
    combine: Any = "sum",
    hidden: tuple[int, ...] = (),
    head_hidden: tuple[int, ...] = (),
    seed: int | None = 7,
    regularization: float = 0.0,
    smoothing: float = 0.0,
    channels: tuple[int, ...] = (4,),
    label_epsilon: float = float("inf"),
) -> World:
    """Build the roles of a run on the digits, or on `data`.

    Every party has its rows in an order of its own.
    """
    run = run or run_file()
    protocol = vertical_settings.vertical(run.define()).protocol
    x, y, records = data or table("digits", None)
    ids = [f"id-{row}" for row in range(len(x))]
    top = head(combine, protocol.parties, width, int(y.max()) + 1, head_hidden)
    labelled_records = LabelledRecords(names(ids, b"salt", "server"), records, y, label_epsilon)
    server = LabelServer(run.define(), top, protocol, labelled_records, lambda _: plan)
    parties = {}
    for number, view in enumerate(blocks(x, protocol.parties)):
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(number)).tolist()
        h = embedding(
            kind,
            tuple(view.shape[1:]),
            width,
            hidden=hidden,
            channels=channels,
            smoothing=smoothing,
        )
        random_ = Random(None if seed is None else seed + number)
        releaser = EmbeddingReleaser(plan, Ledger(":memory:", "digits"), random_, len(x))
        mine = names([ids[row] for row in order], b"salt", f"edge-{number}")
        party = Party(
            f"edge-{number}", number, protocol, view[order], mine, h, releaser, regularization
        )
        parties[party.edge] = party
    return World(server, parties)


def part_of(message: Update) -> UploadPart:
    """Return which rows an upload fills."""
    assert message.part is not None
    return message.part


def take(world: World, message: Any) -> Any:
    """Return `message`, which is no longer under way."""
    world.under_way = [pending for pending in world.under_way if pending is not message]
    return message


def uploads(world: World) -> Iterator[Update]:
    """Return the activations under way."""
    return (
        message
        for message in world.under_way
        if isinstance(message, Update) and part_of(message).step > 0
    )
