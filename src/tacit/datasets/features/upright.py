"""Deskewing: a digit is sheared about its own centre of mass until it stands upright, and centred.

For digits only: elsewhere a slant is no nuisance. After LeCun et al. (doi:10.1109/5.726791).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from tacit.errors import ConfigError

_LEAST = 1e-6  # the least moment, or mass of an image, that is divided by


def shape_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the same shape. Raises ConfigError if `shape` is not an image's."""
    if len(shape) != 3:
        raise ConfigError(f"data.features: 'upright' needs images, not {shape}")
    return shape


def of_image(image: Tensor) -> Tensor:
    """Return the image (depth, height, width), upright.

    Its mixed second moment is 0, and its mass is centred. An image without mass stays as it is.
    """
    height, width = image.shape[1:]
    mass = image.sum(0, dtype=torch.float64)
    total = float(mass.sum())
    if not total > _LEAST:
        return image
    rows = torch.arange(height, dtype=torch.float64)[:, None]
    columns = torch.arange(width, dtype=torch.float64)
    row = float((mass * rows).sum()) / total
    column = float((mass * columns).sum()) / total
    mixed = float((mass * (rows - row) * (columns - column)).sum()) / total
    spread = float((mass * (rows - row) ** 2).sum()) / total
    if spread > _LEAST:
        slant = mixed / spread
    else:
        slant = 0.0
    return _sampled(image, row - (height - 1) / 2, column - (width - 1) / 2, slant)


def _sampled(image: Tensor, down: float, right: float, slant: float) -> Tensor:
    """Return the image moved so that the point `down` and `right` of the middle becomes the middle.

    Each row is moved by its distance from the middle, times `slant`.
    """
    height, width = image.shape[1:]
    scale = height / width  # grid_sample counts from -1 to 1 along both axes
    theta = torch.tensor(
        [[1.0, slant * scale, 2 * right / width], [0.0, 1.0, 2 * down / height]], dtype=image.dtype
    )
    grid = functional.affine_grid(theta[None], [1, *image.shape], align_corners=False)
    return functional.grid_sample(image[None], grid, align_corners=False)[0]
