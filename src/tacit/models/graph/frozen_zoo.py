"""Freezing of tacit's own networks: `tacit freeze cnn`.

A run of one by its name alone needs no graph: its gradients are tacit's own formulas, and to freeze
a network takes seconds at every start.
"""

from __future__ import annotations

from collections.abc import Sequence

from tacit.graphs.freezing import Frozen, freeze
from tacit.graphs.graph_file import Example
from tacit.models.model_contract import Model
from tacit.models.own_network import least_and_largest
from tacit.models.zoo.as_modules import as_module
from tacit.models.zoo.lstm import Lstm


def frozen_zoo(model: Model, seed: int, trainable: Sequence[str] = ("*",)) -> Frozen:
    """Return the graph of a network that `models.build` gave, with its first values of `seed`.

    A linear SVM has its loss in the graph; of all others the run file and the target choose it.
    Raises ConfigError.
    """
    if isinstance(model, Lstm):
        example = Example(shape=model.shape, dtype="int64", below=model.classes)
    else:
        example = Example(shape=model.shape, dtype="float32", below=None)
    return freeze(
        f"model.name={model.name}",
        as_module(model, seed),
        example,
        least_and_largest(model.classes),
        trainable=trainable,
        loss=model.data_loss if model.name == "svm" else None,
    )
