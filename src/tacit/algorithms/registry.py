"""From a run file to its roles: the only place that knows which algorithm is in which file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from random import Random as Chooser

import torch
from torch import Tensor

from tacit.algorithms import fedasync, mapa
from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.base.server import ServerRole
from tacit.algorithms.dp_pasgd import averaging
from tacit.algorithms.gossip import adp2sgd
from tacit.algorithms.gossip.allreduce import SyncPeer
from tacit.algorithms.gossip.report_fold import Observer
from tacit.algorithms.vafl import server as vafl
from tacit.algorithms.vafl import vertical_settings
from tacit.algorithms.vafl.party import Party
from tacit.algorithms.vafl.server import People
from tacit.config import RunFile
from tacit.config.algorithms import DpPasgd, FedAsync, Gossip, Mapa, Vafl
from tacit.datasets import Dataset
from tacit.datasets.alignment import names
from tacit.errors import ConfigError
from tacit.models import Model
from tacit.privacy.embeddings import EmbeddingReleaser, EmbeddingStore
from tacit.privacy.ledger import Ledger
from tacit.privacy.release import Releaser
from tacit.privacy.sampling import Random


def server(run: RunFile, model: Model, people: People | None = None) -> ServerRole:
    """The server role of a run, at its beginning; a vertical one's knows `people`."""
    match run.algorithm:
        case Mapa():
            return mapa.Server(run, model)
        case FedAsync(name="fedavg"):
            return fedasync.AveragingServer(run, model)
        case FedAsync(name="fedbuff"):
            return fedasync.BufferedServer(run, model)
        case FedAsync():
            return fedasync.MixingServer(run, model)
        case DpPasgd():
            return averaging.Server(run, model)
        case Gossip():
            return Observer(run, model)
        case Vafl():
            if people is None:
                raise ConfigError("algorithm.name='vafl': its server needs the labels of its people")
            plan = cache(lambda edge: vertical_settings.privacy_plan(run, run.index(edge)))
            return vafl.Server(run, model, vertical_settings.protocol(run), people, plan)


def people(run: RunFile, splits: Sequence[Dataset], salt: bytes, answers: Tensor | None = None) -> People:
    """Everybody in a vertical run: `splits` are its training rows, then its test rows.

    answers: (n_train,) what randomised response has left of the training labels; None: the labels themselves.
    """
    train, test = splits
    known = names((one for data in splits for one in vertical_settings.record_ids(data)), salt, "server")
    if answers is None:
        return People(known, len(train), torch.cat([train.y, test.y]))
    epsilon = vertical_settings.section(run).label_epsilon
    assert epsilon is not None
    return People(known, len(train), torch.cat([answers, test.y]), epsilon)


def party(
    run: RunFile, name: str, number: int, splits: Sequence[Dataset], salt: bytes, ledger: Ledger, random: Random,
    kept: EmbeddingStore | None = None,
) -> Party:  # fmt: skip
    """Party `number` of a vertical run with its columns of everybody's rows (`splits` as for `people`)."""
    x = torch.cat([vertical_settings.view(run, data.x, number) for data in splits])
    mine = names((one for data in splits for one in vertical_settings.record_ids(data)), salt, name)
    releaser = EmbeddingReleaser(vertical_settings.privacy_plan(run, number), ledger, random, len(x), kept)
    return Party(
        name, number, vertical_settings.protocol(run), x, mine, vertical_settings.party_model(run, tuple(x.shape[1:])),
        releaser, vertical_settings.regularization(run, number),
    )  # fmt: skip


def edge(run: RunFile, name: str, data: Dataset, model: Model, releaser: Releaser, device: str = "cpu") -> EdgeRole:
    """An edge role of a run, with its rows."""
    match run.algorithm:
        case Mapa():
            return mapa.Edge(name, data, model, releaser, device)
        case FedAsync() as section:
            return fedasync.Edge(section, name, data, model, releaser, device)
        case DpPasgd() as section:
            return averaging.Edge(section, name, data, model, releaser, device)
        case Gossip() as section:
            seed, graph = run.run.seed, section.graph(run.edges.count, run.run.seed)
            clip = run.privacy.clip or 1.0  # without noise nothing is clipped
            terms = adp2sgd.Terms(section.learning_rate, clip, run.run.updates, section.max_staleness)
            if section.name == "sync":
                return SyncPeer(name, data, model, releaser, terms, graph, seed=seed, device=device)
            chooser = Chooser(f"{seed}/{name}")
            return adp2sgd.Peer(name, data, model, releaser, terms, graph, seed=seed, random=chooser, device=device)
        case Vafl():
            raise ConfigError("algorithm.name='vafl': a vertical run has parties, not edges; start tacit party")
