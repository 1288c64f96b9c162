"""Between which bounds a graph's whole numbers lie, so that no place of an index is outside.

A node's bounds follow from its inputs' bounds and its constants alone. Where they do not, it has
none, and may not be an index.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

_LARGEST = {torch.int64: 1 << 62, torch.int32: 1 << 31}


class Interval(NamedTuple):
    """The least and the largest whole number that a tensor may have."""

    low: int
    high: int


_Known = Interval | None
# Their result's numbers are among those of their inputs.
_MOVE_NAMES = """
alias amax amin cat chunk clone contiguous detach diagonal expand expand_as flatten flip gather
index index_select movedim narrow permute repeat repeat_interleave reshape roll select
slice split split_with_sizes squeeze stack t transpose unbind unflatten
unfold unsqueeze
"""
_MOVES = frozenset(_MOVE_NAMES.split())


def bounds_of(
    name: str, arguments: Mapping[str, Any], inputs: Mapping[str, _Known], result: Tensor
) -> _Known:
    """Return the bounds of a node's result, or None where none follow.

    name: of its operation. arguments: the constants, by parameter. inputs: the bounds of tensors,
    by parameter, and of a list of tensors their hull. result: of the meta device.
    """
    packet = name.partition(".")[0]
    if packet in _MOVES:
        return inputs.get("self") or inputs.get("tensors")
    rule = _RULES.get(packet)
    if rule is None:
        return None
    bounds = rule(arguments, inputs, result)
    # Beyond the numbers of its type a result begins again at the other end.
    if bounds is None or max(abs(bounds.low), abs(bounds.high)) >= _LARGEST[result.dtype]:
        return None
    return bounds


def hull(several: Sequence[_Known]) -> _Known:
    """Return the bounds of all together; None if one has none."""
    if not several or any(each is None for each in several):
        return None
    known = [each for each in several if each is not None]
    return Interval(min(each.low for each in known), max(each.high for each in known))


def _number(value: Any) -> _Known:
    if isinstance(value, int):
        return Interval(int(value), int(value))
    return None


def _operand(name: str, arguments: Mapping[str, Any], inputs: Mapping[str, _Known]) -> _Known:
    if name in inputs:
        return inputs[name]
    return _number(arguments.get(name))


def _pair(
    combine: Callable[[int, int], int],
) -> Callable[[Mapping[str, Any], Mapping[str, _Known], Tensor], _Known]:
    def rule(arguments: Mapping[str, Any], inputs: Mapping[str, _Known], _: Tensor) -> _Known:
        first, second = (_operand(name, arguments, inputs) for name in ("self", "other"))
        if first is None or second is None or arguments.get("alpha", 1) != 1:
            return None
        corners = [combine(a, b) for a in first for b in second]
        return Interval(min(corners), max(corners))

    return rule


def _arange(arguments: Mapping[str, Any], _inputs: Mapping[str, _Known], result: Tensor) -> _Known:
    start, step = arguments.get("start", 0), arguments.get("step", 1)
    if not isinstance(start, int) or not isinstance(step, int):
        return None
    last = start + step * max(0, result.numel() - 1)
    return Interval(min(start, last), max(start, last))


def _filled(arguments: Mapping[str, Any], inputs: Mapping[str, _Known], _: Tensor) -> _Known:
    for name in ("fill_value", "value", "s"):
        if name in inputs or name in arguments:
            return _operand(name, arguments, inputs)
    return None


def _fixed(number: int) -> Callable[..., _Known]:
    return lambda *_: Interval(number, number)


def _clamped(arguments: Mapping[str, Any], inputs: Mapping[str, _Known], _: Tensor) -> _Known:
    """Return the bounds of min(max(self, min), max), which grows with each of the three."""
    stated = [name for name in ("min", "max") if arguments.get(name) is not None or name in inputs]
    limits = {name: _operand(name, arguments, inputs) for name in stated}
    least, most = limits.get("min"), limits.get("max")
    bounds = inputs.get("self")
    if None in limits.values():
        return None
    if bounds is None:
        if least is None or most is None:
            return None
        bounds = Interval(min(least.low, most.low), most.high)
    if least is not None:
        bounds = Interval(max(bounds.low, least.low), max(bounds.high, least.high))
    if most is not None:
        bounds = Interval(min(bounds.low, most.low), min(bounds.high, most.high))
    return bounds


def _remainder(arguments: Mapping[str, Any], _i: Mapping[str, _Known], _: Tensor) -> _Known:
    divisor = arguments.get("other")
    return Interval(0, divisor - 1) if isinstance(divisor, int) and divisor > 0 else None


def _converted(_arguments: Mapping[str, Any], inputs: Mapping[str, _Known], _: Tensor) -> _Known:
    return inputs.get("self")


def _masked(arguments: Mapping[str, Any], inputs: Mapping[str, _Known], _: Tensor) -> _Known:
    return hull([inputs.get("self"), _operand("value", arguments, inputs)])


def _copied(_arguments: Mapping[str, Any], inputs: Mapping[str, _Known], _: Tensor) -> _Known:
    return inputs.get("src")


def _put(arguments: Mapping[str, Any], inputs: Mapping[str, _Known], _: Tensor) -> _Known:
    if arguments.get("accumulate"):
        return None
    return hull([inputs.get("self"), inputs.get("values")])


def _scattered(_arguments: Mapping[str, Any], inputs: Mapping[str, _Known], _: Tensor) -> _Known:
    return hull([inputs.get("self"), inputs.get("src")])


def _chosen(arguments: Mapping[str, Any], inputs: Mapping[str, _Known], _: Tensor) -> _Known:
    return hull([_operand(name, arguments, inputs) for name in ("self", "other")])


def _padded(arguments: Mapping[str, Any], inputs: Mapping[str, _Known], _: Tensor) -> _Known:
    fill = arguments.get("value") or 0
    if isinstance(fill, float) and fill.is_integer():
        fill = int(fill)
    return hull([inputs.get("self"), _number(fill)])


_RULES: Mapping[str, Callable[..., _Known]] = {
    "add": _pair(lambda a, b: a + b),
    "sub": _pair(lambda a, b: a - b),
    "mul": _pair(lambda a, b: a * b),
    "maximum": _pair(max),
    "minimum": _pair(min),
    "arange": _arange,
    "full": _filled,
    "full_like": _filled,
    "new_full": _filled,
    "fill": _filled,
    "scalar_tensor": _filled,
    "zeros": _fixed(0),
    "zeros_like": _fixed(0),
    "new_zeros": _fixed(0),
    "ones": _fixed(1),
    "ones_like": _fixed(1),
    "new_ones": _fixed(1),
    "clamp": _clamped,
    "clamp_min": _clamped,
    "clamp_max": _clamped,
    "remainder": _remainder,
    "_to_copy": _converted,
    "to": _converted,
    "masked_fill": _masked,
    "where": _chosen,
    "copy": _copied,
    "index_put": _put,
    "select_scatter": _scattered,
    "slice_scatter": _scattered,
    "pad": _padded,
}
