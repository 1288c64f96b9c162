"""What a check of a suite finds."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.errors import TacitError


class NonconformanceError(TacitError):
    """A promise that is not kept: by an algorithm, or by a broker."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check, and why it fails; None: it passes.

    needed: whether tacit cannot work without it.
    """

    name: str
    why: str | None
    needed: bool = True

    @property
    def failed(self) -> bool:
        """Whether it fails, and is needed."""
        return self.needed and self.why is not None


def require(holds: bool, promise: str) -> None:
    """Raise NonconformanceError, with what was promised or seen, unless it holds."""
    if not holds:
        raise NonconformanceError(promise)
