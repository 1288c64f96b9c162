"""`pytest tests/snapshots --write` writes the snapshots anew; `git diff` shows what changed."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write", action="store_true", help="write the snapshots anew")
