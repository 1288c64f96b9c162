"""`python -m tools.map [--check]`: draws the map of docs/architecture.md from the tree's imports.

Two pictures (Mermaid), of the library and of the processes. An arrow means "imports". One that
follows from a longer path (a → b → c makes a → c no news) is left out. So is every arrow to a room
of UNDRAWN, which every room may use. Under each picture are its rooms in the order of pyproject's
contracts, the top first, with the first sentence of their docstrings.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.tree import Module, Tree

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = Path("docs/architecture.md")
BEGIN = "<!-- the map: made by `make map` -->"
END = "<!-- end of the map -->"
PARTS = {"tacit": "The library", "tacit_services": "The processes"}
UNDRAWN = ("errors", "digests", "rounding", "file_lock", "regular_file", "shown", "logs", "disk")
_SENTENCE_END = re.compile(r"(?<=[.!?]) ")
Arrows = dict[str, set[str]]


class Unsaid(Exception):  # noqa: N818  (what is missing is a sentence)
    """A room has no docstring, or stands in no layer; the message names it."""


@dataclass(frozen=True, slots=True)
class Part:
    """One package: its rooms in their layers, the top first, and which of them imports which."""

    package: str
    layers: list[list[str]]
    arrows: Arrows


def main() -> int:
    """Return the exit code: 1 where the map differs from the tree."""
    parser = argparse.ArgumentParser(prog="python -m tools.map", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if it would")
    check = parser.parse_args().check
    document = ROOT / DOCUMENT
    text = document.read_text(encoding="utf-8")
    try:
        fresh = between(text, drawn(ROOT), BEGIN, END)
    except Unsaid as unsaid:
        print(f"map: {unsaid}", file=sys.stderr)
        return 1
    if check and fresh != text:
        print(f"map: {DOCUMENT} is not what the imports say; `make map`", file=sys.stderr)
        return 1
    if fresh != text:
        document.write_text(fresh, encoding="utf-8")
    return 0


def between(text: str, table: str, begin: str, end: str) -> str:
    """Put `table` between the two marks of `text`. Raises ValueError where it has not both."""
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.S)
    if not pattern.search(text):
        raise ValueError(f"no {begin} ... {end}")
    return pattern.sub(lambda _: f"{begin}\n{table}\n{end}", text, count=1)


def drawn(path: Path) -> str:
    """Return the map of the checkout at `path`, as Markdown. Raises Unsaid."""
    tree = Tree(path)
    layers = _layers(path / "pyproject.toml")
    paragraphs = []
    for package, title in PARTS.items():
        part = Part(package, layers[package], _arrows(tree, package))
        _check_layers(part, tree)
        paragraphs += [f"### {title}", _picture(part), "\n".join(_rooms(part, tree))]
    return "\n\n".join(["", *paragraphs, ""])


def _layers(pyproject: Path) -> dict[str, list[list[str]]]:
    """Return the layers of every package that has a contract of them."""
    tool = tomllib.loads(pyproject.read_text(encoding="utf-8"))["tool"]
    layers: dict[str, list[list[str]]] = {}
    for contract in tool["importlinter"]["contracts"]:
        if contract["type"] == "layers":
            split = [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]
            layers |= dict.fromkeys(contract["containers"], split)
    return layers


def _arrows(tree: Tree, package: str) -> Arrows:
    """Return which of the package's own rooms and modules imports which; without itself."""
    arrows: Arrows = {}
    for module, others in tree.imports.items():
        mine = _room(package, module)
        if mine:
            reached = {room for other in others if (room := _room(package, other))}
            arrows.setdefault(mine, set()).update(reached - {mine})
    return arrows


def _room(package: str, module: str) -> str:
    """Return the room or module of `package` that `module` belongs to; "" if to none."""
    parts = module.split(".")
    if parts[0] == package and len(parts) > 1:
        return parts[1]
    return ""


def _check_layers(part: Part, tree: Tree) -> None:
    placed = {name for layer in part.layers for name in layer}
    rooms = {_room(part.package, module) for module in tree.modules} - {""}
    if missing := sorted(rooms - placed):
        raise Unsaid(f"{part.package}: {', '.join(missing)}: in no layer of pyproject.toml")


def shortened(arrows: Mapping[str, set[str]]) -> Arrows:
    """Drop the arrows that follow from a longer way; `arrows` must have no circle."""
    return {
        room: {other for other in others if not _further(arrows, others - {other}, other)}
        for room, others in arrows.items()
    }


def _further(arrows: Mapping[str, set[str]], starts: set[str], goal: str) -> bool:
    """Return whether a way leads from one of `starts` to `goal`."""
    reached = set(starts)
    todo = list(starts)
    while todo:
        fresh = arrows.get(todo.pop(), set()) - reached
        reached |= fresh
        todo.extend(fresh)
    return goal in reached


def _picture(part: Part) -> str:
    arrows = shortened({room: others - {*UNDRAWN} for room, others in part.arrows.items()})
    lines = ["```mermaid", "flowchart TD"]
    for name in (name for layer in part.layers for name in layer if name not in UNDRAWN):
        others = " & ".join(sorted(arrows.get(name, ())))
        lines.append(f"  {name} --> {others}" if others else f"  {name}")
    return "\n".join([*lines, "```"])


def _rooms(part: Part, tree: Tree) -> Iterator[str]:
    """Yield a line for every room, top to bottom; those inside it beneath it."""
    for layer in part.layers:
        for name in layer:
            full = f"{part.package}.{name}"
            yield f"- **{name}**: {purpose(tree.modules[full])}"
            for inner in sorted(_inside(tree, full)):
                yield f"  - {inner.removeprefix(full + '.')}: {purpose(tree.modules[inner])}"


def _inside(tree: Tree, room: str) -> set[str]:
    return {each.room for each in tree.modules.values() if each.room.startswith(room + ".")}


def purpose(module: Module) -> str:
    """Return the first sentence of its docstring, in one line. Raises Unsaid without one."""
    docstring = ast.get_docstring(module.tree) or ""
    if not docstring:
        raise Unsaid(f"{module.name}: has no docstring")
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    return _SENTENCE_END.split(paragraph, maxsplit=1)[0]


if __name__ == "__main__":
    sys.exit(main())
