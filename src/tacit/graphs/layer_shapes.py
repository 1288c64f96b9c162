"""The shapes that an operation's weights must have, where torch does not look itself.

Given others, it reads past their end: numbers of this process's memory would be in a result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}  # of a recurrent layer


def misfit(op: str, arguments: Mapping[str, Any]) -> str:
    """Return why the weights of an operation do not fit it; "": they do, or torch looks itself.

    arguments: by parameter, tensors of any device.
    """
    packet = op.partition(".")[0]
    if packet in _GATES:
        return _of_layers(_GATES[packet], arguments)
    if packet.endswith("_cell") and packet.removesuffix("_cell") in _GATES:
        return _of_cell(_GATES[packet.removesuffix("_cell")], arguments)
    if packet == "_native_batch_norm_legit_no_training":
        return _of_channels(arguments)
    return ""


def _of_layers(gates: int, arguments: Mapping[str, Any]) -> str:
    """Check a layer of several steps: input (1, T, F) or (T, 1, F), states (rows, 1, H)."""
    x, weights = arguments["input"], list(arguments["params"])
    hx = arguments["hx"]
    states = hx if isinstance(hx, list) else [hx]
    directions = 2 if arguments.get("bidirectional") else 1
    rows = arguments["num_layers"] * directions
    if any(not isinstance(each, Tensor) for each in (x, *states, *weights)):
        return "has a number where a tensor is needed"
    width = states[0].shape[-1] if states[0].dim() else 0
    batch = x.shape[0 if arguments.get("batch_first") else 1] if x.dim() == 3 else 0
    if any(tuple(each.shape) != (rows, batch, width) for each in states) or not batch:
        return f"has states of another shape than ({rows}, 1, width)"
    expected: list[tuple[int, ...]] = []
    for row in range(rows):
        reads = x.shape[2] if row < directions else width * directions
        expected += [(gates * width, reads), (gates * width, width)]
        expected += [(gates * width,)] * 2 * bool(arguments.get("has_biases"))
    return _differing(weights, expected)


def _of_cell(gates: int, arguments: Mapping[str, Any]) -> str:
    x, hx = arguments["input"], arguments["hx"]
    states = hx if isinstance(hx, list) else [hx]
    weights = [arguments.get(name) for name in ("w_ih", "w_hh", "b_ih", "b_hh")]
    if any(not isinstance(each, Tensor) for each in (x, *states, *weights[:2])):
        return "has a number where a tensor is needed"
    if x.dim() != 2 or any(each.dim() != 2 for each in states):
        return "does not fit: its input and states have two dimensions"
    width = states[0].shape[1]
    if any(tuple(each.shape) != (len(x), width) for each in states):
        return f"has states of another shape than ({len(x)}, width)"
    expected = [(gates * width, x.shape[1]), (gates * width, width), *[(gates * width,)] * 2]
    pairs = [pair for pair in zip(weights, expected, strict=True) if pair[0] is not None]
    return _differing([weight for weight, _ in pairs], [shape for _, shape in pairs])


def _of_channels(arguments: Mapping[str, Any]) -> str:
    x = arguments["input"]
    if not isinstance(x, Tensor) or x.dim() < 2:
        return "does not fit: its input has channels"
    names = ("weight", "bias", "running_mean", "running_var")
    weights = [arguments[name] for name in names if arguments.get(name) is not None]
    return _differing(weights, [(x.shape[1],)] * len(weights))


def _differing(weights: Sequence[Any], expected: Sequence[tuple[int, ...]]) -> str:
    if len(weights) != len(expected):
        return f"has {len(weights)} weights, and its layers have {len(expected)}"
    for weight, shape in zip(weights, expected, strict=True):
        if not isinstance(weight, Tensor) or tuple(weight.shape) != shape:
            had = list(weight.shape) if isinstance(weight, Tensor) else "a number"
            return f"has a weight of {had} where {list(shape)} is needed"
    return ""
