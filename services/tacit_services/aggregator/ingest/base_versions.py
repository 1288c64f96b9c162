"""How old the model can be that an edge says it has worked on.

Staleness is measured from `base_version`, which is the edge's own word; MAPA, AUDP and ASGD slow
down by the largest of late. But an edge has one message without a receipt at a time, and works on
what was sent to it after its last but one was accepted, at the earliest. Whoever says an older
version says what cannot be. An edge can still be slow; it cannot say that it is.
"""

from __future__ import annotations

from tacit.errors import WireError


class BaseVersions:
    """For one driver, in its thread. What an earlier process accepted is not known here."""

    def __init__(self) -> None:
        self._accepted: dict[str, tuple[int, int]] = {}  # at its last but one message, and its last

    def check(self, edge: str, base: int) -> None:
        """Raise WireError ("version") for a model that this edge cannot have any more."""
        oldest, _ = self._accepted.get(edge, (0, 0))
        if base < oldest:
            raise WireError("version", f"{base}, but it has been sent {oldest} since")

    def accepted(self, edge: str, version: int) -> None:
        """A message of this edge has been accepted, in a run at `version`."""
        _, last = self._accepted.get(edge, (0, 0))
        self._accepted[edge] = last, version


class NoBaseCheck(BaseVersions):
    """Of peers and parties, and of rounds: no number of the run goes by what they say of it."""

    def check(self, edge: str, base: int) -> None:
        """Nothing."""
