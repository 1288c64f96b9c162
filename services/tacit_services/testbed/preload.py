"""`tacit` services as child processes that are forked off one which has imported everything already.

A service takes seconds of processor time to import (torch, SciPy), and a run on one machine has seven of them. The
forkserver of `multiprocessing` imports once; a child is then there in milliseconds and shares its memory. It computes
nothing and has no threads, so nothing can be inherited half done.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path

from tacit_services import launch

# glibc gives the 10 MB buffers of per-example gradients back to the system after every push, and faults them in again.
KEEP_HEAP = {
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_MMAP_THRESHOLD_": str(1 << 25),
    "MALLOC_TOP_PAD_": str(1 << 25),
}
_AT_EXEC = {
    "OMP_NUM_THREADS": "1"
} | KEEP_HEAP  # what libraries read once: the same for every child
_IMPORTED = [
    "tacit_services.launch",
    "tacit_services.aggregator.main",
    "tacit_services.edge.main",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",  # which it imports when it starts
]
_CONTEXT = multiprocessing.get_context("forkserver")
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


@functools.cache  # once: while it works, what other threads print is lost
def prepare() -> None:
    """Let the imports begin, beside whatever this process does until its first child."""
    _CONTEXT.set_forkserver_preload(_IMPORTED)
    before = {name: os.environ.get(name) for name in _AT_EXEC}
    os.environ.update(_AT_EXEC)
    with _unheard():
        forkserver.ensure_running()
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


class ForkedService:
    """A `tacit` service that runs; the methods are those of `subprocess.Popen`."""

    def __init__(self, arguments: list[str], environment: dict[str, str], log: Path) -> None:
        """Start `tacit ARGUMENTS` with this environment and nothing else of ours; output is appended to `log`.

        What is imported was configured at its exec: `environment` cannot change OMP_NUM_THREADS=1 or glibc's malloc.
        """
        prepare()
        log.touch()  # so that it can be read at once
        self._process = _CONTEXT.Process(target=_serve, args=(arguments, environment, str(log)))
        with _nameless():
            self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        """Its exit code, if it has ended; minus the signal's number, if one ended it."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code once it has ended. Raises subprocess.TimeoutExpired after `timeout` seconds."""
        self._process.join(timeout)
        if (code := self._process.exitcode) is None:
            raise subprocess.TimeoutExpired(["tacit"], timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Nothing, if it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9."""
        self.send_signal(signal.SIGKILL)


def die_with_parent() -> None:
    """SIGTERM for this process when its parent dies, even by kill -9 (Linux; a no-op elsewhere)."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _prctl(option: int, value: object) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def _die_with_command() -> None:
    """The same for whoever asked the forkserver, which lives as long as any of its children."""
    command = multiprocessing.parent_process()
    assert command is not None
    command.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _serve(arguments: list[str], environment: dict[str, str], log: str) -> None:
    """In the child: be the service, as `tacit ARGUMENTS` would."""
    os.setsid()  # a Ctrl-C in the terminal is for the command; it stops its children in order
    die_with_parent()
    threading.Thread(target=_die_with_command, daemon=True).start()
    _prctl(_PR_SET_NAME, f"tacit {arguments[0]}".encode())  # what ps and top show
    for descriptor, path, how in (
        (0, os.devnull, os.O_RDONLY),
        (1, log, os.O_WRONLY | os.O_APPEND | os.O_CREAT),
    ):
        opened = os.open(path, how, 0o644)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.dup2(1, 2)
    gc.freeze()  # what was imported is never garbage, and to look at it is to copy its pages
    os.environ.clear()
    os.environ.update(environment)
    launch.main(arguments[0])


@contextlib.contextmanager
def _nameless() -> Iterator[None]:
    """A child begun now does not run our main script again, as `multiprocessing` has it: it needs nothing of it."""
    ours, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = ours


@contextlib.contextmanager
def _unheard() -> Iterator[None]:
    """What is started now has /dev/null for standard output and error: whoever reads ours must not wait for its end."""
    sys.stdout.flush(), sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1), os.dup2(silence, 2)
    try:
        yield
    finally:
        for descriptor, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, descriptor)
            os.close(copy)
        os.close(silence)
