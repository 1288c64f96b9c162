"""The signals that ask a process to end, SIGTERM and SIGINT, as an event."""

from __future__ import annotations

import signal
import threading


def stopping() -> threading.Event:
    """An event that SIGTERM and SIGINT set from now on. For a process's main thread."""
    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    return stop
