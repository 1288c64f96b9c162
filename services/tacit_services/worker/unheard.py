"""Warnings of a message that is sent again and again, and does not reach its receiver."""

from __future__ import annotations

import logging

log = logging.getLogger("tacit.edge")
TRIES = 5  # in vain until it is said; then after twice as many, and so on


class Unheard:
    """A counter of the vain tries of one edge's oldest message."""

    def __init__(self, edge: str) -> None:
        self._edge = edge
        self._seq = 0
        self._tries = 0
        self._missing: tuple[int, ...] = ()

    def again(self, seq: int, part: int) -> None:
        """Note that message `seq`, in parts of `part` bytes, is sent again, or asked about."""
        if seq != self._seq:
            self._seq = seq
            self._tries = 0
        self._tries += 1
        doublings, remainder = divmod(self._tries, TRIES)
        if remainder == 0 and doublings & (doublings - 1) == 0:
            log.warning(
                "message %d has not come to the aggregator in %d tries: it is away, or the broker "
                "drops what is %d bytes long (a larger limit there, or a smaller TACIT_CHUNK)",
                *(seq, self._tries, part),
                extra={"edge": self._edge},
            )

    def answered(self, missing: tuple[int, ...]) -> None:
        """Note the parts that the receiver lacks; (): it has the message, or asks to wait."""
        if not missing or missing != self._missing:
            self._tries = 0
        self._missing = missing
