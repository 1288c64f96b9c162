"""The simulator's ledger, whose noise comes from a seed: the cost if it were secret."""

from __future__ import annotations

from tacit.errors import PrivacyError
from tacit.privacy.accounting import History, Spend
from tacit.privacy.accounting.history import (
    Purpose,
    UnitSide,
    for_all_purposes,
    of_all_rows,
    of_purpose,
)
from tacit.privacy.ledger.durable import UNCHARGED, Charged, Ledger


class SimulatedLedger(Ledger):
    """A ledger in memory that counts noise from a seed as if it were secret. It protects nobody.

    Its history has the plan's own z, where `Ledger` would have z = 0 for noise from a known seed.
    So its ε is what the same releases would cost with secret noise, and a report of it must say
    that it is simulated. Charges of real, secret noise are refused, as they belong into a file.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[float, float, str, Purpose, UnitSide], int] = {}
        self._total = 0
        self._simulated: History | None = ()

    def charge(
        self,
        sampling_rate: float,
        noise_multiplier: float,
        mechanism: str,
        *,
        secret: bool,
        count: int = 1,
        purpose: Purpose | None = None,
        side: UnitSide = "both",
    ) -> None:
        """Count `count` equal releases. Raises PrivacyError for secret noise."""
        if secret:
            raise PrivacyError(
                "a simulated ledger is not durable: it cannot stand for a release with secret noise"
            )
        mechanism = mechanism if noise_multiplier else "gaussian"
        key = (sampling_rate, noise_multiplier, mechanism, purpose or "training", side)
        self._counts[key] = self._counts.get(key, 0) + count
        self._total += count
        self._simulated = None

    def history(self) -> History:
        """Return (q, z, count) of the plan, as if the noise were secret."""
        return for_all_purposes(self._by_purpose())

    def _by_purpose(self) -> History:
        if self._simulated is None:
            rows = sorted(self._counts.items())
            self._simulated = tuple(
                Spend(q, z, count, mechanism, purpose, side)
                for (q, z, mechanism, purpose, side), count in rows
            )
        return self._simulated

    def run_history(self, purpose: Purpose = "training") -> History:
        """Return what was released for this purpose: a simulation has one run."""
        return of_all_rows(of_purpose(self._by_purpose(), purpose))

    def charged(self) -> Charged:
        """Return how many releases were charged; there is no chain."""
        if self._total:
            return Charged(self._total, b"")
        return UNCHARGED

    def verify(self) -> None:
        """Do nothing: there is no file to read back."""

    def close(self) -> None:
        """Do nothing: there is no file to close."""
