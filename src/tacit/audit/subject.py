"""What is audited: a real edge behind the wire. Everything else in the audit sees the bytes that come out of here.

An attacker chooses the model that the edge works on, and reads what it sends. `EdgeAdapter` is one edge of one algorithm;
what it says is read as a noisy sum of clipped gradients, divided by L, whatever the algorithm made of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random as Chooser

import torch
from torch import Tensor

from tacit.algorithms import fedasync
from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.dp_pasgd import averaging
from tacit.algorithms.gossip.adp2sgd import Peer, Terms
from tacit.algorithms.mapa import Edge
from tacit.config.algorithms import DpPasgd, FedAsync
from tacit.config.topology import build
from tacit.datasets import Dataset
from tacit.models import Layered, Model
from tacit.privacy.accounting import Spend, epsilon_pld
from tacit.privacy.ledger import Ledger
from tacit.privacy.release import Mechanism, Plan, Releaser
from tacit.privacy.sampling import Random
from tacit.protocol import wire, wire_gossip
from tacit.protocol.messages import Answer, GlobalModel, Proposal, Push

DELTA, SCHEMA, RUN, EDGE = 1e-5, bytes(32), "audit", "edge-0"
CLIP, CLIPS = 1e-3, (1e-4, 1.0)  # CLIPS: the edge's own bounds
ROWS, MOST = (
    12,
    16,
)  # records with the canary; slots of a batch of all of them: public, the same without it
NARROW = Layered("audit", (1, 1, 2), 2, hidden=(1,))  # 7 parameters
WIDE = Layered("audit", (1, 1, 16), 2, hidden=(8,))  # 154
LOUD = 1000.0  # η of what is learnt: so large that float32 models hold each step exactly enough

Ask = Callable[[], bytes]
Maker = Callable[..., EdgeRole]
Resend = Callable[
    [Ask], tuple[bytes, bytes]
]  # a message made by Ask: as sent, and as sent again after a restart


class Randomness:
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
    """An edge and what it claims: honest as it stands, a mutant with one class replaced (audit/mutants*.py).

    algorithm: whose message is audited (`ADAPTERS`). z: as in `Plan`; 1/ε of one push for the pure mechanisms, and for
    the paper's, in its own accounting. steps: H, the releases that one message is made of. learning_rate: η of them.
    """

    name: str
    algorithm: str = "mapa"
    mechanism: Mechanism = "gaussian"
    z: float = 1.0
    rate: float = 1.0
    batch: float = ROWS
    most: int = MOST
    steps: int = 1
    learning_rate: float = LOUD
    model: Model = NARROW
    edge: Maker | None = None  # instead of the algorithm's own edge
    releaser: type[Releaser] = Releaser
    random: type[Random] = Random
    ledger: type[Ledger] = Ledger
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
        """The claim of one message as Gaussian DP; None where it is none: q < 1, pure ε."""
        return None if self.pure or self.rate < 1 else math.sqrt(self.steps) / self.z

    @property
    def epsilon(self) -> float:
        """The claimed ε of one message."""
        if self.pure:
            return 1 / self.z
        return epsilon_pld([Spend(self.rate, self.z, self.steps, self.mechanism)], DELTA)

    @property
    def std(self) -> float:
        """The claimed noise of one coordinate of a message with C = CLIP."""
        spread = math.sqrt(self.model.size + 1) if self.mechanism == "knorm" else 1.0
        return math.sqrt(self.steps) * spread * self.z * CLIP / self.batch

    @property
    def kurtosis(self) -> float:
        """Of that noise."""
        d = self.model.size
        return (
            3 * (d + 3) / (d + 1) if self.mechanism == "knorm" else 3.0
        )  # E R⁴·E u⁴ / (E R²·E u²)²

    def plan(self) -> Plan:
        """Without a budget: the audit asks as often as it needs."""
        return Plan(
            self.mechanism,
            self.rate,
            self.batch,
            self.z,
            *CLIPS,
            math.inf,
            DELTA,
            paper_epsilon=1 / self.z,
            rows_max=self.most,
        )


# -- who speaks -----------------------------------------------------------------------------------------------------


class EdgeAdapter:
    """MAPA's edge: a push is the noisy sum itself."""

    def __init__(self, subject: Subject, data: Dataset, releaser: Releaser) -> None:
        self.subject = subject
        self.edge = self.role(data, releaser)

    def role(self, data: Dataset, releaser: Releaser) -> EdgeRole:
        """The audited edge."""
        return (self.subject.edge or Edge)(EDGE, data, self.subject.model, releaser)

    def ask(self, message: GlobalModel) -> bytes | None:
        """What the edge sends for a model, as bytes; None if it sends nothing. Raises what the edge raises."""
        for out in self.edge.on_message(message):
            if isinstance(out.message, Push):
                return wire.up(RUN, 1, out.message, SCHEMA)
        return None

    def read(self, payload: bytes, start: Tensor) -> Tensor:
        """(d,) float64: the noisy sum over L that a message says, asked at `start` (d,)."""
        return vector(payload)


