"""What is audited: a real edge behind the wire. Everything else in the audit sees the bytes that come out of here.

The model has two layers and is sure of every row (its gradient is zero) except one, the canary, whose gradient is
long and moves the last layer's biases only: with noise that forgets the last layer, or clips a mean, it shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacit import wire
from tacit.algorithms.mapa import Edge
from tacit.datasets import Dataset
from tacit.messages import GlobalModel, Push
from tacit.models import Layered, Model
from tacit.privacy.accounting import Spend, epsilon_pld
from tacit.privacy.ledger import Ledger
from tacit.privacy.plan import Mechanism, Plan, Releaser
from tacit.privacy.sampling import Random

DELTA, SCHEMA, RUN, EDGE = 1e-5, bytes(32), "audit", "edge-0"
ROWS, CLIP, CLIPS = 12, 1e-3, (1e-4, 1.0)  # CLIPS: the edge's own bounds
NARROW = Layered("audit", (1, 1, 2), 2, hidden=(1,))  # 7 parameters
WIDE = Layered("audit", (1, 1, 16), 2, hidden=(8,))  # 154

Ask = Callable[[], bytes]
Resend = Callable[[Ask], tuple[bytes, bytes]]  # a message made by Ask: as sent, and as sent again after a restart


class Source:
    """Where the audited edges get their randomness: the system's, or (in tests) one seed after the other."""

    def __init__(self, seed: int | None = None) -> None:
        self._seed = None if seed is None else seed << 20

    def random(self, kind: type[Random] = Random) -> Random:
        """A stream that no other call has got."""
        if self._seed is None:
            return kind()
        self._seed += 1
        return kind(self._seed)


@dataclass(frozen=True)
class Subject:
    """An edge and what it claims: honest as it stands, a mutant with one class replaced (audit_mutants.py).

    z: as in `Plan`; 1/ε of one push for the pure mechanisms, and for the paper's, in its own accounting.
    """

    name: str
    mechanism: Mechanism = "gaussian"
    z: float = 1.0
    rate: float = 1.0
    batch: float = ROWS
    model: Model = NARROW
    edge: type[Edge] = Edge
    releaser: type[Releaser] = Releaser
    random: type[Random] = Random
    resend: Resend | None = None
    honest: bool = True

    def but(self, **changes: object) -> Subject:
        """The same subject in other circumstances."""
        return replace(self, **changes)  # type: ignore[arg-type]

    @property
    def delta(self) -> float:
        """δ of the claim."""
        return 0.0 if self.pure else DELTA

    @property
    def pure(self) -> bool:
        """Whether the claim is pure ε-DP."""
        return self.mechanism == "knorm" or self.mechanism.startswith("paper")

    @property
    def mu(self) -> float | None:
        """The claim as Gaussian DP, at q = 1; None for the others."""
        return None if self.pure else 1 / self.z

    @property
    def epsilon(self) -> float:
        """The claimed ε of one push, at q = 1."""
        if self.pure:
            return 1 / self.z
        return epsilon_pld([Spend(1.0, self.z, 1, self.mechanism)], DELTA)

    @property
    def std(self) -> float:
        """The claimed noise of one coordinate of a push with C = CLIP."""
        spread = math.sqrt(self.model.size + 1) if self.mechanism == "knorm" else 1.0
        return spread * self.z * CLIP / self.batch

    @property
    def kurtosis(self) -> float:
        """Of that noise."""
        d = self.model.size
        return 3 * (d + 3) / (d + 1) if self.mechanism == "knorm" else 3.0  # E R⁴·E u⁴ / (E R²·E u²)²

    def plan(self) -> Plan:
        """Without a budget: the audit asks as often as it needs."""
        return Plan(self.mechanism, self.rate, self.batch, self.z, *CLIPS, math.inf, DELTA, paper_epsilon=1 / self.z)


def records(model: Model, *, canary: bool) -> Dataset:
    """ROWS - 1 rows without a gradient, and the canary."""
    y = torch.zeros(ROWS - 1 + canary, dtype=torch.int64)
    y[ROWS - 1 :] = 1
    return Dataset(torch.zeros(len(y), *model.shape), y, 2, "audit")


def certain(model: Model) -> Tensor:
    """Parameters (d,) with which the model is sure of class 0."""
    params = torch.zeros(model.size)
    params[-2] = 80.0
    return params


def direction(model: Model) -> Tensor:
    """(d,) float64: where the canary's gradient points, norm 1."""
    vector = torch.zeros(model.size, dtype=torch.float64)
    vector[-2], vector[-1] = math.sqrt(0.5), -math.sqrt(0.5)
    return vector


def make(subject: Subject, data: Dataset, source: Source) -> Edge:
    """The edge itself, with a ledger in memory."""
    random = source.random(subject.random)
    releaser = subject.releaser(subject.plan(), Ledger(":memory:", "audit"), random)
    return subject.edge(EDGE, data, subject.model, releaser)


def received(message: GlobalModel, model: Model) -> GlobalModel:
    """The model as it comes out of the wire at the edge. Raises WireError as the wire does."""
    read = wire.read_down(wire.decode(wire.down(RUN, EDGE, message, SCHEMA)), SCHEMA, model.size)
    assert isinstance(read, GlobalModel)
    return read


def answer(edge: Edge, message: GlobalModel) -> bytes | None:
    """The update that the edge sends for a model, as bytes; None if it sends none. Raises what the edge raises."""
    for out in edge.on_message(message):
        if isinstance(out.message, Push):
            return wire.up(RUN, 1, out.message, SCHEMA)
    return None


def box(subject: Subject, source: Source, *, canary: bool) -> Ask:
    """bytes() -> what the edge sends for the same model, again and again."""
    edge = make(subject, records(subject.model, canary=canary), source)
    message = received(GlobalModel(3, certain(subject.model), CLIP), subject.model)

    def ask() -> bytes:
        sent = answer(edge, message)
        assert sent is not None
        return sent

    return ask


def vector(payload: bytes) -> Tensor:
    """(d,) float64: what anybody who reads the wire can compute."""
    received = wire.decode(payload)
    assert received.tensor is not None
    scale = received.meta.update.scale if received.tensor.dtype == torch.int32 else 1.0
    return received.tensor.to(torch.float64) * scale


def vectors(ask: Ask, count: int) -> Tensor:
    """(count, d): as many pushes."""
    return torch.stack([vector(ask()) for _ in range(count)])
