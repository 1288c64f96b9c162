"""Freezing of a module that is named: "module:name" in a folder, or installed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError
from tacit.graphs.freezing import Frozen, freeze
from tacit.graphs.graph_file import Example
from tacit.models.own_module import OwnModule
from tacit.models.own_network import least_and_largest
from tacit.models.start_values import path_inside, start_values
from tacit.user_code import load_entry, load_module


@dataclass(frozen=True, slots=True)
class FreezeRequest:
    """What is frozen.

    entry: in `folder`, called with `arguments`. shape: of one example. integers: the bound of its
    whole numbers, or None where it has floats. weights: a safetensors file in `folder` with values
    that take the place of the module's own. loss: "module:function" of one example, or None for one
    of tacit's own. classes: of its target, or 0 for a number. trainable: patterns of names.
    """

    entry: str
    folder: Path
    shape: tuple[int, ...]
    integers: int | None
    arguments: Mapping[str, Any]
    seed: int
    weights: str | None
    loss: str | None
    classes: int
    trainable: tuple[str, ...]


def frozen_entry(request: FreezeRequest) -> Frozen:
    """Return the graph of the module that is named, tried as a site tries it.

    The module's code is executed. Raises ConfigError.
    """
    factory, digest = load_module(request.entry, request.arguments, request.folder)
    start = {}
    if request.weights is not None:
        start = start_values(path_inside(request.folder, request.weights, "--weights"))
    module = OwnModule(request.entry, factory, digest, request.trainable, start)
    module.check_start()
    loss = None
    if request.loss is not None:
        loss = load_entry(request.loss, request.folder, "model.loss").target
    return freeze(
        module.where,
        module.build(request.seed),
        _example(request),
        least_and_largest(request.classes),
        trainable=request.trainable,
        loss=loss,
    )


def _example(request: FreezeRequest) -> Example:
    if request.integers is None:
        return Example(shape=request.shape, dtype="float32", below=None)
    if request.integers < 1:
        raise ConfigError(f"--integers {request.integers}: expected at least 1")
    return Example(shape=request.shape, dtype="int64", below=request.integers)
