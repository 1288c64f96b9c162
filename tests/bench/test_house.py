"""The measure of the house, on small trees with known answers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch

from bench.house import report, shape, walks
from bench.house.tree import Tree
from bench.house.walk import Follower, Operations, Traced, Typed
from bench.house.walks import Walk
from tests.conftest import ROOT

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
WALKED = """
from dataclasses import dataclass


@dataclass(frozen=True)
class Pieces:
    front: bytes
    tensor: memoryview


class Kept:
    def __init__(self, value):
        self.value = value

    def given(self):
        return self.value


def first(value):
    kept = Kept(value)
    for _ in range(3):
        second(value * 2)
    untouched(1)
    return holder(kept)


def second(value):
    return [value for value in (value,)]


def untouched(number):
    return number


def holder(kept):
    return bytes_of(kept.given())


def bytes_of(value):
    return value.numpy().tobytes()


def heard(payload):
    return len(payload)
"""
READS = """
import dataclasses


class Section:
    key = 1


@dataclasses.dataclass(frozen=True)
class Copy:
    key: int


@dataclasses.dataclass(frozen=True)
class Holder:
    section: Section


def copied(section):
    return Copy(section.key)


def passes(record):
    return record


def both(section):
    passes(Holder(section))
    return passes(copied(section))


def made():
    return Section()


def reads():
    return [SECTION.key for _ in range(2)]


def neither():
    return 1


def handed(section):
    reads()
    return neither()


