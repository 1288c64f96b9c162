"""Freezing of a module that is named: "module:name" in a folder, or installed."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tacit.datasets.target import Target
from tacit.errors import FROM_OWN_CODE, ConfigError
from tacit.graphs.comparison import ACROSS_ROWS, alike
from tacit.graphs.freezing import Frozen, freeze
from tacit.graphs.graph_file import Example
from tacit.models.objectives import objective_of
from tacit.models.own_module import OwnModule
from tacit.models.own_network import least_and_largest
from tacit.models.start_values import path_inside, start_values
from tacit.user_code import load_entry, load_module

_TOGETHER = 3  # rows


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
    module = own.build(request.seed)
    frozen = freeze(
        own.where,
        module,
        _example(request),
        _least_and_largest(request),
        trainable=request.trainable,
        loss=loss,
    )
    _check_rows_alone(own.where, module, frozen)
    return frozen


@torch.no_grad()
def _check_rows_alone(where: str, module: nn.Module, frozen: Frozen) -> None:
    """Check that the module gives for rows together what the graph gives for each.

    A module that takes one example at a time alone passes. Raises ConfigError.
    """
    example = frozen.graph.example
    generator = torch.Generator().manual_seed(0)
    if example.below is None:
        x = torch.rand((_TOGETHER, *example.shape), generator=generator)
    else:
        x = torch.randint(example.below, (_TOGETHER, *example.shape), generator=generator)
    try:
        together = copy.deepcopy(module)(x)
    except FROM_OWN_CODE:
        return
    if not isinstance(together, Tensor) or together.shape[:1] != (_TOGETHER,):
        return
    run = frozen.checked.network.run
    for row, output in zip(x, together, strict=True):
        alone = run(frozen.values, row.unsqueeze(0)).reshape(output.shape)
        if not alike(alone, output.clone):
            raise ConfigError(f"{where}: {ACROSS_ROWS}")


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
