"""Progress and remaining time of long work: a bar on a terminal, words elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

FIRST = 2.0  # seconds of work from which on one can say how long the rest will take


class LongWork:
    """A bar on standard error while something works; nothing where that is no terminal."""

    def __init__(self, what: str, total: float | None = None) -> None:
        """`total`: of what `at` is told; None where nobody knows, and only time is shown."""
        console = Console(stderr=True)
        bar_columns = (BarColumn(bar_width=24),) if total is not None else ()
        time_columns = (TimeRemainingColumn(),) if total is not None else ()
        self._progress = Progress(
            SpinnerColumn(),
            *bar_columns,
            TimeElapsedColumn(),
            *time_columns,
            TextColumn("{task.description}", markup=False),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(what, total=total)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def at(self, completed: float, what: str | None = None) -> None:
        """Show that `completed` of the total is done; what: the part that is under way."""
        if what is None:
            self._progress.update(self._task, completed=completed)
        else:
            self._progress.update(self._task, completed=completed, description=what)


class SlowSteps:
    """A line on standard error for each step that one waits for; none within two seconds."""

    def __init__(self) -> None:
        self._printed_at = time.monotonic()

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Show `what` as under way until the end of the block."""
        wait = max(0.0, self._printed_at + FIRST - time.monotonic())
        later = threading.Timer(wait, self._say, (what,))
        later.daemon = True
        later.start()
        try:
            yield
        finally:
            later.cancel()

    def _say(self, what: str) -> None:
        self._printed_at = time.monotonic()
        sys.stderr.write(f"{what} …\n")
        sys.stderr.flush()


class TimeLeft:
    """The time that work will still take, at its pace so far."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def after(self, completed: float, total: float) -> str:
        """Return words to end a line with; "" in the first moments, and at the end."""
        seconds = time.monotonic() - self._began
        if seconds < FIRST or not 0 < completed < total:
            return ""
        return f" · about {clock(seconds / completed * (total - completed))} left"


def clock(seconds: float) -> str:
    """Return a duration as people say it: 40 s, 3 min 20 s, 2 h 5 min."""
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60} min"
