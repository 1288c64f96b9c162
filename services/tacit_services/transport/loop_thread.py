"""An asyncio loop in a thread of its own, which passes connections on until it is closed."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from abc import ABC, abstractmethod

from tacit.errors import ServiceError

_START_SECONDS = 30.0


class LoopThread(ABC):
    """The thread between `start` and `close`.

    A derived class takes the connections, and what it begins for them is tasks of the loop.
    """

    def __init__(self, name: str, listener: socket.socket, backlog: int) -> None:
        """name: of the thread, and in errors. listener: bound; it is this thread's from now on."""
        self._name = name
        self._listener = listener
        self._backlog = backlog
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop  # from `start` on
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    async def _accept(self) -> None:
        """Take connections from the listener until cancelled. In the thread."""

    def start(self) -> None:
        """Begin to take connections; returns when a client can connect. Raises ServiceError."""
        self._thread.start()
        if not self._started.wait(_START_SECONDS):
            raise ServiceError(f"the {self._name} did not start")

    def close(self) -> None:
        """Take no more connections, end those that are open, wait for the thread. Idempotent."""
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # its loop has ended meanwhile
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener.setblocking(False)
        self._listener.listen(self._backlog)
        self._started.set()
        accepting = self._loop.create_task(self._accept())
        await self._stop.wait()
        accepting.cancel()  # connections that are open are cancelled with the loop
