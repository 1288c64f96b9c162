"""What an edge's ledger would hold if its noise were secret: for the simulator, whose noise comes from a seed."""

from __future__ import annotations

from tacit.errors import PrivacyError
from tacit.privacy.accounting import History, Spend
from tacit.privacy.ledger import UNCHARGED, Charged, Ledger


class SimulatedLedger(Ledger):
    """Counts in memory; durable in nothing, and it protects nobody.

    Its history has the plan's own z, where `Ledger` would say z = 0 for noise from a known seed: the ε of it is what
    the same releases would cost with secret noise. Whoever reports that ε must say that it is simulated. Charges of
    real, secret noise are refused: such a release belongs into a file.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[float, float, str], int] = {}
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
    ) -> None:
        """Count `count` equal releases. Raises PrivacyError for secret noise."""
        if secret:
            raise PrivacyError(
                "a simulated ledger is not durable: it cannot stand for a release with secret noise"
            )
        key = (sampling_rate, noise_multiplier, mechanism if noise_multiplier else "gaussian")
        self._counts[key] = self._counts.get(key, 0) + count
        self._total += count
        self._simulated = None

    def history(self) -> History:
        """(q, z, count) of the plan, as if the noise had been secret."""
        if self._simulated is None:
            rows = sorted(self._counts.items())
            self._simulated = tuple(
                Spend(q, z, count, mechanism) for (q, z, mechanism), count in rows
            )
        return self._simulated

    def charged(self) -> Charged:
        """How many; there is no chain."""
        return Charged(self._total, b"") if self._total else UNCHARGED

    def verify(self) -> None:
        """Nothing to read back."""

    def close(self) -> None:
        """Nothing to close."""