SECTION = made()
"""


@pytest.fixture
def made_up(tmp_path: Path) -> Tree:
    """A tree with a circle of two modules, and a circle of two rooms."""
    for name, text in MADE_UP.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Tree(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """First on the import path."""
    sys.path.insert(0, str(tmp_path))
    yield tmp_path
    sys.path.remove(str(tmp_path))


def module(folder: Path, name: str, text: str) -> ModuleType:
    (folder / f"{name}.py").write_text(text)
    return import_module(name)


def names(follower: Follower) -> list[str]:
    return [step.name for step in follower.steps]


def test_a_folder_is_a_room_and_generated_code_is_none(made_up: Tree) -> None:
    assert shape.room_lines(made_up) == {"lib": 10, "lib.high": 3, "lib.low": 2}


def test_lazy_imports_and_those_for_type_checkers_count(made_up: Tree) -> None:
    assert made_up.imports["lib.b"] == {"lib.a"}
    assert made_up.imports["lib.high.d"] == {"lib.low.c"}


def test_circles_of_modules_and_of_rooms_are_found(made_up: Tree) -> None:
    assert shape.module_circles(made_up) == [["lib.a", "lib.b"], ["lib.high.d", "lib.low.c"]]
    assert shape.room_circles(made_up) == [["lib.a", "lib.b"], ["lib.high", "lib.low"]]


def test_a_body_is_counted_without_its_docstring(made_up: Tree) -> None:
    assert sorted(shape.bodies(made_up.modules.values())) == [1, 3]


def test_lengths_are_those_of_the_sorted_numbers() -> None:
    found = shape.lengths([*range(1, 11)])
    assert (found.median, found.p90, found.longest) == (5, 9, 10)
    assert shape.lengths([3, 17]).under_17 == 0.5


def test_a_tensor_is_followed_through_torch_objects_and_bytes(folder: Path) -> None:
    walked = module(folder, "walked_house", WALKED)
    value = Traced()
    tensor = torch.zeros(100)
    value.made(tensor)
    follower = Follower(folder, value)
    with Operations(value), follower:
        payload = walked.first(tensor)
        walked.heard(bytearray(payload))  # as if it came over a network: other bytes, the same
        walked.heard(b"others" * 100)
    assert names(follower) == [
        "first",
        "Kept.__init__",
        "second",
        "holder",
        "Kept.given",
        "bytes_of",
        "heard",
    ]


def test_bytes_in_pieces_are_followed_when_they_are_put_together(folder: Path) -> None:
    walked = module(folder, "walked_pieces", WALKED)
    value = Traced()
    pieces = walked.Pieces(b"front" * 20, memoryview(b"tensor" * 20))
    value.made(pieces)
    follower = Follower(folder, value)
    with follower:
        walked.heard(b"front" * 20 + b"tensor" * 20)
        walked.holder(walked.Kept(torch.zeros(100)))
    assert names(follower) == ["heard"]


def test_a_loop_is_one_stop_and_another_caller_is_another(folder: Path) -> None:
    walked = module(folder, "walked_twice", WALKED)
    value = Traced()
    tensor = torch.zeros(100)
    value.made(tensor)
    follower = Follower(folder, value)
    with follower:
        walked.second(tensor)
        walked.second(tensor)
        walked.holder(walked.Kept(tensor))
        walked.bytes_of(tensor)
    found = names(follower)
    assert found == ["second", "Kept.__init__", "holder", "Kept.given", "bytes_of", "bytes_of"]


def test_a_setting_is_followed_by_its_type_and_where_it_is_read(folder: Path) -> None:
    reads = module(folder, "reads_house", READS)
    follower = Follower(folder, Typed((reads.Section,)))
    original = reads.Section.__getattribute__

    def read(self: object, name: str) -> object:
        follower.read(sys._getframe(1))
        return original(self, name)

    reads.Section.__getattribute__ = read
    with follower:
        reads.handed(reads.SECTION)
        reads.handed("something else")
    assert names(follower) == ["handed", "reads"]


def test_a_record_made_of_a_setting_or_holding_one_is_followed(folder: Path) -> None:
    reads = module(folder, "copies_house", READS)
    follower = Follower(folder, Typed((reads.Section,)))
    with follower:
        reads.both(reads.SECTION)
        reads.handed(reads.Copy(1))  # of nothing
    assert names(follower) == ["both", "passes", "copied"]


def test_a_walk_that_has_begun_anew_forgets_what_came_before(folder: Path) -> None:
    walked = module(folder, "walked_anew", WALKED)
    tensor = torch.zeros(100)

    def began(name: str) -> torch.Tensor | None:
        return tensor if name == "second" else None

    follower = Follower(folder, Traced(), lambda function, *_: began(function.name))
    with follower:
        walked.bytes_of(tensor)
        walked.second(tensor)
        walked.bytes_of(tensor)
    assert names(follower) == ["second", "bytes_of"]


def test_a_turn_back_is_a_file_that_was_left_and_is_opened_again() -> None:
    files = ("r/a.py", "r/b.py", "r/b.py", "r/a.py", "s/c.py", "r/a.py")
    walk = Walk(tuple((file, "f") for file in files))
    assert walk.files == ["r/a.py", "r/b.py", "s/c.py"]
    assert walk.rooms == ["r", "s"]
    assert walk.turns_back == 2


def test_what_accepts_a_message_are_the_services_files_before_the_store() -> None:
    files = (
        "services/aggregator/driver.py",
        "src/wire.py",
        "services/uplink.py",
        "services/store/memory.py",
        "services/x.py",
    )
    assert Walk(tuple((file, "f") for file in files)).accepting == [files[0], files[2]]


def test_a_table_goes_between_its_marks_and_nowhere_else() -> None:
    assert report.between("a\n[\nold\n]\nb", "new", "[", "]") == "a\n[\nnew\n]\nb"
    with pytest.raises(ValueError, match=r"no \["):
        report.between("a", "new", "[", "]")


def test_this_tree_has_no_circle_no_large_room_and_small_functions() -> None:
    tree = Tree(ROOT)
    rooms = shape.room_lines(tree)
    functions = shape.lengths(shape.bodies(tree.modules.values()))
    assert not shape.module_circles(tree)
    assert not shape.room_circles(tree)
    assert max(rooms.values()) <= sum(rooms.values()) / 8
    assert functions.median <= 4
    assert functions.p90 < 17


@pytest.mark.exhaustive
def test_the_four_walks_of_this_tree_come_to_their_ends() -> None:
    found = walks.walked(ROOT)
    assert [found[name].stops[-1][1] for name in (walks.GRADIENT, walks.MESSAGE)] == [
        "Server.apply",
        "Connection.publish",
    ]
    assert found[walks.GRADIENT].stops[0][1] == "example_gradients"
    assert any(name == "RunFile.define" for _, name in found[walks.RUN_FILE].stops)
    assert any(name == "main" for _, name in found[walks.SETTINGS].stops)
    assert 1 <= len(found[walks.MESSAGE].accepting) <= 7
