"""Shared by all tests.

Where the real data is, and torch on one thread (two cores are shared by xdist workers).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Before torch is loaded, and not by loading it: who only shares out the tests needs none.
os.environ["OMP_NUM_THREADS"] = "1"
# Where a test has two threads, one that waits for the other does not spin on a shared processor.
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def data_root() -> Path | None:
    """Return the folder with the real datasets, or None.

    It is TACIT_DATA, by default ../shared/data when present.
    """
    path = Path(os.environ.get("TACIT_DATA") or ROOT.parent / "shared" / "data")
    return path if path.is_dir() else None
