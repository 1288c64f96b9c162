"""The shape of a checkout: lines of its rooms, circles of imports, lengths of functions."""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from bench.house.tree import Module, Tree

N = TypeVar("N", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Lengths:
    """Median, 90th percentile and maximum of some numbers of lines."""

    median: int
    p90: int
    longest: int
    under_17: float  # share of them


def lengths(numbers: Iterable[int]) -> Lengths:
    """Of at least one number."""
    found = sorted(numbers)
    last = len(found) - 1
    under = sum(number < 17 for number in found) / len(found)
    return Lengths(found[last // 2], found[round(0.9 * last)], found[last], round(under, 3))


def bodies(modules: Iterable[Module]) -> list[int]:
    """The lines of every function's body, without its docstring."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    nodes = (node for module in modules for node in ast.walk(module.tree))
    return [_body(node) for node in nodes if isinstance(node, kinds)]


def _body(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    said = ast.get_docstring(function, clean=False) is not None
    statements = function.body[1:] if said else function.body
    return (statements[-1].end_lineno or 0) - statements[0].lineno + 1 if statements else 0


def room_lines(tree: Tree) -> dict[str, int]:
    """Lines of each room, the largest first."""
    found = {room: sum(module.lines for module in modules) for room, modules in tree.rooms.items()}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def module_circles(tree: Tree) -> list[list[str]]:
    """Modules that import each other, in groups, by whatever imports there are in the files."""
    return circles(tree.imports)


def room_circles(tree: Tree) -> list[list[str]]:
    """Neighbours in a folder (folders in it, and modules) that import each other."""
    packages = sorted({module.room for module in tree.modules.values()})
    return [circle for package in packages for circle in circles(_neighbours(tree, package))]


def _neighbours(tree: Tree, package: str) -> dict[str, set[str]]:
    """What each of `package`'s children imports of the others."""
    found: dict[str, set[str]] = {}
    for module, others in tree.imports.items():
        mine = _child(package, module)
        if mine is not None:
            reached = {child for other in others if (child := _child(package, other))}
            found.setdefault(mine, set()).update(reached - {mine})
    return found


def _child(package: str, module: str) -> str | None:
    """What of `package`'s own children `module` is, or is in."""
    head, rest = module[: len(package) + 1], module[len(package) + 1 :]
    return f"{package}.{rest.split('.')[0]}" if head == package + "." else None


def circles(graph: Mapping[N, set[N]]) -> list[list[N]]:
    """Groups of more than one node, each of which leads to all others of its group."""
    reached = {node: _reached(graph, node) for node in graph}
    found: list[list[N]] = []
    done: set[N] = set()
    for node in graph:
        group = [other for other in graph if other in reached[node] and node in reached[other]]
        if len(group) > 1 and node not in done:
            found.append(group)
            done.update(group)
    return found


def _reached(graph: Mapping[N, set[N]], start: N) -> set[N]:
    found, todo = {start}, [start]
    while todo:
        fresh = graph.get(todo.pop(), set()) - found
        found |= fresh
        todo.extend(fresh)
    return found
