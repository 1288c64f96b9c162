"""The store of a federation: Redis or SQLite in FOLDER/store, and one server of it at a time."""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path

from tacit import file_lock
from tacit.errors import ConfigError, ServiceError
from tacit_services.children.processes import START_SECONDS, Child, StartedServer, start_store

log = logging.getLogger("tacit.federation")


class FederationStore:
    """The store whose files are in `folder`, FOLDER/store; durable: what it confirms is on disk.

    Two servers would write one file. So a server of before, whose host was killed, is waited for:
    it holds a lock until it has ended.
    """

    def __init__(self, folder: Path) -> None:
        """Prepare it; `start` starts it."""
        self._folder = folder
        self._lock: int | None = None

    def start(self, children: list[Child]) -> StartedServer:
        """Start it, and enter it among `children`; returns its URL.

        Raises ServiceError where an earlier server does not end, or the new one does not start, and
        ConfigError for a folder that cannot be written.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT
            self._lock = os.open(self._folder / "lock", flags, 0o600)
        except OSError as error:
            raise ConfigError(f"{self._folder}: {error}") from error
        try:
            self._wait_for(self._lock)
            # The server inherits it: it is free when neither host nor server is there any more.
            return start_store(self._folder, children, inherits=(self._lock,))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give up the host's part of the lock, once the server was stopped. Idempotent."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _wait_for(self, lock: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        pause = threading.Event()
        told = False
        while True:
            try:
                file_lock.take(lock, BlockingIOError())
                return
            except BlockingIOError:
                pass
            if not told:
                log.warning("%s: the store of an earlier start still ends; waiting", self._folder)
                told = True
            if time.monotonic() > deadline:
                raise ServiceError(f"{self._folder}: another host works on it, or its store does")
            pause.wait(0.05)
