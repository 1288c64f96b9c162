"""Child processes of benchmarks, and how they are spoken to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from tacit_services.children.preload import KEEP_HEAP

from tacit_lab.checkout import ROOT


class ChildProcess:
    """One child process; `go` starts it off after it has reported that it is ready."""

    def __init__(
        self, kind: str, *, module: str = "tacit_lab.bench.bench_process", **options: Any
    ) -> None:
        """module: is run with `kind`, and the options as JSON."""
        command = [sys.executable, "-m", module, kind, json.dumps(options)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"} | KEEP_HEAP
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=ROOT,
        )

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def ready(self) -> None:
        """Wait for the child's word."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def go(self) -> None:
        """Let it begin."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, Any]:
        """Return the child's last line."""
        try:
            output, _ = self._process.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        result: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
        return result
