"""What a run knows of an additive model's bins beside their values, from what was released."""

from __future__ import annotations

from typing import Protocol

from tacit.questions.row_parts import Reals


class BinsRead(Protocol):
    """The bins of all columns, and the intercept last: (W,). Post-processing of releases."""

    @property
    def rows(self) -> Reals:
        """How many rows lie in each bin, by the noisy counts; none is below 0."""

    def deviations(self) -> Reals | None:
        """Return the standard deviation of a class's score in each bin, of the noise alone.

        It takes seconds. None: it is not known.
        """
