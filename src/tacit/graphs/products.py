"""How many multiply-adds an operation takes, by shapes alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor


def multiply_adds(name: str, arguments: Mapping[str, Any], result: Any) -> int:
    """Return the multiply-adds of an operation of `PRODUCTS`, forward.

    arguments: by parameter, tensors of any device. An upper bound where the form is not looked at
    (`einsum`: every index of its operands).
    """
    return int(_counted(name.partition(".")[0], arguments, result))


def _counted(packet: str, arguments: Mapping[str, Any], result: Any) -> Any:
    first = result[0] if isinstance(result, tuple | list) else result
    if packet.startswith("conv_transpose"):
        weight = arguments["weight"]
        return arguments["input"].numel() * math.prod(weight.shape[1:])
    if packet.startswith("conv") or packet == "linear":
        return first.numel() * math.prod(arguments["weight"].shape[1:])
    if packet == "scaled_dot_product_attention":
        query, key = arguments["query"], arguments["key"]
        return 2 * query.numel() * key.shape[-2]
    if packet in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        steps = arguments["input"].numel() // max(1, arguments["input"].shape[-1])
        return steps * sum(weight.numel() for weight in arguments["params"])
    if packet.endswith("_cell"):
        weights = (arguments["w_ih"], arguments["w_hh"])
        return len(arguments["input"]) * sum(weight.numel() for weight in weights)
    if packet == "einsum":
        return _einsum(arguments["equation"], arguments["tensors"])
    if packet == "outer":
        return first.numel()
    factors = [value for value in arguments.values() if isinstance(value, Tensor)]
    return first.numel() * factors[-2 if len(factors) > 1 else -1].shape[-1]


def _einsum(equation: str, tensors: list[Tensor]) -> int:
    """Return the product of the sizes of all letters, and of what `...` stands for."""
    sizes: dict[str, int] = {}
    others = 1
    for letters, tensor in zip(equation.partition("->")[0].split(","), tensors, strict=False):
        before, dots, after = letters.replace(" ", "").partition("...")
        shape = list(tensor.shape)
        ends = len(shape) - len(after)
        named = [*zip(before, shape, strict=False), *zip(after, shape[ends:], strict=False)]
        for letter, size in named:
            sizes[letter] = max(size, sizes.get(letter, 1))  # one of 1 is spread
        if dots:
            others = max(others, math.prod(shape[len(before) : ends]))
    return math.prod(sizes.values()) * others
