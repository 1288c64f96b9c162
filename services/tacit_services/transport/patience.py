"""How long a client waits for one exchange in all, also while bytes come.

A socket's own timeout is for one read: who sends a byte every second never meets it.
"""

from __future__ import annotations

import errno
import math
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

T = TypeVar("T")
_SLICE = 0.5  # seconds between two looks whether to stop
_UNDER_WAY = (0, errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EAGAIN)


class Patience(threading.local):
    """The time that is left for an exchange, of each thread its own; until `begin` without end.

    Guarantee: a call that waits by `waited` or `connected` raises TimeoutError at most `_SLICE`
    seconds after the time is over, or `stop` is set.
    """

    def __init__(
        self, stop: threading.Event | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stop = stop
        self._clock = clock
        self._seconds = math.inf
        self._ends = math.inf
        self._piece: int | None = None
        self._passed = 0  # bytes since the time was last begun anew

    def begin(self, seconds: float, piece: int | None = None) -> None:
        """Begin an exchange of `seconds`. piece: bytes with which the time begins anew, or None."""
        self._seconds = seconds
        self._ends = self._clock() + seconds
        self._piece = piece
        self._passed = 0

    def passed(self, count: int) -> None:
        """Take note of bytes that have come or gone."""
        self._passed += count
        if self._piece is not None and self._passed >= self._piece:
            self.begin(self._seconds, self._piece)

    def waited(self, link: socket.socket, call: Callable[[], T]) -> T:
        """Return what `call`, of a socket, returns. It may be called again where it timed out.

        Raises TimeoutError, and what `call` raises.
        """
        while True:
            link.settimeout(self._slice())
            try:
                return call()
            except TimeoutError:
                continue

    def send(self, link: socket.socket, data: bytes) -> None:
        """Send all of `data`. Raises OSError, TimeoutError."""
        unsent = memoryview(data)
        while unsent:
            sent = self.waited(link, partial(link.send, unsent))
            self.passed(sent)
            unsent = unsent[sent:]

    def connected(self, host: str, port: int) -> socket.socket:
        """Return a socket that is connected to the first address of `host` that answers.

        Raises OSError; its cause is the last address's.
        """
        try:
            entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except UnicodeError as error:  # a part of the name that is too long
            raise socket.gaierror(socket.EAI_NONAME, f"{host[:80]}: {error}") from error
        failure: OSError | None = None
        for number, (family, kind, protocol, _, address) in enumerate(entries):
            link = socket.socket(family, kind, protocol)
            now = self._clock()
            try:
                # One that does not answer leaves the others their share of the time.
                self._connect(link, address, now + (self._ends - now) / (len(entries) - number))
            except OSError as error:
                link.close()
                failure = error
                continue
            return link
        raise failure or OSError(f"{host[:80]}: has no address")

    def _connect(self, link: socket.socket, address: object, ends: float) -> None:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setblocking(False)
        code = link.connect_ex(address)  # type: ignore[arg-type]
        if code in _UNDER_WAY:
            with selectors.DefaultSelector() as selector:
                selector.register(link, selectors.EVENT_WRITE)
                while not selector.select(self._slice(ends)):
                    pass
            code = link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))

    def _slice(self, ends: float = math.inf) -> float:
        """Return for how long a call may wait now, until `ends` at most. Raises TimeoutError."""
        if self._stop is not None and self._stop.is_set():
            raise TimeoutError("told to stop")
        seconds = min(self._ends, ends) - self._clock()
        if seconds <= 0:
            raise TimeoutError(f"no whole answer within {self._seconds:g} s")
        return min(seconds, _SLICE)
