"""The shape of JSON values: their keys and types, without the values."""

from __future__ import annotations

import re
from typing import Any


def shape(value: Any) -> Any:
    """Keys with the shapes of their values; of anything else the type's name.

    Of a list the one shape of what is in it, or, if plain values differ in type (a row), theirs in
    order. Names of edges count as one key: which ones there are is the run's.
    """
    if isinstance(value, dict):
        found: dict[str, list[Any]] = {}
        for key, inner in value.items():
            found.setdefault(generic(str(key)), []).append(shape(inner))
        return {key: _one(shapes) for key, shapes in sorted(found.items())}
    if isinstance(value, list | tuple):
        inner = [shape(one) for one in value]
        row = len(set(map(str, inner))) > 1 and all(isinstance(one, str) for one in inner)
        return inner if row else _distinct(inner)
    return type(value).__name__


def generic(name: str) -> str:
    """`name` without the number of an edge."""
    return re.sub(r"edge-\d+", "edge-N", name)


def _one(shapes: list[Any]) -> Any:
    distinct = _distinct(shapes)
    return distinct[0] if len(distinct) == 1 else {"any of": distinct}


def _distinct(shapes: list[Any]) -> list[Any]:
    return sorted(
        (one for number, one in enumerate(shapes) if one not in shapes[:number]), key=repr
    )
