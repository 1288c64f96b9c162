"""What has left a member's worker in a run, as its file says it (worker/departures.py)."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

LEFT = "left.jsonl"
_LATEST = 100  # messages that are shown one by one
_LINE = 200  # characters, at most


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


def what_left(folder: Path) -> dict[str, Any]:
    """Return what has left in the run of `folder`: totals by kind, and the latest messages.

    A line that a crash has cut is left out. Raises OSError.
    """
    totals: dict[str, LeftTotal] = {}
    latest: deque[dict[str, Any]] = deque(maxlen=_LATEST)
    path = folder / LEFT
    if path.exists():
        with path.open(encoding="ascii", errors="replace") as file:
            for line in file:
                if (entry := _entry(line)) is not None:
                    total = totals.setdefault(entry["what"], LeftTotal())
                    total.add(entry["at"], entry["bytes"])
                    latest.append(entry)
    return {
        "totals": {what: asdict(total) for what, total in totals.items()},
        "latest": list(latest),
    }


def _entry(line: str) -> dict[str, Any] | None:
    try:
        content = json.loads(line[:_LINE])
        return {
            "at": float(content["at"]),
            "what": str(content["what"]),
            "bytes": int(content["bytes"]),
        }
    except (ValueError, KeyError, TypeError):
        return None
