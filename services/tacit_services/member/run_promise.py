"""The most that a run may release which an owner has accepted."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.privacy.accounting import History, Spend
from tacit.privacy.accounting.history import UnitSide


@dataclass(frozen=True, slots=True)
class RunPromise:
    """The most that an accepted run may release: its updates, each alike, and its ε and δ.

    looks: at rows that it holds out, each with `look_noise` in place of `noise_multiplier`; its
    updates are then of the other rows alone. What is left of a lifetime's bound is not counted.
    """

    sampling_rate: float
    noise_multiplier: float
    mechanism: str
    releases: int
    budget: float
    delta: float
    looks: int = 0
    look_noise: float = 0.0

    def some(self, count: int) -> Spend:
        """Return `count` of its updates."""
        side: UnitSide = "training" if self.looks else "both"
        return Spend(self.sampling_rate, self.noise_multiplier, count, self.mechanism, side=side)

    def due(self, spent: History) -> History:
        """Return all that is still to come after `spent`, of this run: its looks, and updates."""
        updates = self.left(spent)
        return (*self.looks_left(spent), *((updates,) if updates.count else ()))

    def left(self, spent: History) -> Spend:
        """Return the updates that are still to come after `spent`, of this run."""
        come = sum(spend.count for spend in spent if spend.purpose != "judging")
        return self.some(max(0, self.releases - come))

    def looks_left(self, spent: History) -> History:
        """Return the looks that are still to come after `spent`, of this run; none: ()."""
        come = sum(spend.count for spend in spent if spend.purpose == "judging")
        count = max(0, self.looks - come)
        look = Spend(1.0, self.look_noise, count, self.mechanism, "judging", "held_out")
        return (look,) if count else ()
