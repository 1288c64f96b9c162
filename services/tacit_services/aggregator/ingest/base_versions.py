"""The oldest model that an edge can have worked on, as a check of the version that it states.

Staleness is measured from `base_version`, which the edge states itself; MAPA, AUDP and ASGD slow
down by the largest recent staleness. But an edge has only one message without a receipt at a time,
so it works on a model that was sent no earlier than when its last but one message was accepted. An
older version cannot be true. So an edge may be slow, but cannot pretend to be.
"""

from __future__ import annotations

from tacit.errors import WireError


class BaseVersions:
    """The versions at which each edge's last two messages were accepted by this process.

    For the driver's thread only.
    """

    def __init__(self) -> None:
        self._accepted: dict[str, tuple[int, int]] = {}  # at its last but one message, and its last

    def check(self, edge: str, base: int) -> None:
        """Raise WireError ("version") for a model older than this edge can have worked on."""
        oldest, _ = self._accepted.get(edge, (0, 0))
        if base < oldest:
            raise WireError("version", f"{base}, but it has been sent {oldest} since")

    def accepted(self, edge: str, version: int) -> None:
        """Note that a message of this edge was accepted, in a run at `version`."""
        _, last = self._accepted.get(edge, (0, 0))
        self._accepted[edge] = last, version


class NoBaseCheck(BaseVersions):
    """No check, for peers, parties and rounds: nothing in their runs depends on staleness."""

    def check(self, edge: str, base: int) -> None:
        """Accept every message."""
