"""The most that a run may release which an owner has accepted."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.privacy.accounting import History, Spend


@dataclass(frozen=True, slots=True)
class RunPromise:
    """The most that an accepted run may release: its releases, each alike, and its ε and δ."""

    sampling_rate: float
    noise_multiplier: float
    mechanism: str
    releases: int
    budget: float
    delta: float

    def left(self, spent: History) -> Spend:
        """Return what is still to come after `spent`, of this run."""
        come = sum(spend.count for spend in spent)
        rest = max(0, self.releases - come)
        return Spend(self.sampling_rate, self.noise_multiplier, rest, self.mechanism)
