"""A node's arguments as its operation takes them.

Each has the type that torch states for it. An example is a sum.

    >>> from tacit.graphs.graph_file import Node, Of
    >>> from tacit.graphs.operations import OPERATIONS
    >>> node = Node(name="%sum", op="sum.dim_IntList", args=(Of(of="$x"), (1,), True))
    >>> bound(node, OPERATIONS["sum.dim_IntList"])
    {'self': Of(of='$x'), 'dim': [1], 'keepdim': True}
"""

from __future__ import annotations

import math
from typing import Any

import torch

from tacit.errors import ConfigError
from tacit.graphs.graph_file import Argument, DtypeName, FarFloat, MemoryOrder, Node, Of
from tacit.graphs.operations import Operation

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "int64": torch.int64,
    "int32": torch.int32,
    "bool": torch.bool,
}
_MEMORY = {"contiguous": torch.contiguous_format, "preserve": torch.preserve_format}
_LARGEST = 1 << 62  # of a whole number
# What a graph does not say: it is the machine's, or has one value.
_LEFT_OUT = frozenset({"device", "layout", "pin_memory", "generator", "out"})


def bound(node: Node, operation: Operation) -> dict[str, Any]:
    """Return a node's arguments by the names of its operation's parameters.

    References stay `Of`; all else is what torch takes. Raises ConfigError.
    """
    parameters = {each.name: each for each in operation.arguments if each.name not in _LEFT_OUT}
    positional = [each.name for each in operation.arguments if not each.kwarg_only]
    if len(node.args) > len(positional):
        raise refusal(node, f"takes {len(positional)} arguments, has {len(node.args)}")
    values: dict[str, Argument] = dict(zip(positional, node.args, strict=False))
    for name, value in node.kwargs.items():
        if name in values:
            raise refusal(node, f"{name} stands there twice")
        values[name] = value
    if strange := sorted(set(values) - set(parameters)):
        raise refusal(node, f"has no argument {strange[0]}")
    for name, parameter in parameters.items():
        if name not in values and not parameter.has_default_value():
            raise refusal(node, f"{name} is missing")
    return {
        name: _typed(node, name, value, parameters[name].type) for name, value in values.items()
    }


def _typed(node: Node, name: str, value: Argument, kind: object) -> Any:
    """Return an argument as torch takes it, if its type is that of the parameter."""
    optional, stated = _inside(str(kind), "Optional[")
    if optional and value is None:
        return None
    several, stated = _inside(stated, "List[")
    if not several:
        return _single(node, name, value, stated)
    if not isinstance(value, tuple):
        raise refusal(node, f"{name} is no list")
    optional, stated = _inside(stated, "Optional[")
    return [
        None if optional and item is None else _single(node, name, item, stated) for item in value
    ]


def _inside(stated: str, begin: str) -> tuple[bool, str]:
    """Return whether a type's name has this form, and what stands inside."""
    if stated.startswith(begin):
        return True, stated.removeprefix(begin).removesuffix("]")
    return False, stated


def _single(node: Node, name: str, value: Any, stated: str) -> Any:
    if isinstance(value, FarFloat):
        value = float(value.float)
    match stated, value:
        case "Tensor", Of() | bool() | int() | float():  # torch makes a tensor of one number
            return value
        case "int", DtypeName():
            return DTYPES[value.dtype]
        case "int", MemoryOrder():
            return _MEMORY[value.memory]
        case ("bool" | "number", bool()) | ("str", str()) | ("float" | "number", float()):
            return value
        case "int" | "float" | "number", int() if type(value) is int and abs(value) < _LARGEST:
            return float(value) if stated == "float" else value
    raise refusal(node, f"{name} is no {stated.lower()}")


def refusal(node: Node, why: str) -> ConfigError:
    """Return the error that refuses a graph for one of its nodes."""
    place = f" ({node.line})" if node.line else ""
    return ConfigError(f"model.file: node {node.name}{place}: {node.op} {why}")


def encoded(value: Any) -> Argument:
    """Return a constant of torch's as a graph has it. Raises TypeError for what a graph has not."""
    if isinstance(value, torch.dtype):
        names = {dtype: name for name, dtype in DTYPES.items()}
        if value not in names:
            raise TypeError(f"numbers of {value}")
        return DtypeName(dtype=names[value])  # type: ignore[arg-type]
    if isinstance(value, torch.memory_format):
        if value is torch.contiguous_format:
            return MemoryOrder(memory="contiguous")
        return MemoryOrder(memory="preserve")
    if isinstance(value, float) and not math.isfinite(value):
        return FarFloat(float=str(value))  # type: ignore[arg-type]
    if isinstance(value, list | tuple):
        return tuple(encoded(item) for item in value)  # type: ignore[misc]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a constant of {type(value).__name__}")
