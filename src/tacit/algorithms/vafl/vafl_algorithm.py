"""The entry of VAFL, and how its server's records and its parties are made."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import ClassVar

import torch
from torch import Tensor

from tacit.algorithms.base.algorithm import Algorithm
from tacit.algorithms.base.edge import EdgeRole
from tacit.algorithms.base.labelled_records import LabelledRecords
from tacit.algorithms.base.owner import Owner
from tacit.algorithms.base.server import ServerRole
from tacit.algorithms.vafl import vertical_settings
from tacit.algorithms.vafl.columns_party import ColumnsParty
from tacit.algorithms.vafl.label_server import LabelServer
from tacit.algorithms.vafl.party import Party
from tacit.algorithms.vafl.vafl_settings import Vafl
from tacit.algorithms.vafl.vertical_settings import Vertical
from tacit.config.definition import Definition
from tacit.datasets import Dataset
from tacit.datasets.alignment import NameHashes, names
from tacit.datasets.own.own_columns import OwnColumns
from tacit.errors import ConfigError
from tacit.models import Model
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.release.embeddings import EmbeddingReleaser, EmbeddingStore

# What is left of labels (n,) of people with these names (n,).
PartyAnswers = Callable[[Tensor, NameHashes], Tensor]


class VaflAlgorithm(Algorithm):
    """VAFL: a server with labels, and parties with columns."""

    settings: ClassVar = Vafl

    def server(
        self, definition: Definition[Vafl], model: Model, labelled: LabelledRecords | None = None
    ) -> ServerRole:
        """Return the server of a vertical run. Raises ConfigError without its labelled records."""
        if labelled is None:
            raise ConfigError(
                f"algorithm.name={definition.algorithm.name!r}: "
                "its server needs the labels of its people"
            )
        settings = vertical_settings.vertical(definition)
        plan = cache(settings.named)
        number = definition.plans.number
        places = cache(lambda edge: settings.places(min(number(edge), definition.edges.count - 1)))
        return LabelServer(definition, model, settings.protocol, labelled, plan, places)

    def edge(self, definition: Definition[Vafl], owner: Owner) -> EdgeRole:
        """Raise ConfigError: a vertical run has parties instead."""
        raise ConfigError(
            f"algorithm.name={definition.algorithm.name!r}: a vertical run has parties, not edges; "
            "start tacit party"
        )


def labelled_records(
    splits: Sequence[Dataset],
    salt: bytes,
    answers: Tensor | None = None,
    label_epsilon: float = math.inf,
) -> LabelledRecords:
    """Return all records of a vertical run.

    splits: its training rows, then its test rows. answers: (n_train,) what randomised response at
    ε = `label_epsilon` has left of the training labels; None: the labels themselves.
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
    model = vertical.party_model(tuple(x.shape[1:]), number)
    regularization = vertical.regularization(number)
    private = len(splits[0]) if vertical.public_test else None
    return Party(
        name, number, vertical.protocol, x, mine, model, releaser, regularization, device, private
    )


def own_records(
    source: OwnColumns, salt: bytes, answers: PartyAnswers | None = None, epsilon: float = math.inf
) -> LabelledRecords:
    """Return the people that the label holder of own columns has, those to train on first.

    answers: gives what randomised response at `epsilon` has left of labels (n,), whose people have
    these names. Raises ConfigError, DataError.
    """
    people, labels = source.labelled()
    hashes = names(people.ids, salt, source.labels.name)
    if answers is not None:
        private = people.private
        noisy = answers(labels[:private], hashes[:private])
        labels = torch.cat([noisy, labels[private:]])
    return LabelledRecords(hashes, people.private, labels, epsilon)


def own_party(
    vertical: Vertical,
    name: str,
    number: int,
    salt: bytes,
    ledger: Ledger,
    random: Random,
    store: EmbeddingStore | None = None,
    device: str = "cpu",
) -> Party:
    """Return party `number` of a run on own columns, with its own files' people.

    Raises ConfigError, DataError.
    """
    assert vertical.own is not None
    files = vertical.own.parties[number]
    people = files.people()
    mine = names(people.ids, salt, files.name)
    releaser = EmbeddingReleaser(vertical.plan(number), ledger, random, len(mine), store)
    model = vertical.party_model(tuple(people.x.shape[1:]), number)
    arguments = vertical.protocol, people.x, mine, model, releaser, 0.0, device, people.private
    return ColumnsParty(name, number, *arguments)
