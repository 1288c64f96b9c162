"""From a run file to its roles: the only place that knows which algorithm is in which file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from random import Random as Chooser

import torch
from torch import Tensor

from tacit import vertical_plan
from tacit.algorithm_sections import DpPasgd, FedAsync, Gossip, Mapa, Vafl
from tacit.algorithms import adp2sgd, dp_pasgd, fedasync, mapa, vafl
from tacit.algorithms.allreduce import SyncPeer
from tacit.algorithms.edge import EdgeRole
from tacit.algorithms.observer import Observer
from tacit.algorithms.server import ServerRole
from tacit.algorithms.vafl import People
from tacit.algorithms.vafl_party import Party
from tacit.alignment import names
from tacit.config import RunFile
from tacit.datasets import Dataset
from tacit.errors import ConfigError
from tacit.models import Model
from tacit.privacy.embeddings import EmbeddingReleaser, Kept
from tacit.privacy.ledger import Ledger
from tacit.privacy.plan import Releaser
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
            return dp_pasgd.Server(run, model)
        case Gossip():
            return Observer(run, model)
        case Vafl():
            if people is None:
                raise ConfigError("algorithm.name='vafl': its server needs the labels of its people")
            plan = cache(lambda edge: vertical_plan.privacy_plan(run, run.index(edge)))
            return vafl.Server(run, model, vertical_plan.protocol(run), people, plan)


def people(run: RunFile, splits: Sequence[Dataset], salt: bytes, answers: Tensor | None = None) -> People:
    """Everybody in a vertical run: `splits` are its training rows, then its test rows.

    answers: (n_train,) what randomised response has left of the training labels; None: the labels themselves.
    """
    train, test = splits
    known = names((one for data in splits for one in vertical_plan.record_ids(data)), salt, "server")
    if answers is None:
        return People(known, len(train), torch.cat([train.y, test.y]))
    epsilon = vertical_plan.section(run).label_epsilon
    assert epsilon is not None
    return People(known, len(train), torch.cat([answers, test.y]), epsilon)


def party(
    run: RunFile, name: str, number: int, splits: Sequence[Dataset], salt: bytes, ledger: Ledger, random: Random,
    kept: Kept | None = None,
) -> Party:  # fmt: skip
    """Party `number` of a vertical run with its columns of everybody's rows (`splits` as for `people`)."""
    x = torch.cat([vertical_plan.view(run, data.x, number) for data in splits])
    mine = names((one for data in splits for one in vertical_plan.record_ids(data)), salt, name)
    releaser = EmbeddingReleaser(vertical_plan.privacy_plan(run, number), ledger, random, len(x), kept)
    return Party(
        name, number, vertical_plan.protocol(run), x, mine, vertical_plan.party_model(run, tuple(x.shape[1:])),
        releaser, vertical_plan.regularization(run, number),
    )  # fmt: skip


def edge(run: RunFile, name: str, data: Dataset, model: Model, releaser: Releaser, device: str = "cpu") -> EdgeRole:
    """An edge role of a run, with its rows."""
    match run.algorithm:
        case Mapa():
            return mapa.Edge(name, data, model, releaser, device)
        case FedAsync() as section:
            return fedasync.Edge(section, name, data, model, releaser, device)
        case DpPasgd() as section:
            return dp_pasgd.Edge(section, name, data, model, releaser, device)
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
