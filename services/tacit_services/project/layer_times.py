"""What each layer of a module of one's own costs: measured on public random rows, one at a time."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn

_ROWS = 3  # of which the quickest counts
_SHOWN = 4  # layers that are named, the slowest first


def layer_times(module: nn.Module, x: Tensor) -> dict[str, float]:
    """Return the seconds that each layer takes for one row, forward and back, by its name.

    x: a public row, (1, *shape).
    """
    inputs: dict[str, tuple[Any, ...]] = {}
    hooks = [
        layer.register_forward_pre_hook(_remembering(name, inputs))
        for name, layer in module.named_modules()
        if not list(layer.children())
    ]
    with torch.no_grad():
        module(x)
    for hook in hooks:
        hook.remove()
    layers = dict(module.named_modules())
    return {name: _seconds(layers[name], given) for name, given in inputs.items()}


def words(module: nn.Module, x: Tensor) -> str:
    """Return the slowest layers, each with its share of the time."""
    seconds = layer_times(module, x)
    kinds = {name: type(layer).__name__ for name, layer in module.named_modules()}
    total = sum(seconds.values())
    slowest = sorted(seconds, key=lambda name: -seconds[name])[:_SHOWN]
    return ", ".join(
        f"{name or 'it'} ({kinds[name]}) {100 * seconds[name] / total:.0f} %" for name in slowest
    )


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
