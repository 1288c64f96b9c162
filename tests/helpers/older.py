"""tacit 0.1: its files (tests/kept/0.1), and its tree."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

from tests.conftest import ROOT

COMMIT = "2ff785b"
KEPT = ROOT / "tests" / "kept" / "0.1"


def unpacked(name: str, folder: Path) -> Path:
    """`folder`/`name`, with what 0.1 left there."""
    with tarfile.open(KEPT / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / name


def identity_of_two_files(folder: Path) -> Path:
    """`folder`/two-files, with identity 0 as it was when messages had a file of their own."""
    with tarfile.open(ROOT / "tests" / "kept" / "two-files.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "two-files"


def tree(folder: Path) -> Path:
    """`folder`, with the tree of 0.1 in it, as it was committed."""
    packed = subprocess.run(
        ["git", "archive", COMMIT], cwd=ROOT, capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder
