"""Freezing of a module that is named: "module:name" in a folder, or installed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from tacit.datasets.target import Target
from tacit.errors import ConfigError
from tacit.graphs.freezing import Frozen, freeze
from tacit.graphs.graph_file import Example
from tacit.models.objectives import objective_of
from tacit.models.own_module import OwnModule
from tacit.models.own_network import least_and_largest
from tacit.models.start_values import path_inside, start_values
from tacit.user_code import load_entry, load_module


@dataclass(frozen=True, slots=True)
class FreezeRequest:
    """What is frozen.

    entry: in `folder`, called with `arguments`. shape: of one example. integers: the bound of its
    whole numbers, or None where it has floats. loss: "module:function" of one example, or None for
    one of tacit's own. classes: of its target, or 0 for a number. tokens: where its target is a
    token at each place of the example, how many different ones there are; 0: it is not. trainable:
    patterns of names. weights: a safetensors file in `folder`, whose values take the place of those
    of the same name, or None.
    """

    entry: str
    folder: Path
    shape: tuple[int, ...]
    integers: int | None
    arguments: Mapping[str, Any]
    seed: int
    loss: str | None
    classes: int
    tokens: int
    trainable: tuple[str, ...]
    weights: str | None


def frozen_entry(request: FreezeRequest) -> Frozen:
    """Return the graph of the module that is named, tried as a site tries it.

    The module's code is executed. Raises ConfigError.
    """
    factory, _ = load_module(request.entry, request.arguments, request.folder)
    start = {}
    if request.weights is not None:
        start = start_values(path_inside(request.folder, request.weights, "--weights"))
    own = OwnModule(request.entry, factory, start=start)
    own.check_start()
    loss = None
    if request.loss is not None:
        loss = load_entry(request.loss, request.folder, "model.loss").target
    return freeze(
        own.where,
        own.build(request.seed),
        _example(request),
        _least_and_largest(request),
        trainable=request.trainable,
        loss=loss,
    )


def _least_and_largest(request: FreezeRequest) -> Tensor:
    """Return the targets (2, …) between which all lie, as a loss gets them. Raises ConfigError."""
    if not request.tokens:
        return least_and_largest(request.classes)
    if request.classes:
        raise ConfigError("--tokens, --classes: a target has one of them")
    if request.tokens < 2:
        raise ConfigError(f"--tokens {request.tokens}: expected at least 2")
    target = Target("tokens", tokens=request.tokens, length=request.shape[0])
    return least_and_largest(0, objective_of(target))


def _example(request: FreezeRequest) -> Example:
    if request.integers is None:
        return Example(shape=request.shape, dtype="float32", below=None)
    if request.integers < 1:
        raise ConfigError(f"--integers {request.integers}: expected at least 1")
    return Example(shape=request.shape, dtype="int64", below=request.integers)
