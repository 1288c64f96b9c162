"""A simulated clock that several processes share, each on a stack of its own, in one thread.

A process that waits is switched away from, until its condition holds or its time is up. What
happens next is decided by the clock alone, so a run happens the same way every time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import greenlet

from tests.helpers.simulated_network import Timeline

IDLE = 1.0  # seconds after which a process that waits for messages looks at the time


@dataclass(eq=False, slots=True)
class _Wait:
    """A process that waits for a condition."""

    process: greenlet.greenlet
    until: Callable[[], bool]


def _never() -> bool:
    return False


class SharedTime(Timeline):
    """A clock whose `run` lets the other processes go on where a process calls it."""

    def __init__(self, limit: float = 10_000.0) -> None:
        super().__init__(limit)
        self._main = greenlet.getcurrent()
        self._waits: list[_Wait] = []

    def begin(self, process: Callable[[], None], later: float = 0.0) -> None:
        """Begin a process in `later` seconds."""
        stack = greenlet.greenlet(process, self._main)
        self.after(later, stack.switch)

    def interrupt(self, process: greenlet.greenlet, error: BaseException) -> None:
        """Let a process that waits go on, in a moment, by raising `error` where it waits."""
        self._waits = [wait for wait in self._waits if wait.process is not process]
        self.after(0.0, lambda: process.throw(error))

    @property
    def in_process(self) -> bool:
        """Whether a process runs now, and not the network."""
        return greenlet.getcurrent() is not self._main

    def run(self, seconds: float, until: Callable[[], bool] = _never) -> None:
        """Let `seconds` pass, or fewer where `until` becomes true."""
        current = greenlet.getcurrent()
        if current is self._main:
            super().run(seconds, until)
        elif not until():
            wait = _Wait(current, until)
            self._waits.append(wait)
            self.after(seconds, lambda: self._wake(wait))
            self._main.switch()

    def look(self) -> None:
        """Do what waits for a condition; processes go on from the main stack only."""
        super().look()
        if greenlet.getcurrent() is self._main:
            for wait in list(self._waits):
                if wait.until():
                    self._wake(wait)

    def jump(self, seconds: float) -> None:
        """Set the clock forward, as when a machine has slept; nothing happens in between."""
        self.now += seconds

    def _wake(self, wait: _Wait) -> None:
        if wait in self._waits:
            self._waits.remove(wait)
            wait.process.switch()


class SimulatedFilled:
    """The condition of an inbox: waiting lets the simulated time pass."""

    def __init__(self, timeline: Timeline, point: Callable[[str], None]) -> None:
        self._timeline, self._point = timeline, point

    def __enter__(self) -> bool:
        """Keep nobody out: there is one thread."""
        return True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Do nothing."""

    def wait_for(self, predicate: Callable[[], bool], timeout: float) -> bool:
        """Let time pass until `predicate` holds."""
        if timeout and not predicate():
            self._timeline.run(IDLE, predicate)
        if predicate():
            self._point("before messages are taken")
        return predicate()

    def notify(self) -> None:
        """Do nothing: who waits looks after every event."""


class SimulatedStop(threading.Event):
    """The sign to end; to wait for it lets the simulated time pass."""

    def __init__(self, timeline: Timeline, point: Callable[[str], None]) -> None:
        super().__init__()
        self._timeline, self._point = timeline, point

    def wait(self, timeout: float | None = None) -> bool:
        """Let time pass until the event is set."""
        assert timeout is not None
        self._timeline.run(timeout, self.is_set)
        self._point("while it waits")
        return self.is_set()


class _Later(Future[Any]):
    """The result of work that is done at a later event, or when it is waited for."""

    def __init__(self, work: Callable[[], Any], ended: Callable[[], bool]) -> None:
        super().__init__()
        self._work, self._ended = work, ended

    def perform(self) -> None:
        """Do the work, unless that has happened, or the process has died."""
        if self.done() or self._ended():
            return
        try:
            value = self._work()
        except Exception as error:  # noqa: BLE001  (as an executor does)
            self.set_exception(error)
        else:
            self.set_result(value)

    def result(self, timeout: float | None = None) -> Any:
        """Do the work now, where it is waited for."""
        self.perform()
        return super().result(timeout)


class LaterExecutor(Executor):
    """A thread of a simulated process: its work is done a while after it was asked for."""

    def __init__(
        self, timeline: Timeline, seconds: Callable[[], float], ended: Callable[[], bool]
    ) -> None:
        """seconds: until one piece of work is done. ended: whether the process has died."""
        self._timeline, self._seconds, self._ended = timeline, seconds, ended

    def submit(self, fn: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        """Do the work later."""
        future = _Later(lambda: fn(*args, **more), self._ended)
        self._timeline.after(self._seconds(), future.perform)
        return future
