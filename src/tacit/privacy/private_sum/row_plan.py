"""The order of a network's numbers where its rows are computed alone, for `row_sums`.

The kernel's order of parameters differs from the model's in two ways. A convolution of many
channels has its weights channel after channel at each place of the window, filled up with zeros to
whole lanes. The first dense layer after it has its inputs channel after channel at each place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.kernels.layout import (
    DENSE,
    FIELDS,
    LANES,
    LAYER,
    LINEAR,
    PATCHES,
    PLANES,
    RELU,
    SUMS,
    TANH,
)
from tacit.models.model_contract import groups_of
from tacit.models.zoo.layered import Layered

_ACTIVATIONS = {"relu": RELU, "tanh": TANH}
_Indices = NDArray[np.int64]


@dataclass
class RowPlan:
    """The layers, one after another, and how much memory a row takes.

    order: for each number of the kernel's parameters the model's, d where there is none. taps:
    where each tap of the first layer begins. places: the numbers of all places, where a layer needs
    them. memory: float32 numbers.
    """

    layers: list[dict[str, int]] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    taps: list[int] = field(default_factory=list)
    memory: int = 0

    def table(self) -> NDArray[Any]:
        """Return the layers as an array of `LAYER`; 0 stands for what a layer lacks."""
        rows = [tuple(layer.get(name, 0) for name in FIELDS) for layer in self.layers]
        return np.array(rows, dtype=LAYER)

    def take(self, count: int) -> int:
        """Reserve `count` more numbers of memory, and return their place."""
        self.memory += count
        return self.memory - count


def planned(model: Layered) -> RowPlan:
    """Return the plan for a row of `model`."""
    plan = RowPlan()
    scratch = _convolutions(plan, model)
    _dense(plan, model)
    for before, after in pairwise(plan.layers):
        if before["kind"] == DENSE:
            before["z"], before["dz"] = after["a"], after["da"]
    last = plan.layers[-1]
    last["z"], last["dz"] = plan.take(last["width"]), plan.take(last["width"])
    last["activation"] = LINEAR
    shared = plan.take(scratch)
    for layer in plan.layers:
        layer["flat"] = shared
    return plan


def _convolutions(plan: RowPlan, model: Layered) -> int:
    """Lay them; returns how much memory they may share."""
    depth = model.shape[0]
    side = model.shape[-1]
    scratch = 0
    for number, width in enumerate(model.channels, 1):
        layer = {
            "kind": PATCHES if number > 1 else PLANES,
            "depth": depth,
            "side": side + 2 * model.padding,
            "kernel": model.kernel,
            "width": width,
            "out": side + 2 * model.padding - model.kernel + 1,
            "pooled": int(number % model.pool_every == 0),
            "activation": _ACTIVATIONS[model.activation],
            "groups": groups_of(width) if model.normalization == "group" else 0,
            "own_pad": model.padding,
            "pad": model.padding if number < len(model.channels) else 0,
        }
        layer["chosen"] = int(layer["pooled"] and not layer["groups"])
        plan.layers.append(layer)
        _weigh(plan, layer)
        scratch = max(scratch, _place(plan, layer))
        depth = width
        side = layer["out"] // (1 + layer["pooled"])
    return scratch


def _weigh(plan: RowPlan, layer: dict[str, int]) -> None:
    """Place a convolution's weights and biases, in the kernel's order."""
    depth = layer["depth"]
    kernel = layer["kernel"]
    width = layer["width"]
    count = kernel**2 * depth
    first = _parameters(plan)
    weights = first + np.arange(width * count).reshape(width, depth, kernel, kernel)
    layer["taps"] = count
    if layer["kind"] == PATCHES:
        layer["taps"] = -(-count // LANES) * LANES
        weights = weights.transpose(0, 2, 3, 1)
    filled = np.full((width, layer["taps"]), -1)
    filled[:, :count] = weights.reshape(width, count)
    _append(plan, layer, filled, first + width * count)


def _append(plan: RowPlan, layer: dict[str, int], weights: _Indices, bias: int) -> None:
    layer["weight"] = len(plan.order)
    plan.order += weights.flatten().tolist()
    layer["bias"] = len(plan.order)
    plan.order += range(bias, bias + layer["width"])


def _parameters(plan: RowPlan) -> int:
    """Return how many of the model's parameters are placed."""
    return max(plan.order, default=-1) + 1


def _place(plan: RowPlan, layer: dict[str, int]) -> int:
    """Place a convolution's numbers; return how much shared memory it needs."""
    places = layer["out"] ** 2
    width = layer["width"]
    inputs = layer["side"] ** 2 * layer["depth"]
    layer |= {name: plan.take(inputs) for name in ("a", "da")}
    layer |= {name: plan.take(places * width) for name in ("z", "dz")}
    layer["inverse"] = plan.take(layer["groups"])
    every = np.arange(places)
    if layer["kind"] == PATCHES:
        layer["patches"] = plan.take(places * layer["taps"])
    else:
        every = _plane(plan, layer)
    layer["places"] = len(plan.places)
    plan.places += [0] * (places * width)
    layer["where"] = len(plan.places)
    plan.places += [0] * layer["out"]
    layer["all"] = len(plan.places)
    plan.places += np.repeat(every, width).tolist()
    return max(2 * places * width, layer["taps"])


def _plane(plan: RowPlan, layer: dict[str, int]) -> _Indices:
    """Place a first layer's taps and planes; return where each place is in a plane."""
    side = layer["side"]
    kernel = layer["kernel"]
    out = np.arange(layer["out"])
    window = np.arange(kernel)[:, None] * side + np.arange(kernel)
    plan.taps = (np.arange(layer["depth"])[:, None, None] * side**2 + window).flatten().tolist()
    places = (out[:, None] * side + out).flatten()
    layer["line"] = -(-int(places[-1] + 1) // (2 * LANES)) * 2 * LANES
    layer["planes"] = plan.take(max(layer["width"] * layer["line"], SUMS))
    return places


def _dense(plan: RowPlan, model: Layered) -> None:
    sizes = [shape for name, shape in model.layout if name.endswith("weight") and len(shape) == 2]
    for number, (width, inputs) in enumerate(sizes):
        first = _parameters(plan)
        if number == 0 and model.channels:
            channels = model.channels[-1]
        else:
            channels = 1
        weights = first + np.arange(width * inputs).reshape(width, channels, -1)
        weights = weights.transpose(0, 2, 1)
        layer = {"kind": DENSE, "taps": inputs, "width": width, "side": inputs, "depth": 1}
        layer["activation"] = _ACTIVATIONS[model.activation]
        layer |= {name: plan.take(inputs) for name in ("a", "da")}
        _append(plan, layer, weights.reshape(width, inputs), first + width * inputs)
        plan.layers.append(layer)
