"""The modules of this checkout, parsed once in each process of tests."""

from __future__ import annotations

from functools import cache

from tests.conftest import ROOT
from tools.tree import Tree


@cache
def own_tree() -> Tree:
    """Return the checkout's tree, which nobody changes."""
    return Tree(ROOT)
