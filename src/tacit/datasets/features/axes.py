"""Mean and principal axes of public records, in memory that does not grow with their number."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.errors import DataError


class Axes:
    """Sums over records that are seen, each brought to length 1: of them, and of their products.

    Memory: d·d float64 for records of d numbers.
    """

    def __init__(self) -> None:
        self.count = 0
        self._sum = torch.zeros(0, dtype=torch.float64)
        self._products = torch.zeros(0, 0, dtype=torch.float64)

    def see(self, records: Tensor) -> None:
        """Take in some records (n, *shape)."""
        flat = records.flatten(1).double()
        flat = flat / torch.linalg.vector_norm(flat, dim=1, keepdim=True).clamp_min(1e-12)
        if not self.count:
            width = flat.shape[1]
            self._sum = flat.new_zeros(width)
            self._products = flat.new_zeros(width, width)
        self.count += len(flat)
        self._sum += flat.sum(0)
        self._products.addmm_(flat.T, flat)

    def found(self, axes: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return mean (d,), the first `axes` axes (axes, d), and their variances (axes,).

        Raises DataError where there are fewer records, or numbers in one, than axes.
        """
        if axes > min(self.count, len(self._sum)):
            raise DataError(
                f"--axes {axes}: {self.count} records of {len(self._sum)} numbers have fewer"
            )
        mean = self._sum / self.count
        spread = self._products / self.count - torch.outer(mean, mean)
        variances, vectors = torch.linalg.eigh(spread)
        first = vectors[:, -axes:].flip(1).T
        # An axis has no direction of its own: the one in which its largest number is positive.
        largest = first.gather(1, first.abs().argmax(1, keepdim=True))
        return mean, first * largest.sign(), variances[-axes:].flip(0).clamp_min(0.0)
