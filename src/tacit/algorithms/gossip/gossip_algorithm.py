"""The entries of gossip: A(DP)²SGD with ADPSGD, and SYNC."""

from __future__ import annotations

from random import Random as Chooser
from typing import ClassVar

from tacit.algorithms.base.algorithm import Algorithm
from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.base.labelled_records import LabelledRecords
from tacit.algorithms.base.owner import EdgeFactory, Owner
from tacit.algorithms.base.server import ServerRole
from tacit.algorithms.gossip import worker
from tacit.algorithms.gossip.adp2sgd import Peer
from tacit.algorithms.gossip.allreduce import SyncPeer
from tacit.algorithms.gossip.gossip_settings import Gossip
from tacit.algorithms.gossip.report_fold import ReportFold
from tacit.algorithms.gossip.worker import GossipSettings
from tacit.config.definition import Definition
from tacit.models import Model


class GossipAlgorithm(Algorithm):
    """A(DP)²SGD and ADPSGD. The server only folds the peers' reports."""

    settings: ClassVar = Gossip

    def server(
        self, definition: Definition[Gossip], model: Model, labelled: LabelledRecords | None = None
    ) -> ServerRole:
        """Return the observer of a run."""
        return ReportFold(definition, model)

    def edge(self, definition: Definition[Gossip], owner: Owner) -> EdgeRole:
        """Return a peer."""
        chooser = Chooser(f"{definition.run.seed}/{owner.name}")
        return _peer(definition, owner, Peer, random=chooser)


class SyncAlgorithm(GossipAlgorithm):
    """SYNC: every step is averaged over all peers."""

    def edge(self, definition: Definition[Gossip], owner: Owner) -> EdgeRole:
        """Return a peer that waits for all others."""
        return _peer(definition, owner, SyncPeer)


def _peer(
    definition: Definition[Gossip], owner: Owner, kind: EdgeFactory, **more: Chooser
) -> EdgeRole:
    seed = definition.run.seed
    return (owner.kind or kind)(
        owner.name,
        owner.model,
        owner.releaser,
        owner.private_sum(worker.WAYS),
        _settings(definition),
        definition.algorithm.graph(definition.edges.count, seed),
        seed=seed,
        **more,
    )


def _settings(definition: Definition[Gossip]) -> GossipSettings:
    a = definition.algorithm
    return GossipSettings(
        a.learning_rate,
        definition.privacy.constant_clip,
        definition.run.updates,
        a.max_staleness,
        a.report_every,
        a.factor,
    )
