"""The map in docs/architecture.md is drawn from the imports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.own_tree import own_tree
from tools import map as house_map

CONTRACTS = """
[[tool.importlinter.contracts]]
name = "down"
type = "layers"
containers = ["tacit"]
layers = ["top", "left | right", "low", "errors"]

[[tool.importlinter.contracts]]
name = "down, too"
type = "layers"
containers = ["tacit_services"]
layers = ["cli"]
"""
FILES = {
    "pyproject.toml": CONTRACTS,
    "src/tacit/__init__.py": '"""All."""\n',
    "src/tacit/top/__init__.py": '"""The top. With more."""\n',
    "src/tacit/top/a.py": "from tacit import errors, low\nfrom tacit.left import b\n",
    "src/tacit/left/__init__.py": '"""On the left."""\n',
    "src/tacit/left/b.py": "import tacit.low.d\n",
    "src/tacit/left/inner/__init__.py": '"""Inside."""\n',
    "src/tacit/right/__init__.py": '"""On the right.\n\nAnother paragraph.\n"""\n',
    "src/tacit/low/__init__.py": '"""Low."""\n',
    "src/tacit/low/d.py": "",
    "src/tacit/errors.py": '"""What goes wrong."""\n',
    "services/tacit_services/__init__.py": '"""Processes."""\n',
    "services/tacit_services/cli.py": '"""Commands."""\nfrom tacit.top import a\n',
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_arrows_that_follow_from_others_and_those_to_errors_are_left_out(checkout: Path) -> None:
    drawn = house_map.drawn(checkout)
    picture = drawn.split("```mermaid\n")[1].split("```")[0]
    arrows = ["  top --> left", "  left --> low", "  right", "  low"]
    assert picture.splitlines() == ["flowchart TD", *arrows]


def test_rooms_stand_in_the_order_of_the_contracts_with_their_first_sentence(
    checkout: Path,
) -> None:
    lines = house_map.drawn(checkout).splitlines()
    rooms = [line for line in lines if line.lstrip().startswith("- ")]
    assert rooms == [
        "- **top**: The top.",
        "- **left**: On the left.",
        "  - inner: Inside.",
        "- **right**: On the right.",
        "- **low**: Low.",
        "- **errors**: What goes wrong.",
        "- **cli**: Commands.",
    ]


def test_a_room_that_says_nothing_of_itself_is_named(checkout: Path) -> None:
    (checkout / "src" / "tacit" / "left" / "inner" / "__init__.py").write_text("")
    with pytest.raises(house_map.Unsaid, match=r"^tacit\.left\.inner: has no docstring$"):
        house_map.drawn(checkout)


def test_a_sentence_over_two_lines_is_whole_and_the_next_one_is_left_out(checkout: Path) -> None:
    inner = checkout / "src" / "tacit" / "left" / "inner" / "__init__.py"
    inner.write_text('"""Two (`one`,\n`two`), v1.2. And more.\n\nAnd yet more.\n"""\n')
    assert "  - inner: Two (`one`, `two`), v1.2.\n" in house_map.drawn(checkout)


def test_a_room_in_no_layer_is_named(checkout: Path) -> None:
    (checkout / "src" / "tacit" / "lost.py").write_text('"""Lost."""\n')
    with pytest.raises(house_map.Unsaid, match=r"^tacit: lost: in no layer"):
        house_map.drawn(checkout)


def test_every_package_of_this_tree_says_what_it_is() -> None:
    tree = own_tree()
    for room in {module.room for module in tree.modules.values()}:
        assert house_map.purpose(tree.modules[room])


def test_a_text_goes_between_its_marks_and_nowhere_else() -> None:
    assert house_map.between("a\n[\nold\n]\nb", "new", "[", "]") == "a\n[\nnew\n]\nb"
    with pytest.raises(ValueError, match=r"no \["):
        house_map.between("a", "new", "[", "]")
