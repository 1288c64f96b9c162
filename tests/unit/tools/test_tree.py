"""A checkout's modules, rooms and imports, on a small tree with known answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.tree import Tree

MADE_UP = {
    "src/lib/__init__.py": "",
    "src/lib/a.py": "from lib import b\n\n\ndef one():\n    '''Said.'''\n    return 1\n",
    "src/lib/b.py": "def two():\n    from lib import a\n\n    return a\n",
    "src/lib/low/__init__.py": '"""The lower room. It has more to say."""\n',
    "src/lib/low/c.py": "import lib.high.d\n",
    "src/lib/high/__init__.py": "",
    "src/lib/high/d.py": "import typing\nif typing.TYPE_CHECKING:\n    from ..low import c\n",
    "src/lib/_pb/__init__.py": "GENERATED = 1\n" * 100,
}


@pytest.fixture
def made_up(tmp_path: Path) -> Tree:
    """Return a tree with a circle of two modules, and a circle of two rooms."""
    for name, text in MADE_UP.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Tree(tmp_path)


def test_a_folder_is_a_room_and_generated_code_is_none(made_up: Tree) -> None:
    lines = {room: sum(each.lines for each in modules) for room, modules in made_up.rooms.items()}
    assert lines == {"lib": 10, "lib.high": 3, "lib.low": 2}


def test_lazy_imports_and_those_for_type_checkers_count(made_up: Tree) -> None:
    assert made_up.imports["lib.b"] == {"lib.a"}
    assert made_up.imports["lib.high.d"] == {"lib.low.c"}
