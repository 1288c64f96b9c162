"""SIGTERM and SIGINT as an event.

A handler runs between any two steps of the main thread, also within `Event.wait`, while that holds
the event's lock. A handler that set the event there would wait for itself for ever. So the handlers
do nothing. A thread, which learns of each signal by a socket, sets the event.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable

ENDS = (signal.SIGTERM, signal.SIGINT)


def stopping() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set from now on. For a process's main thread."""
    stop = threading.Event()
    watch(stop)
    return stop


def watch(stop: threading.Event) -> Callable[[], None]:
    """Let SIGTERM and SIGINT set `stop` from now on; returns the function that undoes it.

    Both are for a process's main thread.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    before = {name: signal.signal(name, lambda *_: None) for name in ENDS}
    woken = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    # The thread holds both sockets, so that they last as long as it does.
    threading.Thread(target=_hear, args=(reader, writer, stop), name="signals", daemon=True).start()

    def undo() -> None:
        signal.set_wakeup_fd(woken)
        for name, handler in before.items():
            signal.signal(name, handler)
        writer.close()

    return undo


def _hear(reader: socket.socket, writer: socket.socket, stop: threading.Event) -> None:
    with reader, writer:
        while number := reader.recv(1):
            if number[0] in ENDS:
                stop.set()
