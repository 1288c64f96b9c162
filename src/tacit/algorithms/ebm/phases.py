"""When a run with pairs of columns learns what.

First come the functions of columns, then the search for pairs, then columns and pairs together. A
run whose listed pairs all get a function has them from its beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tacit.algorithms.ebm.ebm_settings import SEARCHING

LOOKS = 3  # releases of each edge that cover all candidates' cells
_BEFORE = 11  # of an edge's releases: two that count, and nine steps
_LATEST = 17  # releases of an edge after which nobody is waited for


@dataclass(frozen=True, slots=True)
class Phases:
    """Versions of the model. search: from which on edges look for pairs. latest: when it ends."""

    search: int
    latest: int

    @classmethod
    def of(cls, horizon: int) -> Phases:
        """Return the phases of a run of so many versions."""
        return cls(horizon * _BEFORE // SEARCHING, horizon * _LATEST // SEARCHING)


def numbered(tasks: Sequence[int], base: int, needed: int) -> int | None:
    """Return which of `needed` tasks an update from version `base` answers; None: none of them.

    tasks: of those that have been answered, the version from which on the edge had the next.
    """
    for number, since in enumerate(tasks):
        if base < since:
            return number
    return len(tasks) if len(tasks) < needed else None
