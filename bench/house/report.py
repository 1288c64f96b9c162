"""What was measured of a checkout, as a table of Markdown, as JSON, and as text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.house import shape, walks
from bench.house.shape import Lengths
from bench.house.tree import Tree
from bench.house.walks import Walk

BEGIN, END = "<!-- made by `make house` -->", "<!-- end -->"


@dataclass(frozen=True, slots=True)
class House:
    """One checkout."""

    rooms: dict[str, int]  # lines of each, the largest first
    module_circles: list[list[str]]
    room_circles: list[list[str]]
    functions: Lengths
    modules: Lengths
    walks: dict[str, Walk]

    def as_json(self) -> dict[str, Any]:
        """Everything, and what is counted of each walk."""
        walks = {name: _counts(walk) | {"each": walk.stops} for name, walk in self.walks.items()}
        return asdict(self) | {"walks": walks}


def measure(path: Path) -> House:
    """Of the checkout at `path`. Raises Lost."""
    tree = Tree(path)
    modules = tree.modules.values()
    files = [module for module in modules if module.path.name != "__init__.py"]
    return House(
        rooms=shape.room_lines(tree),
        module_circles=shape.module_circles(tree),
        room_circles=shape.room_circles(tree),
        functions=shape.lengths(shape.bodies(modules)),
        modules=shape.lengths(module.lines for module in files),
        walks=walks.walked(path),
    )


def table(houses: Mapping[str, House]) -> str:
    """A column for each."""
    columns = [_column(house) for house in houses.values()]
    rows = [(name, *(column[name] for column in columns)) for name in columns[0]]
    lines = [("", *houses), ("---", *("--:" for _ in houses)), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _column(house: House) -> dict[str, str]:
    total, largest = sum(house.rooms.values()), next(iter(house.rooms))
    share = house.rooms[largest] / total
    found = {
        "lines": f"{total:,}",
        "rooms": str(len(house.rooms)),
        "the largest room, and its share of the lines": f"`{largest}` {share:.1%}",
        "circles of modules (modules in them)": _circles(house.module_circles),
        "circles of neighbours (of them in circles)": _circles(house.room_circles),
        "lines of a function: median, 90 % below, longest": _lengths(house.functions),
        "functions under 17 lines": f"{house.functions.under_17:.1%}",
        "lines of a module: median, 90 % below, longest": _lengths(house.modules),
    }
    for name, walk in house.walks.items():
        found[f"{name}: stops, turns back"] = f"{len(walk.stops)}, {walk.turns_back}"
        found[f"{name}: files, rooms"] = f"{len(walk.files)}, {len(walk.rooms)}"
    accepting = house.walks[walks.MESSAGE].accepting
    return found | {"files opened to accept a message": str(len(accepting))}


def _counts(walk: Walk) -> dict[str, Any]:
    return {
        "stops": len(walk.stops),
        "files": len(walk.files),
        "rooms": len(walk.rooms),
        "turns back": walk.turns_back,
    }


def _circles(found: list[list[str]]) -> str:
    return f"{len(found)} ({sum(map(len, found))})" if found else "0"


def _lengths(found: Lengths) -> str:
    return f"{found.median}, {found.p90}, {found.longest}"


def walks_as_text(house: House) -> list[str]:
    """Every stop on a line, a blank one before each walk."""
    lines = []
    for name, walk in house.walks.items():
        counts = ", ".join(f"{count} {what}" for what, count in _counts(walk).items())
        lines += ["", f"{name}: {counts}"]
        lines += [f"  {file}: {function}" for file, function in walk.stops]
    return [*lines, "", "to accept a message: " + ", ".join(house.walks[walks.MESSAGE].accepting)]


def write(document: Path, made: str) -> None:
    """Put `made` between the marks in `document`."""
    text = document.read_text(encoding="utf-8")
    document.write_text(between(text, made, BEGIN, END), encoding="utf-8")


def between(text: str, made: str, begin: str, end: str) -> str:
    """`text` with `made` between the marks. Raises ValueError where it has not both."""
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.S)
    if not pattern.search(text):
        raise ValueError(f"no {begin} ... {end}")
    return pattern.sub(lambda _: f"{begin}\n{made}\n{end}", text, count=1)
