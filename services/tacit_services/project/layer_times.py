"""What each layer of a module of one's own costs: measured on public random rows, one at a time."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn

from tacit.models.module import ModuleModel

RECURRENT = (nn.LSTM, nn.GRU, nn.RNN)
_ROWS = 3  # of which the quickest counts
_SHOWN = 4  # layers that are named, the slowest first
INSTEAD = (
    "torch cannot map it over rows, so that each row is computed alone, up to a thousand times as "
    "slowly as a convolution; use nn.Conv1d over time, nn.TransformerEncoderLayer, or for words "
    'model.name = "lstm"'
)


def layer_times(model: ModuleModel) -> dict[str, float]:
    """Return the seconds that each layer takes for one row, forward and back, by its name."""
    module = model.module
    inputs: dict[str, tuple[Any, ...]] = {}
    hooks = [
        layer.register_forward_pre_hook(_remembering(name, inputs))
        for name, layer in module.named_modules()
        if not list(layer.children())
    ]
    x = model.random_batch(1, torch.Generator().manual_seed(1))[0]
    with torch.no_grad():
        module(x)
    for hook in hooks:
        hook.remove()
    layers = dict(module.named_modules())
    return {name: _seconds(layers[name], given) for name, given in inputs.items()}


def words(model: ModuleModel) -> str:
    """Return the slowest layers, each with its share of the time."""
    seconds = layer_times(model)
    kinds = {name: type(layer).__name__ for name, layer in model.module.named_modules()}
    total = sum(seconds.values())
    slowest = sorted(seconds, key=lambda name: -seconds[name])[:_SHOWN]
    return ", ".join(
        f"{name or 'it'} ({kinds[name]}) {100 * seconds[name] / total:.0f} %" for name in slowest
    )


def recurrent(model: ModuleModel) -> list[str]:
    """Return a warning for each layer that torch cannot map over rows, with what to use instead."""
    return [
        f"the layer {name or 'it'} ({type(layer).__name__}) is slow: {INSTEAD}"
        for name, layer in model.module.named_modules()
        if isinstance(layer, RECURRENT)
    ]


def _remembering(name: str, inputs: dict[str, tuple[Any, ...]]) -> Any:
    def remember(layer: nn.Module, given: tuple[Any, ...]) -> None:
        inputs[name] = given

    return remember


def _seconds(layer: nn.Module, given: tuple[Any, ...]) -> float:
    taken = []
    for _ in range(_ROWS):
        began = time.perf_counter()
        output = layer(*given)
        if not isinstance(output, Tensor):
            output = output[0]
        if output.requires_grad:
            output.sum().backward()
        taken.append(time.perf_counter() - began)
    return min(taken)
