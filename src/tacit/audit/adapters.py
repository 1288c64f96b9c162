"""One adapter for each algorithm: a real edge, its messages in bytes, and the sum they speak of."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from tacit.algorithms import registry
from tacit.algorithms.base.algorithm import TaskSettings
from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.base.edge_task import EdgeTask
from tacit.algorithms.base.local_steps import LocalStepsTask
from tacit.algorithms.base.owner import Owner
from tacit.algorithms.gossip.adp2sgd import Peer
from tacit.audit.subject import CLIP, CLIPS, EDGE, RUN, SCHEMA, Randomness, Subject
from tacit.config import parse
from tacit.config.algorithm_entries import built_in
from tacit.config.definition import Definition
from tacit.datasets import PrivateRows
from tacit.privacy.release import Releaser
from tacit.protocol import wire, wire_gossip, wire_up
from tacit.protocol.messages import Answer, GlobalModel, Proposal, Push

# A run with the audited edge, or peer, and one more. The edge's rows, model and plan are the
# subject's, and the rest of the run file's [privacy] is not looked at.
_UPDATES = 1_000_000
_RUN = f"""
run.updates = {_UPDATES}
data.dataset = "digits"
model.name = "logistic"
edges.count = 2
[privacy]
clip = {CLIP}
clip_min = {CLIPS[0]}
clip_max = {CLIPS[1]}
[algorithm]
"""


def task_of(subject: Subject) -> EdgeTask | None:
    """Return what the subject's edge computes; None: it is a peer."""
    settings = built_in(subject.algorithm).settings
    if subject.task is not None or not issubclass(settings, TaskSettings):
        return subject.task
    return settings.model_validate({"name": subject.algorithm}).task()


class EdgeAdapter:
    """MAPA's edge for the audit: model in, bytes out. A push is the noisy sum itself.

    The edge is made as `tacit edge` makes its own: so it computes the way that edge does.
    """

    settings: ClassVar[str] = ""  # of the algorithm, with the subject's numbers

    def __init__(self, subject: Subject, data: PrivateRows, releaser: Releaser) -> None:
        self.subject = subject
        self.edge = self.role(data, releaser)

    def role(self, data: PrivateRows, releaser: Releaser) -> EdgeRole:
        """Return the edge of the run with the rows `data`."""
        subject = self.subject
        if subject.task is not None:
            return subject.task.role(self.owner(data, releaser), _UPDATES)
        arguments = self.run(), EDGE, data, subject.model, releaser
        return registry.edge(
            *arguments, rows_alone=subject.rows_alone, kind=subject.edge, ways=subject.ways
        )

    def owner(self, data: PrivateRows, releaser: Releaser) -> Owner:
        """Return the owner of the rows `data`."""
        subject = self.subject
        return Owner(
            EDGE,
            data,
            subject.model,
            releaser,
            rows_alone=subject.rows_alone,
            kind=subject.edge,
            ways=subject.ways,
        )

    def run(self) -> Definition[Any]:
        """Return the run that the audited edge is of."""
        section = f'name = "{self.subject.algorithm}"\n{self.settings}'
        return parse(_RUN + section.format(subject=self.subject), "audit").define()

    def ask(self, message: GlobalModel) -> bytes | None:
        """Return the edge's message for a model, as bytes; None if it sends nothing.

        Raises what the edge raises.
        """
        for out in self.edge.on_message(message):
            if isinstance(out.message, Push):
                return wire_up.up(RUN, 1, out.message, SCHEMA)
        return None

    def read(self, payload: bytes, start: Tensor) -> Tensor:
        """Return (d,) float64: the noisy sum over L in a message, computed from `start` (d,)."""
        return vector(payload)


class LocalStepsAdapter(EdgeAdapter):
    """FedAsync's and FedAvg's worker of H steps.

    A message is the model after them, start - η·Σ g̃.
    """

    def role(self, data: PrivateRows, releaser: Releaser) -> EdgeRole:
        """Return the edge of the algorithm's task, with the subject's steps and step size."""
        subject = self.subject
        task = task_of(subject)
        assert isinstance(task, LocalStepsTask)
        numbers = {"steps_min": subject.steps, "learning_rate": subject.learning_rate}
        return task.model_copy(update=numbers).role(self.owner(data, releaser), _UPDATES)

    def read(self, payload: bytes, start: Tensor) -> Tensor:
        """Return Σ g̃."""
        return (start.double() - vector(payload)) / self.subject.learning_rate


class DistanceAdapter(LocalStepsAdapter):
    """FedBuff's worker: a message is how far H local steps led."""

    def read(self, payload: bytes, start: Tensor) -> Tensor:
        """Return Σ g̃."""
        return -vector(payload) / self.subject.learning_rate


class PeerAdapter(EdgeAdapter):
    """A(DP)²SGD's peer with one neighbour.

    A message is the peer's model after a step, in a proposal.
    """

    settings: ClassVar[str] = """
    topology = "complete"
    learning_rate = {subject.learning_rate}
    """
    proposals = 0

    def ask(self, message: GlobalModel) -> bytes | None:
        """Return the peer's proposal after one step from the model in `message`.

        The peer takes that model as if an exchange had led there.
        """
        peer = self.edge
        assert isinstance(peer, Peer)
        peer.trained.restore(message.params.double())
        read, _ = peer.begin()
        assert read is not None
        peer.finish(peer.gradient(read))
        peer.here = {"edge-1"}
        (out,) = peer.propose()
        peer.here = set()
        self.proposals += 1
        assert isinstance(out.message, Proposal)
        peer.hear(Answer("edge-1", 1, self.proposals, torch.zeros(self.subject.model.size), {}))
        return wire_gossip.encode_peer_message(RUN, out.message, SCHEMA)

    def read(self, payload: bytes, start: Tensor) -> Tensor:
        """Return g̃."""
        sent = wire_gossip.read_peer_message(
            wire.decode(bytearray(payload)), SCHEMA, self.subject.model.size
        )
        assert isinstance(sent, Proposal)
        assert isinstance(sent.model, Tensor)
        return (start.double() - sent.model.double()) / self.subject.learning_rate


def adapter(subject: Subject) -> type[EdgeAdapter]:
    """Return the adapter of the subject's messages, by what its edge computes."""
    task = task_of(subject)
    if task is None:
        return PeerAdapter
    if not isinstance(task, LocalStepsTask):
        return EdgeAdapter
    if task.push == "distance":
        return DistanceAdapter
    return LocalStepsAdapter


def make(
    subject: Subject, data: PrivateRows, source: Randomness, ledger: Path | str = ":memory:"
) -> EdgeAdapter:
    """Return the audited edge, with a ledger in memory or at a path."""
    random = source.random(subject.random)
    releaser = subject.releaser(subject.plan(), subject.ledger(ledger, "audit"), random)
    return adapter(subject)(subject, data, releaser)


def vector(payload: bytes) -> Tensor:
    """Return (d,) float64: a message's tensor, in real units."""
    received = wire.decode(payload)
    assert received.tensor is not None
    if received.tensor.dtype == torch.int32:
        scale = received.meta.update.scale
    else:
        scale = 1.0
    return received.tensor.to(torch.float64) * scale
