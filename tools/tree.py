"""A checkout as modules, rooms and imports, read from its files. Nothing of it is imported.

A room is a folder's own modules. A folder inside it is another room. Generated code is left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

GENERATED = "_pb"


@dataclass(frozen=True, slots=True)
class Module:
    """One file: its dotted name, the room that it is in, and what it says."""

    name: str
    room: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        """Of its text."""
        return self.text.count("\n")


class Tree:
    """The modules of a checkout by name, and which of them each imports."""

    def __init__(self, path: Path) -> None:
        self.path = path
        modules = [module for root, package in packages(path) for module in _modules(root, package)]
        self.modules = {module.name: module for module in modules}
        self.imports = {
            module.name: set(self._imports(module)) - {module.name} for module in modules
        }

    @property
    def rooms(self) -> dict[str, list[Module]]:
        """The modules of every room that has lines."""
        rooms: dict[str, list[Module]] = {}
        for module in self.modules.values():
            rooms.setdefault(module.room, []).append(module)
        full = {room for room, modules in rooms.items() if any(each.text for each in modules)}
        return {room: rooms[room] for room in sorted(full)}

    def _imports(self, module: Module) -> Iterator[str]:
        """Yield all imports of the file: lazy ones, and those for type checkers, too."""
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                yield from (
                    imported for alias in node.names if (imported := self._module(alias.name))
                )
            elif isinstance(node, ast.ImportFrom):
                base = _base(module, node)
                for alias in node.names:
                    if imported := self._module(f"{base}.{alias.name}") or self._module(base):
                        yield imported

    def _module(self, name: str) -> str | None:
        if name in self.modules:
            return name
        return None


def packages(tree: Path) -> list[tuple[Path, str]]:
    """Return (folder of the import path, package) of all that the checkout installs."""
    return [
        (root, path.parent.name)
        for root in (tree / "src", tree / "services", tree / "clients" / "python")
        for path in sorted(root.glob("*/__init__.py"))
    ]


def _modules(root: Path, package: str) -> Iterator[Module]:
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if GENERATED in parts:
            continue
        text = path.read_text(encoding="utf-8")
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        yield Module(name, ".".join(parts[:-1]), path, text, ast.parse(text))


def _base(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    folder = module.room.split(".")
    folder = folder[: len(folder) - node.level + 1]
    return ".".join([*folder, *([node.module] if node.module else [])])
