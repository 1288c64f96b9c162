"""The wheel as somebody installs it: built from the tree, in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT

PATIENCE = 300.0  # seconds


@dataclass(frozen=True, slots=True)
class Venv:
    """A virtual environment, and commands in it that see nothing of ours."""

    folder: Path

    def pip(self, *arguments: str) -> str:
        """Return the output of pip on it. Raise AssertionError with that output when it fails."""
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(self.folder / "bin" / "python"),
            *arguments,
        ]
        settings = {
            name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
        }
        completed = subprocess.run(
            pip, env=settings, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert completed.returncode == 0, completed.stdout + completed.stderr
        return completed.stdout

    def run(
        self, program: str, *arguments: str, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of it, outside the tree, without our environment."""
        mine = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "COLUMNS": "200",
            "OMP_NUM_THREADS": "1",
        }
        command = [str(self.folder / "bin" / program), *arguments]
        return subprocess.run(
            command,
            cwd=cwd or self.folder,
            env=mine,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def refused(self, *arguments: str) -> str:
        """Return the one line that `tacit ARGUMENTS` prints before it exits with status 2."""
        completed = self.run("tacit", *arguments)
        assert (completed.returncode, completed.stdout) == (2, ""), completed
        assert completed.stderr.count("\n") == 1, completed.stderr
        return completed.stderr.strip()


def built(tree: Path, folder: Path) -> Path:
    """Build the wheel of a project in `folder`, and return its path."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]
    subprocess.run([*command, folder, tree], check=True, timeout=PATIENCE, stdout=sys.stderr)
    [built_wheel] = folder.glob("*.whl")
    return built_wheel


def venv(folder: Path, wheel: Path) -> Venv:
    """Create an environment with the wheel and nothing else."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=PATIENCE
    )
    environment = Venv(folder)
    environment.pip("install", "--quiet", "--no-deps", "--no-index", str(wheel))
    return environment


def edge_venv(folder: Path, wheel: Path) -> Venv:
    """Create an environment with tacit[edge] alone, as the edge's image has it."""
    environment = venv(folder, wheel)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--quiet",
        "--python",
        str(environment.folder / "bin/python"),
    ]
    subprocess.run([ROOT / "docker/install-torch", *pip], check=True, timeout=PATIENCE)
    locked(environment, "edge")
    return environment


def locked(environment: Venv, group: str) -> None:
    """Install what an image has of the lock."""
    lock, end = (ROOT / "requirements.lock").read_text(encoding="utf-8"), f"# end of {group}\n"
    (environment.folder / "lock").write_text(lock[: lock.index(end)], encoding="utf-8")
    quietly = ("install", "--quiet", "--no-compile", "--require-hashes", "--no-deps", "-r")
    environment.pip(*quietly, str(environment.folder / "lock"))
