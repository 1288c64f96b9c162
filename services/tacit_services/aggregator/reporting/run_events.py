"""The events of a run with the server's time: who came, who left, whose connection was lost, and
what the run and its aggregator did.

They stand in events.jsonl beside the results, one a line, and outlive the process. An edge whose
connection is lost without a goodbye is told apart from one that has left. An aggregator that begins
again says whether the one before it ended in good order. Nothing decides by these times.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from tacit.errors import ServiceError
from tacit_services.aggregator.reading import RunReading

log = logging.getLogger("tacit.events")
FILE = "events.jsonl"
MOST = 10_000  # events that are kept; an edge that comes and goes all day must not fill the disk
STOPS = "stops"
_AGGREGATOR = "aggregator"
_WORDS = {
    "online": "is online",
    "left": "has left",
    "offline": "is offline: its connection was lost without a goodbye",
}


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An event. at: UTC, as the server's clock has it. state: the new one of `who`.

    who: an edge, "run" or "aggregator".
    """

    number: int
    at: str
    who: str
    state: str
    text: str


class RunEvents:
    """The events of one run; for any thread."""

    def __init__(
        self, path: Path, run: str, reading: Callable[[], RunReading], now: Callable[[], str]
    ) -> None:
        """path: of the file. run: whose events it has; those of another are not read. now: UTC."""
        self._path = path
        self._reading = reading
        self._run = run
        self._now = now
        self._lock = threading.Lock()
        self._events: list[LoggedEvent] = []
        self._states: dict[str, str] = {}
        self._failed = False

    def resume(self) -> None:
        """Go on with the file of the process before this one. Raises ServiceError."""
        with self._lock:
            self._events = _read(self._path, self._run)
            self._states = {event.who: event.state for event in self._events}
            before = self._states.get(_AGGREGATOR)
            try:  # anew, without a line that was cut
                self._path.write_text("".join(map(self._line, self._events)), encoding="utf-8")
            except OSError as error:
                raise ServiceError(f"{self._path}: {error.strerror or error}") from error
            if before is None:
                self._add(_AGGREGATOR, "begins", "the aggregator begins")
            elif before == STOPS:
                self._add(_AGGREGATOR, "begins", "the aggregator is started again")
            else:
                last = self._events[-1].at
                self._add(
                    _AGGREGATOR,
                    "begins",
                    "the aggregator is started again: the one before it ended without a farewell, "
                    f"after {last}",
                )

    def look(self) -> int:
        """Take note of what has changed since the last look; return the newest event's number."""
        with self._lock:  # so that no look at an older reading comes behind one at a newer
            if not self._events:  # not resumed: the run is being taken over
                return 0
            reading = self._reading()
            for name in dict.fromkeys([*reading.records, *reading.presence]):
                state, why = reading.state_of_edge(name)
                if state != self._states.get(name) and state != "unknown":
                    words = _WORDS.get(state, f"is {state}")
                    self._add(name, state, f"{name} {words}" + (f": {why}" if why else ""))
            if reading.state != self._states.get("run"):
                ended = f": {reading.reason}" if reading.reason else ""
                self._add("run", reading.state, f"the run is {reading.state}{ended}")
            return self._events[-1].number

    def stop(self) -> None:
        """Take note that this process ends in good order."""
        with self._lock:
            if self._states.get(_AGGREGATOR) == "begins":
                self._add(_AGGREGATOR, STOPS, "the aggregator stops")

    def after(self, number: int, most: int) -> list[LoggedEvent]:
        """Return the newest events behind `number`, at most so many, oldest first."""
        with self._lock:
            return [event for event in self._events[-most:] if event.number > number]

    def _add(self, who: str, state: str, text: str) -> None:
        self._states[who] = state
        if len(self._events) >= MOST and who not in ("run", _AGGREGATOR):
            return
        number = self._events[-1].number + 1 if self._events else 1
        event = LoggedEvent(number, self._now(), who, state, text)
        self._events.append(event)
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(self._line(event))
            self._failed = False
        except OSError as error:
            if not self._failed:
                log.warning("events are not written: %s: %s", self._path, error.strerror or error)
            self._failed = True

    def _line(self, event: LoggedEvent) -> str:
        return json.dumps({"run": self._run, **asdict(event)}, ensure_ascii=False) + "\n"


def _read(path: Path, run: str) -> list[LoggedEvent]:
    """Return the events of `run` in the file; a line that was cut is no event."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [event for line in lines if (event := _event(line, run)) is not None]


def _event(line: str, run: str) -> LoggedEvent | None:
    try:
        values = json.loads(line)
        if values.pop("run") != run:
            return None
        return LoggedEvent(**values)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
