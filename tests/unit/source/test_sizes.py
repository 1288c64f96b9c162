"""Rooms, modules and functions are as small as CONTRIBUTING says; circles are lint-imports' part."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.helpers.own_tree import own_tree


def bodies() -> Iterator[tuple[str, int]]:
    """Yield every function with the lines of its body, without its docstring."""
    for module in own_tree().modules.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                documented = ast.get_docstring(node, clean=False) is not None
                body = node.body[documented:]
                lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
                yield f"{module.name}.{node.name}", lines


def test_no_function_has_sixty_lines_and_half_have_five_at_most() -> None:
    lengths = sorted(lines for _, lines in bodies())
    assert [name for name, lines in bodies() if lines >= 60] == []
    assert lengths[len(lengths) // 2] <= 5
    assert lengths[round(0.9 * len(lengths))] < 17


def test_no_module_has_more_than_five_hundred_lines() -> None:
    assert [name for name, module in own_tree().modules.items() if module.lines > 500] == []


def test_no_room_is_more_than_an_eighth_of_the_tree() -> None:
    lines = {
        room: sum(each.lines for each in modules) for room, modules in own_tree().rooms.items()
    }
    assert [room for room, many in lines.items() if many > sum(lines.values()) / 8] == []
