"""Trees, and for each a process that has it, and no other, on its import path."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Any

from golden import adapters

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "golden" / "REFERENCE"
PATIENCE = 300.0  # seconds for one answer: more than any takes, so that a hang is a failure


class Failed(Exception):  # noqa: N818  (an answer that did not come)
    """A tree's process ended instead of answering; the message is its last word."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A checkout, and the adapter that knows where its modules are."""

    path: Path
    adapter: str = adapters.NEWEST


@dataclass(frozen=True, slots=True)
class Reference:
    """The commit that a tree is compared with, and its adapter."""

    commit: str
    adapter: str


def reference() -> Reference:
    """What golden/REFERENCE says."""
    commit, adapter = REFERENCE.read_text(encoding="ascii").split()
    return Reference(commit, adapter)


def git(*arguments: str, cwd: Path = ROOT) -> str:
    """What git prints. Raises Failed with its complaint."""
    done = subprocess.run(["git", *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


@contextmanager
def checked_out(wanted: Reference) -> Iterator[Tree]:
    """The commit's tree in a git worktree of its own, for as long.

    Raises Failed where this clone has not got it.
    """
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        place = Path(folder) / "tree"
        git("worktree", "add", "--quiet", "--detach", str(place), wanted.commit)
        try:
            yield Tree(place, wanted.adapter)
        finally:
            git("worktree", "remove", "--force", str(place))


class Child:
    """A process that answers questions about one tree.

    One that has ended is started anew by the next question.
    """

    def __init__(self, tree: Tree, folder: Path) -> None:
        """`folder`: for what the process needs and says."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "golden").symlink_to(
            ROOT / "golden"
        )  # the tree's own golden, if it has one, is of that tree's time
        self._tree, self._folder, self._log = tree, folder, folder / "log"
        self._process: subprocess.Popen[str] | None = None

    def ask(self, what: str, **given: Any) -> Any:
        """The answer to one of inside/__main__.py's questions. Raises Failed."""
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        hang = Timer(PATIENCE, process.kill)
        hang.start()
        try:
            process.stdin.write(json.dumps([what, given]) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            hang.cancel()
        if not answer:
            raise Failed(self._last_word())
        return json.loads(answer)

    def close(self) -> None:
        """End the process; idempotent."""
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "golden.inside", str(self._tree.path), self._tree.adapter]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self._tree.path,
                env=self._environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        return self._process

    def _environment(self) -> dict[str, str]:
        """The tree first, whatever else is installed, and what changes results taken away."""
        paths = [
            self._folder,
            *(self._tree.path / path for path in adapters.LAYOUTS[self._tree.adapter].paths),
        ]
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TACIT_", "PYTHON"))
        }
        return kept | {
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "PYTHONSAFEPATH": "1",
            "OMP_NUM_THREADS": "1",
            "CI": "1",  # a broker that is missing is a failure
        }

    def _last_word(self) -> str:
        self.close()
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "the process ended without a word"
