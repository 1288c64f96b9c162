"""Python code in a process of its own, forked off the warm one of `children/preload`: it begins at
once, where a new interpreter would spend seconds of processor time on importing torch.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from multiprocessing.connection import Connection
from types import TracebackType
from typing import TextIO

from tacit_services.children import preload

_CONTEXT = multiprocessing.get_context("forkserver")
_FOREVER = 90.0  # seconds; a deadline, as servers.PATIENCE (which would bring pytest into a child)


class Forked:
    """A process that runs `code`, with `arguments` as sys.argv[1:], and three pipes to it.

    As a context manager it is dead when the block is left.
    """

    def __init__(self, code: str, *arguments: object) -> None:
        preload.prepare()
        its_in, ours = _CONTEXT.Pipe(duplex=False)
        self.stdin = _text(ours, "w")
        out, its_out = _CONTEXT.Pipe(duplex=False)
        errors, its_errors = _CONTEXT.Pipe(duplex=False)
        self.stdout, self.stderr = _text(out, "r"), _text(errors, "r")
        its = (its_in, its_out, its_errors)
        self._process = _CONTEXT.Process(target=_run, args=(code, [*map(str, arguments)], its))
        with preload._without_main_module():
            self._process.start()
        for end in its:  # else the child's death would not end what is read of it
            end.close()

    @property
    def pid(self) -> int:
        """Its process's number."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.is_alive()

    def kill(self) -> None:
        """Kill the process with `kill -9`; it has ended when this returns."""
        self._process.kill()
        self.wait()

    def wait(self) -> int:
        """Return the exit code at the end; minus a signal's number if that ended the process."""
        self._process.join(_FOREVER)
        if self._process.exitcode is None:
            raise TimeoutError(f"still there after {_FOREVER:g} s")
        return self._process.exitcode

    def close(self) -> None:
        """Kill it, and close the pipes."""
        self.kill()
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()

    def __enter__(self) -> Forked:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


def finished(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `code` until its process ends, and return its exit status and outputs, which are short."""
    with Forked(code, *arguments) as child:
        child.stdin.close()
        output, complaints = child.stdout.read(), child.stderr.read()
        return subprocess.CompletedProcess([code], child.wait(), output, complaints)


def _text(end: Connection, mode: str) -> TextIO:
    """Open the pipe as lines of text."""
    copy = os.dup(end.fileno())
    end.close()
    return os.fdopen(copy, mode)  # type: ignore[return-value]


def _run(code: str, arguments: list[str], pipes: tuple[Connection, ...]) -> None:
    """Be the process, in the child."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    preload.die_with_parent()
    for descriptor, pipe in enumerate(pipes):
        os.dup2(pipe.fileno(), descriptor)
        pipe.close()
    sys.stdin = os.fdopen(0, closefd=False)
    sys.argv = ["-c", *arguments]
    exec(compile(code, "-c", "exec"), {"__name__": "__main__"})
