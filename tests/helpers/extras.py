"""Libraries of an extra: a laptop may do without, and CI may not."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest


def needs(module: str) -> pytest.MarkDecorator:
    """Return a mark that skips where `module` is missing, and fails where CI is set."""
    absent = find_spec(module) is None and not os.environ.get("CI")
    return pytest.mark.skipif(absent, reason=f"{module} is not installed")
