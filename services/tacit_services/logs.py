"""Log records as text or as JSON, with their facts apart from their message.

Code that logs passes facts as `extra={"edge": …, "seq": …, "version": …, "reason": …}`. The text
form writes them behind the message as key=value, the JSON form as keys of the object.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any, Literal

from tacit.shown import lines, printable

FACTS = ("edge", "seq", "version", "reason")
_SELDOM_SECONDS = 60.0  # between two lines of one kind
_MOST_KINDS = 64
_TIME = "%Y-%m-%dT%H:%M:%S"


class Seldom:
    """A limit on log lines about events that others cause, for one thread.

    The first event of a kind is logged, then one line a minute counts them.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kinds: dict[str, tuple[float, int]] = {}  # when the last line was; events since

    def due(self, kind: str) -> int:
        """Return how many events of this kind to log now, this one included; 0: no line."""
        if kind not in self._kinds and len(self._kinds) >= _MOST_KINDS:
            kind = ""
        now = self._clock()
        logged_at, count = self._kinds.get(kind, (now - _SELDOM_SECONDS, 0))
        if now - logged_at < _SELDOM_SECONDS:
            self._kinds[kind] = logged_at, count + 1
            return 0
        self._kinds[kind] = now, 0
        return count + 1


class SeldomFilter(logging.Filter):
    """A filter of as many messages of every kind as Seldom allows, for one thread's logger."""

    def __init__(self) -> None:
        super().__init__()
        self._seldom = Seldom()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record goes through, with the number of those it stands for."""
        count = self._seldom.due(str(record.msg))
        if count > 1:
            record.msg = f"{str(record.msg).strip()} ({count} times since the last line)"
        return count > 0


class TextFormatter(logging.Formatter):
    """A formatter of one line: UTC time, level, logger, message, facts."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s", _TIME)
        self.converter = time.gmtime

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (logging's name)
        """Return the record as one line; logging puts a traceback behind it."""
        facts = "".join(f" {name}={value}" for name, value in _facts(record).items())
        return printable(super().formatMessage(record) + facts)

    def formatException(self, ei: Any) -> str:  # noqa: N802  (logging's name)
        """Return the traceback, line by line."""
        return lines(super().formatException(ei))


class JsonFormatter(logging.Formatter):
    """A formatter of one JSON object in one line."""

    def __init__(self) -> None:
        super().__init__()
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; a traceback is in it, under `exception`."""
        at = f"{self.formatTime(record, _TIME)}.{int(record.msecs):03d}Z"
        entry = {
            "time": at,
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry | _facts(record))


def to_stderr(level: str, form: Literal["text", "json"] = "text") -> None:
    """Write log records of `level` and above to standard error, in the given form."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # its font cache is no news
    logging.getLogger("httpx").setLevel(logging.WARNING)  # nor is a request that was answered


def _facts(record: logging.LogRecord) -> dict[str, str | int]:
    return {name: getattr(record, name) for name in FACTS if hasattr(record, name)}