class LocalStepsAdapter(EdgeAdapter):
    """FedAsync's and FedAvg's worker: a message is the model after H local steps, start - η·Σ g̃."""

    def role(self, data: Dataset, releaser: Releaser) -> EdgeRole:
        """A worker of H steps."""
        s = self.subject
        section = FedAsync(
            name="fedbuff" if s.algorithm == "fedbuff" else "fedasync",
            steps_min=s.steps,
            learning_rate=s.learning_rate,
            proximal=0.0,
        )
        return (s.edge or fedasync.Edge)(section, EDGE, data, s.model, releaser)

    def read(self, payload: bytes, start: Tensor) -> Tensor:
        """Σ g̃."""
        return (start.double() - vector(payload)) / self.subject.learning_rate


class DistanceAdapter(LocalStepsAdapter):
    """FedBuff's worker: a message is how far H local steps led."""

    def read(self, payload: bytes, start: Tensor) -> Tensor:
        """Σ g̃."""
        return -vector(payload) / self.subject.learning_rate


class PeriodicAdapter(LocalStepsAdapter):
    """DP-PASGD's device: a message is its model after τ local steps."""

    def role(self, data: Dataset, releaser: Releaser) -> EdgeRole:
        """A device of τ steps."""
        s = self.subject
        section = DpPasgd(name="dp-pasgd", tau=s.steps, learning_rate=s.learning_rate)
        return (s.edge or averaging.Edge)(section, EDGE, data, s.model, releaser)


class PeerAdapter(EdgeAdapter):
    """A(DP)²SGD's peer, before its only neighbour: a message is the peer's model after a step, in a proposal."""

    def role(self, data: Dataset, releaser: Releaser) -> EdgeRole:
        """A peer of two."""
        terms, pair = (
            Terms(self.subject.learning_rate, CLIP, 10**9, 10),
            build("complete", (EDGE, "edge-1")),
        )
        self.asked = 0
        kind = self.subject.edge or Peer
        return kind(
            EDGE, data, self.subject.model, releaser, terms, pair, seed=1, random=Chooser(1)
        )

    def ask(self, message: GlobalModel) -> bytes | None:
        """The proposal after one step from the model in `message`, as if an exchange had led there."""
        peer = self.edge
        assert isinstance(peer, Peer)
        peer.trained.restore(message.params.double())
        read, _ = peer.begin()
        assert read is not None
        peer.finish(peer.gradient(read))
        peer.here = {"edge-1"}
        (out,) = peer.propose()
        peer.here, self.asked = set(), self.asked + 1
        assert isinstance(out.message, Proposal)
        peer.hear(Answer("edge-1", 1, self.asked, torch.zeros(self.subject.model.size), {}))
        return wire_gossip.encode_peer_message(RUN, out.message, SCHEMA)

    def read(self, payload: bytes, start: Tensor) -> Tensor:
        """g̃."""
        sent = wire_gossip.read_peer_message(
            wire.decode(bytearray(payload)), SCHEMA, self.subject.model.size
        )
        assert isinstance(sent, Proposal)
        assert isinstance(sent.model, Tensor)
        return (start.double() - sent.model.double()) / self.subject.learning_rate


