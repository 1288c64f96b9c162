"""Child processes that are forked off one process which has the imports done already.

They are services of `tacit`, or give one answer.

To import torch and SciPy takes a service seconds of processor time, and a run on one machine has
seven services. The forkserver of `multiprocessing` imports them once; a child is then there in
milliseconds, and shares its memory. The forkserver computes nothing and has no threads, so that a
child inherits nothing that is half done.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import importlib
import json
import multiprocessing
import multiprocessing.connection
import multiprocessing.context
import os
import signal
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Callable, Iterator
from multiprocessing import util
from pathlib import Path
from typing import Any

from tacit import regular_file
from tacit.errors import ServiceError
from tacit_services import launch, python_child
from tacit_services.children.child_limits import ChildLimits, LimitPassed, short_of_memory

# By default glibc gives the 10 MB buffers of per-example gradients back to the system after every
# push, and then has to fault them in again. And it makes eight heaps for each core, one for each
# thread that comes: what the threads of REST once took is then in no other's reach.
KEEP_HEAP = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_MMAP_THRESHOLD_": str(1 << 25),
    "MALLOC_TOP_PAD_": str(1 << 25),
    # Huge pages where the system lends them on request: to touch a fresh model of 45 MB page by
    # page takes 80 ms, four times as long as to copy it.
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
# Libraries read these once, when the forkserver starts: they are the same for every child.
_AT_EXEC = {"OMP_NUM_THREADS": "1"} | KEEP_HEAP
_IMPORTED = [
    "tacit_services.launch",
    "tacit_services.aggregator.main",
    "tacit_services.edge.main",
    "tacit_services.offers.submitted_run",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",  # uvicorn imports these two only when it starts
    "tacit.kernels.network",  # with numba, if it is there
    # What tacit itself imports where an ε is computed, which every service does.
    "dp_accounting.pld.privacy_loss_distribution",
    "dp_accounting.rdp",
    "scipy.optimize",
    "scipy.stats",
]
# What torch needs to make a graph of a module takes two seconds more.
_FOR_OWN_CODE = ("torch._dynamo", "torch.export._trace", "torch._export.non_strict_utils")
FORKS = "forkserver" in multiprocessing.get_all_start_methods()  # not on Windows
_LONGEST_FOLDER = 60  # bytes: a socket's whole name may have 107
_SHORT_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108  (made by mkdtemp, for us alone)
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_LONGEST_ANSWER = 1 << 20  # bytes, unless limits say another number
_FAREWELL = 5.0  # seconds in which a child ends that gives no answer
# Held where a child is started, or its end is read: `multiprocessing` does both for all children,
# and what a start changes in this process is put back after it.
_CHILDREN = threading.Lock()


def prepare(run_file: Path | None = None) -> None:
    """Let the forkserver begin its imports, where there is one, while this process does more.

    run_file: of the run; one that names own code needs more of them.
    """
    if not FORKS:
        return
    own_code = False
    if run_file is not None:
        with contextlib.suppress(OSError):
            own_code = b'"python"' in regular_file.content(run_file)
    _begin(_FOR_OWN_CODE if own_code else ())


@functools.cache  # once only: while it works, what other threads print is lost
def _begin(more: tuple[str, ...]) -> None:
    from multiprocessing import forkserver

    _context().set_forkserver_preload([*_IMPORTED, *more])
    with _silenced(), python_child.inherited(_AT_EXEC), _room_for_sockets():
        forkserver.ensure_running()


def _context() -> multiprocessing.context.ForkServerContext:
    return multiprocessing.get_context("forkserver")


class ForkedService:
    """A running `tacit` service. Its methods are those of `subprocess.Popen`. Only where FORKS."""

    def __init__(self, arguments: list[str], environment: dict[str, str], log: Path) -> None:
        """Start `tacit ARGUMENTS` with this environment, and with nothing else of this process.

        Output is appended to `log`. The forkserver's libraries were configured when it was started,
        so `environment` cannot change OMP_NUM_THREADS=1 or glibc's malloc.
        """
        log.touch()  # so that the log can be read at once
        self._process = _started(_serve, arguments, environment, str(log))
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        """Return the exit code, None before the end; minus a signal's number if that ended it."""
        return _code(self._process)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, once it has ended.

        Raises subprocess.TimeoutExpired after `timeout` seconds.
        """
        multiprocessing.connection.wait([self._process.sentinel], timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired(["tacit"], timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal; does nothing if it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it; does nothing if it has ended."""
        self._process.kill()


def answer_of(module: str, log: Path, *arguments: str, limits: ChildLimits | None = None) -> Any:
    """Return what `module.answer(*arguments)` gives, as JSON has it, in a process of its own.

    Nothing else comes back of what it does. Its output is appended to `log`. limits: of that
    process, which is ended where it passes them. Raises LimitPassed then, ServiceError where it
    ends without an answer, and OSError. Only where FORKS.
    """
    log.touch()
    ours, theirs = _context().Pipe(duplex=False)
    with ours:
        with theirs:
            process = _started(_answer, module, arguments, theirs, str(log), limits)
        try:
            content = _heard(ours, limits)
        except LimitPassed:
            _ended(process, 0.0)
            raise
    if content:
        return content[0]
    code = _ended(process, _FAREWELL)
    if content is not None and limits is not None:
        raise limits.memory_passed()
    raise ServiceError(f"ended without an answer ({code}); see {log.name}")


