"""Steps of pairs of columns, and which pairs are worth a function, from noisy sums in their cells.

The equations are those of a column's bins (`histogram_steps`), with other neighbours: those of a
cell in the grid, along the sides that are numbers. A score is small (deviation τ) and near its
neighbours' (λ). With precision H²/(vN + s²) in each cell they are solved by elimination, number by
number in float64, in one order: a replay has the same bits.

How much a pair is worth is how much likelier its sums are with such a function than without. This
is the logarithm of the ratio, for sums G of which P = 1/τ² + L/λ², D = H²/(vN + s²), A = P + D:

    ½·gᵀA⁻¹g - ½·log det A + ½·log det P        g = H/(vN + s²)·G        (of each class, added up)

What a column alone would explain is taken out of G before.

Shapes: c classes, P pairs, grids of 8 × 8 cells, of which a small one has fewer.
"""

from __future__ import annotations

import numpy as np

from tacit.algorithms.ebm.histogram_steps import curvature
from tacit.models.additive import AdditiveModel
from tacit.models.pair_cells import MOST_SIDE, PairCells
from tacit.questions.row_parts import PlaceNumbers, Reals

_CELLS = MOST_SIDE**2
_SIZE = 0.5  # τ of a pair, beside that of a column
_TINY = 1e-30  # more than 0: a column without a row has no direction
_BINS = 32  # at which `smoothness` is stated


class PairPrior:
    """1/τ² + L/λ² of the cells of some pairs. numbers: of the pairs, among the model's."""

    def __init__(
        self, model: AdditiveModel, numbers: tuple[int, ...], size: float, smoothness: float
    ) -> None:
        self._model = model
        self._numbers = numbers
        pairs = [model.pairs[number] for number in numbers]
        self.grid = np.stack([_grid(pair) for pair in pairs])  # P, 64
        starts = [model.starts[len(model.columns) + number] for number in numbers]
        self.places: PlaceNumbers = np.array(starts)[:, None] + np.maximum(self.grid, 0)
        scale = curvature(model).prior
        within = scale / (size * _SIZE) ** 2
        beside = scale / smoothness**2 * MOST_SIDE / _BINS
        self._matrix = np.stack([_matrix(pair, within, beside) for pair in pairs])

    def of_cells(self, values: Reals) -> Reals:
        """Return values (…, W) as grids (…, P, 64); 0 where a small grid has no cell."""
        cells: Reals = np.where(self.grid >= 0, values[..., self.places], 0.0)
        return cells

    def onto(self, grids: Reals) -> Reals:
        """Return grids (c, P, 64) as values (c, W)."""
        values = np.zeros((len(grids), self._model.width))
        inside = self.grid >= 0
        values[:, self.places[inside]] = grids[:, inside]
        return values

    def times(self, grids: Reals) -> Reals:
        """Return the product (c, P, 64) with scores."""
        product: Reals = (self._matrix * grids[:, :, None, :]).sum(axis=-1)
        return product

    def solved(self, more: Reals, right: Reals) -> Reals:
        """Return x (c, P, 64) of (prior + diag(more))·x = right; more: (P, 64)."""
        solution, _ = _eliminated(self._with(more), right)
        return solution

    def evidence(self, more: Reals, right: Reals) -> Reals:
        """Return how much likelier each pair's sums are with a function (P,), as a logarithm."""
        solution, volume = _eliminated(self._with(more), right)
        _, before = _eliminated(self._matrix, right)
        gain = (right * solution).sum(axis=(0, 2))
        worth: Reals = (gain - len(right) * (volume - before)) / 2
        return worth

    def _with(self, more: Reals) -> Reals:
        matrix = self._matrix.copy()
        diagonal = np.arange(_CELLS)
        matrix[:, diagonal, diagonal] += more
        return matrix


def without_columns(sums: Reals, rows: Reals) -> Reals:
    """Return sums (c, P, 64) without what either column alone would explain.

    rows: (P, 64), which are taken for those of columns that do not go together: p_i·q_j. Then a
    column's part of a cell's sum is p_i·q_j·a_i, or p_i·q_j·b_j. What is left is orthogonal to
    these, so the noise of no cell grows.
    """
    shape = (*sums.shape[:2], MOST_SIDE, MOST_SIDE)
    grids = sums.reshape(shape)
    cells = rows.reshape(shape[1:])
    for axis in (1, 2):
        side = cells.sum(axis=3 - axis, keepdims=True)
        direction = side / np.sqrt(np.square(side).sum(axis=axis, keepdims=True) + _TINY)
        along = (grids * direction).sum(axis=axis + 1, keepdims=True)
        grids = grids - along * direction
    return grids.reshape(sums.shape)


def unlinked_rows(model: AdditiveModel, rows: Reals) -> Reals:
    """Return rows (W,) in which cells have those of columns that do not go together."""
    filled = rows.copy()
    starts = model.starts
    for number, pair in enumerate(model.pairs, len(model.columns)):
        sides = []
        for place, cells in zip((pair.first, pair.second), pair.cells, strict=True):
            of_bins = rows[starts[place] : starts[place + 1]]
            sides.append(np.bincount(np.unique(cells, return_inverse=True)[1], of_bins))
        joint = np.outer(*sides) / rows[-1]
        filled[starts[number] : starts[number + 1]] = joint.ravel()
    return filled


def _grid(pair: PairCells) -> PlaceNumbers:
    """Return for each of 64 cells the pair's number of it; -1: a small grid has none."""
    rows, columns = pair.sides
    grid = np.full((MOST_SIDE, MOST_SIDE), -1)
    grid[:rows, :columns] = np.arange(rows * columns).reshape(rows, columns)
    return grid.ravel()


def _matrix(pair: PairCells, within: float, beside: float) -> Reals:
    """Return 1/τ² + L/λ² (64, 64) of a pair."""
    numbers = np.arange(_CELLS).reshape(MOST_SIDE, MOST_SIDE)
    rows, columns = pair.sides
    matrix = np.diag(np.full(_CELLS, within))
    neighbours = []
    if pair.one.numeric:
        neighbours.append((numbers[: rows - 1, :columns], numbers[1:rows, :columns]))
    if pair.other.numeric:
        neighbours.append((numbers[:rows, : columns - 1], numbers[:rows, 1:columns]))
    for these, those in neighbours:
        here, inside = these.ravel(), those.ravel()
        matrix[here, inside] -= beside
        matrix[inside, here] -= beside
        np.add.at(matrix, (here, here), beside)
        np.add.at(matrix, (inside, inside), beside)
    return matrix


def _eliminated(matrix: Reals, right: Reals) -> tuple[Reals, Reals]:
    """Return the solution (c, P, 64) of P equations, and log det (P,) of their matrices.

    matrix: (P, 64, 64), which is 0 beyond the eighth place beside its diagonal. right: (c, P, 64).
    """
    matrix, solution = matrix.copy(), right.copy()
    volume = np.zeros(len(matrix))
    for place in range(_CELLS):
        pivot = matrix[:, place, place]
        volume = volume + np.log(pivot)
        below = slice(place + 1, place + 1 + MOST_SIDE)
        factor = matrix[:, below, place] / pivot[:, None]
        matrix[:, below, below] -= factor[:, :, None] * matrix[:, place, None, below]
        solution[:, :, below] -= factor * solution[:, :, place, None]
    for place in range(_CELLS - 1, -1, -1):
        after = slice(place + 1, place + 1 + MOST_SIDE)
        solved = (matrix[:, place, after] * solution[:, :, after]).sum(axis=-1)
        solution[:, :, place] = (solution[:, :, place] - solved) / matrix[:, place, place]
    return solution, volume
