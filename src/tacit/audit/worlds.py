"""The inputs of an audited edge: the attacker's model, and records with or without a canary."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tacit.audit.adapters import make
from tacit.audit.subject import CLIP, EDGE, ROWS, RUN, SCHEMA, Randomness, Subject
from tacit.datasets import Dataset, PrivateRows
from tacit.models import Model
from tacit.protocol import wire, wire_down
from tacit.protocol.messages import GlobalModel


@dataclass(frozen=True, eq=False)
class World:
    """A model that the attacker sends, and the edge's records, with the canary or without.

    params: (d,). rows: the records without the canary; canary: one record more. direction: (d,)
    float64, norm 1: along it the canary shows.
    """

    params: Tensor
    rows: Dataset
    canary: Dataset
    direction: Tensor

    def records(self, *, canary: bool) -> PrivateRows:
        """Return the edge's rows; the canary is the last one."""
        if canary:
            parts = [self.rows, self.canary]
        else:
            parts = [self.rows]
        x = torch.cat([part.x for part in parts])
        y = torch.cat([part.y for part in parts])
        return Dataset(x, y, self.rows.classes, "audit")


def quiet_world(model: Model, feature: float = 0.0) -> World:
    """Return a world whose model is sure of every row (gradient zero) except the canary.

    All of the canary's features are `feature`. Its gradient is long and moves the last layer's
    biases only: noise that forgets the last layer, or a clipped mean, shows it.
    """
    params = torch.zeros(model.size)
    params[-2] = 80.0
    direction = torch.zeros(model.size, dtype=torch.float64)
    direction[-2], direction[-1] = math.sqrt(0.5), -math.sqrt(0.5)
    zeros = torch.zeros(ROWS - 1, dtype=torch.int64)
    rows = Dataset(torch.zeros(len(zeros), *model.shape), zeros, 2, "audit")
    canary = Dataset(
        torch.full((1, *model.shape), feature), torch.ones(1, dtype=torch.int64), 2, "audit"
    )
    return World(params, rows, canary, direction)


def opposed_world() -> World:
    """Return a world of NARROW where the canary pulls against all other rows.

    Its pull is six times as far as theirs, in all layers. Rows that are added before they are
    clipped lose by the canary what they had, and get the opposite. Layers that are clipped each by
    itself are longer than C together.
    """
    # W1 (1, 2), b1, W2 (2, 1), b2: the hidden unit is h = x, the scores are ±h/2.
    params = torch.tensor([1.0, 0.0, 0.0, 0.5, -0.5, 0.0, 3.0])
    zeros = torch.zeros(ROWS - 1, dtype=torch.int64)
    x = torch.tensor([1.0, 0.0]).view(1, 1, 1, 2)
    rows = Dataset(x.repeat(ROWS - 1, 1, 1, 1), zeros, 2, "audit")
    gradient = torch.tensor([6.0, 0.0, 1.0, 6.0, -6.0, 1.0, -1.0], dtype=torch.float64)
    return World(
        params, rows, Dataset(6 * x, zeros[:1] + 1, 2, "audit"), gradient / gradient.norm()
    )


def received(message: GlobalModel, model: Model) -> GlobalModel:
    """Return the model as it comes out of the wire at the edge.

    Raises WireError as the wire does.
    """
    read = wire_down.read_down(
        wire.decode(wire_down.down(RUN, EDGE, message, SCHEMA)), SCHEMA, model.size
    )
    assert isinstance(read, GlobalModel)
    return read


class MessageSource:
    """An edge that is asked for the world's model again and again.

    A call returns the next message.
    """

    def __init__(
        self,
        subject: Subject,
        source: Randomness,
        world: World,
        *,
        canary: bool,
        ledger: Path | str = ":memory:",
    ) -> None:
        self.adapter = make(subject, world.records(canary=canary), source, ledger)
        self.message = received(GlobalModel(3, world.params, CLIP), subject.model)

    def __call__(self) -> bytes:
        """Return one message. Raises what the edge raises."""
        sent = self.adapter.ask(self.message)
        assert sent is not None
        return sent

    def read(self, payload: bytes) -> Tensor:
        """Return (d,) float64: what anybody who reads the wire can compute of a message."""
        return self.adapter.read(payload, self.message.params)

    def vectors(self, count: int) -> Tensor:
        """Return (count, d): so many messages, read."""
        return torch.stack([self.read(self()) for _ in range(count)])


def quiet_source(subject: Subject, source: Randomness, *, canary: bool) -> MessageSource:
    """Return a MessageSource for the quiet world."""
    return MessageSource(subject, source, quiet_world(subject.model), canary=canary)
