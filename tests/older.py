"""Files of tacit 0.1 (tests/kept/0.1)."""

from __future__ import annotations

import tarfile
from pathlib import Path

from tests.conftest import ROOT

KEPT = ROOT / "tests" / "kept" / "0.1"


def unpacked(name: str, folder: Path) -> Path:
    """`folder`/`name`, with what 0.1 left there."""
    with tarfile.open(KEPT / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / name
