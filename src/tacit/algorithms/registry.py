"""Make roles from a run's definition. Only this module knows which file an algorithm is in.

`ROLES` is the table, by `algorithm.name`. All else that the rest of the code asks of an algorithm
is in its section (config/contract).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from random import Random as Chooser
from typing import Any

import torch
from torch import Tensor

from tacit.algorithms import mapa
from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.base.local_steps import LocalSteps
from tacit.algorithms.base.server import ServerRole
from tacit.algorithms.dp_pasgd import averaging
from tacit.algorithms.fedasync.edge_task import FedAsyncEdge
from tacit.algorithms.fedasync.fedavg import AveragingServer
from tacit.algorithms.fedasync.fedbuff import BufferedServer
from tacit.algorithms.fedasync.mixing import MixingServer
from tacit.algorithms.gossip import adp2sgd, worker
from tacit.algorithms.gossip.allreduce import SyncPeer
from tacit.algorithms.gossip.report_fold import ReportFold
from tacit.algorithms.gossip.worker import GossipSettings
from tacit.algorithms.vafl import label_server as vafl
from tacit.algorithms.vafl import vertical_settings
from tacit.algorithms.vafl.labelled_records import LabelledRecords
from tacit.algorithms.vafl.party import Party
from tacit.algorithms.vafl.vertical_settings import Vertical
from tacit.config.algorithms import Gossip, Mapa
from tacit.config.definition import Definition
from tacit.datasets import Dataset, PrivateRows
from tacit.datasets.alignment import names
from tacit.errors import ConfigError
from tacit.models import Model
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.choice import WAYS, Ways, private_sum
from tacit.privacy.private_sum.way import PrivateSum
from tacit.privacy.release import Releaser
from tacit.privacy.release.embeddings import EmbeddingReleaser, EmbeddingStore

EdgeFactory = Callable[..., EdgeRole]


@dataclass(frozen=True, slots=True, eq=False)
class Owner:
    """What an edge role is built from and no other edge has.

    releaser: what alone releases anything of the rows. device: where the edge computes. rows_alone:
    as for `private_sum`. kind, ways: the class of the role, and of its private sum; None: the
    algorithm's own.
    """

    name: str
    data: PrivateRows
    model: Model
    releaser: Releaser
    device: str = "cpu"
    rows_alone: bool = True
    kind: EdgeFactory | None = None
    ways: Ways | None = None

    def private_sum(self, ways: Ways = WAYS) -> PrivateSum:
        """Return the private sum over the rows, in one of the algorithm's `ways`."""
        return private_sum(
            self.data,
            self.model,
            self.releaser.plan,
            self.releaser.random,
            self.device,
            rows_alone=self.rows_alone,
            ways=self.ways or ways,
        )


@dataclass(frozen=True, slots=True)
class Roles:
    """The functions that make one algorithm's roles from a run's definition.

    server: takes the model, and the labelled records where the server has them. edge: takes the
    edge's `Owner`; a vertical run's refuses, as it has parties instead.
    """

    server: Callable[[Any, Model, LabelledRecords | None], ServerRole]
    edge: Callable[[Any, Owner], EdgeRole]


def server(
    definition: Definition[Any], model: Model, labelled: LabelledRecords | None = None
) -> ServerRole:
    """Return the server role of a run, at its beginning.

    labelled: the records that the server of a vertical run needs. Raises ConfigError where a
    vertical run has none.
    """
    return ROLES[definition.algorithm.name].server(definition, model, labelled)


def edge(
    definition: Definition[Any],
    name: str,
    data: PrivateRows,
    model: Model,
    releaser: Releaser,
    device: str = "cpu",
    *,
    rows_alone: bool = True,
    kind: EdgeFactory | None = None,
    ways: Ways | None = None,
) -> EdgeRole:
    """Return the role of edge `name` of a run, which holds the rows `data`.

    `tacit edge`, the audit, the simulator and the golden runs all make their edges with it, so that
    none goes another way than the others unless it asks for one. rows_alone: as for `private_sum`;
    False for an owner's setting, and for the simulator. kind, ways: instead of the algorithm's own,
    for the audit's mutants. Raises ConfigError for a vertical run, which has no edges; PrivacyError
    as `private_sum`.
    """
    owner = Owner(name, data, model, releaser, device, rows_alone, kind, ways)
    return ROLES[definition.algorithm.name].edge(definition, owner)


# -- vertical runs ---------------------------------------------------------------------------------


def labelled_records(
    splits: Sequence[Dataset],
    salt: bytes,
    answers: Tensor | None = None,
    label_epsilon: float = math.inf,
) -> LabelledRecords:
    """Return all records of a vertical run; `splits` are its training rows, then its test rows.

    answers: (n_train,) what randomised response at ε = `label_epsilon` has left of the training
    labels; None: the labels themselves.
    """
    train, test = splits
    hashes = names(
        (record_id for data in splits for record_id in vertical_settings.record_ids(data)),
        salt,
        "server",
    )
    if answers is None:
        labels = train.y
    else:
        labels = answers
    return LabelledRecords(hashes, len(train), torch.cat([labels, test.y]), label_epsilon)