def _heard(
    ours: multiprocessing.connection.Connection, limits: ChildLimits | None
) -> list[Any] | None:
    """Return a child's answer, alone in a list; none in it where it was short of memory.

    None: it has ended, or says too much. Raises LimitPassed where it takes too long.
    """
    try:
        if limits is None:
            content = ours.recv_bytes(_LONGEST_ANSWER)
        elif ours.poll(limits.seconds):
            content = ours.recv_bytes(limits.answer)
        else:
            raise limits.seconds_passed()
    except (EOFError, OSError):
        return None
    answers: list[Any] = json.loads(content)
    return answers


def _ended(process: multiprocessing.context.ForkServerProcess, patience: float) -> int | None:
    """Return the exit code of a child that is to end within so many seconds, or is killed."""
    multiprocessing.connection.wait([process.sentinel], patience)
    process.kill()
    multiprocessing.connection.wait([process.sentinel])
    return _code(process)


def _started(
    target: Callable[..., None], *arguments: object
) -> multiprocessing.context.ForkServerProcess:
    """Return a child that is `target(*arguments)`."""
    with _CHILDREN:
        prepare()
        process = _context().Process(target=target, args=arguments)
        # A forkserver, or its resource tracker, that has died is started again here.
        with _without_main_module(), python_child.inherited(_AT_EXEC):
            process.start()
    return process


def _code(process: multiprocessing.context.ForkServerProcess) -> int | None:
    """Return the exit code of a child; None before its end."""
    with _CHILDREN:
        return process.exitcode


def die_with_parent() -> None:
    """Have SIGTERM sent to this process when its parent dies, even by kill -9.

    It is Linux's; elsewhere this does nothing.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _prctl(option: int, value: object) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def _die_with_command() -> None:
    """End this process when the command dies that asked the forkserver for it.

    The parent is the forkserver, which lives as long as any of its children.
    """
    command = multiprocessing.parent_process()
    assert command is not None
    command.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _serve(arguments: list[str], environment: dict[str, str], log: str) -> None:
    """Be the service, in the child, as `tacit ARGUMENTS` would be."""
    _settle(f"tacit {arguments[0]}", log)
    os.environ.clear()
    os.environ.update(environment)
    launch.main(arguments[0])


def _answer(
    module: str,
    arguments: tuple[str, ...],
    to: multiprocessing.connection.Connection,
    log: str,
    limits: ChildLimits | None,
) -> None:
    """Give the answer, in the child, as `_heard` takes it."""
    _settle("tacit", log)
    if limits is not None:
        limits.hold()
    try:
        answers = [importlib.import_module(module).answer(*arguments)]
    except (MemoryError, RuntimeError, OSError, ImportError) as error:
        if limits is None or not short_of_memory(error):
            raise
        answers = []
    to.send_bytes(json.dumps(answers).encode())


def _settle(name: str, log: str) -> None:
    """Let this child, of this name, have nothing of the process that has forked it."""
    os.setsid()  # a Ctrl-C in the terminal is for the command; it stops its children in order
    die_with_parent()
    threading.Thread(target=_die_with_command, daemon=True).start()
    _prctl(_PR_SET_NAME, name.encode())  # what ps and top show
    for descriptor, path, how in (
        (0, os.devnull, os.O_RDONLY),
        (1, log, os.O_WRONLY | os.O_APPEND | os.O_CREAT),
    ):
        opened = os.open(path, how, 0o644)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.dup2(1, 2)
    gc.freeze()  # what was imported is never garbage, and a look at it would copy its pages


@contextlib.contextmanager
def _room_for_sockets() -> Iterator[None]:
    """Let `multiprocessing` make its folder for sockets where their names are not too long.

    Batch systems give each job a folder for temporary files, with a long path. The folder is made
    once in a process, so the next ones are where this one is.
    """
    before = tempfile.tempdir
    if len(os.fsencode(tempfile.gettempdir())) > _LONGEST_FOLDER:
        short = (path for path in _SHORT_FOLDERS if os.access(path, os.W_OK | os.X_OK))
        tempfile.tempdir = next(short, before)
    try:
        util.get_temp_dir()
        yield
    finally:
        tempfile.tempdir = before


@contextlib.contextmanager
def _without_main_module() -> Iterator[None]:
    """Keep `multiprocessing` from running our main script in a child that is begun now."""
    ours, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = ours


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Give what is started now /dev/null for standard output and error.

    Otherwise a reader of our output would wait for the end of that process, too.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    copies = [os.dup(1), os.dup(2)]
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    try:
        yield
    finally:
        for descriptor, copy in zip((1, 2), copies, strict=True):
            os.dup2(copy, descriptor)
            os.close(copy)
        os.close(silence)
