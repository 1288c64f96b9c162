"""What has left a worker, for its owner to read: a line for each message, before it leaves.

    {"at": 1790000000.0, "what": "messages", "bytes": 4120}

at: seconds since 1970. what: messages (updates, and what is said around them), or presence.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger("tacit.edge")


class Departures:
    """The file of what has left.

    Guarantee: a line is handed to the system before its message is. A kill -9 of the worker loses
    none; a loss of power may lose the last ones.
    """

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.time) -> None:
        """path: None: nothing is written down."""
        self._path = path
        self._clock = clock

    def note(self, what: str, size: int) -> None:
        """Note that a message of `size` bytes is about to leave."""
        if self._path is None:
            return
        line = json.dumps({"at": round(self._clock(), 1), "what": what, "bytes": size})
        try:
            with self._path.open("a", encoding="ascii") as file:
                file.write(line + "\n")
        except OSError as error:  # a full disk: the ledger decides what may leave, not this file
            log.warning("%s: %s", self._path, error.strerror or error)
