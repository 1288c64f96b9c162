"""A program of a system under test, with every process that it starts in turn.

A variable of their environment marks them, as a start script leaves its children behind.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil

_MARK = "TACIT_LAB_TREE"
_ON_S = 0.1


class ProcessTree:
    """One program, started again under the same settings by `start`."""

    def __init__(
        self, command: list[str], folder: Path, environment: dict[str, str], log: Path
    ) -> None:
        self.log = log
        self._command = command
        self._folder = folder
        self._mark = uuid.uuid4().hex
        self._environment = environment | {_MARK: self._mark}
        self._process: subprocess.Popen[bytes] | None = None
        self._slow = threading.Event()

    def start(self) -> None:
        """Start it; its log grows."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def code(self) -> int | None:
        """The exit code of the program itself; None while it runs, or before it was started."""
        return None if self._process is None else self._process.poll()

    @property
    def text(self) -> str:
        """All that it has written."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def kill(self) -> None:
        """End all of it by kill -9."""
        if self._process is None:
            return
        self._slow.clear()
        while members := list(self.members()):
            for member in members:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.kill()
            psutil.wait_procs(members, timeout=5.0)
        self._process.wait()

    def members(self) -> Iterator[psutil.Process]:
        """Yield every living process of it."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if process.status() == psutil.STATUS_ZOMBIE:
                    continue
                if process.environ().get(_MARK) == self._mark:
                    yield process

    def slow_down(self, factor: float) -> None:
        """From now on let it run one `factor`-th of the time, until it is killed."""
        self._slow.set()
        threading.Thread(target=self._run_slowly, args=(factor,), daemon=True).start()

    def _run_slowly(self, factor: float) -> None:
        pause = threading.Event()
        while self._slow.is_set():
            members = list(self.members())
            for member in members:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.suspend()
            pause.wait((factor - 1) * _ON_S)
            for member in members:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.resume()
            pause.wait(_ON_S)


def plain_environment(**variables: str) -> dict[str, str]:
    """Return this process's environment, without TACIT_* and with compiled modules kept."""
    dropped = ("TACIT_", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return inherited | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} | variables
