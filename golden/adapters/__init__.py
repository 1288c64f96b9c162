"""The layouts that the tree has had. A file here re-exports, under golden's own names, all that
golden uses of a tree.

Nothing else knows where a module is.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layout:
    """Folders of a tree's import path, and the packages that must come from there."""

    paths: tuple[str, ...]
    packages: tuple[str, ...]


_ROOMS = Layout(
    ("src", "services", ".", "clients/python"), ("tacit", "tacit_services", "tests", "tacit_client")
)
_WITH_LABORATORY = Layout((*_ROOMS.paths, "lab/src"), (*_ROOMS.packages, "tacit_lab"))
NEWEST = "fifth"  # of the tree that this file is in
LAYOUTS = {"fourth": _ROOMS, "fifth": _WITH_LABORATORY}
