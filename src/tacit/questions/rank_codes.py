"""Ranks from one noisy sum: how many rows lie below each edge, all with equal and little noise.

Idea. Let there be n cells, and S the matrix (n, n) with ½ where cell c lies below edge j, and -½
where it does not. S·counts is what a quantile is read from. The column of S for a row's cell is
long. So a row's vector is a column of another matrix B, whose columns have length 1. With S = A·B
the ranks are A·(noisy sum). The noise of a rank is the length of a row of A, the same for all:
about ln(n)/π + 0.48, which is 2.0 for 128 cells. With a tree of cells it is 4 and more.

S is a quarter of a circulant matrix of order 2n, whose first column is a square wave. So its
spectrum has odd harmonics only. B takes the square root of their size, and A what is left.
Sources: Li et al., "The matrix mechanism" (doi:10.1007/s00778-015-0398-x), and the factorisation by
square roots of Fichtenberger, Henzinger, Upadhyay (arXiv:2202.11205).
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]


@cache
def codes(cells: int) -> npt.NDArray[np.float32]:
    """Return the code of each cell, rows of length 1 at most (n, n).

    >>> lengths = np.linalg.norm(codes(128).astype(float), axis=1)
    >>> bool(lengths.max() <= 1), bool(lengths.min() > 0.99999)
    (True, True)
    """
    encoder, _ = _factors(cells)
    rows: npt.NDArray[np.float32] = (encoder.T * (1 - 2.0**-20)).astype(np.float32)
    rows.setflags(write=False)
    return rows


def ranks(sums: Matrix) -> Matrix:
    """Return the rows below each edge less half of all rows (draws, n + 1), of sums (draws, n).

    sums: of the codes of all rows. The last edge has the first's, with the other sign.

    >>> counts = np.array([3.0, 0.0, 1.0, 4.0])
    >>> ranks(counts[None] @ codes(4)).round(3) + 0
    array([[-4., -1., -1.,  0.,  4.]])
    """
    _, decoder = _factors(sums.shape[-1])
    below = sums @ decoder.T / (1 - 2.0**-20)
    return np.concatenate([below, -below[:, :1]], axis=1)


@cache
def _factors(cells: int) -> tuple[Matrix, Matrix]:
    """Return B and A, (n, n) each, with A·B = S."""
    wave = np.where((np.arange(2 * cells) >= 1) & (np.arange(2 * cells) <= cells), 0.5, -0.5)
    spectrum = np.fft.fft(wave)
    spectrum[::2] = 0.0  # but for rounding they are 0
    roots = np.sqrt(np.abs(spectrum))
    encoding = np.fft.ifft(roots).real
    decoding = np.fft.ifft(np.divide(spectrum, roots, where=roots > 0, out=0 * spectrum)).real
    apart = np.subtract.outer(np.arange(cells), np.arange(cells)) % (2 * cells)
    encoder = encoding[apart]
    length = float(np.linalg.norm(encoder[:, 0]))
    return encoder / length, 2 * decoding[apart] * length
