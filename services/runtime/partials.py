"""Messages of which not every part has come: bounded in number, in bytes and in age."""

from __future__ import annotations

import time

from tacit import wire

TTL = 60.0  # seconds after which the parts of an unfinished message are forgotten
TOTAL_BYTES = 1 << 31  # of all unfinished messages together


class Crowded(Exception):  # noqa: N818  (a state: there is room again later)
    """Too many messages are unfinished; this one is to be sent again later."""

    counted = "busy"
    retry_after_s = 1.0


class Partials:
    """One assembler per (edge, seq). What a first part announces is set aside at once, hence the bounds."""

    def __init__(self, max_message: int) -> None:
        self._max_message = max_message
        self._limit = max(16, TOTAL_BYTES // max_message)
        self._open: dict[tuple[str, int], tuple[wire.Assembler, float]] = {}

    def add(self, edge: str, seq: int, payload: bytes) -> bytearray | None:
        """The envelope when it is whole, else None. Raises WireError, which forgets the message, or Crowded."""
        key = (edge, seq)
        assembler, since = self._open.pop(key, (wire.Assembler(self._max_message), time.monotonic()))
        envelope = assembler.add(payload)
        if envelope is not None:
            return envelope
        if len(self._open) >= self._limit:
            raise Crowded
        self._open[key] = (assembler, since)
        return None

    def expire(self) -> None:
        """Forget what has been unfinished for longer than TTL."""
        latest = time.monotonic() - TTL
        for key in [key for key, (_, since) in self._open.items() if since < latest]:
            del self._open[key]
