"""Pictures of nothing: random strokes of a pen, from a seed. The shipped basis is made of them.

    python -m tacit.datasets.features.strokes

makes src/tacit/datasets/features/bases/strokes.safetensors anew. Floats differ in their last bits
from one processor to another, so the file is kept, with its SHA-256 in every run definition.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tacit.datasets.features import apply
from tacit.datasets.features.axes import Axes
from tacit.datasets.features.basis import shipped, write

SIDE, COUNT, SEED, AXES = 28, 6000, 1, 512
_POINTS = 48  # along a stroke
_MARGIN = 4.0  # pixels in which no stroke begins, bends or ends
_WIDTHS = (1.3, 2.2)  # half of a stroke's, in pixels
Floats = npt.NDArray[np.float64]


def pictures(count: int, seed: int, side: int = SIDE) -> Tensor:
    """`count` pictures (count, 1, side, side) in [0, 1]: one to three cubic Bézier strokes each."""
    chance = np.random.default_rng(seed)
    drawn = np.zeros((count, side, side), dtype=np.float32)
    for picture in drawn:
        for _ in range(int(chance.integers(1, 4))):
            np.maximum(picture, _stroke(chance, side), out=picture)
    return torch.from_numpy(drawn[:, None])


def _stroke(chance: np.random.Generator, side: int) -> npt.NDArray[np.float32]:
    """A pen's line: dark where it went, and grey for a pixel beside it."""
    corners = chance.uniform(_MARGIN, side - 1 - _MARGIN, (4, 2))
    width = chance.uniform(*_WIDTHS)
    line = _bezier(corners)
    rows, columns = np.mgrid[0:side, 0:side]
    places = np.stack((rows, columns), axis=-1).reshape(-1, 1, 2)
    distance = np.sqrt(((places - line) ** 2).sum(-1)).min(1)
    grey: npt.NDArray[np.float32] = np.clip(width + 0.5 - distance, 0, 1).astype(np.float32)
    return grey.reshape(side, side)


def _bezier(corners: Floats) -> Floats:
    """Points (n, 2) along the cubic curve with these corners (4, 2)."""
    at = np.linspace(0, 1, _POINTS)[:, None]
    weights = (1 - at) ** 3, 3 * at * (1 - at) ** 2, 3 * at**2 * (1 - at), at**3
    found: Floats = sum(weight * corner for weight, corner in zip(weights, corners, strict=True))
    return found


def main() -> None:
    """Make the shipped basis."""
    torch.set_num_threads(1)
    axes = Axes()
    for block in torch.split(pictures(COUNT, SEED), 200):
        axes.see(apply(("upright", "scattering"), block))
    said = f"{COUNT} pictures of random strokes (seed {SEED}), upright, scattering"
    write(shipped("strokes"), *axes.found(AXES), said)


if __name__ == "__main__":
    main()