def party(
    vertical: Vertical,
    name: str,
    number: int,
    splits: Sequence[Dataset],
    salt: bytes,
    ledger: Ledger,
    random: Random,
    store: EmbeddingStore | None = None,
    device: str = "cpu",
) -> Party:
    """Return party `number` of a vertical run with its columns of everybody's rows.

    splits: as for `labelled_records`. device: as `Party` has it.
    """
    x = torch.cat([vertical.view(data.x, number) for data in splits])
    mine = names(
        (record_id for data in splits for record_id in vertical_settings.record_ids(data)),
        salt,
        name,
    )
    releaser = EmbeddingReleaser(vertical.plan(number), ledger, random, len(x), store)
    model = vertical.party_model(tuple(x.shape[1:]))
    regularization = vertical.regularization(number)
    return Party(name, number, vertical.protocol, x, mine, model, releaser, regularization, device)


def _labelled_server(
    definition: Definition[Any], model: Model, labelled: LabelledRecords | None
) -> ServerRole:
    """Return the server of a vertical run. Raises ConfigError without its labelled records."""
    if labelled is None:
        raise ConfigError(
            f"algorithm.name={definition.algorithm.name!r}: "
            "its server needs the labels of its people"
        )
    settings = vertical_settings.vertical(definition)
    return vafl.LabelServer(definition, model, settings.protocol, labelled, cache(settings.named))


def _no_edge(definition: Definition[Any], owner: Owner) -> EdgeRole:
    """Raise ConfigError: a vertical run has parties instead."""
    raise ConfigError(
        f"algorithm.name={definition.algorithm.name!r}: a vertical run has parties, not edges; "
        "start tacit party"
    )


# -- the table -------------------------------------------------------------------------------------


def _roles(
    server: Callable[[Any, Model], ServerRole], edge: Callable[[Any, Owner], EdgeRole]
) -> Roles:
    """Return the roles of an algorithm whose server knows no label."""
    return Roles(lambda definition, model, _: server(definition, model), edge)


def _mapa_edge(definition: Definition[Mapa], owner: Owner) -> EdgeRole:
    kind = owner.kind or mapa.MapaEdge
    return kind(owner.name, owner.model, owner.releaser, owner.private_sum(mapa.WAYS))


def _local_steps_edge(
    kind: type[LocalSteps[Any]], definition: Definition[Any], owner: Owner
) -> EdgeRole:
    return (owner.kind or kind)(
        definition.algorithm,
        owner.name,
        owner.model,
        owner.releaser,
        owner.private_sum(),
        horizon=definition.run.updates,
    )


def _peer(definition: Definition[Gossip], owner: Owner) -> EdgeRole:
    a = definition.algorithm
    seed = definition.run.seed
    settings = _gossip_settings(definition)
    graph = a.graph(definition.edges.count, seed)
    chooser = Chooser(f"{seed}/{owner.name}")
    return (owner.kind or adp2sgd.Peer)(
        owner.name,
        owner.model,
        owner.releaser,
        owner.private_sum(worker.WAYS),
        settings,
        graph,
        seed=seed,
        random=chooser,
    )


def _sync_peer(definition: Definition[Gossip], owner: Owner) -> EdgeRole:
    a = definition.algorithm
    seed = definition.run.seed
    settings = _gossip_settings(definition)
    graph = a.graph(definition.edges.count, seed)
    return (owner.kind or SyncPeer)(
        owner.name,
        owner.model,
        owner.releaser,
        owner.private_sum(worker.WAYS),
        settings,
        graph,
        seed=seed,
    )


def _gossip_settings(definition: Definition[Gossip]) -> GossipSettings:
    a = definition.algorithm
    return GossipSettings(
        a.learning_rate,
        definition.privacy.constant_clip,
        definition.run.updates,
        a.max_staleness,
        a.report_every,
        a.factor,
    )


_MAPA = _roles(mapa.MapaServer, _mapa_edge)
_FEDASYNC_EDGE = partial(_local_steps_edge, FedAsyncEdge)
_MIXING = _roles(MixingServer, _FEDASYNC_EDGE)
_GOSSIP = _roles(ReportFold, _peer)

ROLES: dict[str, Roles] = {
    "mapa": _MAPA,
    "audp": _MAPA,
    "asgd": _MAPA,
    "csgd": _MAPA,
    "fedasync": _MIXING,
    "sgd": _MIXING,
    "fedbuff": _roles(BufferedServer, _FEDASYNC_EDGE),
    "fedavg": _roles(AveragingServer, _FEDASYNC_EDGE),
    "dp-pasgd": _roles(
        averaging.DpPasgdServer, partial(_local_steps_edge, averaging.AveragingEdge)
    ),
    "adp2sgd": _GOSSIP,
    "adpsgd": _GOSSIP,
    "sync": _roles(ReportFold, _sync_peer),
    "vafl": Roles(_labelled_server, _no_edge),
}
