"""Commands of `tacit` in a clinic's folder, whose user has a data folder beside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.helpers.processes import PATIENCE, environment


def tacit(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; the caller checks how it ended."""
    return subprocess.run(
        [sys.executable, "-m", "tacit_services.cli.main", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE,
        check=False,
        env=environment(XDG_DATA_HOME=str(folder.parent / "home"), COLUMNS="200"),
    )
