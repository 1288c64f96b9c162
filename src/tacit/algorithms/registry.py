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
from tacit.algorithms.fedasync.edge import Edge as FedAsyncEdge
from tacit.algorithms.fedasync.fedavg import AveragingServer
from tacit.algorithms.fedasync.fedbuff import BufferedServer
from tacit.algorithms.fedasync.mixing import MixingServer
from tacit.algorithms.gossip import adp2sgd, worker
from tacit.algorithms.gossip.allreduce import SyncPeer
from tacit.algorithms.gossip.report_fold import ReportFold
from tacit.algorithms.gossip.worker import GossipSettings
from tacit.algorithms.vafl import server as vafl
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

Kind = Callable[..., EdgeRole]


@dataclass(frozen=True, slots=True, eq=False)
class Owner:
    """What an edge role is built from and no other edge has.

    releaser: what alone releases anything of the rows. private_sum: over the rows. kind: the class
    of the role; None: the algorithm's own.
    """

    name: str
    model: Model
    releaser: Releaser
    private_sum: PrivateSum
    kind: Kind | None = None


@dataclass(frozen=True, slots=True)
class Roles:
    """The functions that make one algorithm's roles from a run's definition.

    server: takes the model too. edge: takes the edge's `Owner` too. Both are None for a vertical
    run, which has parties instead of edges and a server that knows the labels. ways: in which an
    edge may compute its private sum.
    """

    server: Callable[[Any, Model], ServerRole] | None
    edge: Callable[[Any, Owner], EdgeRole] | None
    ways: Ways = WAYS


def server(
    definition: Definition[Any], model: Model, people: LabelledRecords | None = None
) -> ServerRole:
    """Return the server role of a run, at its beginning.

    people: the labelled records that the server of a vertical run needs. Raises ConfigError where a
    vertical run has none.
    """
    made = ROLES[definition.name].server
    if made is not None:
        return made(definition, model)
    if people is None:
        raise ConfigError(
            f"algorithm.name={definition.name!r}: its server needs the labels of its people"
        )
    found = vertical_settings.vertical(definition)
    return vafl.Server(definition, model, found.protocol, people, cache(found.named))


def edge(
    definition: Definition[Any],
    name: str,
    data: PrivateRows,
    model: Model,
    releaser: Releaser,
    device: str = "cpu",
    *,
    rows_alone: bool = True,
    kind: Kind | None = None,
    ways: Ways | None = None,
) -> EdgeRole:
    """Return the role of edge `name` of a run, which holds the rows `data`.

    `tacit edge`, the audit, the simulator and the golden runs all make their edges with it, so that
    none goes another way than the others unless it asks for one. rows_alone: as for `private_sum`;
    False for an owner's setting, and for the simulator. kind, ways: instead of the algorithm's own,
    for the audit's mutants. Raises ConfigError for a vertical run, which has no edges; PrivacyError
    as `private_sum`.
    """
    roles = ROLES[definition.name]
    if roles.edge is None:
        raise ConfigError(
            f"algorithm.name={definition.name!r}: a vertical run has parties, not edges; start "
            f"tacit party"
        )
    plan, random, ways = releaser.plan, releaser.random, ways or roles.ways
    summed = private_sum(data, model, plan, random, device, rows_alone=rows_alone, ways=ways)
    return roles.edge(definition, Owner(name, model, releaser, summed, kind))


# -- vertical runs ---------------------------------------------------------------------------------


def people(
    splits: Sequence[Dataset],
    salt: bytes,
    answers: Tensor | None = None,
    label_epsilon: float = math.inf,
) -> LabelledRecords:
    """Return all people of a vertical run; `splits` are its training rows, then its test rows.

    answers: (n_train,) what randomised response at ε = `label_epsilon` has left of the training
    labels; None: the labels themselves.
    """
    train, test = splits
    known = names(
        (one for data in splits for one in vertical_settings.record_ids(data)), salt, "server"
    )
    labels = train.y if answers is None else answers
    return LabelledRecords(known, len(train), torch.cat([labels, test.y]), label_epsilon)


def party(
    vertical: Vertical,
    name: str,
    number: int,
    splits: Sequence[Dataset],
    salt: bytes,
    ledger: Ledger,
    random: Random,
    kept: EmbeddingStore | None = None,
    device: str = "cpu",
) -> Party:
    """Party `number` of a vertical run with its columns of everybody's rows.

    splits: as for `people`. device: as `Party` has it.
    """
    x = torch.cat([vertical.view(data.x, number) for data in splits])
    mine = names((one for data in splits for one in vertical_settings.record_ids(data)), salt, name)
    releaser = EmbeddingReleaser(vertical.plan(number), ledger, random, len(x), kept)
    model, regularization = (
        vertical.party_model(tuple(x.shape[1:])),
        vertical.regularization(number),
    )
    return Party(name, number, vertical.protocol, x, mine, model, releaser, regularization, device)


# -- the table -------------------------------------------------------------------------------------


def _mapa_edge(definition: Definition[Mapa], own: Owner) -> EdgeRole:
    kind = own.kind or mapa.Edge
    return kind(own.name, own.model, own.releaser, own.private_sum)


def _local_steps_edge(
    kind: type[LocalSteps[Any]], definition: Definition[Any], own: Owner
) -> EdgeRole:
    return (own.kind or kind)(
        definition.algorithm,
        own.name,
        own.model,
        own.releaser,
        own.private_sum,
        horizon=definition.horizon,
    )


def _peer(definition: Definition[Gossip], own: Owner) -> EdgeRole:
    a, seed = definition.algorithm, definition.seed
    settings, graph = _gossip_settings(definition), a.graph(definition.workers, seed)
    chooser = Chooser(f"{seed}/{own.name}")
    return (own.kind or adp2sgd.Peer)(
        own.name,
        own.model,
        own.releaser,
        own.private_sum,
        settings,
        graph,
        seed=seed,
        random=chooser,
    )


def _sync_peer(definition: Definition[Gossip], own: Owner) -> EdgeRole:
    a, seed = definition.algorithm, definition.seed
    settings, graph = _gossip_settings(definition), a.graph(definition.workers, seed)
    return (own.kind or SyncPeer)(
        own.name, own.model, own.releaser, own.private_sum, settings, graph, seed=seed
    )


def _gossip_settings(definition: Definition[Gossip]) -> GossipSettings:
    a = definition.algorithm
    return GossipSettings(
        a.learning_rate,
        definition.clip,
        definition.horizon,
        a.max_staleness,
        a.report_every,
        a.factor,
    )


_MAPA = Roles(mapa.Server, _mapa_edge, mapa.WAYS)
_FEDASYNC_EDGE = partial(_local_steps_edge, FedAsyncEdge)
_MIXING = Roles(MixingServer, _FEDASYNC_EDGE)
_GOSSIP = Roles(ReportFold, _peer, worker.WAYS)

ROLES: dict[str, Roles] = {
    "mapa": _MAPA,
    "audp": _MAPA,
    "asgd": _MAPA,
    "csgd": _MAPA,
    "fedasync": _MIXING,
    "sgd": _MIXING,
    "fedbuff": Roles(BufferedServer, _FEDASYNC_EDGE),
    "fedavg": Roles(AveragingServer, _FEDASYNC_EDGE),
    "dp-pasgd": Roles(averaging.Server, partial(_local_steps_edge, averaging.Edge)),
    "adp2sgd": _GOSSIP,
    "adpsgd": _GOSSIP,
    "sync": Roles(ReportFold, _sync_peer, worker.WAYS),
    "vafl": Roles(None, None),
}
