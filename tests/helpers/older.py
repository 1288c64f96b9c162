"""Earlier versions of tacit: their files (tests/kept), and the tree of 0.2."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

from tests.conftest import ROOT

COMMIT = "bcc9b77"  # 0.2
_KEPT = ROOT / "tests" / "kept"
KEPT = _KEPT / "0.2"


def unpacked(name: str, folder: Path) -> Path:
    """Unpack what 0.2 left, and return its folder, `folder`/`name`."""
    with tarfile.open(KEPT / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / name


def of_0_1(folder: Path) -> Path:
    """Unpack files of tacit 0.1, and return their folder, `folder`/0.1."""
    with tarfile.open(_KEPT / "0.1.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "0.1"


def tree(folder: Path) -> Path:
    """Unpack the tree of 0.2 as it was committed into `folder`, and return that."""
    packed = subprocess.run(
        ["git", "archive", COMMIT], cwd=ROOT, capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder
