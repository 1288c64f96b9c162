"""What has left a member's worker in a run, as its file says it (worker/departures.py)."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

LEFT = "left.jsonl"
_LATEST = 100  # messages that are shown one by one
_LINE = 200  # bytes, at most


@dataclass(slots=True)
class LeftTotal:
    """The messages of one kind that have left: how many, their bytes, the first and last time."""

    messages: int = 0
    bytes: int = 0
    first: float | None = None
    last: float | None = None

    def add(self, at: float, size: int) -> None:
        """Count a message."""
        self.messages += 1
        self.bytes += size
        self.first = at if self.first is None else self.first
        self.last = at


class LeftMessages:
    """The messages of one run that have left. Each line of its file is read once."""

    def __init__(self, folder: Path) -> None:
        """folder: of the run."""
        self._path = folder / LEFT
        self._read = 0  # bytes
        self._number = 0  # of the last message, from 1
        self._totals: dict[str, LeftTotal] = {}
        self._latest: deque[dict[str, Any]] = deque(maxlen=_LATEST)

    def document(self) -> dict[str, Any]:
        """Return totals by kind, and the latest messages, as they are now.

        A line that a crash has cut is left out. Raises OSError.
        """
        self._read_on()
        return {
            "totals": {what: asdict(total) for what, total in self._totals.items()},
            "latest": list(self._latest),
        }

    def earlier(self, before: int, most: int = _LATEST) -> list[dict[str, Any]]:
        """Return the latest messages whose numbers are below `before`, `most` of them.

        Raises OSError.
        """
        latest: deque[dict[str, Any]] = deque(maxlen=most)
        if not self._path.exists():
            return []
        number = 0
        with self._path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n") or number + 1 >= before:
                    break
                if (entry := _entry(line)) is not None:
                    number += 1
                    latest.append({"number": number} | entry)
        return list(latest)

    def _read_on(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):  # it is being written
                    return
                self._read += len(line)
                if (entry := _entry(line)) is not None:
                    total = self._totals.setdefault(entry["what"], LeftTotal())
                    total.add(entry["at"], entry["bytes"])
                    self._number += 1
                    self._latest.append({"number": self._number} | entry)


def _entry(line: bytes) -> dict[str, Any] | None:
    try:
        content = json.loads(line[:_LINE])
        return {
            "at": float(content["at"]),
            "what": str(content["what"]),
            "bytes": int(content["bytes"]),
        }
    except (ValueError, KeyError, TypeError):
        return None
