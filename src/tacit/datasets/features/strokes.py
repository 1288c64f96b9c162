"""Pictures of nothing: random strokes of a pen, from a seed. The shipped bases are made of them.

    python -m tacit.datasets.features.strokes

makes src/tacit/datasets/features/bases anew: strokes for pictures of 28x28, upright, and strokes-8
for those of 8x8 as the bundled digits are. Floats differ in their last bits
from one processor to another, so the file is kept, with its SHA-256 in every run definition.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from tacit.datasets.features import Features, apply, steps_of
from tacit.datasets.features.axes import Axes
from tacit.datasets.features.public_basis import shipped, write

SIDE = 28
COUNT = 6000
SEED = 1
AXES = 512
# pixels along one of a small picture
_CELL = 4
_SMALL_AXES = 128
_POINTS = 48  # along a stroke
_MARGIN = 4.0  # pixels in which no stroke begins, bends or ends
_WIDTHS = (1.3, 2.2)  # half of a stroke's, in pixels
Doubles = npt.NDArray[np.float64]


def pictures(count: int, seed: int, side: int = SIDE) -> Tensor:
    """Return `count` pictures (count, 1, side, side) in [0, 1].

    They have one to three cubic Bézier strokes each.
    """
    chance = np.random.default_rng(seed)
    drawn = np.zeros((count, side, side), dtype=np.float32)
    for picture in drawn:
        for _ in range(int(chance.integers(1, 4))):
            np.maximum(picture, _stroke(chance, side), out=picture)
    return torch.from_numpy(drawn[:, None])


def small(count: int, seed: int) -> Tensor:
    """Return the pictures at (count, 1, 8, 8): the ink in each 4x4 pixels, as a part of the most.

    Alpaydin and Kaynak made the bundled digits so (doi:10.24432/C50P49).
    """
    margin = (_CELL * 8 - SIDE) // 2
    inked = functional.avg_pool2d(functional.pad(pictures(count, seed), (margin,) * 4), _CELL)
    return inked / inked.amax((1, 2, 3), keepdim=True).clamp_min(1e-6)


def _stroke(chance: np.random.Generator, side: int) -> npt.NDArray[np.float32]:
    """Draw a pen's line: dark where it went, and grey for a pixel beside it."""
    corners = chance.uniform(_MARGIN, side - 1 - _MARGIN, (4, 2))
    width = chance.uniform(*_WIDTHS)
    line = _bezier(corners)
    rows, columns = np.mgrid[0:side, 0:side]
    places = np.stack((rows, columns), axis=-1).reshape(-1, 1, 2)
    distance = np.sqrt(((places - line) ** 2).sum(-1)).min(1)
    grey: npt.NDArray[np.float32] = np.clip(width + 0.5 - distance, 0, 1).astype(np.float32)
    return grey.reshape(side, side)


def _bezier(corners: Doubles) -> Doubles:
    """Return points (n, 2) along the cubic curve with these corners (4, 2)."""
    at = np.linspace(0, 1, _POINTS)[:, None]
    weights = (1 - at) ** 3, 3 * at * (1 - at) ** 2, 3 * at**2 * (1 - at), at**3
    points: Doubles = sum(weight * corner for weight, corner in zip(weights, corners, strict=True))
    return points


def main() -> None:
    """Make the shipped bases."""
    torch.set_num_threads(1)
    _make("strokes", pictures(COUNT, SEED), ("upright", "scattering"), AXES)
    _make("strokes-8", small(COUNT, SEED), ("scattering",), _SMALL_AXES)


def _make(name: str, drawn: Tensor, steps: Features, axes: int) -> None:
    basis = Axes()
    for block in torch.split(drawn, 200):
        basis.see(apply(steps, block))
    says = (
        f"{COUNT} pictures of random strokes (seed {SEED}), {', '.join(map(str, steps_of(steps)))}"
    )
    write(shipped(name), *basis.found(axes), says)


if __name__ == "__main__":
    main()
