"""The health file, in which a worker writes its state every few seconds for a supervisor to read.

A worker listens on no port, so it cannot be asked. Times are the machine's monotonic clock, which
all its processes share and nobody sets.
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tacit import regular_file
from tacit.errors import ConfigError, ServiceError
from tacit_services.transport.tls import near_end

log = logging.getLogger("tacit.edge")
PERIOD = 5.0  # seconds between two beats


class Heartbeat:
    """Write the health file in a thread of its own, and delete it at an orderly end."""

    def __init__(self, path: Path | None) -> None:
        """`path`: None writes nothing. Raises ConfigError where it cannot be written."""
        self._path = path
        self._who = ""
        self._state = "starting"
        self._up: Callable[[], bool] = lambda: True  # no broker is missed before it is looked for
        self._up_at = time.monotonic()
        self._certificate_ends: Callable[[], float] | None = None
        self._ended = False
        self._wake = threading.Event()
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        if path is None:
            return
        try:
            self._beat(path)
        except OSError as error:
            raise ConfigError(
                f"TACIT_HEALTH_FILE={str(path)!r}: {error.strerror or error}"
            ) from error
        self._thread.start()

    def stands(self, state: str, who: str | None = None) -> None:
        """Write `state` from now on; who: the worker's id, where it is new."""
        self._state = state
        if who is None:
            self._who = self._who
        else:
            self._who = who
        self._wake.set()

    def watch(self, up: Callable[[], bool]) -> None:
        """Write from now on for how long `up`, whether there is a broker, has been False."""
        self._up = up

    def certificate(self, ends: Callable[[], float]) -> None:
        """Write from now on when the worker's certificate ends, in seconds since 1970.

        ends: asked every time, as a certificate may be renewed.
        """
        self._certificate_ends = ends

    def close(self) -> None:
        """End the thread and delete the file, so that this process is no longer looked for."""
        self._ended = True
        self._wake.set()
        if self._path is not None:
            self._thread.join()
            self._path.unlink(missing_ok=True)

    def _run(self) -> None:
        assert self._path is not None
        while not self._ended:
            self._wake.wait(PERIOD)
            self._wake.clear()
            try:
                self._beat(self._path)
                self._failed = False
            # A full disk, or a damaged certificate: what is there grows old, and says enough.
            except (OSError, ConfigError) as error:
                if not self._failed:
                    log.warning("health file %s: %s", self._path, error)
                self._failed = True

    def _beat(self, path: Path) -> None:
        now = time.monotonic()
        if self._up():
            self._up_at = now
        content: dict[str, float | str] = {
            "at": now,
            "pid": os.getpid(),
            "edge": self._who,
            "state": self._state,
            "without_broker_s": round(now - self._up_at, 1),
        }
        if self._certificate_ends is not None:
            content["certificate_ends"] = self._certificate_ends()
        temporary = path.with_name(f".{path.name}.new")
        temporary.write_text(json.dumps(content) + "\n", encoding="utf-8")
        temporary.replace(path)


def judged(path: Path, silent: float, without_broker: float) -> str:
    """Return the state of the worker that writes `path`, in a few words.

    Raises ServiceError where it does not run, has written nothing for `silent` seconds, or has been
    without its broker for `without_broker` seconds.
    """
    try:
        beat = json.loads(regular_file.content(path))
        age = time.monotonic() - beat["at"]
        lonely = float(beat["without_broker_s"])
        who = beat["edge"] or "a worker"
        state = beat["state"]
        remark = near_end(float(beat.get("certificate_ends", math.inf)))
    except FileNotFoundError as error:
        raise ServiceError(f"{path}: no such file; the service does not run") from error
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ServiceError(f"{path}: not what an edge says of its health ({error})") from error
    if not 0 <= age <= silent:  # below zero: it was written before this machine's start
        raise ServiceError(
            f"{who} has said nothing for {max(age, 0):.0f} s: it hangs, or was killed"
        )
    if lonely > without_broker:
        raise ServiceError(f"{who} has been without its broker for {lonely:.0f} s")
    if remark:
        return f"{who}: {state}; its certificate {remark}"
    return f"{who}: {state}"