ADAPTERS: dict[str, type[EdgeAdapter]] = {
    "mapa": EdgeAdapter,
    "fedasync": LocalStepsAdapter,
    "fedbuff": DistanceAdapter,
    "dp-pasgd": PeriodicAdapter,
    "adp2sgd": PeerAdapter,
}


def make(
    subject: Subject, data: Dataset, source: Randomness, ledger: Path | str = ":memory:"
) -> EdgeAdapter:
    """The audited edge, with a ledger in memory or at a path."""
    random = source.random(subject.random)
    releaser = subject.releaser(subject.plan(), subject.ledger(ledger, "audit"), random)
    return ADAPTERS[subject.algorithm](subject, data, releaser)


# -- what it is shown -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class World:
    """A model that the attacker sends, and the edge's records, with the canary or without.

    params: (d,). rows: the others; canary: one record more. direction: (d,) float64, norm 1, in which it shows.
    """

    params: Tensor
    rows: Dataset
    canary: Dataset
    direction: Tensor

    def records(self, *, canary: bool) -> Dataset:
        """The edge's rows; the canary is the last one."""
        parts = [self.rows, self.canary] if canary else [self.rows]
        x, y = torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts])
        return Dataset(x, y, self.rows.classes, "audit")


def quiet_world(model: Model, feature: float = 0.0) -> World:
    """The model is sure of every row (its gradient is zero) except the canary, whose features are all `feature`.

    The canary's gradient is long and moves the last layer's biases only: with noise that forgets the last layer, or
    clips a mean, it shows.
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
    """NARROW: all rows pull one way, and the canary the other, about six times as long and through all layers.

    Rows that are added before they are clipped lose by the canary what they had, and get the opposite; layers that are
    clipped each by itself are longer than C together.
    """
    params = torch.tensor(
        [1.0, 0.0, 0.0, 0.5, -0.5, 0.0, 3.0]
    )  # W1 (1, 2), b1, W2 (2, 1), b2: h = x, scores ±h/2
    zeros = torch.zeros(ROWS - 1, dtype=torch.int64)
    x = torch.tensor([1.0, 0.0]).view(1, 1, 1, 2)
    rows = Dataset(x.repeat(ROWS - 1, 1, 1, 1), zeros, 2, "audit")
    gradient = torch.tensor([6.0, 0.0, 1.0, 6.0, -6.0, 1.0, -1.0], dtype=torch.float64)
    return World(
        params, rows, Dataset(6 * x, zeros[:1] + 1, 2, "audit"), gradient / gradient.norm()
    )


def received(message: GlobalModel, model: Model) -> GlobalModel:
    """The model as it comes out of the wire at the edge. Raises WireError as the wire does."""
    read = wire.read_down(wire.decode(wire.down(RUN, EDGE, message, SCHEMA)), SCHEMA, model.size)
    assert isinstance(read, GlobalModel)
    return read


class MessageSource:
    """bytes() -> what the edge sends for the world's model, again and again."""

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
        """One message. Raises what the edge raises."""
        sent = self.adapter.ask(self.message)
        assert sent is not None
        return sent

    def read(self, payload: bytes) -> Tensor:
        """(d,) float64: what anybody who reads the wire can compute."""
        return self.adapter.read(payload, self.message.params)

    def vectors(self, count: int) -> Tensor:
        """(count, d): as many messages, read."""
        return torch.stack([self.read(self()) for _ in range(count)])


def quiet_source(subject: Subject, source: Randomness, *, canary: bool) -> MessageSource:
    """A MessageSource for the quiet world."""
    return MessageSource(subject, source, quiet_world(subject.model), canary=canary)


def vector(payload: bytes) -> Tensor:
    """(d,) float64: a message's tensor, in real units."""
    received = wire.decode(payload)
    assert received.tensor is not None
    scale = received.meta.update.scale if received.tensor.dtype == torch.int32 else 1.0
    return received.tensor.to(torch.float64) * scale
